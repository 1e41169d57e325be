"""Concurrent histories, and whether they are linearizable. Times are data: nothing in this module reads a clock.

A history is linearizable (Herlihy and Wing, 1990) if each call can have one moment between its invocation and its
return, such that the calls, in the order of these moments, are a sequential run of the specification.

The search is the algorithm of Wing and Gong ("Testing and Verifying Concurrent Objects", 1993): place one of the calls
that may come next, and go back if that leads nowhere. Like Lowe's algorithm ("Testing for Linearizability", 2017), it
places calls only when a return requires one ("just in time"), and visits no configuration twice. Linearizability is
local (Herlihy and Wing, theorem 1), so keys that no call connects are judged one by one (Horn and Kroening, "Faster
Linearizability Checking via P-Compositionality", 2015).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import pairwise
from typing import Any, Generic, TypeVar, cast

from ..errors import LimitReached, UsageError

State = TypeVar("State", bound=Hashable)
Operation = TypeVar("Operation", bound=Hashable)
Outcome = TypeVar("Outcome", bound=Hashable)

# The classes that callers create have no slots: `Call[Operation, Outcome](...)` fails with frozen and slots in 3.11.
CONFIGURATIONS_MAX = 2_000_000  # about 200 bytes each
SHOWN_MAX = 5  # outcomes that an explanation lists
OUTCOME_MAX = 60  # characters of one outcome


@dataclass(frozen=True)
class Call(Generic[Operation, Outcome]):
    """One operation as its caller saw it: `returned` is None if the caller never got its result.

    Times are from one clock and in any unit; two calls that touch at one moment count as concurrent.
    """

    process: str
    operation: Operation
    invoked: float
    returned: float | None = None
    outcome: Outcome | None = None

    @property
    def pending(self) -> bool:
        return self.returned is None

    def __str__(self) -> str:
        return shown(self.operation, "?" if self.pending else self.outcome)


def shown(operation: object, outcome: object) -> str:
    """The text of an operation and of its outcome, if it has one."""
    text = operation_text(operation)
    return text if outcome is None else f"{text} → {outcome_text(outcome)}"


def operation_text(operation: object) -> str:
    """An operation as readable text: a dataclass is shown by its values, without the names of its fields."""
    if not is_dataclass(operation):
        return str(operation)
    values = (repr(getattr(operation, field.name)) for field in fields(operation))
    return f"{type(operation).__name__}({', '.join(values)})"


def outcome_text(outcome: object) -> str:
    """An outcome as readable text: an enum's member is shown by its value; a long text is shortened."""
    return shortened(str(outcome.value if isinstance(outcome, enum.Enum) else outcome), OUTCOME_MAX)


def shortened(text: str, characters: int) -> str:
    """A text of at most `characters`: a longer one keeps its beginning and its end, where outcomes differ."""
    kept = characters - 1
    return text if len(text) <= characters else f"{text[: kept - kept // 2]}…{text[-(kept // 2) :]}"


@dataclass(frozen=True)
class Specification(Generic[State, Operation, Outcome]):
    """The meaning of operations one after another.

    `step` gives every state and outcome that an operation may lead to; if it gives none, the operation cannot take
    effect in that state (a blocking read of nothing). `keys` names the keys that an operation touches; None means all.
    Calls on keys that nothing connects are judged separately, each from `initial`, so a step must neither read nor
    write any other key.
    """

    initial: State
    step: Callable[[State, Operation], Iterable[tuple[State, Outcome]]]
    keys: Callable[[Operation], Iterable[Hashable] | None] = lambda operation: None


@dataclass(frozen=True)
class Placed(Generic[Operation, Outcome]):
    """A call with the moment that it was given. `outcome` is from the specification, also for a pending call."""

    call: Call[Operation, Outcome]
    outcome: Outcome
    moment: float


@dataclass(frozen=True)
class Linearization(Generic[Operation, Outcome]):
    """The calls in an order that explains the history; a pending call is missing if it need not have happened."""

    order: tuple[Placed[Operation, Outcome], ...]


@dataclass(frozen=True)
class Broken(Generic[Operation, Outcome]):
    """The shortest prefix of a history that no order explains. It ends with the return of `culprit`.

    Attributes:
        calls: the prefix, on the keys concerned; calls that had not returned by then are pending.
        possible: the outcomes that the culprit could have had, in the order in which they were found.
        order: a longest attempt; every call that returned before the culprit did has its place in it.
        whole: false if `configurations_max` ended the search for a shorter prefix or for possible outcomes.
    """

    calls: tuple[Call[Operation, Outcome], ...]
    culprit: Call[Operation, Outcome]
    possible: tuple[Outcome, ...]
    order: tuple[Placed[Operation, Outcome], ...]
    whole: bool = True

    @property
    def explanation(self) -> str:
        """One sentence for a person."""
        c = self.culprit
        said = (
            f"{c.process}: {operation_text(c.operation)} returned {outcome_text(c.outcome)}, "
            f"which no order of the {len(self.calls)} calls explains"
        )
        if not self.whole:
            return f"{said}; the cause was not searched to the end: raise configurations_max"
        if not self.possible:
            return f"{said}: it could not even have taken effect"
        some = [outcome_text(outcome) for outcome in self.possible[:SHOWN_MAX]]
        more = len(self.possible) - len(some)
        return f"{said}: it could have been {' or '.join(some)}{f' or {more} others' if more else ''}"


Verdict = Linearization[Operation, Outcome] | Broken[Operation, Outcome]


def judge(
    history: Iterable[Call[Operation, Outcome]],
    specification: Specification[State, Operation, Outcome],
    *,
    configurations_max: int = CONFIGURATIONS_MAX,
) -> Verdict[Operation, Outcome]:
    """Find an order that explains the history, or the shortest prefix that no order explains.

    Raises:
        UsageError: not a history: a call returns before its invocation, or overlaps another call of its process.
        LimitReached: more configurations than `configurations_max`; nothing is decided.
    """
    calls = sorted(history, key=lambda call: call.invoked)
    _validate(calls)
    order: list[Placed[Operation, Outcome]] = []
    broken: list[Broken[Operation, Outcome]] = []
    limit: LimitReached | None = None
    for part in components(calls, specification.keys):
        search = _Search(part, specification, configurations_max)
        try:
            if search.run():
                order += search.order()
            else:
                broken.append(_shortest(part, specification, configurations_max, search.furthest))
        except LimitReached as reached:
            limit = reached
    if limit is not None and not broken:
        raise limit
    if broken:
        return min(broken, key=lambda b: b.culprit.returned or 0.0)
    # Each moment is within its call, and the moments of one part are in order: sorting them keeps both.
    return Linearization(tuple(sorted(order, key=lambda placed: placed.moment)))


def components(
    calls: Sequence[Call[Operation, Outcome]], keys: Callable[[Operation], Iterable[Hashable] | None]
) -> list[list[Call[Operation, Outcome]]]:
    """The calls in parts that touch disjoint keys, in the order of their first calls."""
    touched = [keys(call.operation) for call in calls]
    if any(t is None for t in touched):
        return [list(calls)]
    root: dict[Hashable, Hashable] = {}

    def find(key: Hashable) -> Hashable:
        while root.setdefault(key, key) != key:
            root[key] = key = root[root[key]]
        return key

    firsts = []
    for number, found in enumerate(touched):
        # A call that touches no key is a part by itself.
        names: list[Hashable] = [("key", key) for key in found or ()] or [("call", number)]
        for name in names:
            root[find(name)] = find(names[0])
        firsts.append(names[0])
    parts: dict[Hashable, list[Call[Operation, Outcome]]] = {}
    for call, first in zip(calls, firsts, strict=True):
        parts.setdefault(find(first), []).append(call)
    return list(parts.values())


def prefix(calls: Iterable[Call[Operation, Outcome]], returns: int) -> tuple[Call[Operation, Outcome], ...]:
    """The history up to the first `returns` returns: later returns are unknown, later invocations left out."""
    ordered = sorted(calls, key=lambda call: call.invoked)
    known = _returns(ordered)[:returns]
    if not known:
        return ()
    kept = {k for _, k in known}
    return tuple(
        call if k in kept else replace(call, returned=None, outcome=None)
        for k, call in enumerate(ordered)
        if call.invoked <= known[-1][0]
    )


def _returns(calls: Sequence[Call[Operation, Outcome]]) -> list[tuple[float, int]]:
    """The moments at which calls returned, in order, with the numbers of the calls."""
    return sorted((call.returned, k) for k, call in enumerate(calls) if call.returned is not None)


def _validate(calls: Sequence[Call[Operation, Outcome]]) -> None:
    processes: dict[str, list[Call[Operation, Outcome]]] = {}
    for call in calls:
        processes.setdefault(call.process, []).append(call)
        if call.returned is None and call.outcome is not None:
            raise UsageError(
                f"{call.process}: {call.operation} has outcome {call.outcome} but no time of return: add it"
            )
        if call.returned is not None and not call.invoked <= call.returned:
            raise UsageError(
                f"{call.process}: {call.operation} was invoked at {call.invoked} and returned at {call.returned}: "
                "take both times from one monotonic clock"
            )
    for first, second in (pair for own in processes.values() for pair in pairwise(own)):
        if first.returned is None:
            raise UsageError(
                f"{first.process}: {second.operation} follows {first.operation}, which is pending: "
                "a caller that continues without an answer must get a new process name"
            )
        if first.returned >= second.invoked:
            raise UsageError(
                f"{first.process}: {second.operation} was invoked at {second.invoked}, not after {first.operation} "
                f"returned at {first.returned}: give calls that overlap different process names, and "
                "consecutive calls times from a clock that separates them"
            )


Link = tuple[Any, ...]
"""The last call placed, and the link of the calls placed before it; empty without calls."""


class _Search(Generic[State, Operation, Outcome]):
    """A depth-first search over configurations: the number of explained returns, the open calls placed, and the state.

    `doubted` is the call of the last return if the search must find its possible outcomes: then the search visits all
    configurations and collects them in `possible`. `furthest` is the highest number of returns that were explained.
    """

    def __init__(
        self,
        calls: Sequence[Call[Operation, Outcome]],
        specification: Specification[State, Operation, Outcome],
        configurations_max: int,
        doubted: int | None = None,
    ) -> None:
        self.calls = calls
        self.specification = specification
        self.configurations_max = configurations_max
        self.doubted = doubted
        self.returns = _returns(calls)
        self.furthest = -1
        self.possible: dict[Outcome, None] = {}
        self._best: Link = ()

    def order(self) -> tuple[Placed[Operation, Outcome], ...]:
        """The order found, or a longest attempt."""
        placed, link = [], self._best
        while link:
            last, link = link
            placed.append(last)
        return tuple(reversed(placed))

    def run(self) -> bool:
        """Whether an order exists."""
        stack: list[tuple[int, int, State, Outcome | None, Link]] = [(0, 0, self.specification.initial, None, ())]
        openings = list(self._openings())
        goal = len(self.returns) - (self.doubted is not None)
        seen = set()
        while stack:
            explained, placed, state, answer, link = stack.pop()
            while explained < goal and placed & (bit := 1 << self.returns[explained][1]):
                explained, placed = explained + 1, placed & ~bit
            if (explained, placed, state, answer) in seen:
                continue
            seen.add((explained, placed, state, answer))
            self._check(len(seen))
            if explained > self.furthest:
                self.furthest, self._best = explained, link
            if explained == goal:
                if self.doubted is None:
                    return True
                if placed >> self.doubted & 1:
                    self.possible[cast(Outcome, answer)] = None  # placed, so it has an outcome
                    continue
            moment, _ = self.returns[explained]
            for k in openings[explained]:
                if not placed & (bit := 1 << k):
                    for after, outcome in self._steps(k, state):
                        now = outcome if k == self.doubted else answer
                        link_after = Placed(self.calls[k], outcome, moment), link
                        stack.append((explained, placed | bit, after, now, link_after))
        return False

    def _openings(self) -> Iterator[list[int]]:
        """For each return, the calls that may be placed before it; the last one is tried first."""
        begun, still_open = 0, set[int]()
        for moment, wanted in self.returns:
            while begun < len(self.calls) and self.calls[begun].invoked <= moment:
                still_open.add(begun)
                begun += 1
            yield sorted(still_open, key=lambda k: (k == wanted, not self.calls[k].pending, -k))
            still_open.remove(wanted)

    def _steps(self, k: int, state: State) -> Iterator[tuple[State, Outcome]]:
        call = self.calls[k]
        for after, outcome in self.specification.step(state, call.operation):
            if call.pending or k == self.doubted or outcome == call.outcome:
                yield after, outcome

    def _check(self, configurations: int) -> None:
        if configurations > self.configurations_max:
            raise LimitReached(
                f"more than {self.configurations_max} configurations of {len(self.calls)} calls: record fewer "
                "concurrent or pending calls on the same keys, or raise configurations_max"
            )


def _shortest(
    calls: Sequence[Call[Operation, Outcome]],
    specification: Specification[State, Operation, Outcome],
    configurations_max: int,
    explained: int,
) -> Broken[Operation, Outcome]:
    """The shortest impossible prefix. It has more than `explained` returns, because that many could be explained.

    A prefix lacks the outcomes that come after it, so it may be possible although the whole history is not. A longer
    prefix of an impossible one is impossible too, hence bisection.
    """
    returns = _returns(calls)
    low, high = explained, len(returns) - 1
    whole = False
    with suppress(LimitReached):  # then a longer prefix is shown, which is impossible too
        while low < high:
            middle = (low + high) // 2
            if _Search(prefix(calls, middle + 1), specification, configurations_max).run():
                low = middle + 1
            else:
                high = middle
        whole = True
    seen, doubted = prefix(calls, high + 1), returns[high][1]
    search = _Search(seen, specification, configurations_max, doubted)
    try:
        search.run()
    except LimitReached:
        whole = False
    assert calls[doubted].outcome not in search.possible, "then the prefix would be possible"
    return Broken(seen, calls[doubted], tuple(search.possible), search.order(), whole)
