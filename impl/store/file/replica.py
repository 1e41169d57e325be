"""A store's file in memory: every process repeats every recorded operation in the order of the file.

Rule: the outcome of a record depends only on the records before it. If it also depended on a clock, a limit or a living
process, two readers could disagree.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ..contents.barriers import Arrival, Barriers
from ..contents.contents import Contents, Refused
from ..memory import LOCAL
from ..operations import Add, Append, CompareSet, Field, MultiSet, Operation, QueuePop, QueuePush, Set, Take
from ..wire import I64, U64
from .process_identity import User
from .records import MAGIC, Kind, Record, encode

TICKET_BYTES = 16  # random: names a user; the ticket of an arrival is its user's ticket, a number and its token


class BarrierPlace(Arrival):
    """An arrival of a process at a barrier. On release it is removed from `places`, where its thread looks for it."""

    __slots__ = ("places", "ticket")

    def __init__(self, key: bytes, ticket: bytes, places: dict[bytes, BarrierPlace]) -> None:
        super().__init__(key, ticket[TICKET_BYTES + U64.size :])
        self.ticket, self.places = ticket, places

    def released(self) -> None:
        del self.places[self.ticket]


@dataclass(slots=True)
class Replica:
    """The state of a store and its file."""

    identity: bytes = b""  # random; identifies the store, also after its file was rewritten
    generation: int = 0  # how often the file was rewritten
    world_size: int = -1
    job: bytes = b""
    left: int = 0  # the number of users that have left
    users: dict[bytes, User] = field(default_factory=dict)
    contents: Contents = field(default_factory=lambda: Contents(LOCAL))
    barriers: Barriers = field(default_factory=Barriers)
    places: dict[bytes, BarrierPlace] = field(default_factory=dict)

    def replay(self, record: Record) -> None:
        """Repeat an operation of another process. If it was refused there, it is refused here and changes nothing."""
        with suppress(Refused):
            self.apply(record)

    def apply(self, record: Record) -> Any:
        """Apply a record, and return the result of its operation. Raises Refused."""
        return _MEANINGS[record.kind](self, record)

    def snapshot(self) -> bytes:
        """A file with this state and no history."""
        head = (self.identity, I64.pack(self.generation), self.job, I64.pack(self.left))
        parts = [MAGIC, encode(Kind.HEADER, *head, number=self.world_size)]
        parts += [join(ticket, user) for ticket, user in self.users.items()]
        parts += [encode(Kind.SET, key, value) for key, value in self.contents.values.items()]
        for key in self.contents.queues:
            parts += [encode(Kind.PUSH, key, element) for element in self.contents.queues[key]]
        for key, barrier in self.barriers.table.items():
            tickets = [place.ticket for place in barrier.arrivals.values() if isinstance(place, BarrierPlace)]
            parts += [encode(Kind.ARRIVE, key, ticket, number=barrier.world_size) for ticket in tickets]
        parts.append(encode(Kind.SNAPSHOT_END))
        return b"".join(parts)

    def become(self, other: Replica) -> None:
        """Take over a state. Waiters and watchers here see the differences as changes.

        This also repairs an interrupted change: it corrects the counts and wakes the waiters that it should have woken.
        """
        mine, theirs = self.contents, other.contents
        for key in mine.values.keys() - theirs.values.keys():
            mine.take(key)
        for key, value in theirs.values.items():
            if mine.values.get(key) != value:
                mine.set(key, value)
        for key in [*mine.queues.keys(), *(theirs.queues.keys() - mine.queues.keys())]:
            elements = theirs.queues.get(key, ())
            if list(mine.queues.get(key, ())) != list(elements):  # elements have no identity: replace the whole queue
                while mine.pop(key) is not None:
                    pass
                for element in elements:
                    mine.push(key, element)
        mine.bytes_held, mine.items_held = theirs.bytes_held, theirs.items_held
        mine.sum, mine.sum_text = theirs.sum, theirs.sum_text
        mine.waiting.look_again()
        self.identity, self.generation, self.job = other.identity, other.generation, other.job
        self.world_size, self.left, self.users = other.world_size, other.left, other.users
        self.barriers, self.places = other.barriers, other.places

    @property
    def bytes_live(self) -> int:
        """The approximate size of its snapshot."""
        contents = self.contents
        return contents.bytes_held + 64 * (len(contents.values) + contents.items_held + len(self.users))


def join(ticket: bytes, user: User) -> bytes:
    """The record of a new user."""
    return encode(Kind.JOIN, ticket, user.started, user.host, number=user.pid)


def _header(replica: Replica, record: Record) -> None:
    replica.identity, generation, replica.job, left = record.parts
    replica.world_size = record.number
    (replica.generation,), (replica.left,) = I64.unpack(generation), I64.unpack(left)


def _join(replica: Replica, record: Record) -> None:
    ticket, started, host = record.parts
    replica.users[ticket] = User(record.number, started, host)


def _leave(replica: Replica, record: Record) -> None:
    (ticket,) = record.parts
    # The number of users that have left decides when the file is deleted, so each user counts once.
    if replica.users.pop(ticket, None) is not None:
        replica.left += 1
    for place in [place for place in replica.places.values() if place.ticket.startswith(ticket)]:
        _give_up(replica, place)


def _arrive(replica: Replica, record: Record) -> None:
    key, ticket = record.parts
    place = replica.places[ticket] = BarrierPlace(key, ticket, replica.places)
    try:
        replica.barriers.arrive(place, record.number)
    except Refused:
        del replica.places[ticket]
        raise


def _withdraw(replica: Replica, record: Record) -> None:
    place = replica.places.get(record.parts[0])
    if place is not None:
        _give_up(replica, place)


def _give_up(replica: Replica, place: BarrierPlace) -> None:
    replica.barriers.withdraw(place)
    del replica.places[place.ticket]


def recorded(operation: Operation[Any]) -> tuple[Kind, tuple[bytes, ...], int]:
    """The record of an operation: its kind, parts and number."""
    parts: list[bytes] = []
    number = 0
    for part, value in zip(operation.SPEC.body, operation.fields, strict=True):
        if part is Field.INTEGER:
            number = value
        elif part is Field.PAIRS:
            parts += value
        else:
            parts.append(value)
    return _KINDS[type(operation)], tuple(parts), number


def _done_again(kind: type[Operation[Any]]) -> Callable[[Replica, Record], Any]:
    """A function that applies the recorded operation."""

    def do(replica: Replica, record: Record) -> Any:
        parts = iter(record.parts)
        values = [
            record.number if part is Field.INTEGER else record.parts if part is Field.PAIRS else next(parts)
            for part in kind.SPEC.body
        ]
        return kind(*values).apply(replica.contents)

    return do


_KINDS: dict[type[Operation[Any]], Kind] = {
    Set: Kind.SET,
    MultiSet: Kind.MULTI_SET,
    Add: Kind.ADD,
    CompareSet: Kind.COMPARE_SET,
    Append: Kind.APPEND,
    Take: Kind.TAKE,
    QueuePush: Kind.PUSH,
    QueuePop: Kind.POP,
}

_MEANINGS: dict[Kind, Callable[[Replica, Record], Any]] = {
    Kind.HEADER: _header,
    Kind.JOIN: _join,
    Kind.LEAVE: _leave,
    Kind.SNAPSHOT_END: lambda replica, record: None,
    Kind.ARRIVE: _arrive,
    Kind.WITHDRAW: _withdraw,
    Kind.SYNCED: lambda replica, record: None,
    Kind.ROOM: lambda replica, record: None,
} | {record: _done_again(operation) for operation, record in _KINDS.items()}
