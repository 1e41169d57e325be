"""The requests of torch's protocol (nineteen in all) that do not follow from `operations` (TCPStoreLibUvBackend.cpp).

They are about the connection, or are answered later, or are one of the two requests with which torch's client gets and
pops (`promises`). A refusal closes the connection, because torch's protocol has no answer for it.

Rule: a handler reads and changes the store through its contents, and answers exactly once: now, or when it unblocks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from trystate.model.store.vocabulary import Connection, Query, Status

from ..contents.contents import Refused
from ..wire import MAGIC, NOT_READY, PROBE_KEY, READY, STOP_WAITING, U32, WAIT_CANCELED
from . import promises

if TYPE_CHECKING:
    from .service import Service
    from .session import Session

VALIDATING = Connection.VALIDATING
UNPROVED = "it has not proved that it has the secret; connect with the client of this package and its secret"


def validate(service: Service, session: Session, magic: int) -> None:
    if magic != MAGIC:
        raise Refused(Status.REFUSED, f"it validates with {magic:#x}, not {MAGIC:#x}; it speaks another protocol")
    if session.state is Connection.CONNECTING:  # a further VALIDATE changes nothing
        session.state = Connection.VALIDATING
        if service.secret is None:
            service.admit(session)


def ping(service: Service, session: Session, nonce: int) -> None:
    session.outgoing.append(U32.pack(nonce))


def check(service: Service, session: Session, keys: list[bytes]) -> None:
    """Answer CHECK. The probe key, which shows that a server is ours, is also answered before the secret is proved."""
    if session.state is VALIDATING and keys != [PROBE_KEY]:
        raise Refused(Status.REFUSED, UNPROVED)
    values, answer = service.contents.values, READY
    for key in keys:
        if key not in values and key not in service.contents.queues and keys != [PROBE_KEY]:
            answer = NOT_READY
            break
    session.outgoing.append(answer)


def cancel_wait(service: Service, session: Session) -> None:
    if session.blocked is not None:  # else the wait was satisfied before, and the client gets both answers
        service.blocking.withdraw(session)
    session.outgoing.append(WAIT_CANCELED)


def barrier(service: Service, session: Session, key: bytes, world_size: int) -> None:
    service.blocking.arrive(session, key, world_size, STOP_WAITING)


HANDLERS: dict[int, Callable[..., None]] = {
    Query.VALIDATE:    validate,
    Query.PING:        ping,
    Query.CHECK:       check,
    Query.WAIT:        promises.wait,
    Query.CANCEL_WAIT: cancel_wait,
    Query.GET:         promises.get,
    Query.MULTI_GET:   promises.multi_get,
    Query.QUEUE_POP:   promises.queue_pop,
    Query.BARRIER:     barrier,
}  # fmt: skip
