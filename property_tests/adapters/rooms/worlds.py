"""Random runs of a room and its members: `trystate simulate members`.

The simulator has the hosts, the agents, the schedules and most properties. A node has a `Member` in place of an engine,
and the store is the server of a room (servers.py).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest import mock

from trystate.impl.rendezvous import engine
from trystate.impl.rendezvous.encoding import decode
from trystate.impl.rendezvous.engine import Standing
from trystate.impl.rendezvous.errors import RendezvousConnectionError
from trystate.impl.rendezvous.rooms import member as members
from trystate.impl.rendezvous.rooms.member import Member
from trystate.impl.rendezvous.rooms.messages import ANYWAY, DRAIN, FULL, LEAVE, NOTICE, Intent
from trystate.impl.rendezvous.state import Participant, State
from trystate.model.agent.vocabulary import Ending

from ..simulator.nodes import RETRY_SECONDS, Computer, Process
from ..simulator.schedule import FAULT_SECONDS, Fault, Schedule, draw
from ..simulator.store import PATIENCE_SECONDS, ROUND_TRIP
from ..simulator.swarm import Subject, World
from .servers import LATE_SECONDS, OPERATOR, RoomMonitors, Server, Wire, postponed

KINDS = ("pause", "reset", "reset", "drain", "flee")  # faults that only rooms have


class Rooms(World):
    """The server of a room, and the nodes that meet in the room."""

    shared: Any  # a `Server`, in place of a `Store`

    def make(self) -> None:
        self.watch = monitors = RoomMonitors(self.time)
        self.shared = Server(self.time, monitors, random.Random(f"{self.schedule.seed} server"))
        hosts: dict[int, Computer] = {}
        for host in self.schedule.hosts:
            hosts[host.number] = Site(host, self.schedule, self.time, self.shared, monitors, hosts)
        self.hosts = hosts

    def begin(self, fault: Fault) -> None:
        if fault.kind not in ("outage", "pause", "wipe"):
            return super().begin(fault)
        self.watch.strikes(fault)
        if fault.kind == "pause":
            self.shared.frozen_until = max(self.shared.frozen_until, self.time.now + fault.seconds)
        else:
            self.shared.restart(fault.seconds, wiped=fault.kind == "wipe")
        return None


class Half:
    """A member with the operations of an engine: each returns the function that begins it."""

    def __init__(self, member: Member, clock: Callable[[], float]) -> None:
        self.member, self.clock = member, clock
        self.token, self.settings, self.lease = member.token, member.settings, member.lease
        self.left = 0  # its last join before it left
        self.leased = False  # when it replaced its round

    @property
    def makes_room(self) -> bool:
        return self.member.makes_room

    @makes_room.setter
    def makes_room(self, wanted: bool) -> None:
        self.member.makes_room = wanted

    def standing(self, joined: engine.Joined, state: State | None, now: float) -> Standing:
        return self.member.standing(now) if self.member.joined is not None else Standing.EXPELLED

    def join(self, seconds: float, *, failed: bool, lapsed: bool) -> Callable[[], int]:
        self.leased = self.lease.holds(self.clock())
        return lambda: self.member.join(self.clock(), seconds, failed=failed, lapsed=lapsed)

    def step_out(self, failed: bool, lapsed: bool) -> Callable[[], int]:
        self.leased = self.lease.holds(self.clock())
        return lambda: self.member.step_out(failed, self.clock(), lapsed)

    def done(self, joined: engine.Joined) -> Callable[[], int]:
        return self.member.done

    def give_notice(self, joined: engine.Joined) -> Callable[[], int]:
        return self.member.give_notice

    def leave(self) -> Callable[[], int]:
        self.left = self.member._joins
        return self.member.leave


class Attendee(Process):
    """A process whose part in the rendezvous is a member, and its connection."""

    engine: Any

    def __init__(self, site: Site, number: int) -> None:
        self.server: Server = site.store  # type: ignore[assignment]
        self.wire: Wire | None = None
        self.resets = False  # its connection breaks with the next request under way
        self._alarm, self._waiter, self._known = 0.0, lambda: None, Standing.CURRENT
        super().__init__(site, number)
        self.time.at(self.time.now, self._connect)

    def _made(self, me: Participant) -> Any:
        node = replace(me.node, token=me.node.token.replace(".", "-"))
        return Half(Member(replace(me, node=node), self.host.settings), self.computer.clock)

    def _read(self, patience: float = math.inf) -> State | None:
        data = self._drive(self.engine.member.look, patience).data
        return decode(data) if data else None

    def _drive(self, steps: Any, patience: float = math.inf) -> Any:
        """Begin an operation, and return its result. RendezvousConnectionError: none for `patience` seconds."""
        m, ticket, ends = self.engine.member, steps(), self.time.now + patience
        self._pump()
        while ticket not in m.results:
            if self.time.now >= ends:
                raise RendezvousConnectionError(ROUND_TRIP)
            self._waiter = self.time.alarm()
            if ends < math.inf:
                self.time.at(ends, self._waiter)
            self.time.wait()
        result = m.results.pop(ticket)
        if ticket != m._join[0]:
            return result
        if m.joined is None:
            raise m.error
        return self.server.watch.joined(self, m.joined)

    def _beat(self, joined: engine.Joined) -> None:
        """Does nothing: the member sends its heartbeats."""

    # ---- its connection

    def sender(self, kind: int) -> Any:
        """The node that sends a request of this kind. It may have made the request before a signal or a lease."""
        return SimpleNamespace(token=self.token, leaves=self.signalled and kind in (LEAVE, NOTICE),
                               restarting=self.restarting, leased=self.engine.leased, cause=self.cause)  # fmt: skip

    def _runs(self, call: Callable[[], None]) -> bool:
        return self.up and not postponed(self.time, self.computer.still_until, call)

    def _connect(self) -> None:
        if self._runs(self._connect) and self.wire is None:
            if self.computer.link.reaches(self.computer.store):
                self.wire = Wire(self, self.server)
                self.engine.member.connected(self.computer.clock())
                self._pump()
            else:
                self.time.after(self._draw(RETRY_SECONDS), self._connect)

    def breaks(self, wire: Wire | None = None) -> None:
        """Its connection, or only this one, is closed here; requests under way may arrive."""
        mine = self.wire
        if mine is not None and wire in (None, mine):
            self.wire = None
            self.engine.member.disconnected()
            late = self._draw(LATE_SECONDS)
            self.time.at(max(mine.there_at, self.time.now) + late, lambda: self.server.ended(mine))
            self.time.after(self._draw(RETRY_SECONDS), self._connect)

    def receive(self, wire: Wire, data: bytes, notice: bool) -> None:
        if self._runs(lambda: self.receive(wire, data, notice)) and wire is self.wire:
            if data[:1] == bytes((FULL,)):
                watch = self.server.watch
                watch.version = max(watch.version, int.from_bytes(data[8:16], "little"))
            self.engine.member.heard(data, notice, self.computer.clock())
            self._pump()

    def _pump(self) -> None:
        """After each event: the next request is sent, the agent is woken, and an alarm is set."""
        m, now = self.engine.member, self.computer.clock()
        data = m.take(now)
        if data is not None and self.wire is not None:
            self.wire.send(data)
        if m.seen is not None and m.seen.closed is not None:
            self.closed = m.seen.closed
        if m.joined is not None and self.joined is not None and (standing := m.standing(now)) is not self._known:
            self._known = standing
            self._signal.set(True)
        self.time.at(self.time.now, self._waiter)
        wakes = m.wakes(now)
        if wakes < self._alarm or self._alarm <= now:
            self._alarm = wakes
            if wakes < math.inf:
                self.time.after(max(0.0, wakes - now) / self.host.rate + 1e-6, self._wake)

    def _wake(self) -> None:
        if self._runs(self._wake) and self.computer.clock() + 1e-9 >= self._alarm:
            if not self.engine.member.woke(self.computer.clock()):
                self.breaks()
            self._pump()

    def _end(self, why: str) -> None:
        silent = self.ending is Ending.KILLED and self._draw(1.0) < 0.5  # the server does not detect it
        if self.wire is not None and not silent:
            self.breaks()
        self.wire = None
        super()._end(why)


class Site(Computer):
    """A host whose process is an attendee."""

    def started(self, number: int) -> Attendee:
        return Attendee(self, number)

    def strike(self, process: Process, fault: Fault) -> None:
        assert isinstance(process, Attendee)
        if fault.kind == "reset":
            process.resets = True
        elif fault.kind == "drain":
            drain = Intent(DRAIN, OPERATOR.token, flags=ANYWAY, by=OPERATOR, whom=process.token)
            process.server.receive(None, drain.encode())
        else:
            super().strike(process, fault)


def drawn(seed: int, nodes: int | None = None) -> Schedule:
    """The schedule of a seed, with 2 to 6 nodes unless a number is given, and faults that only rooms have."""
    rng = random.Random(f"{seed} room")
    schedule = draw(seed, rng.randint(2, 6) if nodes is None else nodes)
    faults = [*schedule.faults]
    for _ in range(rng.randint(0, 2 * len(schedule.hosts))):
        at, kind, node = rng.uniform(0.0, FAULT_SECONDS), rng.choice(KINDS), rng.randrange(len(schedule.hosts))
        if kind == "flee":  # it joins again, its connection breaks with that under way, and it leaves
            faults += [Fault(at, "reset", node), Fault(at, "worker_failure", node),
                       Fault(at + rng.uniform(0.1, 1.0), "leave", node)]  # fmt: skip
        elif kind == "pause":
            faults.append(Fault(at, kind, -1, rng.choice((0.5, 2.0, 6.0)) * rng.uniform(0.5, 1.0)))
        else:
            faults.append(Fault(at, kind, node))
    return replace(schedule, faults=tuple(sorted(faults, key=lambda fault: fault.at)))


# Members give a connection up as early as the engines of the simulator.
IMPATIENT: Any = partial(mock.patch.object, members, "PATIENCE_SECONDS", PATIENCE_SECONDS)
ROOMS = Subject(Rooms, "members", drawn, IMPATIENT)
