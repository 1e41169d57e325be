"""The server of a room in the simulator: its disk, its restarts, its monitors, and the connections of the nodes.

Messages of a connection are ordered. A connection breaks with requests under way, which may arrive later. The server
pauses, or is killed and starts with the records that were on its disk: a change whose record was not is lost, and so
are its answer and notices.

Rule: the monitors see each change when it is applied. No node sees it before its record is on the disk.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from functools import partial
from typing import Any

from trystate.impl.rendezvous.changes import Table
from trystate.impl.rendezvous.rooms.messages import HEAD, JOIN
from trystate.impl.rendezvous.rooms.room import Room
from trystate.impl.rendezvous.state import Participant, State

from ..simulator.moments import Time
from .hosts import Wire, postponed
from .monitors import OUTSIDER, Monitors


class Checked(Room):
    """A room whose changes are checked."""

    def __init__(self, server: Server) -> None:
        super().__init__(server.life, server.records.append)
        self.watch = server.watch
        self.last: State | None = None
        self._request: tuple[bytes, ...] = b"\0", b""

    def request(self, peer: Any, data: bytes, now: float, expels: bool = True) -> bytes:
        # The kind, the token and the number of the join; of other kinds also the fields, which have the round.
        self._request = data[:17], data[21:25], b"" if data[0] == JOIN else data[HEAD.size :]
        return super().request(peer, data, now, expels)

    def tick(self, now: float) -> None:
        self._request, self.watch.sender = (b"\0", b""), OUTSIDER
        super().tick(now)

    def _beats(self, t: Table, token: str, me: Participant | None, now: float, expels: bool) -> None:
        if token in self._since:
            self.watch.beat(token)
        super()._beats(t, token, me, now, expels)

    def _change(self, name: str, now: float, me: Any, *more: Any) -> None:
        super()._change(name, now, me, *more)
        before, after = self.last, self.state
        assert after is not None  # it has just changed
        self.last = after
        self.watch.changed(name, self._request, before, after)


class Server:
    """It sends answers and notices when all records before them are on disk."""

    waits_for_disk = True

    def __init__(self, time: Time, watch: Monitors, rng: random.Random) -> None:
        self.time, self.watch, self.rng = time, watch, rng
        self.down_until = self.frozen_until = 0.0
        self.disk = rng.choice((0.0, 0.02, 0.02, 0.4))  # seconds of a sync, at most
        self.records: list[bytes] = []
        self.durable = self.starts = 0
        self.held: list[tuple[Wire, bytes, bool]] = []
        self.wires: dict[Wire, None] = {}
        self.syncing, self.due = False, math.inf
        self.room = Checked(self)

    def life(self) -> str:
        return f"life {self.starts}.{len(self.records)}"

    def restart(self, seconds: float, *, wiped: bool) -> None:
        self.starts += 1
        self.down_until = max(self.down_until, self.time.now + seconds)
        wires, self.wires = self.wires, {}
        for wire in wires:
            wire.process.breaks()
        if wiped:
            self.watch.version = self.durable = 0
        self.time.at(self.down_until, partial(self._start, self.starts))

    def _start(self, start: int) -> None:
        if start != self.starts:
            return
        old, whole = self.room, self.durable == len(self.records)
        del self.records[self.durable :]
        self.held, self.syncing, self.frozen_until, self.due = [], False, 0.0, math.inf
        self.room = room = Checked(self)
        for record in [old.snapshot()] if whole and self.rng.random() < 0.3 else self.records:
            room.replay(record)
        room.last = room.state
        self.watch.restored(old.state, room.last, whole)
        room.begin_again(self.time.now)
        self._settle()

    def _runs(self, call: Callable[[], None]) -> bool:
        return not postponed(self.time, self.frozen_until, call)

    def receive(self, wire: Wire | None, data: bytes, sender: Any = OUTSIDER) -> None:
        if not self._runs(lambda: self.receive(wire, data, sender)) or self.down_until > self.time.now:
            return
        if wire is None or wire in self.wires:
            self.watch.sender = sender
            answer = self.room.request(wire, data, self.time.now)
            if wire is not None:
                self.held.append((wire, answer, False))
            self._settle()

    def _settle(self) -> None:
        room = self.room
        for peer in room.drop:
            self.wires.pop(peer, None)
        self.held += [(*notice, True) for notice in room.notices]
        room.notices, room.drop, room.decisions = [], [], []
        if room.due != self.due:
            self.due = room.due
            if room.due < math.inf:
                self.time.at(room.due, partial(self._tick, room))
        self._sync()

    def _tick(self, room: Room) -> None:
        current = room is self.room and self.down_until <= self.time.now
        if current and self._runs(lambda: self._tick(room)) and self.time.now >= room.due:
            self.due = math.inf
            room.tick(self.time.now)
            self._settle()

    def _sync(self) -> None:
        start, records, answers = self.starts, len(self.records), len(self.held)
        if not self.waits_for_disk:
            self._send(answers)
        elif not self.syncing and (self.held or records > self.durable):

            def synced() -> None:
                if start == self.starts and self._runs(synced):
                    self.durable, self.syncing = records, False
                    self._send(answers)
                    self._sync()

            self.syncing = True
            self.time.after(0.0 if records == self.durable else self.rng.uniform(0.0, self.disk), synced)

    def _send(self, count: int) -> None:
        ready, self.held = self.held[:count], self.held[count:]
        for wire, data, notice in ready:
            wire.answer(data, notice)

    def ended(self, wire: Wire) -> None:
        if wire in self.wires and self._runs(lambda: self.ended(wire)):
            del self.wires[wire]
            self.room.gone(wire)
