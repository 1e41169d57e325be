"""Half-sent requests: how long the arrived part is kept, and how many bytes all parts together may have.

Theory of operation. Most requests arrive completely and never come here. For a half-sent request the session has a
frame, which reads each byte once, and the bytes that the frame could not read yet (`session.buffer`). Each piece that
arrives is counted and gives the request another `half_sent_seconds`. A half-sent record has the same time; its bytes
are not counted, because a record is small (`host/sealing`).

Failures:

- A length exceeds its limit: the frame refuses it, and the service closes the session.
- No further piece comes within `half_sent_seconds`: the session is closed.
- All half-sent requests together exceed `half_sent_bytes_total`: the session with the largest request is closed, even
  if another session sent the last piece.

Called by the service, on the driver's thread.
"""

from __future__ import annotations

from collections.abc import Callable

from ..limits import Limits
from .alarm import Alarm
from .parsing import Frame
from .session import Session


class HalfSent:
    """The half-sent requests of all sessions. `close` ends a session for a reason."""

    def __init__(
        self, limits: Limits, alarm: Alarm, clock: Callable[[], float], close: Callable[[Session, str], None]
    ) -> None:
        self.limits, self.alarm, self.clock, self.close = limits, alarm, clock, close
        self.bytes = 0
        self.deadlines = alarm.table()

    def begin(self, session: Session, frame: Frame, rest: bytes) -> None:
        """Keep a frame that is not complete. `rest` are the bytes that it could not read yet."""
        session.frame = frame
        session.buffer += rest
        self._arrived(session, frame.size + len(rest))

    def resume(self, session: Session, data: bytes) -> bytes | None:
        """Read more of a request. Returns the bytes after the request if it is complete, else None."""
        frame, buffer = session.frame, session.buffer
        assert frame is not None
        buffer += data
        if len(buffer) >= frame.needed:
            with memoryview(buffer) as view:
                position = frame.advance(view, 0, len(view))
                rest = bytes(view[position:]) if frame.complete else None
            if rest is not None:
                self.end(session)
                return rest
            del buffer[:position]
        self._arrived(session, len(data))
        return None

    def record(self, session: Session, half: bool) -> None:
        """Wait for the rest of a half-sent record as for the rest of a request; or no more."""
        if half:
            self._wait(session)
        elif session.frame is None:
            self.alarm.end(self.deadlines, session)

    def end(self, session: Session) -> None:
        """Forget a request that is complete, or whose session ends."""
        session.frame = None
        session.buffer.clear()
        self.alarm.end(self.deadlines, session)
        self.bytes -= session.half_bytes
        session.half_bytes = 0

    def expire(self, now: float) -> None:
        """Close the sessions that have sent nothing more for `half_sent_seconds`."""
        seconds = self.limits.half_sent_seconds
        while (session := self.deadlines.pop(now)) is not None:
            self.close(session, f"it sent nothing more of a request for {seconds} s; raise half_sent_seconds")

    def _wait(self, session: Session) -> None:
        due = self.clock() + self.limits.half_sent_seconds
        self.deadlines.add(session, due)
        self.alarm.by(due)

    def _arrived(self, session: Session, size: int) -> None:
        self._wait(session)
        session.half_bytes += size
        self.bytes += size
        most = self.limits.half_sent_bytes_total
        if self.bytes > most:
            largest = max(self.deadlines.due, key=lambda each: each.half_bytes)
            what = f"its half-sent request of {largest.half_bytes} bytes is the largest of {self.bytes} bytes in all"
            self.close(largest, f"{what}, the limit is {most}; send less at a time, or raise half_sent_bytes_total")
