"""Those of torch's nineteen requests that do not follow from `operations` (TCPStoreLibUvBackend.cpp).

They are about the connection, or are answered later, or are one of the two requests in which torch's client gets, pops
and waits. A refusal closes the connection: torch's protocol has no answer for it.

Rule: a handler reads and changes the store through its contents, and answers exactly once: now, or when it unblocks.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from trystate.model.store.vocabulary import Connection, Query, Status

from ..contents.contents import Refused
from ..wire import I64, MAGIC, NOT_READY, PROBE_KEY, READY, STOP_WAITING, U32, U64, WAIT_CANCELED
from .unread import BULK_BYTES

if TYPE_CHECKING:
    from .service import Service
    from .session import Session

VALIDATING = Connection.VALIDATING
UNPROVED = "it has not proved that it knows the secret: connect with the client of this package and its secret"


def validate(service: Service, session: Session, magic: int) -> None:
    if magic != MAGIC:
        raise Refused(Status.REFUSED, f"it validates with {magic:#x}, not {MAGIC:#x}: it speaks another protocol")
    if session.state is Connection.CONNECTING:
        session.state = Connection.VALIDATING
        if service.secret is None:
            service.admit(session)


def ping(service: Service, session: Session, nonce: int) -> None:
    session.outgoing.append(U32.pack(nonce))


def check(service: Service, session: Session, keys: list[bytes]) -> None:
    """Asked before the validation too, for the key by which a server of ours is known."""
    if session.state is VALIDATING and keys != [PROBE_KEY]:
        raise Refused(Status.REFUSED, UNPROVED)
    values, answer = service.contents.values, READY
    for key in keys:
        if key not in values and key not in service.contents.queues and keys != [PROBE_KEY]:
            answer = NOT_READY
            break
    session.outgoing.append(answer)


def wait(service: Service, session: Session, keys: list[bytes]) -> None:
    if service.promises.keep(session, keys):
        session.outgoing.append(STOP_WAITING)
    else:  # some are missing, or queues
        service.blocking.wait(session, keys, partial(_stop_waiting, service, session, keys))


def _stop_waiting(service: Service, session: Session, keys: list[bytes]) -> None:
    service.promises.make(session, keys)
    session.outgoing.append(STOP_WAITING)


def cancel_wait(service: Service, session: Session) -> None:
    if session.blocked is not None:
        service.blocking.withdraw(session)
    session.outgoing.append(WAIT_CANCELED)


def get(service: Service, session: Session, key: bytes) -> None:
    value = service.contents.values.get(key)
    if value is None or len(value) >= BULK_BYTES or session.promised_bytes:
        multi_get(service, session, [key])
    else:  # nearly always: the promised value is still there
        session.promise = None
        session.outgoing.append(U64.pack(len(value)) + value)


def multi_get(service: Service, session: Session, keys: list[bytes]) -> None:
    service.replies.values(session, b"", service.promises.redeem(session, keys))


def queue_pop(service: Service, session: Session, key: bytes) -> None:
    element = service.promises.element(session, key)
    if element is not None:
        service.replies.values(session, I64.pack(service.contents.length(key) + 1), [element])
        service.promises.redeemed(session)  # or back in the queue already, if it is more than may be unread
    elif key in service.contents.queues:
        send_first(service, session, b"", key)
    else:
        session.outgoing.append(I64.pack(0))


def send_first(service: Service, session: Session, status: bytes, key: bytes) -> None:
    """Answer a pop from a queue that is not empty; an element that is more than may be unread stays in it."""
    queue = service.contents.queues[key]
    service.replies.values(session, status + I64.pack(len(queue)), [queue[0]])
    if not session.closing:
        service.contents.pop(key)


def barrier(service: Service, session: Session, key: bytes, world_size: int) -> None:
    service.blocking.arrive(session, key, world_size, STOP_WAITING)


HANDLERS: dict[int, Callable[..., None]] = {
    Query.VALIDATE:    validate,
    Query.PING:        ping,
    Query.CHECK:       check,
    Query.WAIT:        wait,
    Query.CANCEL_WAIT: cancel_wait,
    Query.GET:         get,
    Query.MULTI_GET:   multi_get,
    Query.QUEUE_POP:   queue_pop,
    Query.BARRIER:     barrier,
}  # fmt: skip
