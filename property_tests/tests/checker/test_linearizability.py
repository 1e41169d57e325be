"""Linearizability: histories from the literature, and a search through every order to check the judge."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from itertools import combinations, permutations
from typing import Any

import pytest
from hypothesis import HealthCheck, find, given, settings
from hypothesis import strategies as st

from trystate.diagrams import history_dot, history_mermaid, history_text
from trystate.model.checker.linearizability import (
    Broken,
    Call,
    Linearization,
    Specification,
    _Search,
    judge,
    operation_text,
    prefix,
)
from trystate.model.errors import LimitReached, UsageError
from trystate.model.store import reference as ref
from trystate.model.store.reference import Operation, Refusal, Result
from trystate.model.store.sequential import keys
from trystate.model.store.sequential import specification as store
from trystate.property_tests.support.mutants import rewritten, survives
from trystate.property_tests.support.nightly import examples

POP = "QueuePop('x', False)"
AB = ("a", "b")
History = Sequence[Call[Operation, Result]]
NAMED: dict[str, Callable[..., Operation]] = {
    "set": ref.Set, "get": ref.Get, "add": ref.AddTo, "append": ref.Append, "compare_set": ref.CompareAndSet,
    "push": ref.QueuePush, "pop": lambda key: ref.QueuePop(key, False), "multi_set": lambda _, *v: ref.MultiSet(AB, v),
    "multi_get": lambda _: ref.MultiGet(AB),
}  # fmt: skip


def call(text: str) -> Call[Operation, Result]:
    """A call from text (process, times, operation, values, outcome), such as `A 0-3 push x` or `B 5- q.pop = x`."""
    asked, _, outcome = text.partition(" = ")
    process, when, what, *given = asked.split()
    key, _, name = what.rpartition(".")
    at, _, to = when.partition("-")
    found = [int(v) if name == "add" else v.replace("''", "").encode() for v in (*given, *outcome.split())]
    gave: Any = tuple(found[len(given) :]) if name == "multi_get" else found[-1] if outcome else None
    gave = Refusal.TIMED_OUT if gave == b"timed_out" else gave
    return Call(process, NAMED[name](key or "x", *found[: len(given)]), float(at), float(to) if to else None, gave)


def calls(text: str) -> list[Call[Operation, Result]]:
    return [call(one) for one in text.split("; ")]


def broken(text: str) -> Broken[Operation, Result]:
    verdict = judge(calls(text), store())
    assert isinstance(verdict, Broken)
    return verdict


ONCE = "A 0-4 push x; B 1-3 pop = x; C 2-6 pop = x"  # the fourth history of Herlihy and Wing
# The first ones are from Herlihy and Wing, "Linearizability: A Correctness Condition for Concurrent Objects" (1990),
# sections 1.2, 2 and 4.1, and the regular register is from Lamport, "On Interprocess Communication" (1986). A right
# history has the first call of its order; a wrong one has the last call of its prefix, and the possible result.
HISTORIES: dict[str, tuple[str, str | tuple[Any, ...]]] = {
    "a queue is not last in first out": ("A 0-1 push x; B 2-3 push y; A 4-5 pop = y", ("A 4-5 pop = y", b"x")),
    "an element is popped once": (ONCE, ("C 2-6 pop = x", Refusal.EMPTY)),
    "a stale read is sequentially consistent": ("A 0-1 set 1; B 2-3 get = timed_out", ("B 2-3 get = timed_out", b"1")),
    "a regular register is not atomic": (
        "W 0-1 set 0; W 2-9 set 1; R 3-4 get = 1; R 5-6 get = 0", ("R 5-6 get = 0", b"1")),
    "a pending call happens once": ("A 0- add 1; B 5-6 add 0 = 1; B 7-8 add 0 = 2", ("B 7-8 add 0 = 2", 1)),
    "a prefix does not know what comes after it": (
        "A 0-9 add 1 = 2; B 1-2 add 0 = 1; B 20-21 add 0 = 1", ("A 0-9 add 1 = 2", 1)),
    "values set together are not seen apart": (
        "A 0-9 multi_set 1 1; B 1-2 b.get = 1; B 3-4 a.get = timed_out; C 1-2 c.set 1",
        ("B 3-4 a.get = timed_out", b"1")),
    "a thousand calls of eight processes": (
        "; ".join(f"P{k % 8} {k // 8 * 10}-{k // 8 * 10 + 8} add 1 = {k // 8 * 8 + 1 + (k + k // 8) % 8}"
                  for k in range(1000)),
        "AddTo('x', 1)"),
}  # fmt: skip


@pytest.mark.parametrize("name", HISTORIES)
def test_a_history_of_the_literature_is_judged_as_it_is_there(name: str) -> None:
    text, expected = HISTORIES[name]
    if isinstance(expected, str):
        verdict = judge(calls(text), store())
        assert isinstance(verdict, Linearization)
        assert operation_text(verdict.order[0].call.operation).startswith(expected)
        assert len(verdict.order) >= sum(not one.pending for one in calls(text))
    else:
        culprit, *possible = expected
        found = broken(text)
        assert (found.culprit, found.possible) == (call(str(culprit)), tuple(possible))
        assert call("C 1-2 c.set 1") not in found.calls, "nothing connects it with the others"


def test_the_prefix_ends_where_the_first_impossible_call_returns() -> None:
    later = "".join(f"; A {20 + 2 * k}-{21 + 2 * k} set 9" for k in range(5))
    found = broken(f"A 0-1 set 1; B 3-12 set 2; C 4-5 get = 7{later}")
    assert found.calls == (*calls("A 0-1 set 1; B 3- set 2; C 4-5 get = 7"),)
    assert [operation_text(p.call.operation) for p in found.order] == ["Set('x', b'1')"]
    assert found.possible == (b"1", b"2")
    assert "C: Get('x') returned b'7'" in found.explanation


@pytest.mark.parametrize(
    ("history", "text"),
    [
        ("A 3-2 get", "monotonic clock"),
        ("A 0-5 get; A 4-6 get", "different process names"),
        ("A 0- get; A 4-6 get", "a new process name"),
        ("A 0- get = 1", "no time of return"),
    ],
)
def test_an_impossible_history_is_refused(history: str, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        judge(calls(history), store())


def test_a_search_that_grows_too_large_says_so() -> None:
    history = calls("; ".join([f"P{k} 0- append {k}" for k in range(9)] + ["R 1-2 get = nothing"]))
    with pytest.raises(LimitReached, match=r"more than 500 configurations of 10 calls.*raise configurations_max"):
        judge(history, store(), configurations_max=500)


def test_a_decision_before_a_limit_is_not_thrown_away() -> None:
    """The shortest prefix may need more configurations than the whole history, and another key more than both."""
    number: Any = Specification(0, lambda s, o: [(o[1], None)] if o[0] == "w" else [(s, s)], keys=lambda o: [o[-1]])

    def calls_of(key: str, value: int) -> list[Call[Any, Any]]:
        writes: list[Any] = [Call(f"{key}{k}", ("w", k + 1, key), 0.0) for k in range(10)]
        return [*writes, Call(f"{key}r", ("r", key), 1.0, 2.0, value)]

    wrong, wide = calls_of("a", 99), calls_of("b", 5)
    found = judge(wrong, number, configurations_max=5_200)
    assert isinstance(found, Broken) and not found.whole and "was not searched to the end" in found.explanation
    with pytest.raises(LimitReached):
        judge(wide, number, configurations_max=3)
    assert isinstance(judge([*wrong[-1:], *wide], number, configurations_max=3), Broken)


def test_a_broken_history_is_drawn_with_a_lane_for_each_process() -> None:
    found = broken(ONCE)
    text = history_text(found).splitlines()
    assert [line[0] for line in text[:3]] == ["A", "B", "C"]
    assert f"✗ {POP} → b'x'" in text[2]
    assert text[3].endswith("▲ cannot be placed")
    assert text[3].index("▲") == text[2].index("├")
    assert text[-3:] == ["The longest order found:", "  A: QueuePush('x', b'x')", f"  B: {POP} → b'x'"]
    dot, mermaid = history_dot(found), history_mermaid(found)
    assert (dot.count("✗"), mermaid.count(":crit,"), mermaid.count("section ")) == (1, 1, 3)


# A second judge: a search through every order of every choice of pending calls.
def linearizable(history: History, specification: Specification[Any, Operation, Result]) -> bool:
    done, pending = [c for c in history if not c.pending], [c for c in history if c.pending]
    chosen = (kept for n in range(len(pending) + 1) for kept in combinations(pending, n))
    return any(explains(o, specification) for kept in chosen for o in permutations([*done, *kept]))


def explains(order: Sequence[Call[Operation, Result]], specification: Specification[Any, Operation, Result]) -> bool:
    for k, later in enumerate(order):
        if later.returned is not None and any(later.returned < earlier.invoked for earlier in order[:k]):
            return False
    states: set[Hashable] = {specification.initial}
    for c in order:
        steps = (step for state in states for step in specification.step(state, c.operation))
        states = {after for after, outcome in steps if c.pending or outcome == c.outcome}
    return bool(states)


OUTCOMES: dict[Callable[[str], Operation], tuple[Result, ...]] = {
    lambda key: ref.Set(key, b"1"): (None,),
    lambda key: ref.Set(key, b"2"): (None,),
    lambda key: ref.Get(key): (b"1", b"2", Refusal.TIMED_OUT),
    lambda key: ref.DeleteKey(key): (True, False),
    lambda key: ref.CompareAndSet(key, b"1", b"2"): (b"1", b"2"),
    lambda key: ref.CompareAndSet(key, b"", b"1"): (b"1", b"2"),
}


@st.composite
def small_histories(draw: st.DrawFn, calls: int = 5) -> History:
    """Each event invokes an operation of an idle process, or lets a running one return."""
    begun: dict[int, tuple[int, Callable[[str], Operation], Operation]] = {}
    found: list[Call[Operation, Result]] = []
    for moment, process in enumerate(draw(st.lists(st.integers(0, 2), min_size=2, max_size=2 * calls))):
        if process in begun:
            at, kind, operation = begun.pop(process)
            found.append(Call(str(process), operation, at, moment, draw(st.sampled_from(OUTCOMES[kind]))))
        elif len(found) + len(begun) < calls:
            kind = draw(st.sampled_from(list(OUTCOMES)))
            begun[process] = moment, kind, kind(draw(st.sampled_from("xy")))
    return [*found, *(Call(str(process), operation, at) for process, (at, _, operation) in begun.items())]


@given(small_histories())
@settings(max_examples=examples(240))
def test_the_judge_agrees_with_a_search_through_every_order(history: History) -> None:
    check_judge(history)


def check_judge(history: History) -> None:
    specification = store()
    verdict = judge(history, specification)
    if isinstance(verdict, Linearization):
        done = [placed.call for placed in verdict.order]
        assert linearizable(history, specification)
        assert explains(done, specification)
        assert {c for c in history if not c.pending} <= set(done)
        assert all(p.call.invoked <= p.moment <= (p.call.returned or p.moment) for p in verdict.order)
        return
    assert not linearizable(history, specification)
    first = next(n for n in range(len(history) + 1) if not linearizable(prefix(history, n), specification))
    seen = tuple(c for c in prefix(history, first) if keys(c.operation) == keys(verdict.culprit.operation))
    assert verdict.calls == seen
    assert verdict.culprit == max(seen, key=lambda c: c.returned or -1)
    gave = {outcome for own in OUTCOMES.values() for outcome in own}
    for outcome in {*gave, *verdict.possible}:
        corrected = [replace(c, outcome=outcome) if c == verdict.culprit else c for c in seen]
        assert linearizable(corrected, specification) == (outcome in verdict.possible)


PUT = "sorted(still_open,"
MUTANTS = {
    "pending calls never happened": rewritten(
        _Search._openings, PUT, "sorted((k for k in still_open if not self.calls[k].pending),"
    ),
    "outcomes do not matter": rewritten(_Search._steps, "outcome == call.outcome", "True"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_mistake_of_the_judge_is_found_with_three_calls_at_most(name: str) -> None:
    found = find(
        small_histories(4),
        lambda history: not survives(MUTANTS[name], lambda: check_judge(history)),
        settings=settings(max_examples=3000, database=None, suppress_health_check=list(HealthCheck)),
    )
    assert len(found) <= 3
