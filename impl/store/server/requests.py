"""torch's nineteen requests (TCPStoreLibUvBackend.cpp), where a refusal closes the connection.

Most follow from `operations`: `handler` makes an operation of a request's fields, applies it and sends the result. The
others are written out here: they are about the connection, or about the two requests in which torch's client gets, pops
and waits.

Rule: a handler reads and changes the store through its contents, and answers exactly once: now, or when it unblocks.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from trystate.model.store.vocabulary import Connection, Query, Status

from ..contents.contents import Refused
from ..operations import OPERATIONS, Operation, Result
from ..wire import (
    COUNTER_KEY,
    I64,
    MAGIC,
    NOT_READY,
    PROBE_KEY,
    READY,
    STOP_WAITING,
    U32,
    WAIT_CANCELED,
    shown,
)
from .blocking import SessionArrival, SessionWait, arrive, wait

if TYPE_CHECKING:
    from .service import Service
    from .session import Session

UNPROVED = "it has not proved that it knows the secret: connect with the client of this package and its secret"


def guard(*keys: bytes) -> None:
    """Raise `Refused` if the counter of the workers is among them: they only add 1 to it, or 0 to read it."""
    if COUNTER_KEY in keys:
        reason = f"{shown(COUNTER_KEY)} counts the workers: nobody may change it but by adding 1; choose another key"
        raise Refused(Status.REFUSED, reason)


def answer(service: Service, session: Session, status: bytes, form: Result, result: Any) -> None:
    """Send a result in its form, after a status if the request is an extension."""
    head, values = _ENCODED[form](result)
    if values is not None:
        service.send_values(session, status + head, values)
    elif status or head:
        service.send(session, status + head)


# The form of a result -> its first bytes, and the blobs behind them (None: there never are any).
_ENCODED: dict[Result, Callable[[Any], tuple[bytes, list[bytes] | None]]] = {
    Result.NOTHING:       lambda result: (b"", None),
    Result.FLAG:          lambda flag: (b"\x01" if flag else b"\x00", None),
    Result.NUMBER:        lambda number: (I64.pack(number), None),
    Result.BLOB:          lambda value: (b"", [value]),
    Result.OPTIONAL_BLOB: lambda value: (b"\x00" if value is None else b"\x01", [value or b""]),
    Result.BLOBS:         lambda values: (b"", values),
    Result.COUNTED_BLOBS: lambda values: (I64.pack(len(values)), values),
}  # fmt: skip


def handler(kind: type[Operation[Any]], form: Result, status: bytes = b"") -> Callable[..., None]:
    """The handler of an operation that does not block: the fields of its request, then its meaning, then the answer."""

    def handle(service: Service, session: Session, *fields: Any) -> None:
        operation = kind(*fields)
        guard(*operation.guarded())
        answer(service, session, status, form, operation.apply(service.contents))

    return handle


def promise(keys: list[bytes], waited: SessionWait) -> None:
    """Answer a WAIT whose keys are all present, and keep what the request after it will ask for.

    torch's client gets in two requests, and pops in two (TCPStore.cpp: doGet, queuePop).
    """
    service, session = waited.service, waited.session
    values = service.contents.values
    if len(waited.keys) == 1 and keys[0] not in values:
        service.reserve(session, keys[0])
    else:
        service.keep(session, {key: value for key in keys if (value := values.get(key)) is not None})
    service.send(session, STOP_WAITING)


def validate(service: Service, session: Session, magic: int) -> None:
    if magic != MAGIC:
        raise Refused(Status.REFUSED, f"it validates with {magic:#x}, not {MAGIC:#x}: it speaks another protocol")
    if session.state is Connection.CONNECTING:
        session.state = Connection.VALIDATING
        if service.secret is None:
            service.admit(session)


def ping(service: Service, session: Session, nonce: int) -> None:
    service.send(session, U32.pack(nonce))


def get(service: Service, session: Session, key: bytes) -> None:
    multi_get(service, session, [key])


def multi_get(service: Service, session: Session, keys: list[bytes]) -> None:
    values, kept = service.contents.values, dict(zip(*(session.kept or ((), ())), strict=True))
    found = [values.get(key) for key in keys]
    if None in found and kept.keys() >= set(keys):  # all as they were then: values of two moments never were together
        found = [kept[key] for key in keys]
    if session.kept is not None:
        service.forget(session)
    service.send_values(session, b"", [value or b"" for value in found])


def check(service: Service, session: Session, keys: list[bytes]) -> None:
    if session.state is Connection.VALIDATING and keys != [PROBE_KEY]:
        raise Refused(Status.REFUSED, UNPROVED)
    present = service.contents.present
    ready = all(map(present, keys)) or keys == [PROBE_KEY]
    service.send(session, READY if ready else NOT_READY)


def wait_(service: Service, session: Session, keys: list[bytes]) -> None:
    wait(SessionWait(service, session, keys, partial(promise, keys)))


def cancel_wait(service: Service, session: Session) -> None:
    if session.blocked is not None:
        service.withdraw(session)
    service.send(session, WAIT_CANCELED)


def queue_pop(service: Service, session: Session, key: bytes) -> None:
    contents, reserved = service.contents, session.reserved
    if reserved is not None and reserved[0] == key:
        service.send_values(session, I64.pack(contents.length(key) + 1), [reserved[2]])
        service.redeemed(session)  # or back in the queue already, if it is more than may be unread
        return
    if session.kept is not None:
        service.forget(session)
    if key in contents.queues:
        send_first(service, session, b"", key)
    else:
        service.send(session, I64.pack(0))


def send_first(service: Service, session: Session, status: bytes, key: bytes) -> None:
    """Answer a pop from a queue that is not empty; an element that is more than may be unread stays in it."""
    queue = service.contents.queues[key]
    service.send_values(session, status + I64.pack(len(queue)), [queue[0]])
    if not session.closing:
        service.contents.pop(key)


def barrier(service: Service, session: Session, key: bytes, world_size: int) -> None:
    arrive(SessionArrival(service, session, key, STOP_WAITING), world_size)


HANDLERS: dict[int, Callable[..., None]] = {
    int(kind.SPEC.torch.number): handler(kind, kind.SPEC.torch.result)
    for kind in OPERATIONS
    if kind.SPEC.torch is not None and not kind.SPEC.blocks
} | {
    Query.VALIDATE: validate,
    Query.PING: ping,
    Query.CHECK: check,  # asked before the validation too
    Query.WAIT: wait_,
    Query.CANCEL_WAIT: cancel_wait,
    Query.GET: get,
    Query.MULTI_GET: multi_get,
    Query.QUEUE_POP: queue_pop,
    Query.BARRIER: barrier,
}
