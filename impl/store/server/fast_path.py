"""The requests that a training job sends most, done without a frame when they arrive whole and are small.

Theory of operation. `Service.take` looks a request up here first, when the connection is ready. A short way answers
where the next request begins, or 0 if it left everything to the handler: part of the request is missing, something is
larger than its limit, or the case is unusual. Those of a key, values and numbers are compiled from the specification of
their operation (`short_way`), once, when this is imported; what gets, waits and pops for torch's client is written out,
because a promise stands between its two requests.

Rule: each is only a shorter way to what its handler does, and asks the contents for the meaning.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from struct import Struct, error
from typing import TYPE_CHECKING, Any

from trystate.model.store.vocabulary import Extension, Query

from ..contents.contents import Refused
from ..operations import (
    INTEGER,
    KEY,
    Add,
    Append,
    CompareSet,
    DeleteKey,
    NumKeys,
    Operation,
    QueueLen,
    QueuePush,
    Request,
    Result,
    Set,
)
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
OUTSIDE = (error, OverflowError)  # raised by unpacking if bytes are missing: cheaper than to look before
two_u64 = Struct("<QQ").unpack_from
pack_popped = Struct("<qQ").pack
pack_ok_u64, pack_ok_i64 = Struct("<BQ").pack, Struct("<Bq").pack


_SOURCE = """
def short(service, session, data, position, end):
    {parse}
    limits = service.limits
    if {too_much}:
        return 0
    {guard}
    result = service.contents.{meaning}({arguments})
    {answer}
    return at
"""
_EXTENDED_SOURCE = _SOURCE.replace(
    "    result = service.contents.{meaning}({arguments})",
    """    try:
        result = service.contents.{meaning}({arguments})
    except Refused:
        return 0  # the handler is refused too, and says so""",
)
_ANSWERS = {
    (Result.NUMBER, False): "session.outgoing.append(pack_i64(result))",
    (Result.BLOB, False): """if len(result) < BULK_BYTES:
        session.outgoing.append(pack_u64(len(result)) + result)
    else:
        service.send_values(session, b"", [result])""",
    (Result.NOTHING, False): "pass",
    (Result.NOTHING, True): 'session.outgoing.append(b"\\x00")',
    (Result.FLAG, True): 'session.outgoing.append(b"\\x00\\x01" if result else b"\\x00\\x00")',
    (Result.NUMBER, True): "session.outgoing.append(pack_ok_i64(0, result))",
    (Result.BLOB, True): """if len(result) < BULK_BYTES:
        session.outgoing.append(pack_ok_u64(0, len(result)) + result)
    else:
        service.send_values(session, b"\\x00", [result])""",
}


def short_way(kind: type[Operation[Any]], request: Request) -> Quick:
    """The function for a request of a key, values and numbers, compiled from its specification."""
    extended = request.number in set(Extension)
    parse, too_much, arguments = ["at = position + 1"], [], []
    for number, field in enumerate(request.body):
        if field is INTEGER:
            parse += [f"(field{number},) = i64(data, at)", "at += 8"]
            arguments.append(f"field{number}")
            continue
        limit = "key_bytes" if field is KEY else "value_bytes"
        parse += [
            f"(size{number},) = u64(data, at)",
            f"from{number} = at + 8",
            f"at = to{number} = from{number} + size{number}",
        ]
        too_much.append(f"size{number} > limits.{limit}")
        arguments.append("key" if not number else f"data[from{number}:to{number}]")
    if request.body[-1:] not in ((), (INTEGER,)):  # else all of it was unpacked
        too_much.insert(0, "at > end")
    if len(parse) > 1:
        parse = ["try:", *(f"    {line}" for line in parse), "except OUTSIDE:", "    return 0"]
    guard = (
        ["key = data[from0:to0]", "if key == COUNTER_KEY:", "    return 0"]
        if kind.SPEC.writes
        else ["key = data[from0:to0]"]
    )
    source = (_EXTENDED_SOURCE if extended else _SOURCE).format(
        parse="\n    ".join(parse),
        too_much=" or ".join(too_much) or "at > end",
        guard="\n    ".join(guard if request.body else ["pass"]),
        meaning=kind.MEANING.__name__,
        arguments=", ".join(arguments),
        answer=_ANSWERS[request.result, extended],
    )
    known: dict[str, Any] = {
        "BULK_BYTES": BULK_BYTES,
        "COUNTER_KEY": COUNTER_KEY,
        "OUTSIDE": OUTSIDE,
        "Refused": Refused,
        "i64": i64,
        "pack_i64": pack_i64,
        "pack_ok_i64": pack_ok_i64,
        "pack_ok_u64": pack_ok_u64,
        "pack_u64": pack_u64,
        "u64": u64,
    }
    exec(compile(source, f"<the short way of {request.number!r}>", "exec"), known)
    made: Quick = known["short"]
    return made


SHORT: tuple[type[Operation[Any]], ...] = (
    Set, Append, Add, CompareSet, DeleteKey, NumKeys, QueuePush, QueueLen,
)  # fmt: skip
COMPILED: dict[int, Quick] = {
    int(request.number): short_way(kind, request)
    for kind in SHORT
    for request in (kind.SPEC.torch, kind.SPEC.ours)
    if request is not None
}
set_ = COMPILED[SET]


def sets(service: Service, session: Session, data: bytes, position: int, end: int) -> int:
    """SETs in a row, as they come when nobody waits for an answer."""
    done = 0
    while stop := set_(service, session, data, position, end):
        done = position = stop
        if stop == end or data[stop] != SET:
            break
    return done


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
    if begin > end:
        return 0
    if u64(data, position + 9)[0] != 1:
        return get_many_extended(service, session, data, position, end)
    stop: int = begin + u64(data, position + 17)[0]
    if stop > end or stop - begin > service.limits.key_bytes:
        return 0
    value = service.contents.values.get(data[begin:stop])
    if value is None or len(value) >= BULK_BYTES:
        return 0
    session.outgoing.append(pack_ok_u64(0, len(value)) + value)
    return stop


def get_many_extended(service: Service, session: Session, data: bytes, position: int, end: int) -> int:
    listed = read_few(service.limits.key_bytes, data, position + 9, end)
    if listed is None:
        return 0
    try:
        found = [*map(service.contents.values.__getitem__, listed[1])]
    except KeyError:
        return 0
    if sum(map(len, found)) >= BULK_BYTES:
        return 0
    session.outgoing.append(b"\x00" + b"".join([pack_u64(len(value)) + value for value in found]))
    return listed[0]


def wait_extended(service: Service, session: Session, data: bytes, position: int, end: int) -> int:
    listed = read_few(service.limits.key_bytes, data, position + 9, end)
    if listed is None:
        return 0
    values = service.contents.values
    for key in listed[1]:
        if key not in values:
            return 0
    session.outgoing.append(b"\x00")
    return listed[0]


def multi_set(answer: bytes) -> Quick:
    """Several keys and their values, answered with so many bytes; torch's client hears none."""

    def short(service: Service, session: Session, data: bytes, position: int, end: int) -> int:
        limits = service.limits
        listed = read_few(limits.value_bytes, data, position + 1, end, 2)
        if listed is None or listed[0] - position > limits.frame_bytes:
            return 0
        keys = listed[1][::2]
        if COUNTER_KEY in keys or max(map(len, keys), default=0) > limits.key_bytes:
            return 0
        try:
            service.contents.multi_set(keys, listed[1][1::2])
        except Refused:
            return 0  # the handler is refused too, and says so
        if answer:
            session.outgoing.append(answer)
        return listed[0]

    return short


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
QUICK |= COMPILED | {
    SET: sets,
    int(Query.GET): get,
    int(Query.CHECK): check,
    int(Query.WAIT): wait,
    int(Query.MULTI_GET): multi_get,
    int(Query.QUEUE_POP): pop,
    int(Extension.GET): get_extended,
    int(Extension.WAIT): wait_extended,
    int(Query.MULTI_SET): multi_set(b""),
    int(Extension.MULTI_SET): multi_set(b"\x00"),
}
