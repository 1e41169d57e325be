"""Requests that are answered later: the waits and the barriers of connections.

Theory of operation. A session has at most one blocked request (`session.blocked`, and its state is BLOCKED). The
request is either a wait, in the table of waits (`contents/waiting`), or an arrival at a barrier (`contents/barriers`).
It is in that table as long as the session is blocked. It ends in one of four ways:

- *satisfied* or *released*: the table removes it and calls it, during the request of another session that satisfied
  it. It is answered at once, so the replies have the order of the changes.
- *its time is over*: `expire` withdraws it and answers TIMED_OUT. torch's requests have no timeout; its client cancels.
- *CANCEL_WAIT*, or the end of its session: `withdraw`.

Failures:

- A request is refused (`Refused`): it was never blocked.
- The reply to a satisfied wait is refused, because a value is too large for a reply: the waiting session gets the
  refusal, not the session that satisfied the wait.

Called by the handlers, by the tables and by the service, on the driver's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

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
from .unread import Close, Replies

TIMED_OUT = bytes((Status.TIMED_OUT,))


class SessionWait(Wait):
    """A wait of a session for the keys of an operation. `reply` answers it when it is satisfied."""

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
        except Refused as refusal:  # the waiting session's request is refused, not the request that satisfied it
            self.blocking.replies.refuse(self.session, refusal)
        self.blocking.replies.pend(self.session)


class SessionArrival(Arrival):
    """A session's arrival at a barrier. `reply` is sent when it is released."""

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
        """Satisfy a wait at once, or block for `milliseconds` (negative: no limit). Raises `Refused`."""
        blocked, waiting = SessionWait(self, session, keys, reply, kind), self.contents.waiting
        if waiting.look(blocked):
            return reply()
        if milliseconds == 0:
            session.outgoing.append(TIMED_OUT)
            return None
        most = self.limits.waited_keys_total
        if waiting.keys_waited + len(blocked.keys) > most:
            count = f"a wait for {len(blocked.keys)} keys, with {waiting.keys_waited} of other waits,"
            raise Refused(Status.TOO_LARGE, f"{count} exceeds {most}: wait for fewer keys, or raise waited_keys_total")
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
        """Arrive at a barrier, and block until it is released or `milliseconds` are over (negative: no limit).

        Raises `Refused`. An earlier arrival with the same token is withdrawn, and its session is closed: its client has
        given it up, or belongs to a process that was restarted.
        """
        arrival = SessionArrival(self, session, key, reply, token)
        earlier = self.barriers.arrived_with(key, token)
        if isinstance(earlier, SessionArrival):
            reason = f"its client arrived at the barrier {shown(key)} again, on a connection from {session.peer}"
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
        """End the blocked state of a session: its request was answered or is withdrawn."""
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
