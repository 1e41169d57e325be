"""Promises: a satisfied WAIT of torch's client promises its values, or an element, to the next request.

Theory of operation. torch's client reads a value with two requests: WAIT, then GET or MULTI_GET. It pops an element
with two requests: WAIT, then QUEUE_POP (TCPStore.cpp: doGet, queuePop). Between the two requests another connection may
delete the key or pop the element. So the WAIT makes a promise. A session has at most one promise (`session.promise`):

- *values*: the keys of the WAIT and their values at that moment. The get returns the values that are in the store now.
  If one of these values is missing and all keys were promised, the get returns the promised values, which were in the
  store together.
- *a reserved element*: the first element of the queue, which the WAIT has removed for the time being. The pop returns
  it. The element is put back in its place when the session sends another request, when the session ends, or when it has
  not popped within `reservation_seconds`.

A promise ends with the next request. A request of `REDEEMING` uses the values or the element. Any other request gives
them up. Promised values have no time limit. So the bytes of large promises and of reserved elements are counted, for
one session (`promised_bytes`) and for all together: otherwise a peer that never sends its second request would hold
values that were deleted long ago. Small promises of values are not counted.

Failures:

- The promised bytes of all sessions would exceed `kept_bytes_total`, or the bytes of one promise exceed `frame_bytes`.
  The values are not kept, and the get reads the store as it then is.
- The reply to the pop exceeds the bytes that may be unread. The session is closed, which puts the element back.
- The peer is silent. `expire` puts its element back.

Called by the service and the handlers, on the driver's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from trystate.model.store.vocabulary import Query

from ..contents.contents import Contents
from ..limits import Limits
from ..wire import I64, STOP_WAITING, U64
from .alarm import Alarm
from .session import Reserved, Session, Values
from .unread import BULK_BYTES

if TYPE_CHECKING:
    from .service import Service

_pack_size, _pack_length = U64.pack, I64.pack
REDEEMING = frozenset(map(int, (Query.GET, Query.MULTI_GET, Query.QUEUE_POP)))
ENTRY_BYTES = 100  # the size of a promised key and its value without their bytes: two objects and two references


class Promises:
    """The promises of all sessions."""

    def __init__(self, contents: Contents, limits: Limits, alarm: Alarm, clock: Callable[[], float]) -> None:
        self.contents, self.values = contents, contents.values
        self.limits, self.alarm, self.clock = limits, alarm, clock
        self.bytes = 0
        self.reservations = alarm.table()

    def make(self, session: Session, keys: Sequence[bytes]) -> bool:
        """Promise the values of the keys, or the first element of the only key's queue. False: a key is missing."""
        values = self.values
        try:
            self._keep(session, keys, [*map(values.__getitem__, keys)])
        except KeyError:
            if not self.contents.all_present(keys):
                return False
            if len({*keys}) == 1:
                self.reserve(session, keys[0])
            else:
                keys = [key for key in keys if key in values]
                self._keep(session, keys, [values[key] for key in keys])
        return True

    def reserve(self, session: Session, key: bytes) -> None:
        """Promise the first element of a queue that is not empty."""
        serial, element = self.contents.reserve(key)
        session.promise = Reserved(key, serial, element)
        self._count(session, len(key) + len(element) + ENTRY_BYTES)
        due = self.clock() + self.limits.reservation_seconds
        self.reservations.add(session, due)
        self.alarm.by(due)

    def redeem(self, session: Session, keys: Sequence[bytes]) -> list[bytes]:
        """The values for a get of these keys, b"" for a missing key. Ends the promise."""
        promise = session.promise
        if promise is not None:
            self.give_up(session)
        try:
            return [*map(self.values.__getitem__, keys)]
        except KeyError:
            if type(promise) is Values:
                kept = dict(zip(*promise, strict=True))
                # All values are of the WAIT's moment: a mix of promised and present values never was in the store.
                if kept.keys() >= set(keys):
                    return [kept[key] for key in keys]
            return [self.values.get(key, b"") for key in keys]

    def redeemed(self, session: Session) -> None:
        """End the promise of an element that was sent. Does nothing if the element was put back already."""
        promise = session.promise
        if type(promise) is Reserved:
            session.promise = None
            self._count(session, 0)
            self.reservations.discard(session)
            self.contents.fetched(*promise)

    def give_up(self, session: Session) -> None:
        """End the promise. A reserved element goes back to its place."""
        promise, session.promise = session.promise, None
        if session.promised_bytes:
            self._count(session, 0)
            if type(promise) is Reserved:
                self.reservations.discard(session)
                self.contents.put_back(*promise)

    def expire(self, now: float) -> None:
        """Put back the elements that were reserved for `reservation_seconds`."""
        while (session := self.reservations.pop(now)) is not None:
            self.give_up(session)

    def _keep(self, session: Session, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        if len(keys) > 1:  # a WAIT may name one key thousands of times; the key is kept once
            kept = dict(zip(keys, values, strict=True))
            keys, values = (*kept,), (*kept.values(),)
        session.promise = Values(keys, values)
        size = sum(map(len, values)) + sum(map(len, keys)) + ENTRY_BYTES * len(keys)
        if size >= BULK_BYTES:
            if size > self.limits.frame_bytes or self.bytes + size > self.limits.kept_bytes_total:
                session.promise = Values()  # a reply above `frame_bytes` would be refused anyway
            else:
                self._count(session, size)

    def _count(self, session: Session, size: int) -> None:
        self.bytes += size - session.promised_bytes
        session.promised_bytes = size


# The handlers of the requests that make and redeem promises.


def wait(service: Service, session: Session, keys: Sequence[bytes]) -> None:
    value = service.contents.values.get(keys[0]) if len(keys) == 1 else None
    if value is not None and len(keys[0]) + len(value) < BULK_BYTES:  # nearly always
        session.promise = Values(keys, (value,))
        session.outgoing.append(STOP_WAITING)
    elif service.promises.make(session, keys):
        session.outgoing.append(STOP_WAITING)
    else:
        keys = tuple(dict.fromkeys(keys))  # each key is kept once, as it is counted once
        service.blocking.wait(session, keys, partial(_satisfied, service, session, keys))


def _satisfied(service: Service, session: Session, keys: Sequence[bytes]) -> None:
    service.promises.make(session, keys)
    session.outgoing.append(STOP_WAITING)


def get(service: Service, session: Session, key: bytes) -> None:
    value = service.contents.values.get(key)
    if value is None or len(value) >= BULK_BYTES or session.promised_bytes:
        multi_get(service, session, [key])
    else:  # nearly always: the promised value is still there
        session.promise = None
        session.outgoing.append(_pack_size(len(value)) + value)


def multi_get(service: Service, session: Session, keys: Sequence[bytes]) -> None:
    service.replies.values(session, b"", service.promises.redeem(session, keys))


def queue_pop(service: Service, session: Session, key: bytes) -> None:
    contents, promise = service.contents, session.promise
    if type(promise) is Reserved and promise.key == key:
        service.replies.values(session, _pack_length(contents.length(key) + 1), [promise.element])
        service.promises.redeemed(session)
        return
    if promise is not None:
        service.promises.give_up(session)
    if key in contents.queues:
        send_first(service, session, b"", key)
    else:
        session.outgoing.append(_pack_length(0))


def send_first(service: Service, session: Session, status: bytes, key: bytes) -> None:
    """Answer a pop from a queue that is not empty. If the session is closed for unread bytes, the element stays."""
    service.contents.may_change()
    queue = service.contents.queues[key]
    service.replies.values(session, status + _pack_length(len(queue)), [queue[0]])
    if not session.closing:
        service.contents.pop(key)
