"""The server without a socket or a clock: bytes and times in, bytes and orders to close out.

Rule: no bytes of a peer make it raise, block, or keep anything of a request that did not arrive whole. A driver
1. calls `connected` for a new connection, and closes that at once if it gets None;
2. calls `received` with each piece, and `disconnected` when the connection is gone;
3. calls `tick` when `next_deadline` is reached; between two ticks it only moves to an earlier time, or to None;
4. after each of these, for each of `take_pending()`, sends a piece (`take_outgoing`), calls `pend` for the next one,
   and when there is none obeys `closing`, and `abort` at once;
5. takes no piece while the transport holds one, and reports with `unsent` how much of that is left: when it is not all
   sent, when there is more behind it, and when it is gone.

A peer that does not read has a queue here. When that is over its limit the next request or event closes the connection:
it, the queue and the requests behind it are dropped, and a line of the log says so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from trystate.model.store.vocabulary import Connection, Extension, Query, Status

from ...host.deadlines import Deadlines
from ..contents.barriers import Arrival, Barriers
from ..contents.contents import Contents, Refused
from ..contents.waiting import Wait
from ..contents.watching import Changed
from ..limits import Limits
from ..operations import BODIES
from ..wire import IDENTITY_BYTES, U64, blob
from .blocking import TIMED_OUT
from .extended import HANDLERS as EXTENDED
from .fast_path import QUICK
from .log import never_raising
from .parsing import Frame, whole
from .requests import HANDLERS as PLAIN
from .requests import UNPROVED
from .session import Session
from .unread import BULK_BYTES, Held, joined

__all__ = ["Service", "Session"]

HANDLERS = PLAIN | EXTENDED
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
    ) -> None:
        self.limits = limits or Limits()
        self.secret = secret
        self.random_bytes = random_bytes
        self.identity = random_bytes(IDENTITY_BYTES)  # tells this store from an empty one that replaced it
        self.log = never_raising(log)
        self.now = 0.0
        self.clock = clock or (lambda: self.now)  # few requests need the time
        self.contents = Contents(self.limits)
        self.barriers = Barriers()
        self.next_deadline: float | None = None
        self.half_sent_bytes = 0
        self.held = Held()
        self.kept_bytes = 0
        self.sessions: dict[Session, None] = {}
        self._handshakes: dict[Session, float] = {}  # since when; in that order, like the next two
        self._half_sent: dict[Session, float] = {}
        self._reservations: dict[Session, float] = {}
        self._deadlines: Deadlines[Session] = Deadlines()
        self.lists: dict[bytes, list[bytes]] = {}  # of keys, that were read lately; by their bytes
        self.pending: deque[Session] = deque()  # the result of the next `take_pending`

    # The driver's calls

    def connected(self, peer: str, now: float) -> Session | None:
        """Begin a connection; None, and a line in the log, if there are as many as there may be."""
        self.now = now
        if len(self.sessions) >= self.limits.connections:
            self.log(
                f"{peer}: refused: {len(self.sessions)} connections are the most: close some, or raise connections"
            )
            return None
        session = Session(peer, self._tell, self.held)
        self.sessions[session] = None
        self._handshakes[session] = now
        self._arm(now + self.limits.handshake_seconds)
        return session

    def received(self, session: Session, data: bytes | bytearray | memoryview, now: float) -> None:
        """Take the next bytes of a connection, as they were cut. Never raises."""
        self.now = now
        self.take(session, bytes(data))
        self.pend(session)

    def take(self, session: Session, data: bytes) -> None:
        """`received`, for a driver that looks itself whether this session has something to send, and then `pend`s it.

        In `pending` are only those for whom there is more to do than to send one small reply.
        """
        try:
            if session.frame is not None:
                data = self._resume(session, data)
            position, end, outgoing = 0, len(data), session.outgoing
            while position < end:
                if (outgoing or session.queued or session.unsent) and self._overflowed(session):
                    break
                operation = data[position]
                if session.kept is not None and operation not in KEEPERS:
                    self.forget(session)
                if session.state is READY:
                    stop = QUICK[operation](self, session, data, position, end)
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
        self._forget_session(session)
        session.state = CLOSED
        session.drop()

    def tick(self, now: float) -> None:
        """Do what is due, and set `next_deadline`."""
        self.now = now
        limits = self.limits
        for session in _due(self._handshakes, limits.handshake_seconds, now):
            self.close(session, f"not validated within {limits.handshake_seconds} s: raise handshake_seconds")
        for session in _due(self._half_sent, limits.half_sent_seconds, now):
            self.close(session, f"nothing more of a request for {limits.half_sent_seconds} s: raise half_sent_seconds")
        for session in _due(self._reservations, limits.reservation_seconds, now):
            self.forget(session)
        while (late := self._deadlines.pop(now)) is not None:
            self.withdraw(late)
            self.send(late, TIMED_OUT)
        self.next_deadline = None
        for table, seconds in (
            (self._handshakes, limits.handshake_seconds),
            (self._half_sent, limits.half_sent_seconds),
            (self._reservations, limits.reservation_seconds),
        ):
            if table:
                self._arm(next(iter(table.values())) + seconds)
        if (first := self._deadlines.first()) is not None:
            self._arm(first)

    def pend(self, session: Session) -> None:
        """Put it among those that have something to send, if it has."""
        if (session.outgoing or session.queued) and not session.pending:
            session.pending = True
            self.pending.append(session)

    def take_pending(self) -> Iterator[Session]:
        """The sessions that have something to send or are to be closed, with those that come to be so meanwhile."""
        while self.pending:
            session = self.pending.popleft()
            session.pending = False
            yield session

    def unsent(self, session: Session, size: int) -> None:
        """How many bytes of what was taken the transport still holds. More than all may hold closes the slowest."""
        if session.closing or session.state is CLOSED:
            return
        session.settle()
        self._count_unsent(session, size)
        most = self.limits.unsent_bytes_total
        if self.held.bytes > most:
            for each in sorted(self.sessions, key=_unread, reverse=True):
                if self.held.bytes <= most:
                    break
                what = f"its {_unread(each)} unread bytes are the most of {self.held.bytes} in memory"
                self.close(each, f"{what} > {most}: read faster, or raise unsent_bytes_total", abort=True)

    def _count_unsent(self, session: Session, size: int) -> None:
        self.held.bytes += size - session.unsent
        session.unsent = size

    def stop(self) -> None:
        """Close all connections."""
        for session in list(self.sessions):
            self._end(session, abort=False)

    def tables(self) -> dict[str, int]:
        """The size of each table that has something of a connection: all 0 when there is none."""
        return {
            "barriers": len(self.barriers.table),
            "deadlines": len(self._deadlines.due),
            "half_sent": len(self._half_sent) + self.half_sent_bytes,
            "handshakes": len(self._handshakes),
            "kept": self.kept_bytes,
            "reservations": len(self._reservations),
            "sessions": len(self.sessions),
            "unsent": self.held.bytes,
            "waits": len(self.contents.waiting.waits) + self.contents.waiting.keys_waited,
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
        limits = self.limits if state is READY or state is BLOCKED else STRANGER
        complete = whole(operation, limits, data, position + 1, end)
        if complete is not None:
            self._do(session, operation, complete[1])
            return complete[0]
        frame = Frame(operation, limits)
        position = frame.advance(data, position + 1, end)
        if frame.complete:
            self._do(session, operation, frame.fields)
            return position
        session.frame = frame
        session.buffer += data[position:]
        self._half_arrived(session, frame.size + end - position)
        return end

    def _resume(self, session: Session, data: bytes) -> bytes:
        """Read on in a request of which part has arrived; what follows it."""
        frame, buffer = session.frame, session.buffer
        assert frame is not None
        buffer += data
        if len(buffer) >= frame.needed:
            with memoryview(buffer) as view:
                position = frame.advance(view, 0, len(view))
                rest = bytes(view[position:]) if frame.complete else b""
            if frame.complete:
                self._half_done(session)
                self._do(session, frame.operation, frame.fields)
                return rest
            del buffer[:position]
        self._half_arrived(session, len(data))
        return b""

    def _half_arrived(self, session: Session, size: int) -> None:
        half_sent, now = self._half_sent, self.clock()
        half_sent.pop(session, None)
        half_sent[session] = now
        session.half_bytes += size
        self.half_sent_bytes += size
        self._arm(now + self.limits.half_sent_seconds)
        if self.half_sent_bytes > self.limits.half_sent_bytes_total:
            largest = max(half_sent, key=lambda each: each.half_bytes)
            most = self.limits.half_sent_bytes_total
            what = f"its half-sent request of {largest.half_bytes} bytes is the largest of {self.half_sent_bytes}"
            self.close(largest, f"{what} > {most}: send less at a time, or raise half_sent_bytes_total")

    def _half_done(self, session: Session) -> None:
        session.frame = None
        session.buffer.clear()
        if self._half_sent.pop(session, None) is not None:
            self._rest()
        self.half_sent_bytes -= session.half_bytes
        session.half_bytes = 0

    def _do(self, session: Session, operation: int, fields: list[Any]) -> None:
        try:
            HANDLERS[operation](self, session, *fields)
        except Refused as refusal:
            if operation not in EXTENDED:
                raise
            self.refuse(session, refusal)

    # Writing

    def send(self, session: Session, data: bytes) -> None:
        """Queue a reply."""
        session.outgoing.append(data)
        if not session.pending:
            session.pending = True
            self.pending.append(session)

    def send_values(self, session: Session, head: bytes, values: list[bytes]) -> None:
        """Queue a reply that ends with blobs; closes the session if it has left too much unread before.

        Raises `Refused` for a reply that is larger than any may be.
        """
        size = sum(map(len, values)) + 8 * len(values)
        if size >= BULK_BYTES:
            most = self.limits.frame_bytes
            if size > most:
                reason = f"an answer of {size} bytes > {most}: ask in several, or raise frame_bytes"
                raise Refused(Status.TOO_LARGE, reason)
            if self._overflowed(session):
                return
        pack, parts = U64.pack, session.outgoing
        self.send(session, head)
        for value in values:
            parts += (pack(len(value)), value)

    def refuse(self, session: Session, refusal: Refused) -> None:
        """Answer an extension with why not."""
        self.send_values(session, bytes((refusal.status,)), [str(refusal).encode()])

    def _tell(self, session: Session, event: Changed) -> None:
        if not self._overflowed(session):
            if event.wire is None:
                event.wire = _encoded(event)
            session.outgoing += event.wire
            self.pend(session)

    def _overflowed(self, session: Session) -> bool:
        """Whether it leaves so much unread that it may not have another reply; then it is closed.

        However large that reply is: a peer that reads at once has nothing beside it.
        """
        size, most = session.unsent + session.size(), self.limits.unsent_bytes
        if size > most and session in self.sessions:
            reason = f"{size} bytes of replies that it did not read > {most}: read faster, or raise unsent_bytes"
            self.close(session, reason, abort=True)
        return session.abort

    # The requests' calls, about a session

    def close(self, session: Session, reason: str, *, abort: bool = False) -> None:
        """Close a connection for what its peer did; its traces go at once, and what is unread if it is much."""
        if not session.closing and session.state is not CLOSED:
            much = _unread(session) > BULK_BYTES  # and nobody would count it any more
            self._end(session, abort or much)
            self.log(f"{session.peer}: closed: {reason}")

    def _end(self, session: Session, abort: bool) -> None:
        session.closing = True
        session.abort = abort
        if abort:
            session.drop()
        self._forget_session(session)
        session.state = CLOSING
        if not session.pending:
            session.pending = True
            self.pending.append(session)

    def _forget_session(self, session: Session) -> None:
        if session in self.sessions:
            del self.sessions[session]
            self._count_unsent(session, 0)
        self._handshakes.pop(session, None)
        self._half_done(session)
        if session.blocked is not None:
            self.withdraw(session)
        if session.kept is not None:
            self.forget(session)
        for key in session.watches:
            self.contents.watching.end(session, key)
        session.watches.clear()

    def admit(self, session: Session) -> None:
        """It is validated, and proved where that is asked: it may do everything."""
        session.state = READY
        self._handshakes.pop(session, None)
        self._rest()

    def keep(self, session: Session, values: dict[bytes, bytes]) -> None:
        """Promise these values to the next request, in case they are gone by then."""
        size = sum(map(len, values.values()))
        if size < BULK_BYTES:
            session.kept = (*values,), (*values.values(),)
        elif size > self.limits.frame_bytes or self.kept_bytes + size > self.limits.kept_bytes_total:
            session.kept = NOTHING  # the former could not be answered anyway
        else:
            session.kept = (*values,), (*values.values(),)
            self._count_kept(session, size)

    def reserve(self, session: Session, key: bytes) -> None:
        """Take a queue's element for the pop that the session will send next."""
        serial, element = self.contents.reserve(key)
        session.kept = NOTHING
        session.reserved = (key, serial, element)
        self._count_kept(session, len(key) + len(element) + 1)
        now = self._reservations[session] = self.clock()
        self._arm(now + self.limits.reservation_seconds)

    def forget(self, session: Session) -> None:
        """Drop what a satisfied wait promised; a reserved element goes back to its place in the queue."""
        reserved = session.reserved
        self.redeemed(session)
        if reserved is not None:
            self.contents.put_back(*reserved)

    def redeemed(self, session: Session) -> None:
        """The values that a satisfied wait promised were given."""
        if session.kept_bytes:
            self._count_kept(session, 0)
        if session.reserved is not None:
            del self._reservations[session]
            session.reserved = None
        session.kept = None

    def _count_kept(self, session: Session, size: int) -> None:
        self.kept_bytes += size - session.kept_bytes
        session.kept_bytes = size

    def block(self, session: Session, blocked: Wait | Arrival, milliseconds: int = -1) -> None:
        """It waits, for so long; -1: for as long as it takes."""
        session.blocked = blocked
        session.state = BLOCKED
        if milliseconds >= 0:
            due = self.clock() + milliseconds / 1000
            self._deadlines.add(session, due)
            self._arm(due)

    def unblock(self, session: Session) -> None:
        """The session's request was answered, or is withdrawn."""
        session.blocked = None
        session.state = READY
        self._deadlines.discard(session)

    def withdraw(self, session: Session) -> None:
        """Take a blocked request out of its table."""
        blocked = session.blocked
        self.unblock(session)
        if isinstance(blocked, Arrival):
            self.barriers.withdraw(blocked)
        else:
            assert isinstance(blocked, Wait)
            self.contents.waiting.withdraw(blocked)

    def _rest(self) -> None:
        """Nothing may be due any more: then the driver needs no alarm, and its loop has less to do."""
        if not (self._handshakes or self._half_sent or self._reservations or self._deadlines.due):
            self.next_deadline = None

    def _arm(self, due: float) -> None:
        if self.next_deadline is None or due < self.next_deadline:
            self.next_deadline = due


# Requests that may follow a wait and redeem its promise.
NOTHING: tuple[tuple[bytes, ...], tuple[bytes, ...]] = ((), ())
KEEPERS = frozenset(map(int, (Query.GET, Query.MULTI_GET, Query.QUEUE_POP)))


def _due(since: dict[Session, float], seconds: float, now: float) -> list[Session]:
    """Those at the front of a table, in order of time, whose time has come.

    Computed as `next_deadline` is: `when <= now - seconds` may round to no when `now` is just that deadline.
    """
    due = []
    for session, when in since.items():
        if when + seconds > now:
            break
        due.append(session)
    return due


def _unread(session: Session) -> int:
    """The bytes of replies that its peer has not read, as far as the server knows."""
    return session.unsent + session.size()


def _encoded(event: Changed) -> list[bytes]:
    parts = [bytes((Status.EVENT, event.change)) + blob(event.key)]
    for value in (event.old, event.new):
        parts += (bytes((value is not None,)) + U64.pack(len(value or b"")), value or b"")
    return joined(parts)
