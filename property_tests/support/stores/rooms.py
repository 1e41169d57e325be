"""A store's server without sockets, its peers, and their requests, for the tests of the server.

Rule: a peer sends bytes and receives bytes, at the time of the room's clock.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from trystate.impl.store.limits import Limits
from trystate.impl.store.server.service import Service
from trystate.impl.store.wire import I64, STOP_WAITING, U64, blob, blobs, counted
from trystate.model.store.vocabulary import Extension, Query, Status

from ...adapters.our_store.lines import InProcess
from ...adapters.our_store.lines import held as held
from ...adapters.our_store.wire import VALIDATE as VALIDATE
from ...adapters.our_store.wire import add as add
from ...adapters.our_store.wire import get as get
from ...adapters.our_store.wire import request
from ...adapters.our_store.wire import set_ as set_
from ...adapters.our_store.wire import wait as wait

plain = extended = request  # two names for one function: a request of torch's, or of ours
KEY, OTHER = b"/key", b"/other"
CANCEL = request(Query.CANCEL_WAIT)
OK = bytes((Status.OK,))
STOP = STOP_WAITING


def i64(number: int) -> bytes:
    return I64.pack(number)


def delete(key: bytes) -> bytes:
    return plain(Query.DELETE_KEY, blob(key))


def push(key: bytes, element: bytes) -> bytes:
    return plain(Query.QUEUE_PUSH, blob(key), blob(element))


def pop(key: bytes) -> bytes:
    return plain(Query.QUEUE_POP, blob(key))


def length(key: bytes) -> bytes:
    return plain(Query.QUEUE_LEN, blob(key))


def barrier(key: bytes, world_size: int) -> bytes:
    return plain(Query.BARRIER, blob(key), i64(world_size))


def compare(key: bytes, expected: bytes, desired: bytes) -> bytes:
    return plain(Query.COMPARE_SET, blob(key), blob(expected), blob(desired))


def multi_set(*pairs: bytes) -> bytes:
    return plain(Query.MULTI_SET, U64.pack(len(pairs) // 2), blobs(pairs))


def xget(milliseconds: int, *keys: bytes) -> bytes:
    return extended(Extension.GET, i64(milliseconds), counted(list(keys)))


def xpop(milliseconds: int, key: bytes) -> bytes:
    return extended(Extension.QUEUE_POP, i64(milliseconds), blob(key))


def watch(key: bytes) -> bytes:
    return extended(Extension.WATCH, blob(key))


class Peer:
    """A connection. `peer(request)` sends a request and returns the bytes that have arrived since the last call."""

    def __init__(self, room: Room, validated: bool = True) -> None:
        self.room, self.line = room, room.connect()
        assert self.line.session is not None
        self.session = self.line.session
        if validated:
            self(VALIDATE)

    def __call__(self, data: bytes = b"") -> bytes:
        if data:
            self.line.send(data)
        self.room.deliver()
        return self.line.read()

    def leave(self) -> None:
        self.line.hang_up()

    @property
    def closed(self) -> bool:
        return self.session.closing


class Room(InProcess):
    """A service and its peers; each nonce is different."""

    def __init__(
        self, limits: Limits | None = None, secret: bytes | None = None, kind: Callable[..., Service] = Service
    ) -> None:
        nonces = count(1)
        super().__init__(limits, kind, 1000.0, secret=secret, random_bytes=lambda n: bytes((next(nonces),)) * n)

    def peer(self, validated: bool = True) -> Peer:
        return Peer(self, validated)

    def trio(self) -> tuple[Peer, Peer, Peer]:
        return self.peer(), self.peer(), self.peer()
