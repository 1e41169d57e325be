"""Requests that are answered later: waits and barriers of a connection.

Rule: a blocked request is in one table of its own and in `session.blocked`, or in neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from trystate.model.store.vocabulary import Status

from .. import operations
from ..contents.barriers import Arrival
from ..contents.contents import Refused
from ..contents.waiting import Wait
from ..operations import Operation
from ..wire import shown

if TYPE_CHECKING:
    from .service import Service
    from .session import Session

TIMED_OUT = bytes((Status.TIMED_OUT,))


class SessionWait(Wait):
    """A wait of a connection, in the sense of an operation; `reply` answers it when it is satisfied."""

    __slots__ = ("reads", "reply", "service", "session", "takes")

    def __init__(
        self,
        service: Service,
        session: Session,
        keys: Iterable[bytes],
        reply: Callable[[SessionWait], None],
        kind: type[Operation[Any]] = operations.Wait,
    ) -> None:
        super().__init__(keys)
        self.reads, self.takes = kind.reads, kind.takes
        self.service = service
        self.session = session
        self.reply = reply

    def satisfied(self) -> None:
        self.service.unblock(self.session)
        try:
            self.reply(self)
        except Refused as refusal:  # of its own request, not of the one that satisfied it
            self.service.refuse(self.session, refusal)


class SessionArrival(Arrival):
    """A connection's place in a barrier; `reply` is sent when it is released."""

    __slots__ = ("reply", "service", "session")

    def __init__(self, service: Service, session: Session, key: bytes, reply: bytes, token: bytes = b"") -> None:
        super().__init__(key, token)
        self.service = service
        self.session = session
        self.reply = reply

    def released(self) -> None:
        self.service.unblock(self.session)
        self.service.send(self.session, self.reply)


def wait(blocked: SessionWait, milliseconds: int = -1) -> None:
    """Satisfy a wait at once, or block on it for so long (negative: without end). Raises `Refused`."""
    if blocked.service.contents.waiting.look(blocked):
        blocked.reply(blocked)
    elif milliseconds == 0:
        blocked.service.send(blocked.session, TIMED_OUT)
    else:
        register(blocked, milliseconds)


def register(blocked: SessionWait, milliseconds: int = -1) -> None:
    """Block on a wait that would not be satisfied now. Raises `Refused`."""
    service, session = blocked.service, blocked.session
    waiting, most = service.contents.waiting, service.limits.waited_keys_total
    if waiting.keys_waited + len(blocked.keys) > most:
        count = f"a wait for {len(blocked.keys)} keys beside {waiting.keys_waited} that others wait for"
        raise Refused(Status.TOO_LARGE, f"{count} is more than {most}: wait for fewer, or raise waited_keys_total")
    waiting.begin(blocked)
    service.block(session, blocked, milliseconds)


def arrive(arrival: SessionArrival, world_size: int, milliseconds: int = -1) -> None:
    """Arrive at a barrier, and block until it is released (negative: without end). Raises `Refused`.

    An earlier arrival of the same token is withdrawn with its connection, which its client has given up, or which is
    that of a process that was started again.
    """
    service, session = arrival.service, arrival.session
    earlier = service.barriers.arrived_with(arrival.key, arrival.token)
    if isinstance(earlier, SessionArrival):
        reason = f"its client came to the barrier {shown(arrival.key)} again, on a connection from {session.peer}"
        service.close(earlier.session, reason, abort=True)
    service.block(session, arrival, milliseconds)
    try:
        service.barriers.arrive(arrival, world_size)
    except Refused:
        service.unblock(session)
        raise
    if milliseconds == 0 and session.blocked is not None:
        service.withdraw(session)
        service.send(session, TIMED_OUT)
