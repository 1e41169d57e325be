"""The requests of our client that do not follow from `operations`. Each is answered with a status and its result.

Rule: a refusal is an answer, which `Service` sends, and the connection stays open.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from hmac import compare_digest
from struct import Struct
from typing import TYPE_CHECKING

from trystate.model.store.vocabulary import Extension, Status

from ...host.sealing import bound
from ...host.secret import NONCE_BYTES, client_proof, server_proof
from ..contents.contents import Refused
from ..operations import Get, QueuePop, Wait
from ..wire import KEPT, ROOMS, SECRET, TOKEN_BYTES, U64, VERSION, blob, shown
from .promises import send_first
from .unread import BULK_BYTES

if TYPE_CHECKING:
    from .service import Service
    from .session import Session

OK = bytes((Status.OK,))
_pack_ok_size = Struct("<BQ").pack


def hello(service: Service, session: Session, version: int) -> None:
    if version != VERSION:
        reason = (
            f"the client speaks version {version} of trystate's requests, and this server version {VERSION}; install "
            "one release of trystate on both sides"
        )
        raise Refused(Status.REFUSED, reason)
    session.nonce = service.random_bytes(NONCE_BYTES)
    session.outgoing.append(OK + _terms(service, session.nonce))


def _terms(service: Service, nonce: bytes) -> bytes:
    limits = service.limits
    sizes = (limits.key_bytes, limits.value_bytes, limits.keys_in_request)
    flags = bytes((SECRET * (service.secret is not None) + KEPT * service.kept + ROOMS,))
    return flags + blob(nonce) + b"".join(map(U64.pack, sizes)) + blob(service.identity)


def prove(service: Service, session: Session, nonce: bytes, claim: bytes) -> None:
    secret, challenge = service.secret, session.nonce
    session.nonce = None  # a challenge may be answered only once
    if secret is None:
        raise Refused(Status.REFUSED, "this server has no secret; start it with one, or give the client none")
    # No challenge: PROVE without HELLO, or a second PROVE for one HELLO. Neither can be right, so a recorded proof is
    # worth nothing, and a connection has one guess.
    agreed = _terms(service, challenge) if service.binds and challenge is not None else b""
    if (
        challenge is None
        or len(nonce) != NONCE_BYTES
        or not compare_digest(claim, client_proof(secret, challenge, nonce, agreed))
    ):
        reason = (
            "the client's proof of the secret is wrong; give the client the server's secret, and the same release. A "
            "relay that alters what the two sides agree on has the same effect"
        )
        service.replies.refuse(session, Refused(Status.REFUSED, reason))
        service.close(session, reason)
        return
    if service.binds:
        session.bound = bound(secret, challenge, nonce, agreed, server=True)
    else:
        service.admit(session)
    session.outgoing.append(OK + blob(server_proof(secret, challenge, nonce, agreed)))


def get(service: Service, session: Session, milliseconds: int, keys: list[bytes]) -> None:
    found = service.contents.values
    if len(keys) == 1 and (value := found.get(keys[0])) is not None and len(value) < BULK_BYTES:
        session.outgoing.append(_pack_ok_size(0, len(value)) + value)  # nearly always
        return
    try:
        values = [*map(found.__getitem__, keys)]
    except KeyError:  # a key is missing: the get waits
        keys = [*map(dict(zip(keys, keys, strict=True)).__getitem__, keys)]  # a repeated key is kept in memory once
        reply = partial(_values, service, session, keys)
        service.blocking.wait(session, keys, reply, Get, milliseconds)
    else:
        service.replies.values(session, OK, values)


def _values(service: Service, session: Session, keys: list[bytes]) -> None:
    service.replies.values(session, OK, Get(keys).apply(service.contents))


def wait(service: Service, session: Session, milliseconds: int, keys: list[bytes]) -> None:
    if all(map(service.contents.values.__contains__, keys)):  # nearly always, and faster than the table of waits
        session.outgoing.append(OK)
    else:
        service.blocking.wait(session, keys, partial(session.outgoing.append, OK), Wait, milliseconds)


def queue_pop(service: Service, session: Session, milliseconds: int, key: bytes) -> None:
    # `queue_pop(block=False)` on an empty queue: EMPTY shows that no wait took place.
    if milliseconds == 0 and not service.contents.length(key):
        raise Refused(Status.EMPTY, f"the queue {shown(key)} is empty")
    reply = partial(send_first, service, session, OK, key)
    service.blocking.wait(session, (key,), reply, QueuePop, milliseconds)


def barrier(service: Service, session: Session, milliseconds: int, key: bytes, world_size: int, token: bytes) -> None:
    if len(token) != TOKEN_BYTES:
        reason = f"the token at {shown(key)} has {len(token)} bytes, not {TOKEN_BYTES}; use the client of this package"
        raise Refused(Status.REFUSED, reason)
    service.blocking.arrive(session, key, world_size, OK, token, milliseconds)


def watch(service: Service, session: Session, key: bytes) -> None:
    service.watches.begin(session, key)
    session.outgoing.append(OK)


def unwatch(service: Service, session: Session, key: bytes) -> None:
    service.watches.end(session, key)
    session.outgoing.append(OK)


def room(service: Service, session: Session, run_id: bytes, data: bytes) -> None:
    service.rooms.request(session, run_id, data)


HANDLERS: dict[int, Callable[..., None]] = {
    Extension.HELLO:     hello,
    Extension.PROVE:     prove,
    Extension.GET:       get,
    Extension.WAIT:      wait,
    Extension.QUEUE_POP: queue_pop,
    Extension.BARRIER:   barrier,
    Extension.WATCH:     watch,
    Extension.UNWATCH:   unwatch,
    Extension.ROOM:      room,
}  # fmt: skip
