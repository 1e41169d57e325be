"""A store that does one operation at a time: `apply(contents, operation)` -> contents after, outcome.

The table of an operation in `operations` decides its case. This module defines only the effect of each case and the
values that an operation reads. Nothing waits: an operation that would have to wait for another client times out.
"""

from __future__ import annotations

import enum
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from ..language import DecisionTable, Row
from .operations import OPERATIONS, Add, CompareSet, Count, Delete, Gather, Look, Pop, Read, Several, Write
from .vocabulary import Change, Edition

INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
DIGITS_MAX = 19  # digits of a 64-bit number; a longer number is not converted
WHOLE = re.compile(rb"-?[0-9]+")
LEADING = re.compile(rb"[ \t\n\v\f\r]*([+-]?[0-9]+)")  # the number that std::stoll reads


class Refusal(enum.Enum):
    """The refusal of an operation, which has changed nothing unless the refusal is UNKNOWN."""

    TIMED_OUT = "timed out"
    NOT_A_NUMBER = "the value is not a number"
    OVERFLOW = "the sum is too large"
    OUT_OF_RANGE = "std::out_of_range"
    EMPTY = "the queue is empty"
    ARGUMENT = "an argument is wrong"
    CLOSED = "the connection was closed"
    UNSUPPORTED = "there is no such operation"
    UNKNOWN = "the answer was lost, so that the operation may have happened"


Result = None | bool | int | bytes | tuple[bytes, ...] | tuple[str, ...] | Refusal


@dataclass(frozen=True)
class Contents:
    """The keys and queues of a store; `counted_besides` and `listed_besides`: other keys in the same place."""

    values: Mapping[str, bytes] = field(default_factory=dict)
    queues: Mapping[str, tuple[bytes, ...]] = field(default_factory=dict)  # no empty queues
    counted_besides: int = 0
    listed_besides: tuple[str, ...] = ()

    def __hash__(self) -> int:
        return hash((frozenset(self.values.items()), frozenset(self.queues.items()), self.counted_besides))

    def has(self, key: str) -> bool:
        """Whether check and wait find the key."""
        return key in self.values or key in self.queues

    def with_value(self, key: str, value: bytes) -> Contents:
        return replace(self, values={**self.values, key: value})

    def without(self, key: str) -> Contents:
        return replace(self, values={k: v for k, v in self.values.items() if k != key})

    def with_queue(self, key: str, items: tuple[bytes, ...]) -> Contents:
        others = {k: v for k, v in self.queues.items() if k != key}
        return replace(self, queues={**others, key: items} if items else others)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of an operation: the case that its table decided on, and the result for the caller."""

    case: enum.Enum | None
    result: Result


class Operation(ABC):
    """A call with its arguments; `table` names its decision table, which an operation with one case does not have."""

    __slots__ = ()
    table: ClassVar[str]

    def look(self, contents: Contents) -> dict[str, bool]:
        """Returns the value of every atom that a table of this operation may have."""
        return {}

    @abstractmethod
    def act(self, case: enum.Enum | None, contents: Contents) -> tuple[Contents, Result]:
        """Returns the contents after the case and the result for the caller."""


def number(value: bytes) -> int | None:
    """Returns the number at the start of a value, like std::stoll, or None if it has no number of 64 bits."""
    found = LEADING.match(value)
    if found is None or len(found[1].lstrip(b"+-").lstrip(b"0")) > DIGITS_MAX:
        return None
    read = int(found[1])
    return read if INT64_MIN <= read <= INT64_MAX else None


def wrapped(sum_: int) -> int:
    """Returns a sum modulo 2⁶⁴, as a signed number."""
    return (sum_ - INT64_MIN) % (1 << 64) + INT64_MIN


def look_at_number(contents: Contents, key: str, amount: int) -> dict[str, bool]:
    value = contents.values.get(key, b"")
    read = number(value)
    return {
        "present": key in contents.values,
        "whole": WHOLE.fullmatch(value) is not None,
        "leading": LEADING.match(value) is not None,
        "blank": key in contents.values and not value,
        "in_range": read is not None,
        "fits": read is not None and INT64_MIN <= read + amount <= INT64_MAX,
    }


@dataclass(frozen=True, slots=True)
class OfKey(Operation):
    """An operation whose case depends on whether its key has a value."""

    key: str

    def look(self, contents: Contents) -> dict[str, bool]:
        return {"present": self.key in contents.values}


@dataclass(frozen=True, slots=True)
class Set(OfKey):
    value: bytes
    table: ClassVar[str] = "set"

    def act(self, case: enum.Enum | None, contents: Contents) -> tuple[Contents, Result]:
        return contents.with_value(self.key, self.value), None


@dataclass(frozen=True, slots=True)
class Append(Operation):
    key: str
    value: bytes
    table: ClassVar[str] = "append"

    def look(self, contents: Contents) -> dict[str, bool]:
        return {"present": self.key in contents.values, "same": contents.values.get(self.key) == self.value}

    def act(self, case: enum.Enum | None, contents: Contents) -> tuple[Contents, Result]:
        if case is Write.SKIP:
            return contents, None
        before = contents.values[self.key] if case is Write.APPEND else b""
        return contents.with_value(self.key, before + self.value), None


REFUSED: Mapping[enum.Enum | None, Refusal] = {
    Add.NOT_A_NUMBER: Refusal.NOT_A_NUMBER, Add.OVERFLOW: Refusal.OVERFLOW, Add.OUT_OF_RANGE: Refusal.OUT_OF_RANGE,
    Add.CLOSE: Refusal.CLOSED,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class AddTo(Operation):
    key: str
    amount: int
    table: ClassVar[str] = "add"

    def look(self, contents: Contents) -> dict[str, bool]:
        return look_at_number(contents, self.key, self.amount)

    def act(self, case: enum.Enum | None, contents: Contents) -> tuple[Contents, Result]:
        if case in REFUSED:
            return contents, REFUSED[case]
        before = 0 if case in (Add.CREATE, Add.RESTART) else number(contents.values[self.key]) or 0
        sum_ = wrapped(before + self.amount)
        return contents.with_value(self.key, b"%d" % sum_), sum_


@dataclass(frozen=True, slots=True)
class CompareAndSet(Operation):
    key: str
    expected: bytes
    desired: bytes
    table: ClassVar[str] = "compare_set"

    def look(self, contents: Contents) -> dict[str, bool]:
        return {
            "present": self.key in contents.values,
            "expects_nothing": not self.expected,
            "equal": contents.values.get(self.key) == self.expected,
        }

    def act(self, case: enum.Enum | None, contents: Contents) -> tuple[Contents, Result]:
        match case:
            case CompareSet.ECHO:
                return contents, self.expected
            case CompareSet.KEEP:
                return contents, contents.values[self.key]
        return contents.with_value(self.key, self.desired), self.desired


@dataclass(frozen=True, slots=True)
class MultiSet(Operation):
    keys: tuple[str, ...]
    values: tuple[bytes, ...]
    table: ClassVar[str] = "multi_set"

    def look(self, contents: Contents) -> dict[str, bool]:
        return {"matched": len(self.keys) == len(self.values)}

    def act(self, case: enum.Enum | None, contents: Contents) -> tuple[Contents, Result]:
        if case is Several.REFUSE:
            return contents, Refusal.ARGUMENT
        written = dict(zip(self.keys, self.values, strict=case is not Several.TRUNCATE))
        return replace(contents, values={**contents.values, **written}), None


def look_at_keys(contents: Contents, keys: tuple[str, ...]) -> dict[str, bool]:
    return {"values": all(k in contents.values for k in keys), "ready": all(map(contents.has, keys))}


@dataclass(frozen=True, slots=True)
class OfKeys(Operation):
    """An operation whose case depends on whether all its keys are there."""

    keys: tuple[str, ...]

    def look(self, contents: Contents) -> dict[str, bool]:
        return look_at_keys(contents, self.keys)


@dataclass(frozen=True, slots=True)
class Get(Operation):
    key: str
    table: ClassVar[str] = "get"

    def look(self, contents: Contents) -> dict[str, bool]:
        return look_at_keys(contents, (self.key,))

    def act(self, case: enum.Enum | None, contents: Contents) -> tuple[Contents, Result]:
        return contents, Refusal.TIMED_OUT if case is Read.TIMED_OUT else contents.values.get(self.key, b"")


@dataclass(frozen=True, slots=True)
class MultiGet(OfKeys):
    table: ClassVar[str] = "get"

    def act(self, case: enum.Enum | None, contents: Contents) -> tuple[Contents, Result]:
        if case is Read.TIMED_OUT:
            return contents, Refusal.TIMED_OUT
        return contents, tuple(contents.values.get(k, b"") for k in self.keys)


@dataclass(frozen=True, slots=True)
class Check(OfKeys):
    table: ClassVar[str] = "check"

    def act(self, case: enum.Enum | None, contents: Contents) -> tuple[Contents, Result]:
        return contents, case is Look.READY


@dataclass(frozen=True, slots=True)
class Wait(OfKeys):
    table: ClassVar[str] = "wait"

    def act(self, case: enum.Enum | None, contents: Contents) -> tuple[Contents, Result]:
        return contents, None if case is Look.READY else Refusal.TIMED_OUT


@dataclass(frozen=True, slots=True)
class DeleteKey(OfKey):
    table: ClassVar[str] = "delete_key"

    def act(self, case: enum.Enum | None, contents: Contents) -> tuple[Contents, Result]:
        return contents.without(self.key), case is not Delete.NOTHING


@dataclass(frozen=True, slots=True)
class Take(OfKey):
    table: ClassVar[str] = "take"

    def act(self, case: enum.Enum | None, contents: Contents) -> tuple[Contents, Result]:
        return contents.without(self.key), contents.values.get(self.key)


@dataclass(frozen=True, slots=True)
class NumKeys(Operation):
    table: ClassVar[str] = "num_keys"

    def look(self, contents: Contents) -> dict[str, bool]:
        return {"some": bool(contents.values), "queued": bool(contents.queues)}

    def act(self, case: enum.Enum | None, contents: Contents) -> tuple[Contents, Result]:
        if case in (Count.NONE, Count.NO_QUEUE):
            return contents, 0
        return contents, len(contents.values) + (contents.counted_besides if case is Count.ALL else 0)


@dataclass(frozen=True, slots=True)
class ListKeys(Operation):
    table: ClassVar[str] = "list_keys"

    def act(self, case: enum.Enum | None, contents: Contents) -> tuple[Contents, Result]:
        others = contents.listed_besides if case is Count.ALL else ()
        return contents, tuple(sorted((*contents.values, *others)))


@dataclass(frozen=True, slots=True)
class QueuePush(Operation):
    key: str
    value: bytes
    table: ClassVar[str] = "queue_push"

    def act(self, case: enum.Enum | None, contents: Contents) -> tuple[Contents, Result]:
        return contents.with_queue(self.key, (*contents.queues.get(self.key, ()), self.value)), None


@dataclass(frozen=True, slots=True)
class QueuePop(Operation):
    key: str
    block: bool
    table: ClassVar[str] = "queue_pop"

    def look(self, contents: Contents) -> dict[str, bool]:
        return {
            "queued": self.key in contents.queues,
            "blocking": self.block,
            "present": self.key in contents.values,
        }

    def act(self, case: enum.Enum | None, contents: Contents) -> tuple[Contents, Result]:
        if case is not Pop.POP:
            return contents, Refusal.EMPTY if case is Pop.EMPTY else Refusal.TIMED_OUT
        first, *rest = contents.queues[self.key]
        return contents.with_queue(self.key, tuple(rest)), first


@dataclass(frozen=True, slots=True)
class QueueLen(Operation):
    key: str
    table: ClassVar[str] = "queue_len"

    def act(self, case: enum.Enum | None, contents: Contents) -> tuple[Contents, Result]:
        return contents, len(contents.queues.get(self.key, ()))


@dataclass(frozen=True, slots=True)
class Barrier(Operation):
    key: str
    world_size: int
    table: ClassVar[str] = "barrier"

    @property
    def counter(self) -> str:
        return f"{self.key}/num_members"

    @property
    def gate(self) -> str:
        return f"{self.key}/last_member"

    def look(self, contents: Contents) -> dict[str, bool]:
        aside = (number(contents.values.get(self.counter, b"0")) or 0) + 1
        return {
            "alone": self.world_size == 1,
            "enough": wrapped((number(contents.values.get(self.key, b"0")) or 0) + 1) >= self.world_size,
            "enough_aside": self.gate in contents.values or aside == self.world_size,
            **look_at_number(contents, self.key, 1),
        }

    def act(self, case: enum.Enum | None, contents: Contents) -> tuple[Contents, Result]:
        released = case in (Gather.RELEASE, Gather.COUNT_AND_RELEASE, Gather.COUNT_ASIDE_AND_RELEASE)
        match case:
            case Gather.CLOSE:
                return contents, Refusal.CLOSED
            case Gather.COUNT_AND_RELEASE | Gather.COUNT_AND_TIME_OUT:
                contents = AddTo(self.key, 1).act(self._sum(contents, self.key), contents)[0]
            case Gather.COUNT_ASIDE_AND_RELEASE | Gather.COUNT_ASIDE_AND_TIME_OUT:
                contents = AddTo(self.counter, 1).act(self._sum(contents, self.counter), contents)[0]
                if contents.values[self.counter] == b"%d" % self.world_size:
                    contents = contents.with_value(self.gate, b"1")
        return contents, None if released else Refusal.TIMED_OUT

    @staticmethod
    def _sum(contents: Contents, key: str) -> Add:
        return Add.SUM if key in contents.values else Add.CREATE


SOLE_CASES: Mapping[str, enum.Enum] = {"list_keys": Count.OWN}


def apply(
    contents: Contents, operation: Operation, edition: Edition = Edition.TRYSTATE, *,
    above: Mapping[str, tuple[Row, ...]] | None = None,
) -> tuple[Contents, Outcome]:  # fmt: skip
    """Does one operation on a store's contents.

    Args:
        above: name of a table -> rows that are tried before the table's own, to describe a store that differs.
    """
    case = decide(operation, operation.look(contents), OPERATIONS[edition], above or {})
    after, result = operation.act(case, contents)
    return after, Outcome(case, result)


WRITES = (Set, Append, AddTo, CompareAndSet, MultiSet, DeleteKey, Take, QueuePush, QueuePop, Barrier)


def apply_unanswered(contents: Contents, operation: Operation) -> tuple[Contents, Result]:
    """Does one operation on a persistent server of ours whose answer is lost: no write is sent twice.

    A second `add` would count twice, and a second `take` would report that nothing was there. An operation that only
    reads is sent again, and its second answer is as good as the first.
    """
    after, outcome = apply(contents, operation)
    return after, Refusal.UNKNOWN if isinstance(operation, WRITES) else outcome.result


def decide(
    operation: Operation, valuation: Mapping[str, bool], tables: Mapping[str, DecisionTable],
    above: Mapping[str, tuple[Row, ...]],
) -> enum.Enum | None:  # fmt: skip
    """Returns the case of an operation, or None if it has only one."""
    for one in above.get(operation.table, ()):
        if one.matches(valuation):
            return one.then
    if operation.table not in tables:
        return SOLE_CASES.get(operation.table)
    return tables[operation.table].decide(valuation)


def changes(
    before: Contents, operation: Operation, after: Contents
) -> tuple[tuple[Change, str, bytes | None, bytes | None], ...]:
    """Returns the events of an operation for watchers, in order: the change, the key, its value before and after."""
    steps: list[tuple[str, bytes | None]]
    match operation:
        case MultiSet(keys, values):
            steps = list(zip(keys, values, strict=False)) if after is not before else []
        case Set() | Append() | AddTo() | CompareAndSet() | DeleteKey() | Take():
            steps = [(operation.key, after.values.get(operation.key))] if after is not before else []
        case _:
            return ()
    told, now = [], dict(before.values)
    for key, new in steps:
        old = now.pop(key, None)
        if new is not None:
            now[key] = new
        if old is not None or new is not None:
            told.append((_kind(operation, old, new), key, old, new))
    return tuple(told)


def _kind(operation: Operation, old: bytes | None, new: bytes | None) -> Change:
    if old is None:
        return Change.CREATED
    if new is None:
        return Change.DELETED
    return Change.APPENDED if isinstance(operation, Append) else Change.UPDATED
