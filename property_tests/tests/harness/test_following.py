"""A log is followed on a system exactly if a run of the reference interpreter explains it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from trystate import following
from trystate.following import Following
from trystate.model.checker.steps import Steps
from trystate.model.errors import LimitReached, UsageError
from trystate.model.language import State, System
from trystate.property_tests.support.mutants import rewritten, survivors
from trystate.property_tests.support.nightly import examples
from trystate.property_tests.support.systems.lock import Edition, Lock
from trystate.property_tests.support.systems.random_systems import Declaration, declarations, system
from trystate.testing import Disagreement, follow
from trystate.walking import Walk

Logs = st.tuples(declarations(), st.randoms(use_true_random=False))


def cells(built: System, state: State) -> dict[str, Any]:
    return {cell.name: cell.sort.show(value) if cell.sort.labels else value
            for cell, value in zip(built.cells, state, strict=True)}  # fmt: skip


@settings(max_examples=examples(6))
@given(Logs)
def test_each_run_is_followed_with_hidden_steps_and_cells(drawn: tuple[Declaration, Any]) -> None:
    built, random = system(drawn[0]), drawn[1]
    walk = Walk(built, random.randrange(len(built.initial_states)))
    walk.wander(8, random)
    hidden = {t.name for t in built.transitions if random.random() < 0.4}
    log: list[Any] = [{"cells": cells(built, walk.stops[0].state)}]
    for stop in walk.stops[1:]:
        assert stop.instance is not None
        step = stop.instance.transition
        log.append({"cells": cells(built, stop.state)})
        if step.name not in hidden:
            indices = {
                p.name: k for p, k in zip(step.params, stop.instance.indices, strict=True) if random.random() < 0.5
            }
            log[-1] |= {"step": step.name, **indices}
    followed = follow(built, log, hidden)
    assert followed.states == (walk.state,) and followed.events == len(log)
    again = Walk(built, followed.initial)
    again.follow(" ".join(followed.labels))
    assert again.state == walk.state


@settings(max_examples=examples(6))
@given(Logs)
def test_a_step_is_refused_exactly_if_no_possible_state_allows_it(drawn: tuple[Declaration, Any]) -> None:
    built, random = system(drawn[0]), drawn[1]
    assume(len(built.initial_states) == 1)
    walk = Walk(built)
    walk.wander(4, random)
    allowed = {instance.label for instance, _ in walk.enabled()}
    for label in walk.instances:
        followed = Following(built)
        for step in walk.labels:
            followed.see(step)
        if label in allowed:
            followed.see(label)
        else:
            with pytest.raises(Disagreement, match="is not enabled"):
                followed.see(label)
            assert followed.states == (walk.state,)


LOCK = Lock(edition=Edition.MENDED)
MUTANTS = {
    "hidden steps are not taken": rewritten(Following._after_hidden, "(todo, self._hidden)", "(todo, ())"),
    "only one hidden step is taken": rewritten(Following._after_hidden, "found |= todo", "return found | todo"),
    "the values of an event are not compared": rewritten(Following.see, "wanted.cells,", "{},"),
    "the states before an event remain": rewritten(Following.see, "self._possible = kept", "self._possible |= kept"),
    "the index of a step is not compared": rewritten(Steps.called, "== member for", "is not None for"),
    "an event without a step takes none": rewritten(Following.see, "if wanted.steps else before", "or before"),
}


def test_a_wrong_rule_of_following_is_noticed() -> None:
    def judge() -> None:
        log: list[Any] = [{"step": "leave", "node": 0}, {"cells": {"at[1]": "GONE"}}]
        labels = follow(LOCK, log, ["enter", "leave"]).labels
        assert sorted(labels) == ["enter(0)", "enter(1)", "leave(0)", "leave(1)"]
        unexplained: tuple[Any, ...] = ({"step": "enter", "node": 1}, {"cells": {"at[0]": "OUTSIDE"}})
        for event in unexplained:
            with pytest.raises(Disagreement):
                follow(LOCK, ["enter(0)", event])

    assert survivors(MUTANTS, judge) == []


@pytest.mark.parametrize(
    ("events", "message"),
    [
        (["enter(0)", "enter(1)"], r"enter\(1\) is not possible after 1 events: enter\(1\) is not enabled: .*INSIDE"),
        ([{"step": "enter", "cells": {"at[0]": "GONE"}}],
         r"in none of 2 possible states; in one of them, a cell has another value: at\[0\]: model INSIDE, event GONE"),
        ([{"cells": {"at[1]": "INSIDE"}}], r"at\[1\]: model OUTSIDE, event INSIDE"),
    ],
)  # fmt: skip
def test_an_event_that_no_run_explains_is_refused_with_the_reason(events: list[Any], message: str) -> None:
    with pytest.raises(Disagreement, match=message):
        follow(LOCK, events)


@pytest.mark.parametrize(
    ("event", "message"),
    [
        ("entr(0)", "no step 'entr': did you mean enter?"),
        ({"step": "enter", "nod": 0}, "no index of enter 'nod': did you mean node?"),
        ({"step": "enter", "node": 5}, r"has no step enter, node=5: enter has node from 0 to 1"),
        ({"cells": {"at[0]": "INSDE"}}, r"the event has at\[0\]: 'INSDE', not a value of it"),
        ({"cells": {"att[0]": "INSIDE"}}, r"the event has the cell 'att\[0\]', .* did you mean 'at\[0\]'"),
        ({"node": 1, "cells": {"at[0]": "GONE"}}, "has node without a step"),
        ({}, "neither the name of a step nor a mapping of cells"),
        (7, "an event is 7: give the label of a step"),
    ],
)
def test_an_event_with_a_wrong_name_is_refused(event: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        follow(LOCK, [event])


def test_a_log_that_shows_too_little_ends_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "STATES_MAX", 3)
    with pytest.raises(LimitReached, match="more than 3 states are possible after 0 events: let the log show more"):
        follow(LOCK, [{"cells": {"at[0]": "GONE"}}], ["enter", "leave"])
    monkeypatch.setattr(following, "STATES_MAX", 0)
    with pytest.raises(LimitReached, match="more than 0 states"):
        follow(LOCK, ["enter(0)"])
