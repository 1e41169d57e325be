"""The meaning of requests: values, queues, and the effect of each operation on them.

Theory of operation. A key is absent or has a value, a queue with elements, or both. An empty queue is deleted. A method
changes the tables and the counts for the limits in one step. Then it reports a changed value to `watching`, and a key
that appeared or vanished to `waiting`. A waiter that is satisfied may change the tables again (it pops an element), so
the change and its counts are complete before that. `reserve` takes an element out of its queue for a client that will
fetch it. `put_back` returns the element to its place by its serial.

Callers: the server's only thread (server/service.py, `Operation.apply`), and threads under the lock of a store in
memory (memory.py). No I/O, no clock, no lock.

Rule: a refused operation raises `Refused` and has changed nothing. An operation is refused if the store would exceed a
limit (TOO_LARGE), a value is not a number (NOT_A_NUMBER), or a sum leaves int64 (OVERFLOW).
"""

from __future__ import annotations

from bisect import bisect
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from trystate.model.errors import TrystateError
from trystate.model.store.vocabulary import Change, Status

from ..limits import Limits
from ..wire import COUNTER_KEY, shown
from .waiting import Waiting
from .watching import Watching

if TYPE_CHECKING:
    from ...rendezvous.rooms.room import Room

INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
INT64_DIGITS = 19
CREATED, UPDATED, DELETED, APPENDED = Change.CREATED, Change.UPDATED, Change.DELETED, Change.APPENDED


class Refused(TrystateError):
    """An operation is refused. `status` is the reason for programs, the text is the reason for people."""

    def __init__(self, status: Status, text: str) -> None:
        super().__init__(text)
        self.status = status


def number(key: bytes, text: bytes) -> int:
    """The counter that a value holds: a whole decimal int64, as ADD writes it. Raises `Refused`."""
    digits = text[1:] if text[:1] == b"-" else text
    if not digits.isdigit() or len(digits) > INT64_DIGITS or not INT64_MIN <= int(text) <= INT64_MAX:
        reason = f"the value of {shown(key)} is {shown(text)}, not a whole decimal int64: add() only to a counter"
        raise Refused(Status.NOT_A_NUMBER, reason)
    return int(text)


class Contents:
    """The values and queues of one store. A key is present if it has a value or a queue that is not empty."""

    __slots__ = (
        "bytes_held", "guarded", "items_held", "life", "limits", "queues", "reservations", "returned", "room_told",
        "rooms", "sum", "sum_text", "values", "waiting", "watching",
    )  # fmt: skip

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.values: dict[bytes, bytes] = {}
        self.queues: dict[bytes, deque[bytes]] = {}  # an empty queue is deleted
        self.bytes_held = 0  # the bytes of keys, values and elements
        self.items_held = 0  # the elements of all queues
        self.sum, self.sum_text = 0, b"0"  # the result of the last add(), and its text as stored
        self.reservations = 0  # the serial of the last reservation
        self.returned: dict[bytes, list[int]] = {}  # queue -> the serials of the put-back elements at its front
        self.waiting = Waiting(self.values, self.queues)
        self.watching = Watching()
        self.rooms: dict[bytes, Room] = {}  # run id -> room; only a server has rooms
        self.life: Callable[[], str] = str  # draws the life of a new room; a server sets it
        self.room_told: Callable[[bytes], None] = lambda run_id: None  # called after each change of a room
        self.guarded = {COUNTER_KEY}  # the keys that a server lets no client change: of the workers, and of each room

    def present(self, key: bytes) -> bool:
        return key in self.values or key in self.queues

    def all_present(self, keys: Sequence[bytes]) -> bool:
        """Whether all keys are present."""
        return all(map(self.present, keys))

    def keys(self, prefix: bytes = b"") -> list[bytes]:
        """The keys that have a value and begin with `prefix`, in no order."""
        return [key for key in self.values if key.startswith(prefix)] if prefix else list(self.values)

    def set(self, key: bytes, value: bytes) -> None:
        values = self.values
        old = values.get(key)
        held = self.bytes_held + len(value) + (len(key) if old is None else -len(old))
        if held > self.limits.bytes_total or (old is None and len(values) >= self.limits.keys_total):
            self._full(key, held)
        values[key] = value
        self.bytes_held = held
        if key in self.watching.watchers:
            self.watching.changed(key, CREATED if old is None else UPDATED, old, value)
        if old is None and key in self.waiting.waits:
            self.waiting.appeared(key)

    def add(self, key: bytes, delta: int) -> int:
        """Add to a counter, which starts at 0, and return the sum."""
        text = self.values.get(key)
        if text is None:
            total = delta
        elif text is self.sum_text:  # a frequent case: in a barrier all add to one counter
            total = self.sum + delta
        elif len(text) < INT64_DIGITS and text.isdigit():  # nearly always; this test is faster than the call below
            total = int(text) + delta
        else:
            total = number(key, text) + delta
        digits = b"%d" % total
        if len(digits) >= INT64_DIGITS and not INT64_MIN <= total <= INT64_MAX:
            reason = f"{shown(key)} is {shown(text or b'0')}: adding {delta} exceeds int64; nothing was changed"
            raise Refused(Status.OVERFLOW, reason)
        self.sum, self.sum_text = total, digits
        if text is not None and len(digits) == len(text) and key not in self.watching.watchers:
            self.values[key] = digits  # nearly always: no count changes, and no watcher gets an event
        else:
            self.set(key, digits)
        return total

    def compare_set(self, key: bytes, expected: bytes, desired: bytes) -> bytes:
        """Store `desired` if the value is `expected`, or if both are missing (b""). Returns the same value as torch."""
        value = self.values.get(key)
        if value is None and expected:
            return expected  # TCPStoreLibUvBackend.cpp: nothing is stored, and the key is still missing
        if value is not None:
            if value != expected:
                return value
            if len(value) == len(desired) and key not in self.watching.watchers:
                self.values[key] = desired  # no count changes, and no watcher gets an event
                return desired
        self.set(key, desired)
        return desired

    def append(self, key: bytes, value: bytes) -> None:
        old = self.values.get(key)
        if old is None:
            return self.set(key, value)
        new, limit = old + value, self.limits.value_bytes
        if len(new) > limit:
            reason = f"{shown(key)} would have {len(new)} bytes, limit {limit}: use several keys, or raise value_bytes"
            raise Refused(Status.TOO_LARGE, reason)
        held = self.bytes_held + len(value)
        if held > self.limits.bytes_total:
            self._full(key, held)
        self.values[key] = new
        self.bytes_held = held
        if key in self.watching.watchers:
            self.watching.changed(key, APPENDED, old, new)

    def multi_set(self, pairs: Sequence[bytes]) -> None:
        """Set all keys or none. `pairs` has keys and values in turn. Waiters and watchers see all of them set."""
        keys, values = pairs[::2], pairs[1::2]
        if len(keys) < 2:
            return self.set(keys[0], values[0]) if keys else None
        latest = dict(zip(keys, values, strict=True))
        mine, limits, held, created = self.values, self.limits, self.bytes_held, []
        for key, value in latest.items():
            old = mine.get(key)
            if old is None:
                created.append(key)
                held += len(key) + len(value)
            else:
                held += len(value) - len(old)
        if held > limits.bytes_total or len(mine) + len(created) > limits.keys_total:
            self._full(keys[0], held)
        watchers = self.watching.watchers
        seen = [(key, mine.get(key)) for key in keys if key in watchers] if watchers else []
        mine.update(latest)
        self.bytes_held = held
        if seen:
            self._tell_of_many(keys, values, dict(seen))
        waits = self.waiting.waits
        if waits:
            for key in created:
                if key in waits:
                    self.waiting.appeared(key)

    def _tell_of_many(self, keys: Sequence[bytes], values: Sequence[bytes], old: dict[bytes, bytes | None]) -> None:
        for key, value in zip(keys, values, strict=True):
            if key in old:  # a key that is named twice changes twice: from its old value, then from its first
                before = old[key]
                self.watching.changed(key, CREATED if before is None else UPDATED, before, value)
                old[key] = value

    def take(self, key: bytes) -> bytes | None:
        """Delete a key, and return its value."""
        old = self.values.pop(key, None)
        if old is not None:
            self.bytes_held -= len(key) + len(old)
            if key in self.watching.watchers:
                self.watching.changed(key, DELETED, old, None)
            if key in self.waiting.waits:
                self.waiting.vanished(key)
        return old

    def delete(self, key: bytes) -> bool:
        """Delete a key. Returns whether it had a value."""
        return self.take(key) is not None

    def count(self) -> int:
        """The number of keys that have a value."""
        return len(self.values)

    def push(self, key: bytes, element: bytes) -> int:
        """Append to a queue. Returns its length with the element, before a waiter takes the element."""
        limits, queue = self.limits, self.queues.get(key)
        held = self.bytes_held + len(element) + (len(key) if queue is None else 0)
        too_many = self.items_held >= limits.queue_items or (queue is None and len(self.queues) >= limits.keys_total)
        if held > limits.bytes_total or too_many:
            self._full(key, held)
        if queue is None:
            queue = self.queues[key] = deque()
        queue.append(element)
        self.bytes_held = held
        self.items_held += 1
        length = len(queue)
        if key in self.waiting.waits:
            self.waiting.appeared(key)
        return length

    def reserve(self, key: bytes) -> tuple[int, bytes]:
        """Take the first element of a queue that is not empty. With its serial the element may be put back."""
        returned = self.returned.get(key)
        if returned is None:
            self.reservations += 1
        serial = self.reservations if returned is None else returned[0]
        element = self.pop(key)
        assert element is not None
        self.bytes_held += len(key) + len(element)  # they count while the element may be put back
        return serial, element

    def put_back(self, key: bytes, serial: int, element: bytes) -> None:
        """Return a reserved element to its place in the queue. No limit applies to it.

        Elements are reserved in their order. The element goes behind those with lower serials and before all others.
        """
        serials = self.returned.setdefault(key, [])
        place = bisect(serials, serial)
        serials.insert(place, serial)
        queue = self.queues.get(key)
        if queue is None:
            queue = self.queues[key] = deque()
        else:
            self.bytes_held -= len(key)
        queue.insert(place, element)
        self.items_held += 1
        if key in self.waiting.waits:
            self.waiting.appeared(key)

    def may_change(self, size: int = 0) -> None:
        """Raise `Refused` if nothing may change now. Called before a pop is answered, and before a room may change.

        `size`: the bytes of the records that the change may leave.
        """

    def room_changed(self, run_id: bytes, record: bytes) -> None:
        """A room has changed, and has made this record of the change."""
        self.room_told(run_id)

    def fetched(self, key: bytes, serial: int, element: bytes) -> None:
        """A reserved element was sent to its client and will not be put back."""
        self.bytes_held -= len(key) + len(element)

    def pop(self, key: bytes) -> bytes | None:
        """Take the first element of a queue."""
        queue = self.queues.get(key)
        if queue is None:
            return None
        element = queue.popleft()
        self.bytes_held -= len(element)
        self.items_held -= 1
        if (serials := self.returned.get(key)) is not None:
            del serials[0]
            if not serials:
                del self.returned[key]
        if not queue:
            del self.queues[key]
            self.bytes_held -= len(key)
            if key in self.waiting.waits:
                self.waiting.vanished(key)
        return element

    def length(self, key: bytes) -> int:
        """The length of a queue."""
        return len(self.queues.get(key, ()))

    def _full(self, key: bytes, held: int) -> None:
        limits = self.limits
        reason = (
            f"the store is full at {shown(key)}: {len(self.values)} values and {len(self.queues)} queues, with a limit "
            f"of {limits.keys_total} each, {self.items_held} of {limits.queue_items} queued elements, and {held} bytes "
            f"of {limits.bytes_total}: delete keys, or raise keys_total, queue_items or bytes_total"
        )
        raise Refused(Status.TOO_LARGE, reason)
