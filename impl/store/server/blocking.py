"""Requests that are answered later: the waits and the barriers of connections.

Theory of operation. A session has at most one blocked request (`session.blocked`, and its state is BLOCKED). That is
either a wait, in the table of waits (`contents/waiting`), or an arrival at a barrier (`contents/barriers`), and is in
that one table as long as the session is blocked. It ends in one of four ways:

- *satisfied* or *released*: the table takes it out and calls it, in the middle of the request of another session that
  made it come true. It is answered at once, so that the order of replies is that of the changes.
- *its time is over*: `expire` withdraws it and answers TIMED_OUT. torch's requests have no time; their client cancels.
- *CANCEL_WAIT*, or the end of its session: `withdraw`.

Two things can go wrong. A request is refused (`Refused`): then it was never blocked. The reply to a satisfied wait is
refused (a value that is too large to be answered): the waiting session is told so, and not the one that satisfied it.

Called by the handlers, by the tables and by the service, on the driver's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from trystate.model.store.vocabulary import Connection, Status

from ..contents.barriers import Arrival, Barriers
from ..contents.contents import Contents, Refused
from ..contents.waiting import Wait
from ..limits import Limits
from ..operations import Operation
from ..operations import Wait as WaitOperation
from ..wire import shown
from .alarm import Alarm
from .session import Session
from .unread import Replies

TIMED_OUT = bytes((Status.TIMED_OUT,))


class Close(Protocol):
    """Ends a session because of its peer."""

    def __call__(self, session: Session, reason: str, *, abort: bool = False) -> None: ...


class SessionWait(Wait):
    """A wait of a session, in the sense of an operation; `reply` answers it when it is satisfied."""

    __slots__ = ("blocking", "reads", "reply", "session", "takes")

    def __init__(
        self,
        blocking: Blocking,
        session: Session,
        keys: Iterable[bytes],
        reply: Callable[[], None],
        kind: type[Operation[Any]],
    ) -> None:
        super().__init__(keys)
        self.reads, self.takes = kind.reads, kind.takes
        self.blocking, self.session, self.reply = blocking, session, reply

    def satisfied(self) -> None:
        self.blocking.unblock(self.session)
        try:
            self.reply()
        except Refused as refusal:  # of its own request, not of the one that satisfied it
            self.blocking.replies.refuse(self.session, refusal)
        self.blocking.replies.pend(self.session)


class SessionArrival(Arrival):
    """A session's place in a barrier; `reply` is sent when it is released."""

    __slots__ = ("blocking", "reply", "session")

    def __init__(self, blocking: Blocking, session: Session, key: bytes, reply: bytes, token: bytes) -> None:
        super().__init__(key, token)
        self.blocking, self.session, self.reply = blocking, session, reply

    def released(self) -> None:
        self.blocking.unblock(self.session)
        self.session.outgoing.append(self.reply)
        self.blocking.replies.pend(self.session)


class Blocking:
    """The blocked requests of all sessions."""

    def __init__(
        self,
        contents: Contents,
        limits: Limits,
        alarm: Alarm,
        clock: Callable[[], float],
        replies: Replies,
        close: Close,
    ) -> None:
        self.contents, self.limits, self.clock = contents, limits, clock
        self.replies, self.close = replies, close
        self.barriers = Barriers()
        self.alarm, self.deadlines = alarm, alarm.deadlines

    def wait(
        self,
        session: Session,
        keys: Iterable[bytes],
        reply: Callable[[], None],
        kind: type[Operation[Any]] = WaitOperation,
        milliseconds: int = -1,
    ) -> None:
        """Satisfy a wait at once, or block on it for so long (negative: without end). Raises `Refused`."""
        blocked, waiting = SessionWait(self, session, keys, reply, kind), self.contents.waiting
        if waiting.look(blocked):
            return reply()
        if milliseconds == 0:
            session.outgoing.append(TIMED_OUT)
            return None
        most = self.limits.waited_keys_total
        if waiting.keys_waited + len(blocked.keys) > most:
            count = f"a wait for {len(blocked.keys)} keys beside {waiting.keys_waited} that others wait for"
            raise Refused(Status.TOO_LARGE, f"{count} is more than {most}: wait for fewer, or raise waited_keys_total")
        waiting.begin(blocked)
        self._block(session, blocked, milliseconds)
        return None

    def arrive(
        self,
        session: Session,
        key: bytes,
        world_size: int,
        reply: bytes,
        token: bytes = b"",
        milliseconds: int = -1,
    ) -> None:
        """Arrive at a barrier, and block until it is released (negative: without end). Raises `Refused`.

        An earlier arrival of the same token is withdrawn with its session, which its client has given up, or which is
        that of a process that was started again.
        """
        arrival = SessionArrival(self, session, key, reply, token)
        earlier = self.barriers.arrived_with(key, token)
        if isinstance(earlier, SessionArrival):
            reason = f"its client came to the barrier {shown(key)} again, on a connection from {session.peer}"
            self.close(earlier.session, reason, abort=True)
        self._block(session, arrival, milliseconds)
        try:
            self.barriers.arrive(arrival, world_size)
        except Refused:
            self.unblock(session)
            raise
        if milliseconds == 0 and session.blocked is not None:
            self.withdraw(session)
            session.outgoing.append(TIMED_OUT)

    def unblock(self, session: Session) -> None:
        """The session's request was answered, or is withdrawn."""
        session.blocked = None
        session.state = Connection.READY
        self.deadlines.discard(session)

    def withdraw(self, session: Session) -> None:
        """Take a blocked request out of its table."""
        blocked = session.blocked
        self.unblock(session)
        if isinstance(blocked, Arrival):
            self.barriers.withdraw(blocked)
        else:
            assert isinstance(blocked, Wait)
            self.contents.waiting.withdraw(blocked)

    def expire(self, now: float) -> None:
        """Answer the requests whose time is over."""
        while (late := self.deadlines.pop(now)) is not None:
            self.withdraw(late)
            late.outgoing.append(TIMED_OUT)
            self.replies.pend(late)

    def _block(self, session: Session, blocked: Wait | Arrival, milliseconds: int) -> None:
        session.blocked = blocked
        session.state = Connection.BLOCKED
        if milliseconds >= 0:
            due = self.clock() + milliseconds / 1000
            self.deadlines.add(session, due)
            self.alarm.by(due)
