"""A walk is a run of its system, its source's steps are in it in order, and a step that is not enabled is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from trystate.model import DeclarationError
from trystate.model.agent import examples as agent
from trystate.model.agent.vocabulary import Loop, WorkerState
from trystate.model.autograd.backward import examples as backward
from trystate.model.autograd.contexts import examples as contexts
from trystate.model.autograd.examples import note
from trystate.model.autograd.vocabulary import NodeKind
from trystate.model.checker import transitions_adapter as adapter
from trystate.model.checker.interpret import Interpreter
from trystate.model.checker.transitions_adapter import Running
from trystate.model.checker.walks import Taken, Walk, after, shown_by, walked
from trystate.model.language import State, SymbolicState, System, sometimes
from trystate.model.language.properties import Claim
from trystate.model.language.sorts import ordinal
from trystate.model.rendezvous import examples as rendezvous
from trystate.model.rendezvous.fields import Condition
from trystate.model.rendezvous.vocabulary import EtcdRound, Membership, Operation
from trystate.model.store import examples as store
from trystate.model.store.vocabulary import Serving, Watcher
from trystate.model.store.watches import Watches
from trystate.property_tests.support.mutants import Mutant, replaced, survivors
from trystate.property_tests.support.runs import assert_is_a_run
from trystate.registry import WALKS

# How many steps the source numbers in its figure; a walk without numbers has a figure without numbers.
NUMBERED = {
    "scale-up-newcomer": 5, "scale-up-noticed": 9, "restart-with-newcomer": 7, "scale-down": 10,
    "scale-down-no-restart-left": 4, "set-and-watch-key": 6, "context-shared": 7, "fast-pass": 7, "set-and-callback": 4,
    "etcd-round": 4,
}  # fmt: skip


def values(walk: Walk, cell: str) -> list[int]:
    """The values of a cell, from the state in which the walk begins."""
    system = walk.run.build()
    return [state[system.positions[cell]] for state in walked(walk, system).path.states]


def last(walk: Walk, field: str) -> list[int]:
    """The values of a field's cells at the end of the walk."""
    system = walk.run.build()
    state = walked(walk, system).path.states[-1]
    return [state[place] for cell, place in system.positions.items() if cell.partition("[")[0] == field]


@pytest.mark.parametrize("walk", WALKS, ids=lambda walk: walk.name)
def test_each_step_of_a_walk_is_enabled_where_it_is_taken(walk: Walk) -> None:
    system = walk.run.build()
    path = walked(walk, system).path
    assert_is_a_run(system, path, begins=after(system, walk.before))
    assert len(path.steps) == len(walk.steps) == len(walk.notes)


@pytest.mark.parametrize("walk", WALKS, ids=lambda walk: walk.name)
def test_the_numbered_steps_of_the_source_are_in_the_walk_in_their_order(walk: Walk) -> None:
    numbers = [number for taken in walk.steps for number in taken.of]
    firsts = [*dict.fromkeys(numbers)]
    branch = {"scale-down": [3, 4]}.get(walk.name, [])  # 3 and 4 are what happens when no restart is left
    assert firsts == [k for k in range(1, NUMBERED.get(walk.name, 0) + 1) if k not in branch]


@pytest.mark.parametrize("walk", WALKS, ids=lambda walk: walk.name)
def test_a_walk_without_one_of_its_steps_is_refused_or_another_run(walk: Walk) -> None:
    """No step of a walk stands there for nothing; a daemon that ends forgets all, so that its end is left out."""
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


@pytest.mark.parametrize("walk", WALKS, ids=lambda walk: walk.name)
def test_a_walk_ends_where_its_witness_is_true_and_not_before_its_last_steps(walk: Walk) -> None:
    """The reference says so of the states that are drawn; a walk that stops earlier is refused, if that is earlier."""
    system = walk.run.build()
    path, expr, holds = walked(walk, system).path, shown_by(walk, system).exprs[0], Interpreter(system).holds
    seen = [holds(expr, state) for state in path.states]
    assert seen[-1] and not seen[0]
    first_step = replace(walk, steps=walk.steps[: seen.index(True) - 1])
    with pytest.raises(DeclarationError, match=f"^{walk.name}: {shown_by(walk, system).name} is not true where the"):
        walked(first_step, system)


@sometimes()
def nothing_is_watched(system: Watches, s: SymbolicState) -> Condition:
    """Nobody watches."""
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


def test_a_wrong_export_to_the_library_shows_in_the_walks() -> None:
    """A walk's states are the library's: its picture changes with them, or it is refused."""
    step = replace(store.SET_AND_WATCH_KEY, steps=(Taken("watch_key(0, 0)"), Taken("run_callback(0)")))
    right = walked(store.SET_AND_WATCH_KEY)

    def arcs_but(some: Callable[[str, str], bool]) -> Mutant:
        return replaced(adapter, "_arcs", lambda *args: (pair for pair in arcs(*args) if not some(*pair)))

    arcs = adapter._arcs
    mutants = {
        "no guard": replaced(Running, "_leads", lambda self, instance, dest, event: True),
        "no effect": replaced(Running, "_take", lambda self, instance, event: None),
        "no claimed move": arcs_but(lambda source, dest: source != dest),
        "no step that stays": arcs_but(lambda source, dest: source == dest),
    }

    def walks() -> None:
        assert walked(store.SET_AND_WATCH_KEY) == right
        with pytest.raises(DeclarationError, match="no step run_callback"):
            walked(step)

    assert survivors(mutants, walks) == []


@pytest.mark.parametrize("before", ["register(0, 0)", "watch_key(0, 0) fly(0)"])
def test_a_step_before_a_walk_that_is_not_taken_is_refused(before: str) -> None:
    with pytest.raises(DeclarationError, match=r"set-and-watch-key: no step"):
        walked(replace(store.SET_AND_WATCH_KEY, before=before))
    with pytest.raises(DeclarationError, match=r"^no step"):
        after(store.ONE.build(), before)


def test_the_callback_runs_in_the_sixth_step() -> None:
    assert values(store.SET_AND_WATCH_KEY, "watcher[0]").index(ordinal(Watcher.NOTIFIED)) == 6


def test_another_worker_sets_what_the_callback_is_for() -> None:
    assert last(store.CALLBACK, "watcher") == [ordinal(Watcher.NOTIFIED), ordinal(Watcher.UNREGISTERED)]
    assert values(store.CALLBACK, "told[0][0]")[-2:] == [1, 2], "the first set was before the watch"


def test_the_third_node_joins_while_the_last_call_runs_and_ranks_are_in_order() -> None:
    assert values(rendezvous.LAST_CALL, "deadline")[2:6] == [1, 1, 2, 0]
    assert values(rendezvous.LAST_CALL, "member[2]")[2:4] == [
        *map(ordinal, (Membership.OUTSIDE, Membership.PARTICIPANT))
    ]
    assert last(rendezvous.LAST_CALL, "saw_rank") == [0, 1, 2]


def test_a_round_of_etcd_goes_through_its_four_stages() -> None:
    stages = (EtcdRound.NONE, EtcdRound.SETUP, EtcdRound.JOINABLE, EtcdRound.FROZEN, EtcdRound.FINAL)
    assert [*dict.fromkeys(values(rendezvous.FOUR_STAGES, "status"))] == [*map(ordinal, stages)]
    assert last(rendezvous.FOUR_STAGES, "confirmed") == [1, 1]


def test_the_master_serves_each_request_and_is_gone_in_the_end() -> None:
    assert values(store.MASTER_RUNS, "first")[5:9] == [0, 0, 2, 1]
    assert last(store.MASTER_RUNS, "serving") == [ordinal(Serving.ENDED)]


def test_an_executor_syncs_decides_acts_and_syncs_again() -> None:
    seen = values(rendezvous.EXECUTOR_RUNS, "operation[0]")
    o = Operation
    assert seen == [*map(ordinal, (o.IDLE, o.SYNCING, o.DECIDING, o.ACTING, o.SYNCING, o.DECIDING, o.FINISHED, o.IDLE))]
    assert values(rendezvous.EXECUTOR_RUNS, "dirty[0]") == [0, 0, 0, 0, 1, 0, 0, 0], "what is acted on is marked dirty"


def test_the_newcomer_is_on_the_wait_list_of_two_that_run() -> None:
    waits = [*map(ordinal, (Membership.PARTICIPANT, Membership.PARTICIPANT, Membership.WAITING))]
    assert last(rendezvous.SCALE_UP, "member") == last(agent.SCALE_UP, "member") == waits


def test_two_agents_are_about_to_restart_healthy_workers_for_it() -> None:
    assert last(agent.SCALE_UP, "loop") == [*map(ordinal, (Loop.RESTARTING, Loop.RESTARTING, Loop.JOINING))]
    assert values(agent.SCALE_UP, "workers[0]")[2:4] == [*map(ordinal, (WorkerState.HEALTHY, WorkerState.STOPPED))]


def test_after_the_restart_three_run_and_no_restart_is_spent() -> None:
    assert last(agent.RESTART, "workers") == [ordinal(WorkerState.HEALTHY)] * 3
    assert last(agent.RESTART, "member") == [ordinal(Membership.PARTICIPANT)] * 3
    assert last(agent.RESTART, "spent") == [0]


def test_after_the_loss_of_one_two_run_and_a_restart_is_spent() -> None:
    assert last(agent.SCALE_DOWN, "current") == [1, 1, 0]
    assert last(agent.SCALE_DOWN, "spent") == [1]
    assert last(agent.NO_RESTART_LEFT, "loop") == [*map(ordinal, (Loop.MONITORING, Loop.MONITORING, Loop.LEFT))]


def test_sender_and_receiver_have_the_context() -> None:
    assert last(contexts.SHARED, "has") == [1, 1]


def test_the_gradients_of_the_three_leaves_are_in_the_context_when_backward_returns() -> None:
    system = backward.NOTE.build()
    leaves = [k for k, node in enumerate(note().nodes) if node.kind is NodeKind.ACCUMULATE]
    assert [note().nodes[k].label for k in leaves] == ["t1", "t2", "t4"]
    grads = last(backward.FAST, "grads")
    cells = [cell for cell in system.positions if cell.startswith("grads[")]
    assert [grads[cells.index(f"grads[{k}]")] for k in leaves] == [note().paths[k] for k in leaves] == [2, 2, 1]


def test_the_words_of_a_step_are_in_every_form_of_the_picture(drawn: Callable[[Walk, System], list[str]]) -> None:
    walk = contexts.SHARED
    for text in drawn(walk, walk.run.build()):
        assert "getOrCreateContext" in text
        assert "source 4, 5, 6, 7" in text


@pytest.fixture
def drawn() -> Callable[[Walk, System], list[str]]:
    from trystate import diagrams

    return lambda walk, system: [
        draw(system, walked(walk, system), notes=walk.notes)
        for draw in (diagrams.sequence_dot, diagrams.sequence_mermaid, diagrams.sequence_text)
    ]
