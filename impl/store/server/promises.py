"""Promises: a satisfied WAIT of torch's client makes one to the request after it.

Theory of operation. torch's client gets in two requests, WAIT and then GET or MULTI_GET, and pops in two, WAIT and then
QUEUE_POP (TCPStore.cpp: doGet, queuePop). Between the two another connection may delete the key or take the element. So
the WAIT makes a promise, of which a session has one or none (`session.promise`):

- *values*: the keys of the WAIT and the values that they had. The get takes the values that are there now; where one is
  missing, and all keys were promised, it takes those of the promise, which were there together.
- *a reserved element*: the first of the queue, which it leaves for the time being. The pop takes it. It goes back to
  its place when the session sends another request, ends, or has not popped within `reservation_seconds`.

A promise ends with the next request, of whatever kind: one of `REDEEMING` takes the values or the element, any other
gives them up. Small values cost nothing beside the tuple that refers to them. Large ones and reserved elements are
counted (`promised_bytes`, of one session and of all together), because a peer that never sends its second request would
otherwise hold values that were deleted long ago. Three things can go wrong: the promised bytes of all sessions would be
more than `kept_bytes_total`, or a reply more than `frame_bytes`: then the values are not kept, and the get finds the
contents of its own moment. The pop's answer is more than may be unread: the session is closed, which gives the element
back. The peer is silent: `expire` gives its element back.

Called by the service and the handlers, on the driver's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from trystate.model.store.vocabulary import Query

from ..contents.contents import Contents
from ..limits import Limits
from .alarm import Ages, Alarm
from .session import Session
from .unread import BULK_BYTES

REDEEMING = frozenset(map(int, (Query.GET, Query.MULTI_GET, Query.QUEUE_POP)))
NOTHING: tuple[Sequence[bytes], Sequence[bytes]] = ((), ())


class Reserved(NamedTuple):
    """A queue's element, and the serial that says where its place is."""

    key: bytes
    serial: int
    element: bytes


class Promises:
    """The promises of all sessions."""

    def __init__(self, contents: Contents, limits: Limits, alarm: Alarm, clock: Callable[[], float]) -> None:
        self.contents, self.values = contents, contents.values
        self.limits, self.clock = limits, clock
        self.bytes = 0
        self.reservations = Ages(alarm, limits.reservation_seconds)

    def keep(self, session: Session, keys: Sequence[bytes]) -> bool:
        """Promise the values of the keys, if all have one."""
        try:
            values = [*map(self.values.__getitem__, keys)]
        except KeyError:
            return False
        session.promise = keys, values
        size = len(values[0]) if len(values) == 1 else sum(map(len, values))
        if size >= BULK_BYTES:
            if size > self.limits.frame_bytes or self.bytes + size > self.limits.kept_bytes_total:
                session.promise = NOTHING  # the former could not be answered anyway
            else:
                self._count(session, size)
        return True

    def make(self, session: Session, keys: Sequence[bytes]) -> None:
        """The keys are all present: promise the values of those that have one, or the first element of a queue."""
        found = [*filter(self.values.__contains__, keys)]
        if not found and len(set(keys)) == 1:
            self.reserve(session, keys[0])
        else:
            self.keep(session, found)

    def reserve(self, session: Session, key: bytes) -> None:
        """Promise the first element of a queue that is not empty."""
        serial, element = self.contents.reserve(key)
        session.promise = Reserved(key, serial, element)
        self._count(session, len(key) + len(element) + 1)
        self.reservations.begin(session, self.clock())

    def redeem(self, session: Session, keys: Sequence[bytes]) -> list[bytes]:
        """The values for a get of these keys, b"" for a missing one; the promise is over."""
        promise, found = session.promise, [*map(self.values.get, keys)]
        if promise is not None:
            if None in found and not isinstance(promise, Reserved):
                kept = dict(zip(*promise, strict=True))
                if kept.keys() >= set(keys):  # all as they were then: values of two moments never were together
                    found = [kept[key] for key in keys]
            self.give_up(session)
        return [value or b"" for value in found]

    def element(self, session: Session, key: bytes) -> bytes | None:
        """The element that a pop of this key takes, if one is reserved; any other promise is over."""
        promise = session.promise
        if isinstance(promise, Reserved) and promise.key == key:
            return promise.element
        if promise is not None:
            self.give_up(session)
        return None

    def redeemed(self, session: Session) -> None:
        """The values or the element were given."""
        if session.promised_bytes:
            self._count(session, 0)
            self.reservations.pop(session, None)
        session.promise = None

    def give_up(self, session: Session) -> None:
        """Nothing is promised any more; a reserved element goes back to its place."""
        promise = session.promise
        self.redeemed(session)
        if isinstance(promise, Reserved):
            self.contents.put_back(*promise)

    def expire(self, now: float) -> None:
        """Give back the elements that were reserved for too long."""
        for session in self.reservations.due(now):
            self.give_up(session)

    def _count(self, session: Session, size: int) -> None:
        self.bytes += size - session.promised_bytes
        session.promised_bytes = size
