"""Linearizability: histories from the literature, and a search through every order as the judge of the judge."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from trystate.diagrams import history_dot, history_mermaid, history_text, render
from trystate.diagrams.history import LABEL_MAX, lanes
from trystate.model.checker import linearizability as histories
from trystate.model.checker.linearizability import (
    Broken,
    Call,
    Linearization,
    Specification,
    judge,
    operation_text,
    prefix,
)
from trystate.model.errors import LimitReached, UsageError
from trystate.model.store import reference as ref
from trystate.model.store.reference import Operation, Refusal, Result
from trystate.model.store.sequential import keys
from trystate.model.store.sequential import specification as store
from trystate.property_tests.support.nightly import examples

POP = "QueuePop('x', False)"

History = Sequence[Call[Operation, Result]]


NAMED: dict[str, Callable[..., Operation]] = {
    "set": ref.Set, "get": ref.Get, "add": ref.AddTo, "append": ref.Append, "compare_set": ref.CompareAndSet,
    "delete": ref.DeleteKey, "push": ref.QueuePush, "pop": lambda key: ref.QueuePop(key, False),
}  # fmt: skip


def call(
    process: str, name: str, *arguments: bytes | int, at: float, to: float | None, gave: Result = None, key: str = "x"
) -> Call[Operation, Result]:
    return Call(process, NAMED[name](key, *arguments), at, to, gave)


def broken(history: History, specification: Specification[Any, Operation, Result]) -> Broken[Operation, Result]:
    verdict = judge(history, specification)
    assert isinstance(verdict, Broken)
    return verdict


def order(history: History, specification: Specification[Any, Operation, Result]) -> list[str]:
    verdict = judge(history, specification)
    assert isinstance(verdict, Linearization)
    return [operation_text(placed.call.operation) for placed in verdict.order]


# Herlihy and Wing, "Linearizability: A Correctness Condition for Concurrent Objects" (1990), section 1.2: queues.
H1 = [
    call("A", "push", b"x", at=0, to=3),
    call("B", "push", b"y", at=1, to=5),
    call("A", "pop", at=6, to=9, gave=b"x"),
    call("C", "pop", at=7, to=8, gave=b"y"),
]
H2 = [
    call("A", "push", b"x", at=0, to=1),
    call("B", "push", b"y", at=2, to=3),
    call("A", "pop", at=4, to=5, gave=b"y"),
]
H3 = [call("A", "push", b"x", at=0, to=2), call("B", "pop", at=1, to=4, gave=b"x")]
H4 = [
    call("A", "push", b"x", at=0, to=4),
    call("B", "pop", at=1, to=3, gave=b"x"),
    call("C", "pop", at=2, to=6, gave=b"x"),
]


def test_concurrent_pushes_may_be_popped_in_either_order() -> None:
    assert order(H1, store())[0] == "QueuePush('x', b'x')"


def test_a_queue_is_not_last_in_first_out() -> None:
    found = broken(H2, store())
    assert (found.culprit, found.possible) == (H2[2], (b"x",))


def test_a_pop_may_take_what_a_push_that_has_not_returned_brings() -> None:
    assert order(H3, store()) == ["QueuePush('x', b'x')", POP]


def test_an_element_is_popped_once() -> None:
    found = broken(H4, store())
    assert (found.culprit.process, found.possible) == ("C", (Refusal.EMPTY,))


# The same paper, sections 2 and 4.1: locality, and what sequential consistency lacks.
def test_two_queues_that_are_right_one_by_one_are_right_together() -> None:
    history = [
        call("A", "push", b"x", at=0, to=1, key="p"),
        call("B", "push", b"y", at=2, to=3, key="q"),
        call("A", "push", b"x", at=4, to=5, key="q"),
        call("B", "push", b"y", at=6, to=7, key="p"),
        call("A", "pop", at=8, to=9, gave=b"x", key="p"),
        call("B", "pop", at=8.5, to=9.5, gave=b"y", key="q"),
    ]
    assert len(order(history, store())) == 6


def test_a_stale_read_after_the_write_returned_is_impossible_though_sequentially_consistent() -> None:
    history = [call("A", "set", b"1", at=0, to=1), call("B", "get", at=2, to=3, gave=Refusal.TIMED_OUT)]
    found = broken(history, store())
    assert found.possible == (b"1",)
    assert "B: Get('x') returned timed out" in found.explanation
    assert "it could have been b'1'" in found.explanation


def test_a_new_value_is_not_followed_by_the_old_one() -> None:
    """Lamport, "On Interprocess Communication" (1986): a regular register that is not atomic."""
    history = [
        call("W", "set", b"0", at=0, to=1),
        call("W", "set", b"1", at=2, to=9),
        call("R", "get", at=3, to=4, gave=b"1"),
        call("R", "get", at=5, to=6, gave=b"0"),
    ]
    found = broken(history, store())
    assert found.culprit == history[3]
    assert order([*history[:2], history[3]], store()), "a read of either value alone is right"


def test_a_pending_call_may_have_happened() -> None:
    history = [call("A", "set", b"1", at=0, to=None), call("B", "get", at=5, to=6, gave=b"1")]
    assert order(history, store()) == ["Set('x', b'1')", "Get('x')"]


def test_a_pending_call_need_not_have_happened() -> None:
    history = [call("A", "set", b"1", at=0, to=None), call("B", "get", at=5, to=6, gave=Refusal.TIMED_OUT)]
    assert order(history, store()) == ["Get('x')"]


def test_a_pending_call_happens_once() -> None:
    history = [
        call("A", "add", 1, at=0, to=None),
        call("B", "add", 0, at=5, to=6, gave=1),
        call("B", "add", 0, at=7, to=8, gave=2),
    ]
    assert broken(history, store()).possible == (1,)


def test_of_two_compare_sets_from_one_value_one_wins() -> None:
    history = [
        call("A", "compare_set", b"", b"a", at=0, to=3, gave=b"a"),
        call("B", "compare_set", b"", b"b", at=1, to=4, gave=b"b"),
    ]
    assert broken(history, store()).possible == (b"a",)


def test_the_prefix_ends_where_the_first_impossible_call_returns() -> None:
    later = [call("A", "set", b"9", at=20 + 2 * k, to=21 + 2 * k) for k in range(5)]
    history = [
        call("A", "set", b"1", at=0, to=1),
        call("B", "set", b"2", at=3, to=12),
        call("C", "get", at=4, to=5, gave=b"7"),
        *later,
    ]
    found = broken(history, store())
    assert found.calls == (history[0], Call("B", ref.Set("x", b"2"), 3), history[2])
    assert [operation_text(p.call.operation) for p in found.order] == ["Set('x', b'1')"]
    assert found.possible == (b"1", b"2")


def test_a_prefix_does_not_know_the_outcomes_that_come_after_it() -> None:
    """With the whole history no place is left for the first read; what is impossible is seen at the second."""
    history = [
        call("A", "add", 1, at=0, to=9, gave=2),
        call("B", "add", 0, at=1, to=2, gave=1),
        call("B", "add", 0, at=20, to=21, gave=1),
    ]
    found = broken(history, store())
    assert found.culprit == history[0]
    assert found.possible == (1,)


def test_keys_are_judged_one_by_one_unless_an_operation_connects_them() -> None:
    calls = [call("A", "set", b"1", at=0, to=1, key=k) for k in "abc"]
    both = {"a": ("a", "b"), "b": ("b",), "c": ("c",)}
    assert len(histories.components(calls, keys)) == 3
    assert len(histories.components(calls, lambda do: both[str(*keys(do) or ())])) == 2
    assert len(histories.components(calls, lambda do: None)) == 1
    assert len(histories.components(calls, lambda do: ())) == 3


@pytest.mark.parametrize(
    ("history", "text"),
    [
        ([call("A", "get", at=3, to=2)], "monotonic clock"),
        ([call("A", "get", at=0, to=5), call("A", "get", at=4, to=6)], "process names of their own"),
        ([call("A", "get", at=0, to=None), call("A", "get", at=4, to=6)], "a new process name"),
        ([call("A", "get", at=0, to=None, gave=b"1")], "no time of return"),
    ],
)
def test_what_is_no_history_is_refused(history: History, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        judge(history, store())


def test_values_set_together_are_not_seen_apart() -> None:
    both = ref.MultiSet(("a", "b"), (b"1", b"1"))
    history: History = [
        Call("A", both, 0, 9),
        call("B", "get", at=1, to=2, gave=b"1", key="b"),
        call("B", "get", at=3, to=4, gave=Refusal.TIMED_OUT, key="a"),
        call("C", "set", b"1", at=1, to=2, key="c"),
    ]
    found = broken(history, store())
    assert found.possible == (b"1",)
    assert history[3] not in found.calls, "nothing connects it with the others"
    one: History = [Call("B", ref.MultiGet(("a", "b")), 5, 6, (b"1", b"1")), Call("A", both, 0, 9)]
    assert order(one, store()) == ["MultiSet(('a', 'b'), (b'1', b'1'))", "MultiGet(('a', 'b'))"]


def test_a_search_that_grows_too_large_says_so() -> None:
    history = [call(f"P{k}", "append", b"%d" % k, at=0, to=None) for k in range(9)]
    history.append(call("R", "get", at=1, to=2, gave=b"nothing like it"))
    with pytest.raises(LimitReached, match=r"more than 500 configurations of 10 calls.*raise configurations_max"):
        judge(history, store(), configurations_max=500)


def test_a_thousand_calls_of_eight_processes_are_judged() -> None:
    history = []
    for k in range(125):
        for p in range(8):
            history.append(call(f"P{p}", "add", 1, at=10 * k, to=10 * k + 8, gave=8 * k + 1 + (p + k) % 8))
    assert len(order(history, store())) == 1000


def test_a_broken_history_is_drawn_with_a_lane_for_each_process() -> None:
    found = broken(H4, store())
    text = history_text(found).splitlines()
    assert [line[0] for line in text[:3]] == ["A", "B", "C"]
    assert f"✗ {POP} → b'x'" in text[2]
    assert text[3].endswith("▲ cannot be placed")
    assert text[3].index("▲") == text[2].index("├")
    assert text[-3:] == ["The longest order found:", "  A: QueuePush('x', b'x')", f"  B: {POP} → b'x'"]
    dot, mermaid = history_dot(found), history_mermaid(found)
    assert (dot.count("✗"), mermaid.count(":crit,"), mermaid.count("section ")) == (1, 1, 3)


def test_only_the_last_calls_of_a_long_history_are_drawn(tmp_path: Path) -> None:
    earlier = [call("A<&>", "set", b"%d" % k, at=2 * k, to=2 * k + 1) for k in range(100)]
    found = broken([*earlier, call("B", "get", at=300, to=301, gave=b"none of them, and longer than a bar")], store())
    text = history_text(found)
    assert "(89 earlier calls are not drawn)" in text
    assert "The longest order found ends (after 92 calls):" in text
    render(history_dot(found), tmp_path / "history.svg")
    assert "section A#60;#38;#62;" in history_mermaid(found), "what Mermaid would read as markup is escaped"
    assert all(len(bar.label) <= LABEL_MAX + len("✗ ") for bars in lanes(found).bars.values() for bar in bars)


# The judge against a search through every order of every choice of pending calls.
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
    """Each event invokes an operation of a process that rests, or lets one return."""
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


def everything_is_concurrent(self: Any) -> Iterator[list[int]]:
    yield from (list(range(len(self.calls))) for _ in self.returns)


def pending_calls_never_happened(self: Any) -> Iterator[list[int]]:
    for moment, wanted in self.returns:
        may = [k for k, c in enumerate(self.calls) if c.invoked <= moment and (c.returned or -1) >= moment]
        yield sorted(may, key=lambda k: k == wanted)


def outcomes_do_not_matter(self: Any, k: int, state: Any) -> Iterator[tuple[Any, Result]]:
    yield from self.specification.step(state, self.calls[k].operation)


def calls_never_overlap(self: Any) -> Iterator[list[int]]:
    yield from ([wanted] for _, wanted in self.returns)


@pytest.mark.parametrize(
    ("method", "bug"),
    [
        ("_openings", everything_is_concurrent),
        ("_openings", pending_calls_never_happened),
        ("_steps", outcomes_do_not_matter),
        ("_openings", calls_never_overlap),
    ],
)
def test_a_judge_with_a_planted_bug_is_caught(
    monkeypatch: pytest.MonkeyPatch, method: str, bug: Callable[..., Any]
) -> None:
    monkeypatch.setattr(histories._Search, method, bug)

    def caught(history: History) -> bool:
        try:
            check_judge(history)
        except Exception:
            return True
        return False

    try:
        found = find(
            small_histories(4),
            caught,
            settings=settings(max_examples=3000, database=None, suppress_health_check=list(HealthCheck)),
        )
    except NoSuchExample:
        pytest.fail("no history tells this judge from a right one")
    assert len(found) <= 3, "a bug that takes more than three calls to see"
