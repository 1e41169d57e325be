"""A walk is a run of its system, its source's steps are in it in order, and a step that is not enabled is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trystate.model import DeclarationError
from trystate.model.checker.interpret import Interpreter
from trystate.model.checker.walks import Taken, Walk, after, shown_by, walked
from trystate.model.language import Condition, State, SymbolicState, sometimes
from trystate.model.language.properties import Claim
from trystate.model.store import examples as store
from trystate.model.store.vocabulary import Watcher
from trystate.model.store.watches import Watches
from trystate.property_tests.support.runs import assert_is_a_run
from trystate.registry import WALKS

# The number of steps in the source's figure; a walk that is not listed has a figure without numbers.
NUMBERED = {
    "scale-up-newcomer": 5, "scale-up-noticed": 9, "restart-with-newcomer": 7, "scale-down": 10,
    "scale-down-no-restart-left": 4, "set-and-watch-key": 6, "context-shared": 7, "fast-pass": 7, "set-and-callback": 4,
}  # fmt: skip
every_walk = pytest.mark.parametrize("walk", WALKS, ids=lambda walk: walk.name)


@every_walk
def test_each_step_of_a_walk_is_enabled_where_it_is_taken(walk: Walk) -> None:
    system = walk.run.build()
    path = walked(walk, system).path
    assert_is_a_run(system, path, begins=after(system, walk.before))
    assert len(path.steps) == len(walk.steps) == len(walk.notes)


@every_walk
def test_the_numbered_steps_of_the_source_are_in_the_walk_in_their_order(walk: Walk) -> None:
    firsts = [*dict.fromkeys([number for taken in walk.steps for number in taken.of])]
    branch = {"scale-down": [3, 4]}.get(walk.name, [])  # 3 and 4 happen when no restart is left
    assert firsts == [k for k in range(1, NUMBERED.get(walk.name, 0) + 1) if k not in branch]


@every_walk
def test_a_walk_without_one_of_its_steps_is_refused_or_another_run(walk: Walk) -> None:
    """No step of a walk is superfluous. A daemon that ends forgets everything, so its end is left out."""
    system = walk.run.build()
    steps = tuple(taken for taken in walk.steps if taken.step not in ("end", "finish"))

    def end(*parts: tuple[Taken, ...]) -> State:
        return after(system, " ".join([walk.before, *(taken.step for part in parts for taken in part)]))

    whole = end(steps)
    for k in range(len(steps)):
        try:
            assert end(steps[:k], steps[k + 1 :]) != whole
        except DeclarationError:
            continue


@every_walk
def test_a_walk_ends_at_its_witness_and_not_before_its_last_steps(walk: Walk) -> None:
    """The drawn walks end at their witness. A walk that stops before its witness first holds is refused."""
    system = walk.run.build()
    path, expr, holds = walked(walk, system).path, shown_by(walk, system).exprs[0], Interpreter(system).holds
    seen = [holds(expr, state) for state in path.states]
    assert seen[-1] and not seen[0]
    first_step = replace(walk, steps=walk.steps[: seen.index(True) - 1])
    with pytest.raises(DeclarationError, match=f"^{walk.name}: {shown_by(walk, system).name} is not true where the"):
        walked(first_step, system)


@sometimes()
def nothing_is_watched(system: Watches, s: SymbolicState) -> Condition:
    """No client watches."""
    return s.watcher.count(Watcher.UNREGISTERED) == 1


def test_a_walk_to_another_witness_is_refused() -> None:
    wrong: dict[str | Claim, str] = {
        "two_events_wait": "two_events_wait is not true where the walk ends, in",
        "a_watch_ends": "no witness 'a_watch_ends': known are a_change_is_made, a_watch_returns",
        nothing_is_watched: "nothing_is_watched is true where the walk begins",
    }
    for witness, why in wrong.items():
        with pytest.raises(DeclarationError, match=f"^set-and-watch-key: {why}"):
            walked(replace(store.SET_AND_WATCH_KEY, witness=witness))


@pytest.mark.parametrize("step", ["run_callback(0)", "run_callback(7)", "fly(0)"])
def test_a_step_that_is_not_taken_is_refused(step: str) -> None:
    wrong = replace(store.SET_AND_WATCH_KEY, steps=(Taken("watch_key(0, 0)"), Taken(step)))
    with pytest.raises(DeclarationError, match=r"set-and-watch-key: no step .* after watch_key\(0, 0\), in"):
        walked(wrong)


@pytest.mark.parametrize("before", ["register(0, 0)", "watch_key(0, 0) fly(0)"])
def test_a_step_before_a_walk_that_is_not_taken_is_refused(before: str) -> None:
    with pytest.raises(DeclarationError, match=r"set-and-watch-key: no step"):
        walked(replace(store.SET_AND_WATCH_KEY, before=before))
    with pytest.raises(DeclarationError, match=r"^no step"):
        after(store.ONE.build(), before)
