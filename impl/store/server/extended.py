"""The extensions: our client's requests, each answered by a status and its result.

Rule: a refusal is an answer, and the connection stays; `Service` sends it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from hmac import compare_digest
from typing import TYPE_CHECKING

from trystate.model.store.vocabulary import Extension, Status

from ...host.secret import NONCE_BYTES, client_proof, server_proof
from ..contents.contents import Refused
from ..operations import OPERATIONS, Get, QueuePop, Result, Wait
from ..wire import TOKEN_BYTES, U64, VERSION, blob, shown
from .blocking import SessionArrival, SessionWait, arrive, wait
from .requests import answer, handler, send_first

if TYPE_CHECKING:
    from .service import Service
    from .session import Session

OK = bytes((Status.OK,))
FLAGS = (b"\x00\x00", b"\x00\x01")  # OK, then no or yes


def hello(service: Service, session: Session, version: int) -> None:
    if version != VERSION:
        reason = f"version {version} of the extensions; this server has {VERSION}: install one release on both sides"
        raise Refused(Status.REFUSED, reason)
    limits = service.limits
    session.nonce = service.random_bytes(NONCE_BYTES)
    sizes = (limits.key_bytes, limits.value_bytes, limits.keys_in_request)
    terms = FLAGS[service.secret is not None] + blob(session.nonce) + b"".join(map(U64.pack, sizes))
    service.send(session, terms + blob(service.identity))


def prove(service: Service, session: Session, nonce: bytes, claim: bytes) -> None:
    secret, challenge = service.secret, session.nonce
    session.nonce = None  # a challenge is answered once
    if secret is None:
        raise Refused(Status.REFUSED, "this server has no secret: start it with one, or leave the client's out")
    if (
        challenge is None
        or len(nonce) != NONCE_BYTES
        or not compare_digest(claim, client_proof(secret, challenge, nonce))
    ):
        reason = "its proof of the secret is wrong: give the client the server's secret"
        service.refuse(session, Refused(Status.REFUSED, reason))
        service.close(session, reason)
        return
    service.admit(session)
    service.send(session, OK + blob(server_proof(secret, challenge, nonce)))


def waiter(kind: type[Get] | type[Wait], form: Result) -> Callable[..., None]:
    """The handler of an operation that waits for keys; it is applied once they are there."""

    def handle(service: Service, session: Session, milliseconds: int, keys: list[bytes]) -> None:
        operation = kind(keys)

        def reply(waited: SessionWait) -> None:
            answer(service, session, OK, form, operation.apply(service.contents))

        wait(SessionWait(service, session, keys, reply, kind), milliseconds)

    return handle


def queue_pop(service: Service, session: Session, milliseconds: int, key: bytes) -> None:
    if milliseconds == 0 and not service.contents.length(key):
        raise Refused(Status.EMPTY, f"the queue {shown(key)} is empty")
    wait(SessionWait(service, session, (key,), partial(_element, key), QueuePop), milliseconds)


def _element(key: bytes, waited: SessionWait) -> None:
    send_first(waited.service, waited.session, OK, key)


def barrier(service: Service, session: Session, milliseconds: int, key: bytes, world_size: int, token: bytes) -> None:
    if len(token) != TOKEN_BYTES:
        reason = f"the token at {shown(key)} has {len(token)} bytes, not {TOKEN_BYTES}: use the client of this package"
        raise Refused(Status.REFUSED, reason)
    arrive(SessionArrival(service, session, key, OK, token), world_size, milliseconds)


def watch(service: Service, session: Session, key: bytes) -> None:
    most = service.limits.watches_per_connection
    if len(session.watches) >= most and key not in session.watches:
        reason = f"{most} keys are watched already: cancel some, or raise watches_per_connection"
        raise Refused(Status.TOO_LARGE, reason)
    session.watches[key] = None
    service.contents.watching.begin(session, key)
    service.send(session, OK)


def unwatch(service: Service, session: Session, key: bytes) -> None:
    session.watches.pop(key, None)
    service.contents.watching.end(session, key)
    service.send(session, OK)


HANDLERS: dict[int, Callable[..., None]] = {
    int(kind.SPEC.ours.number): handler(kind, kind.SPEC.ours.result, OK) for kind in OPERATIONS if not kind.SPEC.blocks
} | {
    Extension.HELLO: hello,
    Extension.PROVE: prove,
    Extension.GET: waiter(Get, Get.SPEC.ours.result),
    Extension.WAIT: waiter(Wait, Wait.SPEC.ours.result),
    Extension.QUEUE_POP: queue_pop,
    Extension.BARRIER: barrier,
    Extension.WATCH: watch,
    Extension.UNWATCH: unwatch,
}
