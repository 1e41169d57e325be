"""Replies that a peer has not read yet: the queue of one connection, and the memory of all together.

Theory of operation. A reply is appended to `outgoing` of its session. Nearly always the driver takes all of it at once
(`take_outgoing`) and the system's buffer has room for it. If not, three amounts count as unread: the bytes in
`outgoing`, those that were moved to the session's queue (`settle`), and those that the driver took and the transport
still holds (`unsent`, as the driver reports). A session with more than `unsent_bytes` unread is closed by its next
request or event (`overflowed`), however large the reply in hand is: a peer that reads at once has nothing beside it. If
all sessions together hold more memory than `unsent_bytes_total`, the one with most is closed.

Rule: a large part is queued by reference and handed out in pieces, so that an event for a thousand watchers, or a value
for a thousand readers, is in memory once. A session counts all bytes that its own peer has not read; the total counts
memory, hence a part that several sessions have queued only once.

`pending` are the sessions that the driver has to look at beside the one whose bytes it has just brought, or once more:
those with replies that are not sent yet, those that another session's request unblocked or told, and those to close.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from trystate.model.store.vocabulary import Connection, Status

from ..contents.contents import Refused
from ..limits import KIB, Limits
from ..wire import U64, blobs

if TYPE_CHECKING:
    from .blocking import Close
    from .session import Session

BULK_BYTES = 4 * KIB  # a part this large is never copied whole; smaller ones are joined, as each costs a table's entry
# Of one connection at a time: the transport copies the bytes that the system does not take at once. A value of 64 KiB
# goes with its length in one piece.
PIECE_BYTES = 68 * KIB


class Held:
    """The memory of what is unread, on all connections of a server."""

    __slots__ = ("bytes", "holders")

    def __init__(self) -> None:
        self.bytes = 0
        self.holders: dict[int, int] = {}  # how many queues have a large part, by its id: they keep it alive

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
    """The replies of one connection that its transport was not given yet.

    `outgoing` takes new parts, in their order. Bytes that cannot be sent at once are moved to the queue by `settle`,
    and are in the total from then on.
    """

    __slots__ = ("_fresh", "_held", "_offset", "counted", "outgoing", "parts", "queued")

    def __init__(self, held: Held) -> None:
        self.outgoing: list[bytes] = []
        self.queued = 0  # bytes in the queue
        self.parts: deque[bytes] = deque()
        self._offset = 0  # bytes of the first part that were taken
        self.counted = self._fresh = 0  # parts of `outgoing` that were looked at, and their bytes
        self._held = held

    def size(self) -> int:
        """The bytes in `outgoing` and in the queue."""
        parts = self.outgoing
        count = len(parts)
        if count != self.counted:  # often by one, as after each of many requests in a row
            self._fresh += len(parts[-1]) if count == self.counted + 1 else sum(map(len, parts[self.counted :]))
            self.counted = count
        return self._fresh + self.queued

    def settle(self) -> None:
        """Move what is in `outgoing` to the queue."""
        if self.outgoing:
            self.queued = self.size()
            for part in joined(self.outgoing):
                self._append(part)
            self.outgoing.clear()
            self.counted = self._fresh = 0

    def take_parts(self, most: int = PIECE_BYTES) -> list[bytes]:
        """Take all of it, as few parts, if that is at most one piece; [] leaves it for `take_outgoing`."""
        outgoing = self.outgoing
        if self.queued or self.size() > most:
            return []
        parts = outgoing[:] if len(outgoing) < 3 else joined(outgoing)
        outgoing.clear()
        self.counted = self._fresh = 0
        return parts

    def take_outgoing(self, most: int = PIECE_BYTES) -> bytes | memoryview:
        """Take at most so many bytes; b"" when nothing is left."""
        outgoing = self.outgoing
        if not self.queued and self.size() <= most:  # as nearly always
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
        """Forget all of it."""
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
            part = last + part  # a peer that reads nothing may ask for one byte at a time
        self._held.add(part)
        parts.append(part)


def joined(parts: Iterable[bytes]) -> list[bytes]:
    """The same bytes in fewer parts: neighbours that are small become one."""
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


class Replies:
    """The replies to all sessions."""

    def __init__(self, limits: Limits, sessions: dict[Session, None], close: Close) -> None:
        self.limits, self.sessions, self.close = limits, sessions, close
        self.held = Held()
        self.pending: deque[Session] = deque()

    def pend(self, session: Session) -> None:
        """Put it among those that have something to send, if it has, or that are to be closed."""
        if not session.pending and (session.outgoing or session.queued or session.closing):
            session.pending = True
            self.pending.append(session)

    def take_pending(self) -> Iterator[Session]:
        """The sessions that have something to send or are to be closed, with those that come to be so meanwhile."""
        while self.pending:
            session = self.pending.popleft()
            session.pending = False
            yield session

    def values(self, session: Session, head: bytes, values: list[bytes]) -> None:
        """Reply with blobs after `head`; closes the session if it has left too much unread before.

        Raises `Refused` for a reply that is larger than any may be.
        """
        if len(values) == 1 and len(values[0]) < BULK_BYTES:  # nearly always
            session.outgoing.append(head + U64.pack(len(values[0])) + values[0])
            return
        sizes = [*map(len, values)]
        size = sum(sizes) + 8 * len(values)
        if size >= BULK_BYTES:
            most = self.limits.frame_bytes
            if size > most:
                reason = f"an answer of {size} bytes > {most}: ask in several, or raise frame_bytes"
                raise Refused(Status.TOO_LARGE, reason)
            if self.overflowed(session):
                return
            parts = [head] if head else []
            for value in values:
                parts += (U64.pack(len(value)), value)
            session.outgoing += parts
        else:
            pack = U64.pack
            if sizes and sizes.count(sizes[0]) == len(sizes):  # as often: then the length is packed once
                length = pack(sizes[0])
                session.outgoing.append(head + length + length.join(values))
            else:
                session.outgoing.append(head + blobs(values))

    def refuse(self, session: Session, refusal: Refused) -> None:
        """Reply to an extension with why not."""
        self.values(session, bytes((refusal.status,)), [str(refusal).encode()])

    def unsent(self, session: Session, size: int) -> None:
        """How many bytes of what was taken the transport still holds. More than all may hold closes the slowest."""
        if session.closing or session.state is Connection.CLOSED:
            return
        session.settle()
        self.count_unsent(session, size)
        most = self.limits.unsent_bytes_total
        if self.held.bytes > most:
            for each in sorted(self.sessions, key=unread_bytes, reverse=True):
                if self.held.bytes <= most:
                    break
                what = f"its {unread_bytes(each)} unread bytes are the most of {self.held.bytes} in memory"
                self.close(each, f"{what} > {most}: read faster, or raise unsent_bytes_total", abort=True)

    def count_unsent(self, session: Session, size: int) -> None:
        self.held.bytes += size - session.unsent
        session.unsent = size

    def overflowed(self, session: Session) -> bool:
        """Whether it leaves so much unread that it may not have another reply; then it is closed."""
        size, most = unread_bytes(session), self.limits.unsent_bytes
        if size > most and session in self.sessions:
            reason = f"{size} bytes of replies that it did not read > {most}: read faster, or raise unsent_bytes"
            self.close(session, reason, abort=True)
        return session.abort


def unread_bytes(session: Session) -> int:
    """The bytes of replies that its peer has not read, as far as the server knows."""
    return session.unsent + session.size()
