"""The server without a socket or a clock: bytes and times in, bytes and orders to close out.

Rule: no bytes of a peer make it raise, block, or keep anything of a request that did not arrive whole. A driver
1. calls `connected` for a new connection, and closes that at once if it gets None;
2. calls `received` with each piece, and `disconnected` when the connection is gone;
3. calls `tick` when `alarm.at` is reached; between two ticks it only moves to an earlier time, or to None;
4. after each of these, for each of `take_pending()`, sends a piece (`take_outgoing`), calls `pend` for the next one,
   and when there is none obeys `closing`, and `abort` at once;
5. takes no piece while the transport holds one, and reports with `unsent` how much of that is left: when it is not all
   sent, when there is more behind it, and when it is gone.

Theory of operation. All calls come from one thread, the driver's. The service has the sessions and does their requests,
one after the other in the order in which their last bytes came; the meaning of a request is in `contents`. The rest has
owners: the promises of WAITs (`promises`), blocked requests (`blocking`), watches (`watches`), half-sent requests
(`half_sent`), unread replies (`unread`), and deadlines (`alarm`).

A request comes one of two ways to its handler. The usual one, a small request that arrived whole, is read by a function
that is compiled from the specification of the request (`fast_path`). All others are read by a frame (`parsing`). Which
requests a session may send depends on its state (`PERMITTED`); any other one closes it.

Any of these closes one connection alone, with a line of the log: a request that is not permitted or over a limit, a
refusal in torch's protocol (which has no answer for it; an extension is answered), a peer that does not read, that is
slow to begin, or that stops in the middle of a request, and a defect of a handler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from trystate.model.store.vocabulary import Connection, Extension, Query

from ..contents.contents import Contents, Refused
from ..limits import Limits
from ..operations import BODIES
from ..wire import IDENTITY_BYTES
from .alarm import Ages, Alarm
from .blocking import Blocking
from .fast_path import FAST_PATHS, HANDLERS, FastPath
from .half_sent import HalfSent
from .log import never_raising
from .parsing import Frame
from .promises import REDEEMING, Promises
from .requests import UNPROVED
from .session import Session
from .unread import BULK_BYTES, Replies, unread_bytes
from .watches import Watches

READY, BLOCKED, VALIDATING = Connection.READY, Connection.BLOCKED, Connection.VALIDATING
CONNECTING, CLOSING, CLOSED = Connection.CONNECTING, Connection.CLOSING, Connection.CLOSED

PERMITTED = {
    CONNECTING: frozenset({Query.VALIDATE}),
    VALIDATING: frozenset({Query.VALIDATE, Query.PING, Query.CHECK, Extension.HELLO, Extension.PROVE}),
    READY: frozenset(BODIES),
    BLOCKED: frozenset({Query.CANCEL_WAIT, Extension.UNWATCH}),
}
WHY_NOT = {
    CONNECTING: "its first request is not VALIDATE: it speaks another protocol",
    VALIDATING: UNPROVED,
    READY: "no such request: it speaks another protocol, or a later version",
    BLOCKED: "a request while another is blocked: use one connection for each thread",
}
STRANGER = Limits(key_bytes=64, value_bytes=64, keys_in_request=1)  # until validated and proved


class Service:
    """All connections of one store."""

    def __init__(
        self,
        *,
        limits: Limits | None = None,
        secret: bytes | None = None,
        random_bytes: Callable[[int], bytes],
        log: Callable[[str], None],
        clock: Callable[[], float] | None = None,
        contents: Contents | None = None,
        identity: bytes | None = None,
    ) -> None:
        """`contents` and their `identity` are those of a store that is kept across restarts."""
        self.limits = limits = limits or Limits()
        self.secret = secret
        self.random_bytes = random_bytes
        self.kept = identity is not None
        self.identity = identity or random_bytes(IDENTITY_BYTES)  # tells this store from an empty one that replaced it
        self.log = never_raising(log)
        self.now = 0.0
        clock = clock or (lambda: self.now)  # few requests need the time
        self.contents = contents if contents is not None else Contents(limits)
        self.sessions: dict[Session, None] = {}
        self.alarm = Alarm()
        self.handshakes = Ages(self.alarm, limits.handshake_seconds)
        self.half_sent = HalfSent(limits, self.alarm, clock, self.close)
        self.replies = Replies(limits, self.sessions, self.close)
        self.promises = Promises(self.contents, limits, self.alarm, clock)
        self.blocking = Blocking(self.contents, limits, self.alarm, clock, self.replies, self.close)
        self.watches = Watches(self.contents.watching, limits, self.replies)
        self.lists: dict[bytes, list[bytes]] = {}  # of keys, that were read lately; by their bytes

    # The driver's calls

    def connected(self, peer: str, now: float) -> Session | None:
        """Begin a connection; None, and a line in the log, if there are as many as there may be."""
        self.now = now
        if len(self.sessions) >= self.limits.connections:
            self.log(
                f"{peer}: refused: {len(self.sessions)} connections are the most: close some, or raise connections"
            )
            return None
        session = Session(peer, self.watches.tell, self.replies.held)
        self.sessions[session] = None
        self.handshakes.begin(session, now)
        return session

    def received(self, session: Session, data: bytes | bytearray | memoryview, now: float) -> None:
        """Take the next bytes of a connection, as they were cut. Never raises."""
        self.now = now
        self.take(session, bytes(data))
        self.pend(session)

    def take(self, session: Session, data: bytes, paths: dict[int, FastPath] = FAST_PATHS) -> None:
        """`received`, for a driver that looks itself whether this session has something to send."""
        try:
            if session.frame is not None:
                data = self._resume(session, data)
            position, end, outgoing = 0, len(data), session.outgoing
            while position < end:
                if (outgoing or session.queued or session.unsent) and self.replies.overflowed(session):
                    break
                operation = data[position]
                if session.promise is not None and operation not in REDEEMING:
                    self.promises.give_up(session)
                if session.state is READY:
                    stop = paths[operation](self, session, data, position, end)
                    if stop:
                        position = stop
                        continue
                position = self._begin(session, data, position)
        except Refused as refusal:
            self.close(session, str(refusal))
        except Exception as error:  # a defect of this server must not hurt the other connections
            self.close(session, f"internal error, please report it: {error!r}")

    def disconnected(self, session: Session) -> None:
        """Forget a connection and all it held; may be called twice."""
        self._forget(session)
        session.state = CLOSED
        session.drop()

    def tick(self, now: float) -> None:
        """Do what is due, and set the alarm."""
        self.now = now
        seconds = self.limits.handshake_seconds
        for session in self.handshakes.due(now):
            self.close(session, f"not validated within {seconds} s: raise handshake_seconds")
        self.half_sent.expire(now)
        self.promises.expire(now)
        self.blocking.expire(now)
        self.alarm.wind()

    def pend(self, session: Session) -> None:
        """Put it among those that have something to send, if it has."""
        self.replies.pend(session)

    def take_pending(self) -> Iterator[Session]:
        """The sessions that have something to send or are to be closed, with those that come to be so meanwhile."""
        return self.replies.take_pending()

    def unsent(self, session: Session, size: int) -> None:
        """How many bytes of what was taken the transport still holds. More than all may hold closes the slowest."""
        self.replies.unsent(session, size)

    def stop(self) -> None:
        """Close all connections."""
        for session in list(self.sessions):
            self._end(session, abort=False)

    def tables(self) -> dict[str, int]:
        """The size of each table that has something of a connection: all 0 when there is none."""
        waiting = self.contents.waiting
        return {
            "barriers": len(self.blocking.barriers.table),
            "deadlines": len(self.blocking.deadlines.due),
            "half_sent": len(self.half_sent.since) + self.half_sent.bytes,
            "handshakes": len(self.handshakes),
            "kept": self.promises.bytes,
            "reservations": len(self.promises.reservations),
            "sessions": len(self.sessions),
            "unsent": self.replies.held.bytes,
            "waits": len(waiting.waits) + waiting.keys_waited,
            "watches": len(self.contents.watching.watchers),
        }

    # Reading

    def _begin(self, session: Session, data: bytes, position: int) -> int:
        """Do one request of any kind, or keep what has arrived of it; where the next one begins."""
        operation, end, state = data[position], len(data), session.state
        if operation not in PERMITTED.get(state, ()):
            if state in PERMITTED:
                known = operation in BODIES
                self.close(session, WHY_NOT[state if known or state is not BLOCKED else READY] + f" ({operation})")
            return end
        frame = Frame(operation, self.limits if state is READY or state is BLOCKED else STRANGER)
        position = frame.advance(data, position + 1, end)
        if frame.complete:
            self._do(session, operation, frame.fields)
            return position
        self.half_sent.begin(session, frame, data[position:])
        return end

    def _resume(self, session: Session, data: bytes) -> bytes:
        """Read on in a request of which part has arrived; returns the bytes after it."""
        frame = session.frame
        assert frame is not None
        rest = self.half_sent.resume(session, data)
        if rest is None:
            return b""
        self._do(session, frame.operation, frame.fields)
        return rest

    def _do(self, session: Session, operation: int, fields: list[Any]) -> None:
        try:
            HANDLERS[operation](self, session, *fields)
        except Refused as refusal:
            if operation not in EXTENDED:
                raise
            self.replies.refuse(session, refusal)

    # The life of a session

    def admit(self, session: Session) -> None:
        """It is validated, and proved where that is asked: it may do everything."""
        session.state = READY
        self.handshakes.end(session)

    def close(self, session: Session, reason: str, *, abort: bool = False) -> None:
        """Close a connection because of its peer; its traces go at once, and its unread replies if they are many."""
        if not session.closing and session.state is not CLOSED:
            much = unread_bytes(session) > BULK_BYTES  # and nobody would count it any more
            self._end(session, abort or much)
            self.log(f"{session.peer}: closed: {reason}")

    def _end(self, session: Session, abort: bool) -> None:
        session.closing = True
        session.abort = abort
        if abort:
            session.drop()
        self._forget(session)
        session.state = CLOSING
        self.replies.pend(session)

    def _forget(self, session: Session) -> None:
        if session in self.sessions:
            del self.sessions[session]
            self.replies.count_unsent(session, 0)
        self.handshakes.pop(session, None)
        self.half_sent.end(session)
        if session.blocked is not None:
            self.blocking.withdraw(session)
        if session.promise is not None:
            self.promises.give_up(session)
        self.watches.forget(session)


EXTENDED = frozenset(map(int, Extension))
