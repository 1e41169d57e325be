"""The deadlines of a server's connections, and the moment of the driver's next look.

Theory of operation. Three tables (`Ages`) contain the start times of states that may last only a limited time: a
handshake, a request that has arrived in part, a reserved element. A fourth table has the deadlines of blocked requests,
a fifth one the deadlines of rooms.
`Alarm.at` is never later than the first deadline in any of them. A new deadline moves it to an earlier time. It is not
moved to a later time before the next tick, since an unnecessary alarm costs less than finding the first deadline after
each reply. When all tables are empty it is None, and the driver sets no timer.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...host.deadlines import Deadlines
from .session import Session


class Alarm:
    """The moment at which the driver has to call `Service.tick`."""

    __slots__ = ("ages", "at", "deadlines", "rooms")

    def __init__(self) -> None:
        self.at: float | None = None
        self.ages: list[Ages] = []
        self.deadlines: Deadlines[Session] = Deadlines()  # the deadlines of blocked requests
        self.rooms: Deadlines[bytes] = Deadlines()  # the deadlines of rooms, by their run ids

    def by(self, due: float) -> None:
        """Ring no later than `due`."""
        if self.at is None or due < self.at:
            self.at = due

    def rest(self) -> None:
        """Stop the alarm if the entry that was removed was the last."""
        if not (self.deadlines.due or self.rooms.due or any(self.ages)):
            self.at = None

    def wind(self) -> None:
        """After a tick, ring at the first deadline that is left."""
        self.at = None
        for ages in self.ages:
            if ages:
                self.by(next(iter(ages.values())) + ages.seconds)
        for deadlines in (self.deadlines, self.rooms):
            if (first := deadlines.first()) is not None:
                self.by(first)


class Ages(dict[Session, float]):
    """The sessions in a state that may last for `seconds`, with its start times, the oldest first."""

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
        """The sessions whose time is over.

        The test adds as `Alarm` does. `since <= now - seconds` may be False by rounding if `now` is the deadline.
        """
        for session, since in list(self.items()):
            if since + self.seconds > now:
                return
            yield session
