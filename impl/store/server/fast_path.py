"""The requests that a training job sends most, read without a frame when they arrive whole and are small.

Rule: each is only a shorter way to what its handler does, and asks the contents for the meaning. It answers where the
next request begins, or 0 if it left everything to the handler.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from struct import Struct, error
from typing import TYPE_CHECKING

from trystate.model.store.vocabulary import Extension, Query

from ..contents.contents import Contents, Refused
from ..wire import COUNTER_KEY, I64, PROBE_KEY, U64
from .blocking import SessionWait, register
from .parsing import few as read_few
from .requests import promise, queue_pop
from .unread import BULK_BYTES

if TYPE_CHECKING:
    from .service import Service
    from .session import Session

Quick = Callable[["Service", "Session", bytes, int, int], int]

LISTS, LISTED_BYTES = 64, 4096  # lists of keys that are remembered, and the bytes of each: of a few keys
SET = int(Query.SET)

u64, i64, pack_u64, pack_i64 = U64.unpack_from, I64.unpack_from, U64.pack, I64.pack
OUTSIDE = (error, OverflowError)  # what unpacking raises if it is not all there: cheaper than to look before
two_u64 = Struct("<QQ").unpack_from
pack_popped = Struct("<qQ").pack
pack_ok_u64, pack_ok_i64 = Struct("<BQ").pack, Struct("<Bq").pack


def with_value(change: Callable[[Contents, bytes, bytes], object]) -> Quick:
    """A request of a key and a value that is not answered."""

    def do(service: Service, session: Session, data: bytes, position: int, end: int) -> int:
        begin = position + 9
        try:
            (length,) = u64(data, position + 1)
            middle = begin + length
            (size,) = u64(data, middle)
        except OUTSIDE:
            return 0
        stop: int = middle + 8 + size
        key, limits = data[begin:middle], service.limits
        if stop > end or length > limits.key_bytes or size > limits.value_bytes or key == COUNTER_KEY:
            return 0
        change(service.contents, key, data[middle + 8 : stop])
        return stop

    return do


set_ = with_value(Contents.set)


def sets(service: Service, session: Session, data: bytes, position: int, end: int) -> int:
    """SETs in a row, as they come when nobody waits for an answer."""
    done = 0
    while stop := set_(service, session, data, position, end):
        done = position = stop
        if stop == end or data[stop] != SET:
            break
    return done


def set_extended(service: Service, session: Session, data: bytes, position: int, end: int) -> int:
    try:
        stop = set_(service, session, data, position, end)
    except Refused:
        return 0  # the handler is refused too, and says so
    if stop:
        session.outgoing.append(b"\x00")
    return stop


def get(service: Service, session: Session, data: bytes, position: int, end: int) -> int:
    begin = position + 9
    try:
        (length,) = u64(data, position + 1)
    except OUTSIDE:
        return 0
    stop: int = begin + length
    if stop > end or length > service.limits.key_bytes or session.kept_bytes:
        return 0
    value = service.contents.values.get(data[begin:stop])
    if value is None or len(value) >= BULK_BYTES:
        return 0
    session.kept = None
    session.outgoing.append(pack_u64(len(value)) + value)
    return stop


def get_extended(service: Service, session: Session, data: bytes, position: int, end: int) -> int:
    begin = position + 25
    if begin > end or u64(data, position + 9)[0] != 1:
        return 0
    stop: int = begin + u64(data, position + 17)[0]
    if stop > end or stop - begin > service.limits.key_bytes:
        return 0
    value = service.contents.values.get(data[begin:stop])
    if value is None or len(value) >= BULK_BYTES:
        return 0
    session.outgoing.append(pack_ok_u64(0, len(value)) + value)
    return stop


def add(service: Service, session: Session, data: bytes, position: int, end: int) -> int:
    begin = position + 9
    try:
        (length,) = u64(data, position + 1)
        middle: int = begin + length
        (delta,) = i64(data, middle)
    except OUTSIDE:
        return 0
    key = data[begin:middle]
    if length > service.limits.key_bytes or key == COUNTER_KEY:
        return 0
    session.outgoing.append(pack_i64(service.contents.add(key, delta)))
    return middle + 8


def add_extended(service: Service, session: Session, data: bytes, position: int, end: int) -> int:
    begin = position + 9
    if begin > end:
        return 0
    middle: int = begin + u64(data, position + 1)[0]
    if middle + 8 > end or middle - begin > service.limits.key_bytes:
        return 0
    key = data[begin:middle]
    if key == COUNTER_KEY:
        return 0
    try:
        total = service.contents.add(key, i64(data, middle)[0])
    except Refused:
        return 0
    session.outgoing.append(pack_ok_i64(0, total))
    return middle + 8


def check(service: Service, session: Session, data: bytes, position: int, end: int) -> int:
    begin = position + 17
    try:
        count, length = two_u64(data, position + 1)
    except OUTSIDE:
        return 0
    stop: int = begin + length
    if count != 1 or stop > end or length > service.limits.key_bytes:
        return 0
    key, contents = data[begin:stop], service.contents
    ready = key in contents.values or key in contents.queues or key == PROBE_KEY
    session.outgoing.append(b"\x00" if ready else b"\x01")
    return stop


def wait(service: Service, session: Session, data: bytes, position: int, end: int) -> int:
    begin = position + 17
    try:
        count, length = two_u64(data, position + 1)
    except OUTSIDE:
        return 0
    if count != 1:
        return wait_many(service, session, data, position, end)
    stop: int = begin + length
    if stop > end or length > service.limits.key_bytes:
        return 0
    key, contents = data[begin:stop], service.contents
    value = contents.values.get(key)
    if value is None:
        if key not in contents.queues:
            blocked = SessionWait(service, session, (key,), partial(promise, [key]))
            register(blocked)
            return stop
        service.reserve(session, key)
    elif len(value) < BULK_BYTES:
        session.kept = (key,), (value,)
    else:
        return 0
    session.outgoing.append(b"\x00")
    return stop


def few(service: Service, data: bytes, position: int, end: int) -> tuple[int, list[bytes]] | None:
    """The end of a list of keys, and the keys.

    torch's client sends a list twice, to WAIT and to MULTI_GET, and every rank of a job sends the same one: those that
    were whole pieces are remembered.
    """
    alone = position == 0 and end < LISTED_BYTES
    if alone and (known := service.lists.get(data[1:])) is not None:
        return end, known
    found = read_few(service.limits.key_bytes, data, position + 1, end)
    if alone and found is not None and found[0] == end:
        if len(service.lists) >= LISTS:
            service.lists.clear()
        service.lists[data[1:]] = found[1]
    return found


def wait_many(service: Service, session: Session, data: bytes, position: int, end: int) -> int:
    listed, values = few(service, data, position, end), service.contents.values
    if listed is None:
        return 0
    try:
        found = [*map(values.__getitem__, listed[1])]
    except KeyError:
        return 0
    if sum(map(len, found)) >= BULK_BYTES:
        return 0
    session.kept = listed[1], found
    session.outgoing.append(b"\x00")
    return listed[0]


def multi_get(service: Service, session: Session, data: bytes, position: int, end: int) -> int:
    if session.kept_bytes or (listed := few(service, data, position, end)) is None:
        return 0
    try:
        found = [*map(service.contents.values.__getitem__, listed[1])]
    except KeyError:
        return 0
    lengths = [*map(len, found)]
    if sum(lengths) >= BULK_BYTES:
        return 0
    session.kept = None
    if lengths and lengths.count(lengths[0]) == len(lengths):  # as often: then with one head for all
        head = pack_u64(lengths[0])
        session.outgoing.append(head + head.join(found))
    else:
        session.outgoing.append(b"".join([pack_u64(len(value)) + value for value in found]))
    return listed[0]


def compared_and_set(service: Service, data: bytes, position: int, end: int) -> tuple[int, bytes]:
    """Where the request ends, and what answers it."""
    begin = position + 9
    try:
        (length,) = u64(data, position + 1)
        middle: int = begin + length
        (size,) = u64(data, middle)
        second: int = middle + 8 + size
        (more,) = u64(data, second)
    except OUTSIDE:
        return 0, b""
    stop: int = second + 8 + more
    key, limits = data[begin:middle], service.limits
    if stop > end or length > limits.key_bytes or stop - middle > limits.value_bytes or key == COUNTER_KEY:
        return 0, b""
    return stop, service.contents.compare_set(key, data[middle + 8 : second], data[second + 8 : stop])


def compare_set(service: Service, session: Session, data: bytes, position: int, end: int) -> int:
    stop, value = compared_and_set(service, data, position, end)
    if stop and len(value) < BULK_BYTES:
        session.outgoing.append(pack_u64(len(value)) + value)
    elif stop:
        service.send_values(session, b"", [value])
    return stop


def compare_set_extended(service: Service, session: Session, data: bytes, position: int, end: int) -> int:
    try:
        stop, value = compared_and_set(service, data, position, end)
    except Refused:
        return 0
    if stop and len(value) < BULK_BYTES:
        session.outgoing.append(pack_ok_u64(0, len(value)) + value)
    elif stop:
        service.send_values(session, b"\x00", [value])
    return stop


def delete_extended(service: Service, session: Session, data: bytes, position: int, end: int) -> int:
    begin = position + 9
    if begin > end:
        return 0
    stop: int = begin + u64(data, position + 1)[0]
    key = data[begin:stop]
    if stop > end or stop - begin > service.limits.key_bytes or key == COUNTER_KEY:
        return 0
    session.outgoing.append(b"\x00\x00" if service.contents.take(key) is None else b"\x00\x01")
    return stop


def pop(service: Service, session: Session, data: bytes, position: int, end: int) -> int:
    begin = position + 9
    if begin > end:
        return 0
    stop: int = begin + u64(data, position + 1)[0]
    if stop > end or stop - begin > service.limits.key_bytes:
        return 0
    key, reserved = data[begin:stop], session.reserved
    if reserved is None or reserved[0] != key or len(reserved[2]) >= BULK_BYTES:
        queue_pop(service, session, key)
        return stop
    element = reserved[2]
    session.outgoing.append(pack_popped(service.contents.length(key) + 1, len(element)) + element)
    service.redeemed(session)
    return stop


def left(service: Service, session: Session, data: bytes, position: int, end: int) -> int:
    """Not quick."""
    return 0


# By the first byte, whatever that is: to ask whether there is one takes longer.
QUICK: dict[int, Quick] = dict.fromkeys(range(256), left)
QUICK |= {
    int(Query.SET): sets,
    int(Query.GET): get,
    int(Query.ADD): add,
    int(Query.CHECK): check,
    int(Query.WAIT): wait,
    int(Query.MULTI_GET): multi_get,
    int(Query.COMPARE_SET): compare_set,
    int(Query.APPEND): with_value(Contents.append),
    int(Query.QUEUE_PUSH): with_value(Contents.push),
    int(Query.QUEUE_POP): pop,
    int(Extension.SET): set_extended,
    int(Extension.GET): get_extended,
    int(Extension.ADD): add_extended,
    int(Extension.COMPARE_SET): compare_set_extended,
    int(Extension.DELETE): delete_extended,
}
