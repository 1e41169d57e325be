"""The contents of a store that is kept: each change leaves a record, in the order of the changes.

Theory of operation. `KeptContents` works like `Contents` and also puts a record of each change into `pending`. The
driver takes the records from there. `appended` counts all records, `durable` the records that a crash cannot undo. No
reply leaves while the two differ (`driver`). A record holds the result and not the request: ADD and COMPARE_SET leave a
SET, so a replay of the records compares no limits and no expected values again.

A queue is kept with the elements that are reserved for a client (`reserve`). Such an element leaves the journal when it
is fetched. After a restart before that it is in its place again. A POP therefore records how many elements are before
its own.

Rule: a change is refused before it is made if its record may not fit into the file. A push also takes the room for the
record of the pop, so the pop of an element by a waiter or a client is never refused.

Called on the driver's thread; no I/O.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from trystate.model.store.vocabulary import Status

from ...rendezvous.rooms.messages import IntentError
from ..contents.contents import Contents, Refused
from ..contents.rooms import drop, keep, room_of
from ..limits import Limits
from ..wire import COUNTER_KEY, I64, U64, shown
from .records import HEAD, Kind, Record, encode

NONCE_BYTES = 16
BARE_BYTES = HEAD.size + 1 + I64.size  # the size of a record without parts
MARK_BYTES = BARE_BYTES + U64.size + NONCE_BYTES  # the size of SYNCED; each batch, maybe of one record, starts with it


def room(*parts: bytes) -> int:
    """The most bytes that a record with these parts takes in the file."""
    return MARK_BYTES + BARE_BYTES + sum(map(len, parts)) + U64.size * len(parts)


class Unfit(Exception):
    """A record does not fit the records before it: it takes a missing element, or its room cannot read it."""


@dataclass(frozen=True, slots=True)
class Frozen:
    """The contents at one moment, for a thread that writes them while the contents change."""

    values: dict[bytes, bytes]
    queues: dict[bytes, list[bytes]]
    rooms: dict[bytes, bytes]

    def records(self) -> Iterator[bytes]:
        """The records that make these contents from an empty store."""
        for key, value in self.values.items():
            yield encode(Kind.SET, key, value)
        for key, elements in self.queues.items():
            for element in elements:
                yield encode(Kind.PUSH, key, element)
        for run_id, snapshot in self.rooms.items():
            yield encode(Kind.ROOM, run_id, snapshot)
        yield encode(Kind.SNAPSHOT_END)


class KeptContents(Contents):
    """Contents whose changes are recorded."""

    __slots__ = (
        "appended", "broken", "durable", "free", "more", "out", "pending", "prepaid", "quiet", "room_bytes", "since",
    )  # fmt: skip

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)
        self.pending: list[bytes] = []  # records that the driver has not taken
        self.appended = self.durable = 0
        self.free = 0  # bytes that further records may take in the file
        self.prepaid = 0  # bytes reserved for the pops of the present elements
        self.more: Callable[[int], None] = lambda size: None  # makes `free` at least `size`; raises Refused
        self.since: list[bytes] | None = None  # the records since `freeze`, while a snapshot needs them
        self.out: dict[bytes, list[tuple[int, bytes]]] = {}  # reserved elements, by their serials
        self.quiet = False  # True: the next pop leaves no record
        self.room_bytes = 0  # the size of the rooms' last snapshots
        self.broken: str | None = None  # the reason why nothing may change any more

    @property
    def dirty(self) -> bool:
        """Whether a crash could undo a change of the contents."""
        return self.appended != self.durable

    @property
    def live_bytes(self) -> int:
        """The approximate size of a journal without history."""
        return self.bytes_held + self.room_bytes + BARE_BYTES * (len(self.values) + self.items_held)

    def take(self, key: bytes) -> bytes | None:
        if key in self.values:
            self._need(room(key))
        old = super().take(key)
        if old is not None:
            self._log(Kind.TAKE, key)
        return old

    def set(self, key: bytes, value: bytes) -> None:
        self._need(room(key, value))
        super().set(key, value)
        self._log(Kind.SET, key, value)

    def add(self, key: bytes, delta: int) -> int:
        known = self.appended
        self._need(room(key) + U64.size + 20)
        total = super().add(key, delta)
        if self.appended == known:  # else `Contents.add` has called `set`, which has recorded the change
            self._log(Kind.SET, key, self.values[key])
        return total

    def compare_set(self, key: bytes, expected: bytes, desired: bytes) -> bytes:
        value, known = self.values.get(key), self.appended
        if (value is None and expected) or (value is not None and value != expected):
            return super().compare_set(key, expected, desired)  # changes nothing
        self._need(room(key, desired))
        result = super().compare_set(key, expected, desired)
        if self.appended == known:
            self._log(Kind.SET, key, desired)
        return result

    def append(self, key: bytes, value: bytes) -> None:
        known = self.appended
        self._need(room(key, value))
        super().append(key, value)
        if self.appended == known:
            self._log(Kind.APPEND, key, value)

    def multi_set(self, pairs: Sequence[bytes]) -> None:
        known = self.appended
        self._need(room(*pairs))
        super().multi_set(pairs)
        if pairs and self.appended == known:
            self._log(Kind.MULTI_SET, *pairs)

    def push(self, key: bytes, element: bytes) -> int:
        # Recorded first: a waiter may take the element before this returns.
        self._need(room(key, element) + room(key))
        free = self.free
        self._log(Kind.PUSH, key, element)
        self.free -= room(key)
        self.prepaid += room(key)
        try:
            return super().push(key, element)
        except BaseException:  # refused: nothing has changed, so the record is removed again
            self.appended -= 1
            self.prepaid -= room(key)
            self.free = free
            for records in (self.pending, self.since):
                if records is not None:
                    records.pop()
            raise

    def pop(self, key: bytes) -> bytes | None:
        if self.quiet or key not in self.queues:
            return super().pop(key)
        before, returned = self.out.get(key, ()), self.returned.get(key)
        place = bisect_left(before, (returned[0], b"")) if returned else len(before)
        element = super().pop(key)
        self._popped(key, place)
        return element

    def may_change(self, size: int = 0) -> None:
        if self.broken is not None:
            raise Refused(Status.REFUSED, self.broken)
        self._need(size)

    def room_changed(self, run_id: bytes, record: bytes) -> None:
        self._log(Kind.ROOM, run_id, record)
        super().room_changed(run_id, record)

    def reserve(self, key: bytes) -> tuple[int, bytes]:
        self.may_change()
        self.quiet = True  # the element has not left the queue for good; `fetched` records that
        try:
            reserved = super().reserve(key)
        finally:
            self.quiet = False
        insort(self.out.setdefault(key, []), reserved)
        return reserved

    def put_back(self, key: bytes, serial: int, element: bytes) -> None:
        self._no_longer_out(key, serial)
        super().put_back(key, serial, element)

    def fetched(self, key: bytes, serial: int, element: bytes) -> None:
        super().fetched(key, serial, element)
        place = bisect_left(self.out[key], (serial, b"")) + bisect_left(self.returned.get(key, ()), serial)
        self._no_longer_out(key, serial)
        self._popped(key, place)

    def _no_longer_out(self, key: bytes, serial: int) -> None:
        out = self.out[key]
        del out[bisect_left(out, (serial, b""))]
        if not out:
            del self.out[key]

    def _popped(self, key: bytes, place: int) -> None:
        self.free += room(key)
        self.prepaid -= room(key)
        self._log(Kind.POP, key, number=place)

    # Records.

    def _need(self, size: int) -> None:
        if size > self.free:
            self.more(size)

    def _log(self, kind: Kind, *parts: bytes, number: int = 0) -> None:
        record = encode(kind, *parts, number=number)
        self.pending.append(record)
        if self.since is not None:
            self.since.append(record)
        self.appended += 1
        self.free -= len(record) + MARK_BYTES

    def freeze(self) -> Frozen:
        """The contents at this moment. From now on `since` collects the records of further changes."""
        self.since = []
        keys = dict.fromkeys((*self.queues, *self.out))
        return Frozen(dict(self.values), {key: self._elements(key) for key in keys}, self._snapshots())

    def _snapshots(self) -> dict[bytes, bytes]:
        found = {run_id: room.snapshot() for run_id, room in self.rooms.items()}
        self.room_bytes = sum(map(len, found.values()))
        return found

    def _elements(self, key: bytes) -> list[bytes]:
        """A queue with its reserved elements, each in its place."""
        queue, returned = list(self.queues.get(key, ())), self.returned.get(key, ())
        front = sorted([*self.out.get(key, ()), *zip(returned, queue, strict=False)], key=lambda each: each[0])
        return [element for _, element in front] + queue[len(returned) :]

    def become(self, records: Iterable[Record]) -> None:
        """Replace the contents by the contents of the records. Raises Unfit.

        The caller makes sure that no client waits, watches, or has an element reserved. Limits are not compared: a
        store that was restarted with lower limits keeps its contents.
        """
        self.values.clear()
        self.queues.clear()
        self.returned.clear()
        self.out.clear()
        self.rooms.clear()
        self.guarded.intersection_update((COUNTER_KEY,))
        self.pending.clear()
        self.since = None
        self.durable = self.appended
        self.sum, self.sum_text = 0, b"%d" % 0
        for record in records:
            self._replay(record)
        self._snapshots()
        sizes = [len(key) + sum(map(len, queue)) for key, queue in self.queues.items()]
        self.items_held = sum(map(len, self.queues.values()))
        self.bytes_held = sum(len(key) + len(value) for key, value in self.values.items()) + sum(sizes)
        self.prepaid = sum(room(key) * len(queue) for key, queue in self.queues.items())

    def _replay(self, record: Record) -> None:
        values, queues, parts = self.values, self.queues, record.parts
        match record.kind:
            case Kind.SET | Kind.MULTI_SET:
                values.update(zip(parts[::2], parts[1::2], strict=True))
            case Kind.APPEND:
                values[parts[0]] = values.get(parts[0], b"") + parts[1]
            case Kind.TAKE:
                values.pop(parts[0], None)
                drop(self, parts[0])
            case Kind.PUSH:
                queues.setdefault(parts[0], deque()).append(parts[1])
            case Kind.POP:
                queue = queues.get(parts[0], deque())
                if not 0 <= record.number < len(queue):
                    raise Unfit(f"it takes element {record.number} of a queue with {len(queue)} elements")
                del queue[record.number]
                if not queue:
                    del queues[parts[0]]
            case Kind.ROOM:
                room = room_of(self, parts[0])
                try:
                    room.replay(parts[1])
                except IntentError as error:
                    raise Unfit(f"a record of the room {shown(parts[0])}: {error}") from None
                keep(self, parts[0], room)
            case Kind.HEADER | Kind.SNAPSHOT_END | Kind.SYNCED:
                pass
