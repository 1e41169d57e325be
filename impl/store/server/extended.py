"""What the extensions do: our client's requests, each answered by a status and its result.

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
from ..wire import I64, TOKEN_BYTES, U64, VERSION, blob, shown
from .blocking import SessionArrival, SessionPop, SessionRead, SessionWait, arrive, wait
from .requests import guard, guard_sum, send_first

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


def set_(service: Service, session: Session, key: bytes, value: bytes) -> None:
    guard(key)
    service.contents.set(key, value)
    service.send(session, OK)


def get(service: Service, session: Session, milliseconds: int, keys: list[bytes]) -> None:
    wait(SessionRead(service, session, keys, partial(_values, keys)), milliseconds)


def _values(keys: list[bytes], waited: SessionWait) -> None:
    values = waited.service.contents.values
    waited.service.send_values(waited.session, OK, [values[key] for key in keys])


def wait_(service: Service, session: Session, milliseconds: int, keys: list[bytes]) -> None:
    wait(SessionWait(service, session, keys, _done), milliseconds)


def _done(waited: SessionWait) -> None:
    waited.service.send(waited.session, OK)


def add(service: Service, session: Session, key: bytes, delta: int) -> None:
    guard_sum(key, delta)
    service.send(session, OK + I64.pack(service.contents.add(key, delta)))


def compare_set(service: Service, session: Session, key: bytes, expected: bytes, desired: bytes) -> None:
    guard(key)
    service.send_values(session, OK, [service.contents.compare_set(key, expected, desired)])


def append(service: Service, session: Session, key: bytes, value: bytes) -> None:
    guard(key)
    service.contents.append(key, value)
    service.send(session, OK)


def multi_set(service: Service, session: Session, pairs: list[bytes]) -> None:
    keys = pairs[::2]
    guard(*keys)
    service.contents.multi_set(keys, pairs[1::2])
    service.send(session, OK)


def delete(service: Service, session: Session, key: bytes) -> None:
    guard(key)
    service.send(session, FLAGS[service.contents.take(key) is not None])


def take(service: Service, session: Session, key: bytes) -> None:
    guard(key)
    value = service.contents.take(key)
    service.send_values(session, FLAGS[value is not None], [value or b""])


def check(service: Service, session: Session, keys: list[bytes]) -> None:
    service.send(session, FLAGS[all(map(service.contents.present, keys))])


def num_keys(service: Service, session: Session) -> None:
    service.send(session, OK + I64.pack(len(service.contents.values)))


def list_keys(service: Service, session: Session, prefix: bytes) -> None:
    keys = service.contents.keys(prefix)
    service.send_values(session, OK + I64.pack(len(keys)), keys)


def queue_push(service: Service, session: Session, key: bytes, element: bytes) -> None:
    guard(key)
    service.send(session, OK + I64.pack(service.contents.push(key, element)))


def queue_pop(service: Service, session: Session, milliseconds: int, key: bytes) -> None:
    if milliseconds == 0 and not service.contents.length(key):
        raise Refused(Status.EMPTY, f"the queue {shown(key)} is empty")
    wait(SessionPop(service, session, (key,), partial(_element, key)), milliseconds)


def _element(key: bytes, waited: SessionWait) -> None:
    send_first(waited.service, waited.session, OK, key)


def queue_len(service: Service, session: Session, key: bytes) -> None:
    service.send(session, OK + I64.pack(service.contents.length(key)))


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
    Extension.HELLO: hello,
    Extension.PROVE: prove,
    Extension.SET: set_,
    Extension.GET: get,
    Extension.WAIT: wait_,
    Extension.ADD: add,
    Extension.COMPARE_SET: compare_set,
    Extension.APPEND: append,
    Extension.MULTI_SET: multi_set,
    Extension.DELETE: delete,
    Extension.TAKE: take,
    Extension.CHECK: check,
    Extension.NUM_KEYS: num_keys,
    Extension.LIST_KEYS: list_keys,
    Extension.QUEUE_PUSH: queue_push,
    Extension.QUEUE_POP: queue_pop,
    Extension.QUEUE_LEN: queue_len,
    Extension.BARRIER: barrier,
    Extension.WATCH: watch,
    Extension.UNWATCH: unwatch,
}
