"""A store's server without sockets, its peers, and the requests that they send: what its tests are written in.

Rule: bytes in, bytes out, at the time that the room's clock says.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from trystate.impl.store.limits import Limits
from trystate.impl.store.server.service import Service
from trystate.impl.store.server.session import Session
from trystate.impl.store.wire import I64, STOP_WAITING, TOKEN_BYTES, U64, WAIT_CANCELED, blob, blobs, counted
from trystate.model.store.vocabulary import Change, Extension, Query, Status

from ...adapters.our_store.wire import VALIDATE as VALIDATE
from ...adapters.our_store.wire import add as add
from ...adapters.our_store.wire import get as get
from ...adapters.our_store.wire import request
from ...adapters.our_store.wire import set_ as set_
from ...adapters.our_store.wire import wait as wait

plain = extended = request  # a reader sees whose it is: torch's, or an extension
KEY, OTHER = b"/key", b"/other"
CANCEL = request(Query.CANCEL_WAIT)
OK, TIMED_OUT = bytes((Status.OK,)), bytes((Status.TIMED_OUT,))
STOP, CANCELED = STOP_WAITING, WAIT_CANCELED
TOKENS = count(1)


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


def multi_set(*pairs: bytes) -> bytes:
    return plain(Query.MULTI_SET, U64.pack(len(pairs) // 2), blobs(pairs))


def multi_get(*keys: bytes) -> bytes:
    return plain(Query.MULTI_GET, counted(list(keys)))


def xget(milliseconds: int, *keys: bytes) -> bytes:
    return extended(Extension.GET, i64(milliseconds), counted(list(keys)))


def xpop(milliseconds: int, key: bytes) -> bytes:
    return extended(Extension.QUEUE_POP, i64(milliseconds), blob(key))


def xbarrier(milliseconds: int, key: bytes, world_size: int, token: bytes = b"") -> bytes:
    """Without a token: one that nobody else has."""
    token = token or next(TOKENS).to_bytes(TOKEN_BYTES, "little")
    return extended(Extension.BARRIER, i64(milliseconds), blob(key), i64(world_size), blob(token))


def watch(key: bytes) -> bytes:
    return extended(Extension.WATCH, blob(key))


def event(change: Change, key: bytes, old: bytes | None, new: bytes | None) -> bytes:
    head = bytes((Status.EVENT, change)) + blob(key)
    return head + b"".join(bytes((each is not None,)) + blob(each or b"") for each in (old, new))


class Peer:
    """A connection; `peer(request)` sends, and returns what has been answered since."""

    def __init__(self, room: Room, validated: bool = True) -> None:
        self.room = room
        session = room.service.connected(f"peer{len(room.peers)}", room.now)
        assert session is not None
        self.session: Session = session
        self.answers = b""
        room.peers.append(self)
        if validated:
            self(VALIDATE)

    def __call__(self, data: bytes = b"") -> bytes:
        if data:
            self.room.service.received(self.session, data, self.room.now)
        self.room.collect()
        answers, self.answers = self.answers, b""
        return answers

    def leave(self) -> None:
        self.room.service.disconnected(self.session)
        self.room.collect()

    @property
    def closed(self) -> bool:
        return self.session.closing


class Room:
    """A service, its clock, and a driver for its peers that sends everything at once."""

    def __init__(
        self, limits: Limits | None = None, secret: bytes | None = None, kind: Callable[..., Service] = Service
    ) -> None:
        self.now = 1000.0
        self.log: list[str] = []
        self.peers: list[Peer] = []
        nonces = iter(range(1, 256))
        self.service = kind(
            limits=limits, secret=secret, random_bytes=lambda n: bytes((next(nonces),)) * n, log=self.log.append
        )

    def peer(self, validated: bool = True) -> Peer:
        return Peer(self, validated)

    def trio(self) -> tuple[Peer, Peer, Peer]:
        return self.peer(), self.peer(), self.peer()

    def collect(self) -> None:
        for session in self.service.take_pending():
            for peer in self.peers:
                if peer.session is session:
                    while piece := session.take_outgoing():
                        peer.answers += piece

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        deadline = self.service.alarm.at
        if deadline is not None and deadline <= self.now:
            self.service.tick(self.now)
        self.collect()


def held(service: Service) -> dict[str, int]:
    return {name: size for name, size in service.tables().items() if size}
