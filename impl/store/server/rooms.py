"""The rooms of a server: their requests, the notices to their members, and their deadlines.

Theory of operation. A request of a room is applied at once and answered. The room then has notices for other sessions.
They are sent like the events of watches: after the earlier replies of their session, counted as unread, and not before
the change is on disk (`durable/driver`). A room rings the alarm when it is due, and changes in `tick`. A node that
connects again replaces its older connection, which is closed. A room without a change is not kept.

With as many rooms as the limit `rooms` allows, a new one replaces the first that is finished: its rendezvous is closed,
no node of it has a connection, and none has sent a request for the time of the window after which a silent node is
expelled. A node that comes with its run id later finds no rendezvous, and begins one.

Failures:

- The room refuses a request (`IntentError`), or it cannot begin or may not change now: `Refused`. Nothing has changed.
  A request of QUIET is then answered, and expels no node: a job survives a full disk as long as it does not change.
- A session leaves too much unread: it is closed instead of getting the notice.
- The journal has no space when a room is due: the room waits for PAUSE_SECONDS.

Called on the driver's thread.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from trystate.model.store.vocabulary import Status

from ...rendezvous.rooms.messages import BEAT, LOOK, WHY, IntentError
from ...rendezvous.rooms.room import Room
from ..contents.contents import Refused
from ..contents.rooms import FORMAT, forget, key_of, room_of
from ..limits import MIB
from ..wire import blob, shown
from .session import Session

if TYPE_CHECKING:
    from .service import Service

RECORDS_BYTES = 2 * MIB  # more than the records of one request: 65,536 nodes are expelled
PAUSE_SECONDS = 1.0
QUIET = {bytes((BEAT,)), bytes((LOOK,)), bytes((WHY,))}  # change nothing, unless they expel nodes
LOGGED = {"expelled", "replaced", "spent", "closed"}  # decisions about several nodes; a node logs its own
OK, NOTICE = bytes((Status.OK,)), bytes((Status.NOTICE,))


class Rooms:
    """The rooms of all sessions."""

    def __init__(self, service: Service, clock: Callable[[], float]) -> None:
        self.service, self.clock = service, clock
        self.contents, self.alarm, self.replies = service.contents, service.alarm, service.replies
        self.peers: dict[Session, dict[bytes, None]] = {}  # the run ids of the rooms that a session has sent requests
        self.rings: dict[bytes, float] = {}  # the times at which the alarm rings for a room
        self.begin_again()

    def begin_again(self) -> None:
        """Begin the windows of all rooms again: the server was started, or has returned to its durable contents."""
        for run_id in self.rings:
            self.alarm.rooms.discard(run_id)
        self.rings.clear()
        for run_id, room in self.contents.rooms.items():
            room.begin_again(self.clock())
            self.settle(run_id, room)

    def request(self, session: Session, run_id: bytes, data: bytes) -> bytes:
        """Apply a request, send its answer, and return it. Raises `Refused`."""
        contents, room = self.contents, self.contents.rooms.get(run_id)
        if room is None:
            self._check(run_id)
            room = room_of(contents, run_id)
        expels = True
        try:
            contents.may_change(RECORDS_BYTES)
        except Refused:
            if data[:1] not in QUIET:
                raise
            expels = False
        try:
            answer = room.request(session, data, self.clock(), expels)
        except IntentError as error:
            raise Refused(Status.REFUSED, str(error)) from None
        session.outgoing.append(OK + blob(answer))
        if run_id in contents.rooms:
            if run_id not in self.peers.get(session, ()):
                self.peers.setdefault(session, {})[run_id] = None
            self.settle(run_id, room)
        return answer

    def _check(self, run_id: bytes) -> None:
        """Raise `Refused` if no room of this run id may begin."""
        key, limits = key_of(run_id), self.service.limits
        if self.contents.values.get(key, FORMAT) != FORMAT:
            raise Refused(Status.REFUSED, f"nodes of another release keep this rendezvous in the value {shown(key)}; "
                          "run one release on all nodes, and delete that value when its job has ended")  # fmt: skip
        if len(key) > limits.key_bytes:
            raise Refused(Status.TOO_LARGE, f"{shown(key)} exceeds key_bytes={limits.key_bytes}; shorten --rdzv-id")
        if len(self.contents.rooms) >= limits.rooms:
            now = self.clock()
            over = next((run_id for run_id, room in self.contents.rooms.items() if room.is_finished(now)), None)
            if over is None:
                raise Refused(Status.TOO_LARGE, f"there are rooms={limits.rooms} already, and none is finished; raise "
                              "rooms, or restart empty")  # fmt: skip
            self.end(over)

    def end(self, run_id: bytes) -> None:
        """Forget a finished room. Raises `Refused`, and has changed nothing."""
        forget(self.contents, run_id)
        self.alarm.rooms.discard(run_id)
        self.rings.pop(run_id, None)
        self.service.log(f"room {shown(run_id)}: forgotten, because there are rooms={self.service.limits.rooms}")

    def settle(self, run_id: bytes, room: Room) -> None:
        """Do what follows from a request or a tick: notices, lines of the log, replaced connections, the alarm."""
        if room.notices:
            notices, head = [*room.notices], NOTICE + blob(run_id)
            room.notices.clear()
            for session, notice in notices:
                self.tell(session, run_id, head + blob(notice))
        for node, decision in room.decisions:
            if decision.event in LOGGED:
                self.service.log(f"room {shown(run_id)}: {decision.event} by {node}: {decision.details}")
        room.decisions.clear()
        while room.drop:
            why = f"its node has a newer connection to the room {shown(run_id)}"
            self.service.close(room.drop.pop(), why, abort=True)
        if room.due < self.rings.get(run_id, math.inf):
            self._ring(run_id, room.due)

    def tell(self, session: Session, run_id: bytes, notice: bytes) -> None:
        """Send a notice."""
        if not (session.closing or self.replies.overflowed(session)):
            session.outgoing.append(notice)
            self.replies.pend(session)

    def _ring(self, run_id: bytes, due: float) -> None:
        self.rings[run_id] = due
        self.alarm.rooms.add(run_id, due)
        self.alarm.by(due)

    def tick(self, now: float) -> None:
        """Let the rooms change that are due."""
        late = []
        while (run_id := self.alarm.rooms.pop(now)) is not None:
            late.append(run_id)
        for run_id in late:
            room = self.contents.rooms[run_id]
            del self.rings[run_id]
            try:
                self.contents.may_change(RECORDS_BYTES)
            except Refused:
                self._ring(run_id, now + PAUSE_SECONDS)
                continue
            if room.due <= now:  # it may be due later by now
                room.tick(now)
            self.settle(run_id, room)

    def forget(self, session: Session) -> None:
        """A session has ended."""
        for run_id in self.peers.pop(session, ()):
            if (room := self.contents.rooms.get(run_id)) is not None:
                room.gone(session)
