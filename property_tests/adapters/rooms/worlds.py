"""Random runs of a room and its members: `trystate simulate members`.

A node has a real `Member` and the real decisions of the agent (`hosts`). The server has a real room (`servers`). Each
change is checked (`monitors`).
"""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from typing import Any
from unittest import mock

from trystate.impl.rendezvous.rooms import member as members

from ..simulator.schedule import FAULT_SECONDS, Fault, Schedule, draw
from ..simulator.swarm import Subject, World
from .hosts import Computer
from .monitors import Monitors
from .servers import Server

PATIENCE_SECONDS = 0.6  # how long a member waits for an answer
KINDS = ("pause", "reset", "reset", "drain", "flee")  # faults that only rooms have


class Rooms(World):
    """The server of a room, and the nodes that meet in the room."""

    shared: Server

    def make(self) -> None:
        self.watch = monitors = Monitors(self.time)
        self.shared = Server(self.time, monitors, random.Random(f"{self.schedule.seed} server"))
        hosts: dict[int, Computer] = {}
        for host in self.schedule.hosts:
            hosts[host.number] = Computer(host, self.schedule, self.time, self.shared, hosts)
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


# Members give a connection up early, which makes a run short.
IMPATIENT: Any = partial(mock.patch.object, members, "PATIENCE_SECONDS", PATIENCE_SECONDS)
ROOMS = Subject(Rooms, "members", drawn, IMPATIENT)
