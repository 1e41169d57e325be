"""The client's half of the protocol: requests as bytes, replies as generators. Owns no socket, no clock, no lock.

Rule: a reply is a generator. It yields the number of bytes it needs next, receives exactly those bytes, and returns the
result. Every length that the server announces is checked before those bytes are requested. Names are wire names: a
user's key is sent with "/" before it, the worker counter `init/` without.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

from trystate.model.store.vocabulary import Change, Extension, Query, Status

from ...host.secret import NONCE_BYTES, client_proof
from ..contents.watching import Changed
from ..operations import Field, Request, Result
from ..wire import I64, IDENTITY_BYTES, KEPT, MAGIC, PROBE_KEY, ROOMS, SECRET, U32, U64, VERSION, blob, blobs, counted

T = TypeVar("T")
Reply = Generator[int, bytes, T]

PING_NONCE = 0x54525953
ALERT = b"\x15\x03"  # the first bytes of an alert of TLS
# A peer that is not a store announces lengths like 1.3 TB (pytorch issue 129367). torch's legacy server has no limit.
BLOB_BYTES_MAX = 1 << 30
BLOBS_MAX = 1 << 26
PROOF_BYTES = 32  # the size of an HMAC-SHA256
TEXT_BYTES_MAX = 1 << 16  # the text of a refusal, which may quote a part of the request

_OP_SIZE = struct.Struct("<BQ")
_OP_ONE_KEY = struct.Struct("<BQQ")


class Garbled(Exception):
    """The peer's bytes are not a reply of this protocol."""


class NeedsTls(Garbled):
    """The peer's bytes are an alert of TLS."""


class Refusal(Exception):
    """The server read the whole request and refused it; the stream is in step."""

    def __init__(self, status: Status, text: str) -> None:
        super().__init__(f"{status.name}: {text}")
        self.status, self.text = status, text


class ServerTerms(NamedTuple):
    """The answer to HELLO from a server that has the extensions."""

    secret_required: bool
    nonce: bytes
    key_bytes: int
    value_bytes: int
    keys_in_request: int
    identity: bytes  # identifies the server's contents
    kept: bool = False  # the contents are kept across restarts of the server
    rooms: bool = False  # the server has rooms
    agreed: bytes = b""  # all of this as the server sent it


def undecoded(data: bytes) -> None:
    """The decoder of a reply that is never small: it decodes nothing."""


# Requests. `op` is a Query or an Extension. If both have an operation, its body is the same.


def bare(op: int) -> bytes:
    """A request without a body."""
    return bytes([op])


def keyed(op: int, name: bytes) -> bytes:
    """A request about one key."""
    return _OP_SIZE.pack(op, len(name)) + name


def many(op: int, names: Sequence[bytes]) -> bytes:
    """A request about a list of keys."""
    if len(names) == 1:
        return _OP_ONE_KEY.pack(op, 1, len(names[0])) + names[0]
    return bare(op) + counted(list(names))


def encoder(request: Request) -> Callable[[Sequence[Any]], bytes]:
    """A function that encodes a request from the fields of its body. Further fields are ignored."""
    head, packs = bare(request.number), [_PACK[field] for field in request.body]
    if len(packs) == 2:  # the common case, faster without a loop
        first, second = packs
        return lambda fields: head + first(fields[0]) + second(fields[1])
    return lambda fields: head + b"".join([pack(value) for pack, value in zip(packs, fields, strict=False)])


_PACK: dict[Field, Callable[[Any], bytes]] = {
    Field.KEY: blob,
    Field.VALUE: blob,
    Field.INTEGER: I64.pack,
    Field.WORD: U32.pack,
    Field.KEYS: counted,
    Field.PAIRS: lambda items: U64.pack(len(items) // 2) + blobs(items),
}


PING = bare(Query.PING) + U32.pack(PING_NONCE)
GREETING = bare(Query.VALIDATE) + U32.pack(MAGIC) + PING + many(Query.CHECK, [PROBE_KEY])
HELLO = bare(Extension.HELLO) + U32.pack(VERSION)
CANCEL_WAIT = bare(Query.CANCEL_WAIT)


def room(run_id: bytes, request: bytes) -> bytes:
    return bare(Extension.ROOM) + blob(run_id) + blob(request)


def prove(secret: bytes, server_nonce: bytes, client_nonce: bytes, agreed: bytes) -> bytes:
    return bare(Extension.PROVE) + blob(client_nonce) + blob(client_proof(secret, server_nonce, client_nonce, agreed))


# Replies that both protocols have.


def byte() -> Reply[int]:
    return (yield 1)[0]


def number() -> Reply[int]:
    return int.from_bytes((yield 8), "little", signed=True)


def a_blob(most: int = BLOB_BYTES_MAX) -> Reply[bytes]:
    size = int.from_bytes((yield 8), "little")
    if size > most:
        raise Garbled(f"it announced a value of {size} bytes, but the limit is {most}")
    return (yield size) if size else b""


def exactly(size: int) -> Reply[bytes]:
    """A blob of exactly `size` bytes, from a peer that has not proved the secret yet."""
    data = yield from a_blob(size)
    if len(data) != size:
        raise Garbled(f"it sent {len(data)} bytes instead of {size}")
    return data


def a_proof() -> Reply[bytes]:
    return exactly(PROOF_BYTES)


def some_blobs(count: int) -> Reply[list[bytes]]:
    result = []
    for _ in range(count):
        result.append((yield from a_blob()))
    return result


def counted_blobs() -> Reply[list[bytes]]:
    count = yield from number()
    if not 0 <= count <= BLOBS_MAX:
        raise Garbled(f"it announced {count} keys, but the limit is {BLOBS_MAX}")
    return (yield from some_blobs(count))


def popped() -> Reply[bytes | None]:
    """QUEUE_POP: the queue's length before the pop, then the value if the queue was not empty."""
    return (yield from a_blob()) if (yield from number()) > 0 else None


def pong() -> Reply[None]:
    answer = U32.unpack(data := (yield 4))[0]
    if data[:2] == ALERT:
        raise NeedsTls("it requires TLS")
    if answer != PING_NONCE:
        raise Garbled(f"it answered a ping of {PING_NONCE} with {answer}")


def ready() -> Reply[bool]:
    answer = yield from byte()
    if answer > 1:
        raise Garbled(f"it answered {answer} instead of 0 or 1")
    return answer == 0


def ready_blobs(count: int) -> Reply[list[bytes] | None]:
    """CHECK and MULTI_GET in one write: the values, if all keys are present."""
    there = yield from ready()
    values = yield from some_blobs(count)  # missing keys have empty values, which are read to stay in step
    return values if there else None


def greeted() -> Reply[bool]:
    """Whether the server has the extensions."""
    yield from pong()
    return (yield from ready())


# Replies to extensions: a status first.


def accepted() -> Reply[None]:
    """OK, or Refusal."""
    status = (yield 1)[0]
    if status:
        yield from refused(status)


def refused(status: int) -> Reply[None]:
    """Read the rest of an answer whose status is not OK. Raises Refusal with the server's text."""
    if status == Status.TIMED_OUT:
        raise Refusal(Status.TIMED_OUT, "")
    try:
        known = Status(status)
    except ValueError:
        raise Garbled(f"it answered with the unknown status {status}") from None
    raise Refusal(known, (yield from a_blob(TEXT_BYTES_MAX)).decode("utf-8", "replace"))


def granted(answer: Callable[[], Reply[T]]) -> Callable[[], Reply[T]]:
    """OK and then the result, or Refusal."""

    def reply() -> Reply[T]:
        yield from accepted()
        return (yield from answer())

    return reply


def in_time(answer: Callable[[], Reply[T]]) -> Callable[[], Reply[T | None]]:
    """OK and then the result; None if the wait ran out of time."""

    def reply() -> Reply[T | None]:
        try:
            yield from accepted()
        except Refusal as refusal:
            if refusal.status not in (Status.TIMED_OUT, Status.EMPTY):
                raise
            return None
        return (yield from answer())

    return reply


def done() -> Reply[Literal[True]]:
    """The result of an operation that returns nothing: True, once it was done."""
    yield from ()
    return True


def flag() -> Reply[bool]:
    return (yield from byte()) != 0


def optional_blob() -> Reply[bytes | None]:
    """A u8 that is 0 if the blob is absent, then the blob (empty if absent)."""
    there = yield from flag()
    data = yield from a_blob()
    return data if there else None


def terms() -> Reply[ServerTerms]:
    yield from accepted()
    flags = yield from byte()
    nonce = yield from exactly(NONCE_BYTES)
    key_bytes, value_bytes, keys = struct.unpack("<QQQ", sizes := (yield 24))
    identity = yield from exactly(IDENTITY_BYTES)
    kept, rooms = bool(flags & KEPT), bool(flags & ROOMS)  # other flags are of later releases
    agreed = bytes((flags,)) + blob(nonce) + sizes + blob(identity)
    return ServerTerms(bool(flags & SECRET), nonce, key_bytes, value_bytes, keys, identity, kept, rooms, agreed)


def told() -> Reply[Changed]:
    """Read the rest of a message with the status EVENT."""
    change = yield from byte()
    name = yield from a_blob()
    old = yield from optional_blob()
    new = yield from optional_blob()
    try:
        return Changed(name, Change(change), old, new)
    except ValueError:
        raise Garbled(f"it sent an event of the unknown kind {change}") from None


# Readers of a result: as torch's server sends it; as our server does, after a status; and with a possible time-out.
RESULTS: dict[Result, Callable[[], Reply[Any]]] = {
    Result.NOTHING: done,
    Result.READY: ready,
    Result.FLAG: flag,
    Result.NUMBER: number,
    Result.BLOB: a_blob,
    Result.OPTIONAL_BLOB: optional_blob,
    Result.COUNTED_BLOBS: counted_blobs,
    Result.POPPED: popped,
}
GRANTED = {result: granted(read) for result, read in RESULTS.items()}
IN_TIME = {result: in_time(read) for result, read in RESULTS.items()}


# Direct decoders of the usual small replies. Each returns the result, or None if the generator has to read the reply.
# A generator takes 2 us, a fifth of the whole round trip to a server on the same machine. One of these takes 0.3 us.


def decode_done(data: bytes) -> Literal[True] | None:
    return True if data == b"\0" else None


def decode_ready(data: bytes) -> bool | None:
    return True if data == b"\0" else False if data == b"\1" else None


def decode_flag(data: bytes) -> bool | None:
    return data[1] != 0 if len(data) == 2 and not data[0] else None


def decode_number(data: bytes) -> int | None:
    number: int | None = I64.unpack_from(data, 1)[0] if len(data) == 9 and not data[0] else None
    return number


def decode_blob(data: bytes) -> bytes | None:
    size = len(data) - 9
    return data[9:] if size >= 0 and not data[0] and int.from_bytes(data[1:9], "little") == size else None


def decode_blobs(data: bytes) -> list[bytes] | None:
    """The values of a request about one key."""
    value = decode_blob(data)
    return None if value is None else [value]


# The decoder for each form of a result that our server sends after its status.
DECODERS: dict[Result, Callable[[bytes], Any]] = {
    Result.NOTHING: decode_done,
    Result.FLAG: decode_flag,
    Result.NUMBER: decode_number,
    Result.BLOB: decode_blob,
}
