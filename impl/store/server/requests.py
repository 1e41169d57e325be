"""What torch's nineteen requests do (TCPStoreLibUvBackend.cpp), where a refusal closes the connection.

Rule: a handler reads and changes the store through its contents, and answers exactly once: now, or when it unblocks.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from trystate.model.store.vocabulary import Connection, Query, Status

from ..contents.contents import Refused
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


def guard_sum(key: bytes, delta: int) -> None:
    """Raise `Refused` for what is no worker that counts itself in, or looks how many have."""
    if delta not in (0, 1):
        guard(key)


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


def set_(service: Service, session: Session, key: bytes, value: bytes) -> None:
    guard(key)
    service.contents.set(key, value)


def compare_set(service: Service, session: Session, key: bytes, expected: bytes, desired: bytes) -> None:
    guard(key)
    service.send_values(session, b"", [service.contents.compare_set(key, expected, desired)])


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


def add(service: Service, session: Session, key: bytes, delta: int) -> None:
    guard_sum(key, delta)
    service.send(session, I64.pack(service.contents.add(key, delta)))


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


def num_keys(service: Service, session: Session) -> None:
    service.send(session, I64.pack(len(service.contents.values)))


def list_keys(service: Service, session: Session) -> None:
    keys = service.contents.keys()
    service.send_values(session, I64.pack(len(keys)), keys)


def delete(service: Service, session: Session, key: bytes) -> None:
    guard(key)
    service.send(session, I64.pack(service.contents.take(key) is not None))


def append(service: Service, session: Session, key: bytes, value: bytes) -> None:
    guard(key)
    service.contents.append(key, value)


def multi_set(service: Service, session: Session, pairs: list[bytes]) -> None:
    keys = pairs[::2]
    guard(*keys)
    service.contents.multi_set(keys, pairs[1::2])


def queue_push(service: Service, session: Session, key: bytes, element: bytes) -> None:
    guard(key)
    service.contents.push(key, element)


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


def queue_len(service: Service, session: Session, key: bytes) -> None:
    service.send(session, I64.pack(service.contents.length(key)))


def barrier(service: Service, session: Session, key: bytes, world_size: int) -> None:
    arrive(SessionArrival(service, session, key, STOP_WAITING), world_size)


HANDLERS: dict[int, Callable[..., None]] = {
    Query.VALIDATE: validate,
    Query.SET: set_,
    Query.COMPARE_SET: compare_set,
    Query.GET: get,
    Query.ADD: add,
    Query.CHECK: check,
    Query.WAIT: wait_,
    Query.GETNUMKEYS: num_keys,
    Query.DELETE_KEY: delete,
    Query.APPEND: append,
    Query.MULTI_GET: multi_get,
    Query.MULTI_SET: multi_set,
    Query.CANCEL_WAIT: cancel_wait,
    Query.PING: ping,
    Query.QUEUE_PUSH: queue_push,
    Query.QUEUE_POP: queue_pop,
    Query.QUEUE_LEN: queue_len,
    Query.LIST_KEYS: list_keys,
    Query.BARRIER: barrier,
}
