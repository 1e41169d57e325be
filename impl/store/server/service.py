"""The server without a socket or a clock: bytes and times come in, bytes and orders to close go out.

Rule: whatever bytes a peer sends, the service does not raise or block. A request changes the store only when it is
complete. A driver
1. calls `connected` for a new connection, and closes the connection at once if it gets None;
2. calls `received` with each piece, and `disconnected` when the connection has ended;
3. calls `tick` when `alarm.at` is reached. Between ticks `alarm.at` can move earlier or become None, never later;
4. after each of these calls, serves each session of `take_pending()`: it sends one piece (`take_outgoing`), then calls
   `pend`, which makes the session pending again if more pieces are left. When no piece is left it obeys `closing`. It
   obeys `abort` at once;
5. takes no piece while the transport holds one. It calls `unsent` with the number of bytes in the transport in three
   cases: a send was incomplete; more replies wait behind these bytes; all bytes are sent.

Theory of operation. All calls come from one thread, the driver's. The service has the sessions. It carries out their
requests one at a time, in the order in which they became complete. The meaning of a request is in `contents`. Other
modules own the rest: the promises of WAITs (`promises`), blocked requests (`blocking`), watches (`watches`), rooms
(`rooms`), half-sent requests (`half_sent`), unread replies (`unread`), and deadlines (`alarm`).

A request reaches its handler in one of two ways. A small request that arrived completely, the usual case, is read by a
function that is compiled from the specification of the request (`fast_path`). All other requests are read by a frame
(`parsing`). The state of a session determines the requests that it may send (`PERMITTED`). Any other request closes it.

Failures (each closes only one connection, with a line in the log):

- A request is not permitted, or exceeds a limit.
- A request of torch's protocol is refused: that protocol has no reply for a refusal. A refused request of an
  extension is answered, and its connection stays open.
- A peer does not read, is slow to start, or stops in the middle of a request.
- A handler has a defect.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trystate.model.store.vocabulary import Connection, Extension, Query

from ..contents.contents import Contents, Refused
from ..limits import Limits
from ..operations import BODIES
from ..wire import IDENTITY_BYTES
from .alarm import Alarm
from .blocking import Blocking
from .fast_path import EXTENDED, FAST_PATHS, HANDLERS, FastPath
from .half_sent import HalfSent
from .log import never_raising
from .parsing import Frame
from .promises import REDEEMING, Promises
from .requests import UNPROVED
from .rooms import Rooms
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
LIFE_BYTES = 8  # names the life of a room, in which it loses nothing
WHY_NOT = {
    CONNECTING: "its first request is not VALIDATE; it speaks another protocol (22: TLS; start the server with `tls`)",
    VALIDATING: UNPROVED,
    READY: "its request does not exist; it speaks another protocol, or a later version",
    BLOCKED: "a request while another is blocked; use one connection for each thread",
}
BEHIND_PROOF = "bytes came with the proof of the secret, and are in no record; a relay has added them"
STRANGER = Limits(key_bytes=64, value_bytes=64, keys_in_request=1)  # until the peer has validated and proved itself


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
        binds: bool = False,
    ) -> None:
        """`contents` and `identity` are given for a store that is kept across restarts.

        With `binds` the driver seals the records of a session that has proved the secret, and then admits it.
        """
        self.limits = limits = limits or Limits()
        self.secret, self.binds = secret, binds
        self.random_bytes = random_bytes
        self.kept = identity is not None
        self.identity = identity or random_bytes(IDENTITY_BYTES)  # an empty store that replaces this one has another
        self.log = never_raising(log)
        self.now = 0.0
        clock = clock or (lambda: self.now)  # only few requests need the time
        self.contents = contents if contents is not None else Contents(limits)
        self.guarded = self.contents.guarded
        self.sessions: dict[Session, None] = {}
        self.full = False
        self.alarm = Alarm()
        self.handshakes = self.alarm.table()
        self.half_sent = HalfSent(limits, self.alarm, clock, self.close)
        self.replies = replies = Replies(limits, self.sessions, self.close)
        # Drivers use these three.
        self.pend, self.take_pending, self.unsent = replies.pend, replies.take_pending, replies.unsent
        self.promises = Promises(self.contents, limits, self.alarm, clock)
        self.blocking = Blocking(self.contents, limits, self.alarm, clock, self.replies, self.close)
        self.watches = Watches(self.contents.watching, limits, self.replies)
        self.contents.life = lambda: random_bytes(LIFE_BYTES).hex()
        self.rooms = Rooms(self, clock)
        self.lists: dict[bytes, list[bytes]] = {}  # cache: encoded list of keys -> decoded keys, of recent requests

    # The driver's calls

    def connected(self, peer: str, now: float) -> Session | None:
        """Start a session for a new connection; None and a line in the log if the limit of connections is reached."""
        self.now = now
        if len(self.sessions) >= self.limits.connections:
            if not self.full:  # logged once, until a connection is accepted: a refused client tries again
                self.log(
                    f"{peer}: refused: the limit of {len(self.sessions)} connections is reached; close some, or raise "
                    "connections"
                )
            self.full = True
            return None
        self.full = False
        session = Session(peer, self.watches.tell, self.replies.held)
        self.sessions[session] = None
        self.handshakes.add(session, now + self.limits.handshake_seconds)
        self.alarm.by(now + self.limits.handshake_seconds)
        return session

    def received(self, session: Session, data: bytes | bytearray | memoryview, now: float) -> None:
        """Take the next bytes of a connection. A request may be split anywhere. Never raises."""
        self.now = now
        self.take(session, bytes(data))
        self.pend(session)

    def take(self, session: Session, data: bytes, paths: dict[int, FastPath] = FAST_PATHS) -> None:
        """`received` for a driver that checks itself whether this session has something to send."""
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
        except Exception as error:  # a defect of this server must not affect the other connections
            self.close(session, f"internal error, please report it: {error!r}")

    def disconnected(self, session: Session) -> None:
        """Forget a connection and everything it held. May be called twice."""
        self._forget(session)
        session.state = CLOSED
        session.drop()

    def tick(self, now: float) -> None:
        """Handle the deadlines that are over, and set the alarm."""
        self.now = now
        seconds = self.limits.handshake_seconds
        while (session := self.handshakes.pop(now)) is not None:
            self.close(session, f"not validated within {seconds} s; raise handshake_seconds")
        self.half_sent.expire(now)
        self.promises.expire(now)
        self.blocking.expire(now)
        self.rooms.tick(now)
        self.alarm.wind()

    def stop(self) -> None:
        """Close all connections."""
        for session in list(self.sessions):
            self._end(session, abort=False)

    # Reading

    def _begin(self, session: Session, data: bytes, position: int) -> int:
        """Do one request of any kind, or keep the part that has arrived. Returns the place of the next request."""
        operation, end, state = data[position], len(data), session.state
        if operation not in PERMITTED.get(state, ()):
            if state in PERMITTED:
                why = WHY_NOT[READY if state is BLOCKED and operation not in BODIES else state]
                self.close(session, f"{why} ({operation})")
            return end
        if state is VALIDATING and session.bound is not None:
            self.close(session, BEHIND_PROOF)
            return end
        frame = Frame(operation, self.limits if state is READY or state is BLOCKED else STRANGER)
        position = frame.advance(data, position + 1, end)
        if frame.complete:
            self._do(session, operation, frame.fields)
            return position
        self.half_sent.begin(session, frame, data[position:])
        return end

    def _resume(self, session: Session, data: bytes) -> bytes:
        """Read more of a half-sent request. Returns the bytes after it."""
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
        """Let a session send all requests: it is validated, and has proved the secret if the server has one."""
        session.state = READY
        self.alarm.end(self.handshakes, session)

    def close(self, session: Session, reason: str, *, abort: bool = False) -> None:
        """Close a connection because of its peer. Its table entries are removed at once, many unread replies too."""
        if not session.closing and session.state is not CLOSED:
            much = unread_bytes(session) > BULK_BYTES  # replies of a closed session are not counted any more
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
        self.handshakes.discard(session)
        self.half_sent.end(session)
        if session.blocked is not None:
            self.blocking.withdraw(session)
        if session.promise is not None:
            self.promises.give_up(session)
        self.watches.forget(session)
        self.rooms.forget(session)
