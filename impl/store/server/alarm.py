"""The deadlines of a server's connections, and the moment of the driver's next look.

Theory of operation. Three tables say since when a session is in a state that may last only so long (`Ages`: a
handshake, a request that has arrived in part, an element that is reserved); a fourth has the deadlines of blocked
requests. `Alarm.at` is never later than the first deadline in any of them. A new deadline moves it to an earlier time;
it is not moved to a later time before the next tick, since an alarm that rings for nothing costs less than to find the
first deadline after each reply. After a tick that leaves all tables empty it is None, and the driver's loop has less to
do.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...host.deadlines import Deadlines
from .session import Session


class Alarm:
    """The moment at which the driver has to call `Service.tick`."""

    __slots__ = ("ages", "at", "deadlines")

    def __init__(self) -> None:
        self.at: float | None = None
        self.ages: list[Ages] = []
        self.deadlines: Deadlines[Session] = Deadlines()  # of blocked requests

    def by(self, due: float) -> None:
        """Ring no later than this."""
        if self.at is None or due < self.at:
            self.at = due

    def rest(self) -> None:
        """An entry is gone: it may have been the last."""
        if not self.deadlines.due and not any(self.ages):
            self.at = None

    def wind(self) -> None:
        """After a tick: ring at the first deadline that is left."""
        self.at = None
        for ages in self.ages:
            if ages:
                self.by(next(iter(ages.values())) + ages.seconds)
        if (first := self.deadlines.first()) is not None:
            self.by(first)


class Ages(dict[Session, float]):
    """Since when sessions are in a state that may last for `seconds`; the oldest first."""

    __slots__ = ("alarm", "seconds")

    def __init__(self, alarm: Alarm, seconds: float) -> None:
        super().__init__()
        self.alarm, self.seconds = alarm, seconds
        alarm.ages.append(self)

    def begin(self, session: Session, now: float) -> None:
        self.pop(session, None)
        self[session] = now
        self.alarm.by(now + self.seconds)

    def end(self, session: Session) -> None:
        if self.pop(session, None) is not None:
            self.alarm.rest()

    def due(self, now: float) -> Iterator[Session]:
        """The sessions whose time has come.

        Computed as the alarm is: `since <= now - seconds` may round to no when `now` is just that deadline.
        """
        for session, since in list(self.items()):
            if since + self.seconds > now:
                return
            yield session
