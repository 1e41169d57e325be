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
from types import SimpleNamespace
from typing import Any

from trystate.impl.rendezvous import engine
from trystate.impl.rendezvous.changes import Table
from trystate.impl.rendezvous.rooms.member import JOINING
from trystate.impl.rendezvous.rooms.messages import HEAD, JOIN, Summary
from trystate.impl.rendezvous.rooms.room import LISTING, Room
from trystate.impl.rendezvous.state import Node, Participant, State

from ..simulator.moments import Time
from ..simulator.monitors import Monitors, demand
from ..simulator.nodes import Process
from ..simulator.schedule import Fault
from ..simulator.store import Link

LATE_SECONDS = 3.0  # longest time of a request whose connection breaks, and until the server detects the break
OPERATOR = Node("operator", 1, 0, "operator")
OUTSIDER: Any = SimpleNamespace(token=OPERATOR.token, up=False, runs=False, joined=None, leaves=False,
                              restarting=False, cause="")  # fmt: skip


def postponed(time: Time, until: float, call: Callable[[], None]) -> bool:
    """Whether a process is frozen until a later time. The call is then made at that time."""
    if frozen := until > time.now:
        time.at(until, call)
    return frozen


class RoomMonitors(Monitors):
    """The properties of a run; also of requests that arrive twice or late, and of restarts."""

    unlisted_expel = True

    def __init__(self, time: Time) -> None:
        super().__init__(time)
        self.processes[OPERATOR.token] = OUTSIDER
        self.rounds: dict[tuple[str, int], State] = {}  # complete ones
        self._seen: dict[tuple[str, int], object] = {}  # the summaries of its members
        self._replaced: set[tuple[bytes, ...]] = set()  # requests that have replaced a round
        self._ended: dict[str, int] = {}  # the last join of a node that was taken off the lists
        self.version = 0  # the latest that a node has received
        self.sender = OUTSIDER  # the node of a request, as it was when it sent that

    def strikes(self, fault: Fault) -> None:
        super().strikes(fault)
        if fault.kind == "pause":
            self._outages.append((fault.at, fault.at + fault.seconds))

    def _spending(self, before: State, after: State, writer: Process) -> None:
        super()._spending(before, after, self.sender)

    def changed(self, name: str, request: tuple[bytes, ...], before: State | None, after: State) -> None:
        who = after.writer
        beat, join = self._beat.get(who, -math.inf), int.from_bytes(request[1], "little")
        self.wrote(before, after, who)
        self._beat[who] = beat if name not in LISTING else self._time.now
        if after.complete:
            self.rounds[after.life, after.round] = after
        if name == "replace_round":
            demand(request not in self._replaced, "a_request_replaces_one_round", who, after)
            self._replaced.add(request)
        if name == "withdraw":
            half: Any = self.processes[who].engine
            self._ended[who] = max(join, half.left)
        elif name in LISTING and request[0][0] in JOINING:
            demand(join > self._ended.get(who, 0), "an_ended_join_stays_ended", who, join, after)

    def restored(self, before: State | None, after: State | None, whole: bool) -> None:
        """A server has started again; `whole`: all its records were on the disk."""
        demand(not whole or before == after, "a_restart_has_the_records", before, after)
        version, self._state = after.version if after is not None else 0, after
        demand(version >= self.version, "answers_are_kept", version, self.version)
        if not whole:  # some changes are undone, and may be made again; no node has seen them
            self._replaced.clear()
            self._ended.clear()

    def joined(self, process: Process, s: Summary) -> engine.Joined:
        """The round as the engine would return it."""
        key = s.life, s.round
        found = engine.Joined(self.rounds[key], s.rank)
        same = s.participants, s.master, s.members
        demand(self._seen.setdefault(key, same) == same, "agree_on_world", process.token, same)
        demand(s.rank in range(found.world_size) and s.participants == found.world_size, "agree_on_world", s)
        demand(s.master == (found.state.participants[0].host, found.state.participants[0].port), "agree_on_master", s)
        return found


class Checked(Room):
    """A room whose changes are checked."""

    def __init__(self, server: Server) -> None:
        super().__init__(server.life, server.records.append)
        self.watch = server.watch
        self.last: State | None = None
        self._request: tuple[bytes, ...] = b"\0", b""

    def request(self, peer: Any, data: bytes, now: float) -> bytes:
        # The kind, the token and the number of the join; of other kinds also the fields, which have the round.
        self._request = data[:17], data[21:25], b"" if data[0] == JOIN else data[HEAD.size :]
        return super().request(peer, data, now)

    def tick(self, now: float) -> None:
        self._request, self.watch.sender = (b"\0", b""), OUTSIDER
        super().tick(now)

    def _beats(self, t: Table, token: str, me: Participant | None, now: float) -> None:
        if token in self._since:
            self.watch.beat(token)
        super()._beats(t, token, me, now)

    def _change(self, name: str, now: float, me: Any, *more: Any) -> None:
        super()._change(name, now, me, *more)
        before, after = self.last, self.state
        assert after is not None  # it has just changed
        self.last = after
        self.watch.changed(name, self._request, before, after)


class Server:
    """It sends answers and notices when all records before them are on disk."""

    waits_for_disk = True
    closes_replaced = True

    def __init__(self, time: Time, watch: RoomMonitors, rng: random.Random) -> None:
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
        for peer in room.drop if self.closes_replaced else ():
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


class Wire:
    """A connection, ordered in both directions. `dead`: no message passes any more, and neither end has detected it."""

    def __init__(self, process: Any, server: Server) -> None:
        self.process, self.server, self.time = process, server, server.time
        self.link: Link = process.computer.link
        self.dead = False
        self.there_at = self.back_at = 0.0
        server.wires[self] = None

    def _passes(self) -> bool:
        self.dead |= self.link.cut_until > self.time.now
        return not self.dead

    def send(self, data: bytes) -> None:
        self.link.sends()
        if self._passes():
            late, process = self.process.resets or self.link.loses(), self.process
            delay = self.link.rng.uniform(0.0, LATE_SECONDS) if late else self.link.delay()
            self.there_at = max(self.there_at, self.time.now + delay)
            sender = process.sender(data[0])
            self.time.at(self.there_at, lambda: self.server.receive(self, data, sender) if self._passes() else None)
            if late:
                process.resets = False
                self.time.after(self.link.delay(), lambda: process.breaks(self))

    def answer(self, data: bytes, notice: bool) -> None:
        if self in self.server.wires and self._passes():
            self.back_at = max(self.back_at, self.time.now + self.link.delay())
            self.time.at(self.back_at, lambda: self.process.receive(self, data, notice) if self._passes() else None)
