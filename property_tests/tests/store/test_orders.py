"""The second judge of histories: on known good and bad ones, and beside the model's judge on random ones."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trystate.model.checker.linearizability import Call, Linearization, judge
from trystate.model.store import reference as ref
from trystate.model.store.reference import Operation, Refusal, Result
from trystate.model.store.sequential import specification
from trystate.property_tests.support.stores.orders import LATE, MEANINGS, NOTHING, Seen, explained, unexplained


def did(process: str, name: str, *arguments: Any, at: int, to: int | None, gave: Any = None, key: str = "x") -> Seen:
    return Seen(process, name, key, arguments, at, to, gave)


GOOD = {
    "nothing": [],
    "a read of a write that is under way": [did("A", "set", b"1", at=0, to=9), did("B", "get", at=1, to=2, gave=b"1")],
    "a read before a write that is under way": [
        did("A", "set", b"1", at=0, to=9),
        did("B", "get", at=1, to=2, gave=LATE),
        did("B", "get", at=3, to=4, gave=b"1"),
    ],
    "two pushes in either order (Herlihy and Wing 1990, H1)": [
        did("A", "push", b"x", at=0, to=3),
        did("B", "push", b"y", at=1, to=5),
        did("A", "pop", at=6, to=9, gave=b"x"),
        did("C", "pop", at=7, to=8, gave=b"y"),
    ],
    "a lost write that happens late": [
        did("A", "set", b"1", at=0, to=None),
        did("B", "get", at=5, to=6, gave=LATE),
        did("B", "get", at=7, to=8, gave=b"1"),
    ],
    "a lost write that never happens": [did("A", "set", b"1", at=0, to=None), did("B", "get", at=5, to=6, gave=LATE)],
    "a lost pop that happened": [
        did("A", "push", b"x", at=0, to=1),
        did("B", "pop", at=2, to=None),
        did("A", "pop", at=3, to=4, gave=NOTHING),
    ],
    "of three lost adds two": [
        *[did(f"L{n}", "add", 1, at=0, to=None) for n in range(3)],
        did("A", "add", 1, at=1, to=2, gave=3),
        did("A", "get", at=3, to=4, gave=b"3"),
    ],
    "compare_set of an absent key": [
        did("A", "compare_set", b"?", b"1", at=0, to=1, gave=b"?"),
        did("A", "check", at=2, to=3, gave=False),
        did("A", "compare_set", b"", b"1", at=4, to=5, gave=b"1"),
        did("A", "compare_set", b"0", b"2", at=6, to=7, gave=b"1"),
        did("A", "delete", at=8, to=9, gave=True),
        did("A", "delete", at=10, to=11, gave=False),
    ],
}
BAD = {
    "a stale read": [
        did("A", "set", b"1", at=0, to=1),
        did("A", "set", b"2", at=2, to=3),
        did("B", "get", at=4, to=5, gave=b"1"),
    ],
    "a write that is lost": [did("A", "set", b"1", at=0, to=1), did("B", "get", at=2, to=3, gave=LATE)],
    "a write that comes and goes": [
        did("A", "set", b"1", at=0, to=9),
        did("B", "get", at=1, to=2, gave=b"1"),
        did("B", "get", at=3, to=4, gave=LATE),
    ],
    "an add that counts twice": [did("A", "add", 1, at=0, to=None), did("B", "add", 1, at=5, to=6, gave=3)],
    "an add that is lost": [did("A", "add", 1, at=0, to=3, gave=1), did("B", "add", 1, at=1, to=4, gave=1)],
    "a pop out of order (Herlihy and Wing 1990, H2)": [
        did("A", "push", b"x", at=0, to=1),
        did("B", "push", b"y", at=2, to=3),
        did("A", "pop", at=4, to=5, gave=b"y"),
    ],
    "an element that is popped twice": [
        did("A", "push", b"x", at=0, to=1),
        did("A", "pop", at=2, to=5, gave=b"x"),
        did("B", "blocking_pop", at=3, to=4, gave=b"x"),
    ],
    "what was lost before it was asked for": [
        did("B", "get", at=0, to=1, gave=b"1"),
        did("A", "set", b"1", at=2, to=None),
    ],
    "two winners": [
        did("A", "compare_set", b"", b"a", at=0, to=3, gave=b"a"),
        did("B", "compare_set", b"", b"b", at=1, to=4, gave=b"b"),
    ],
    "an append that is torn": [did("A", "append", b"12", at=0, to=9), did("B", "get", at=1, to=2, gave=b"1")],
    "a wait that ends for nothing": [did("A", "wait", at=0, to=1)],
    "a queue that is longer than it was": [did("A", "push", b"x", at=0, to=1), did("A", "length", at=2, to=3, gave=2)],
}


@pytest.mark.parametrize("name", GOOD)
def test_a_good_history_is_explained(name: str) -> None:
    assert explained(GOOD[name])


@pytest.mark.parametrize("name", BAD)
def test_a_bad_history_is_not(name: str) -> None:
    assert not explained(BAD[name])


def test_keys_are_judged_one_by_one_and_the_bad_ones_are_named() -> None:
    history = [did("A", "set", b"1", at=0, to=1, key=key) for key in "ab"]
    history += [did("A", "get", at=2, to=3, gave=b"2", key="a"), did("B", "get", at=2, to=3, gave=b"1", key="b")]
    assert unexplained(history) == ["a"]


# ---- beside the model's judge

MODELS: dict[str, Any] = {
    "set": ref.Set, "get": ref.Get, "add": ref.AddTo, "append": ref.Append, "compare_set": ref.CompareAndSet,
    "delete": ref.DeleteKey, "check": lambda key: ref.Check((key,)), "wait": lambda key: ref.Wait((key,)),
    "push": ref.QueuePush, "pop": lambda key: ref.QueuePop(key, False), "length": ref.QueueLen,
    "blocking_pop": lambda key: ref.QueuePop(key, True),
}  # fmt: skip
OUTCOMES = {LATE: Refusal.TIMED_OUT, NOTHING: Refusal.EMPTY}
DIGITS = st.sampled_from([b"1", b"2"])
ARGUMENTS: dict[str, st.SearchStrategy[tuple[Any, ...]]] = {
    "set": st.tuples(DIGITS),
    "append": st.tuples(DIGITS),
    "push": st.tuples(DIGITS),
    "add": st.tuples(st.sampled_from([1, 2])),
    "compare_set": st.tuples(st.sampled_from([b"", b"1", b"2"]), DIGITS),
}


def as_call(seen: Seen) -> Call[Operation, Result]:
    outcome = OUTCOMES.get(seen.outcome, seen.outcome) if isinstance(seen.outcome, str) else seen.outcome
    return Call(seen.process, MODELS[seen.name](seen.key, *seen.arguments), seen.invoked, seen.returned, outcome)


@st.composite
def histories(draw: st.DrawFn) -> list[Seen]:
    """Operations done one after the other on a store, each at a moment of its own; then a few outcomes are changed.

    Most of those that are not changed are linearizable by construction, hence both verdicts occur.
    """
    state: Any = (None, ())
    found = []
    for moment in range(draw(st.integers(1, 7))):
        name = draw(st.sampled_from(list(MEANINGS)))
        arguments = draw(ARGUMENTS.get(name, st.just(())))
        lost = draw(st.integers(0, 4)) == 0
        if not lost or draw(st.booleans()):
            state, outcome = MEANINGS[name](state, *arguments)
        begin = moment * 10 - draw(st.integers(0, 25))
        end = moment * 10 + draw(st.integers(0, 25))
        if draw(st.integers(0, 9)) == 0 and not lost:
            outcome = draw(st.sampled_from([True, False, None, 1, 2, b"1", b"2", b"12", LATE, NOTHING]))
        lost_call = did(f"p{moment}", name, *arguments, at=begin, to=None)
        found.append(lost_call if lost else did(f"p{moment}", name, *arguments, at=begin, to=end, gave=outcome))
    return found


@given(histories())
def test_both_judges_agree(history: list[Seen]) -> None:
    assert explained(history) == isinstance(judge(map(as_call, history), specification()), Linearization)
