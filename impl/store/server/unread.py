"""Replies that a peer has not read yet: the queue of one connection, and the memory of all together.

Theory of operation. A reply is appended to `outgoing` of its session. Nearly always the driver gets the whole reply at
once (`take_outgoing`), and the system's buffer has room for the reply. If not, three amounts count as unread: the bytes
in `outgoing`; the bytes that were moved to the session's queue (`settle`); and the bytes that the driver has got and
the transport still holds (the driver reports them by `unsent`). If a session has more than `unsent_bytes` unread, its
next request or event closes it (`overflowed`). The reply to this request does not count, however large it is, so a peer
that reads at once is never closed. If all sessions together hold more memory than `unsent_bytes_total`, the sessions
with the most unread bytes are closed.

Rule: a large part is queued by reference and sent in pieces. So an event for a thousand watchers, or a value for a
thousand readers, is in memory once. A session counts all bytes that its own peer has not read. The total is the memory
in use, so it counts a part once, even if several sessions have queued the part.

`pending` has the sessions that the driver must serve although it has not just read their bytes, or must serve again:
sessions with unsent replies, sessions that another session's request unblocked or sent an event, and sessions to close.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

from trystate.model.store.vocabulary import Connection, Status

from ..contents.contents import Refused
from ..limits import KIB, Limits
from ..wire import U64, blobs

if TYPE_CHECKING:
    from .session import Session

BULK_BYTES = 4 * KIB  # a part this large is never copied as a whole; smaller parts are joined to save table entries
# The bytes of one send: the transport copies the bytes that the system does not take at once. A value of 64 KiB and its
# length are sent in one piece.
PIECE_BYTES = 68 * KIB


class UnreadBytes:
    """The memory of the unread bytes of all connections of a server."""

    __slots__ = ("bytes", "holders")

    def __init__(self) -> None:
        self.bytes = 0
        self.holders: dict[int, int] = {}  # id of a large part -> the number of queues that hold it and keep it alive

    def add(self, part: bytes) -> None:
        if len(part) >= BULK_BYTES:
            there = self.holders.get(id(part), 0)
            self.holders[id(part)] = there + 1
            if there:
                return
        self.bytes += len(part)

    def drop(self, part: bytes) -> None:
        if len(part) >= BULK_BYTES:
            left = self.holders[id(part)] - 1
            if left:
                self.holders[id(part)] = left
                return
            del self.holders[id(part)]
        self.bytes -= len(part)


class Unread:
    """The replies of one connection that its transport has not received yet.

    New parts are appended to `outgoing` in their order. `settle` moves bytes that cannot be sent at once to the queue.
    From then on they count in the total.
    """

    __slots__ = ("_fresh", "_held", "_offset", "counted", "outgoing", "parts", "queued")

    def __init__(self, held: UnreadBytes) -> None:
        self.outgoing: list[bytes] = []
        self.queued = 0  # bytes in the queue
        self.parts: deque[bytes] = deque()
        self._offset = 0  # bytes of the first part that were taken
        self.counted = self._fresh = 0  # the number of parts of `outgoing` that were counted, and their bytes
        self._held = held

    def size(self) -> int:
        """The bytes in `outgoing` and in the queue."""
        parts = self.outgoing
        count = len(parts)
        if count != self.counted:  # often by one: after each of many requests in a row
            self._fresh += len(parts[-1]) if count == self.counted + 1 else sum(map(len, parts[self.counted :]))
            self.counted = count
        return self._fresh + self.queued

    def settle(self) -> None:
        """Move the parts of `outgoing` to the queue."""
        if self.outgoing:
            self.queued = self.size()
            for part in joined(self.outgoing):
                self._append(part)
            self.outgoing.clear()
            self.counted = self._fresh = 0

    def take_parts(self) -> list[bytes]:
        """Take all bytes as a few parts if they are at most one piece. [] leaves them for `take_outgoing`."""
        outgoing = self.outgoing
        if self.queued or self.size() > PIECE_BYTES:
            return []
        parts = outgoing[:] if len(outgoing) < 3 else joined(outgoing)
        outgoing.clear()
        self.counted = self._fresh = 0
        return parts

    def take_outgoing(self, most: int = PIECE_BYTES) -> bytes | memoryview:
        """Take at most `most` bytes; b"" when nothing is left."""
        outgoing = self.outgoing
        if not self.queued and self.size() <= most:  # nearly always
            piece = outgoing[0] if len(outgoing) == 1 else b"".join(outgoing)
            outgoing.clear()
            self.counted = self._fresh = 0
            return piece
        self.settle()
        pieces: list[bytes | memoryview] = []
        parts, room = self.parts, most
        while parts and room:
            part, begin = parts[0], self._offset
            end = min(len(part), begin + room)
            pieces.append(memoryview(part)[begin:end] if end - begin < len(part) else part)
            room -= end - begin
            self._offset = end
            if end == len(part):
                self._held.drop(parts.popleft())
                self._offset = 0
        self.queued -= most - room
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def drop(self) -> None:
        """Drop all replies."""
        for part in self.parts:
            self._held.drop(part)
        self.parts.clear()
        self.outgoing.clear()
        self.queued = self._offset = self.counted = self._fresh = 0

    def _append(self, part: bytes) -> None:
        parts = self.parts
        if parts and len(part) < BULK_BYTES and len(parts[-1]) < BULK_BYTES:
            last = parts.pop()
            self._held.drop(last)
            part = last + part  # a peer that does not read may send many requests with replies of one byte
        self._held.add(part)
        parts.append(part)


def joined(parts: Iterable[bytes]) -> list[bytes]:
    """The same bytes in fewer parts: small neighbours become one part."""
    found: list[bytes] = []
    small: list[bytes] = []
    for part in parts:
        if len(part) < BULK_BYTES:
            small.append(part)
            continue
        if small:
            found.append(b"".join(small))
            small = []
        found.append(part)
    if small:
        found.append(b"".join(small))
    return found


class Close(Protocol):
    """Ends a session because of its peer."""

    def __call__(self, session: Session, reason: str, *, abort: bool = False) -> None: ...


class Replies:
    """The replies to all sessions."""

    def __init__(self, limits: Limits, sessions: dict[Session, None], close: Close) -> None:
        self.limits, self.sessions, self.close = limits, sessions, close
        self.held = UnreadBytes()
        self.pending: deque[Session] = deque()

    def pend(self, session: Session) -> None:
        """Add a session to the pending ones if it has something to send or has to be closed."""
        if not session.pending and (session.outgoing or session.queued or session.closing):
            session.pending = True
            self.pending.append(session)

    def take_pending(self) -> Iterator[Session]:
        """The sessions that have something to send or have to be closed, including those added meanwhile."""
        while self.pending:
            session = self.pending.popleft()
            session.pending = False
            yield session

    def values(self, session: Session, head: bytes, values: list[bytes]) -> None:
        """Reply with blobs after `head`. Closes the session instead if it has left too much unread before.

        Raises `Refused` for a reply that exceeds `frame_bytes`.
        """
        if len(values) == 1 and len(values[0]) < BULK_BYTES:  # nearly always
            session.outgoing.append(head + U64.pack(len(values[0])) + values[0])
            return
        sizes = [*map(len, values)]
        size = sum(sizes) + 8 * len(values)
        if size >= BULK_BYTES:
            most = self.limits.frame_bytes
            if size > most:
                reason = f"an answer of {size} bytes exceeds {most}; use several requests, or raise frame_bytes"
                raise Refused(Status.TOO_LARGE, reason)
            if self.overflowed(session):
                return
            parts = [head] if head else []
            for value in values:
                parts += (U64.pack(len(value)), value)
            session.outgoing += parts
        else:
            pack = U64.pack
            if sizes and sizes.count(sizes[0]) == len(sizes):  # equal lengths are common; the length is packed once
                length = pack(sizes[0])
                session.outgoing.append(head + length + length.join(values))
            else:
                session.outgoing.append(head + blobs(values))

    def refuse(self, session: Session, refusal: Refused) -> None:
        """Reply to an extension with the status and text of a refusal."""
        self.values(session, bytes((refusal.status,)), [str(refusal).encode()])

    def unsent(self, session: Session, size: int) -> None:
        """Report how many of the taken bytes the transport still holds. Closes the slowest sessions above the limit."""
        if session.closing or session.state is Connection.CLOSED:
            return
        session.settle()
        self.count_unsent(session, size)
        most = self.limits.unsent_bytes_total
        if self.held.bytes > most:
            for each in sorted(self.sessions, key=unread_bytes, reverse=True):
                if self.held.bytes <= most:
                    break
                what = f"its {unread_bytes(each)} unread bytes are the most of all sessions, {self.held.bytes} in all"
                self.close(each, f"{what}, the limit is {most}; read faster, or raise unsent_bytes_total", abort=True)

    def count_unsent(self, session: Session, size: int) -> None:
        self.held.bytes += size - session.unsent
        session.unsent = size

    def overflowed(self, session: Session) -> bool:
        """Whether a session has more than `unsent_bytes` unread. It is then closed and gets no further reply."""
        size, most = unread_bytes(session), self.limits.unsent_bytes
        if size > most and session in self.sessions:
            reason = f"its {size} unread bytes exceed {most}; read faster, or raise unsent_bytes"
            self.close(session, reason, abort=True)
        return session.abort


def unread_bytes(session: Session) -> int:
    """The bytes of a session's replies that are not sent, as far as the server can see."""
    return session.unsent + session.size()
