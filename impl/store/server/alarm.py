"""The deadlines of a server's connections and rooms, and the moment of the driver's next look.

Theory of operation. Each table has the deadlines of one kind: of handshakes, of requests that have arrived in part, of
reserved elements, of blocked requests, of rooms. `Alarm.at` is never later than the first deadline in any of them. A
new deadline moves it to an earlier time (`by`). It is not moved to a later time before the next tick, since an
unnecessary alarm costs less than finding the first deadline after each reply. When all tables are empty it is None, and
the driver sets no timer.
"""

from __future__ import annotations

from typing import Any

from ...host.deadlines import Deadlines
from .session import Session


class Alarm:
    """The moment at which the driver has to call `Service.tick`."""

    __slots__ = ("at", "deadlines", "rooms", "tables")

    def __init__(self) -> None:
        self.at: float | None = None
        self.tables: list[Deadlines[Any]] = []
        self.deadlines: Deadlines[Session] = self.table()  # the deadlines of blocked requests
        self.rooms: Deadlines[bytes] = self.table()  # the deadlines of rooms, by their run ids

    def table(self) -> Deadlines[Any]:
        """A new table. The caller that adds a deadline to it also calls `by`."""
        table: Deadlines[Any] = Deadlines()
        self.tables.append(table)
        return table

    def by(self, due: float) -> None:
        """Ring no later than `due`."""
        if self.at is None or due < self.at:
            self.at = due

    def end(self, table: Deadlines[Session], session: Session) -> None:
        """Remove a deadline, and stop the alarm if it was the last of all."""
        if session in table.due:
            table.discard(session)
            if not any(each.due for each in self.tables):
                self.at = None

    def wind(self) -> None:
        """After a tick, ring at the first deadline that is left."""
        self.at = None
        for table in self.tables:
            if (first := table.first()) is not None:
                self.by(first)
