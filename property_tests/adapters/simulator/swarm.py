"""Runs of schedules: one, many, and the smallest that fails in the same way."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

from trystate.impl.rendezvous.engine import Engine
from trystate.impl.rendezvous.errors import RendezvousStateError

from ..garbage import set_aside
from .moments import Endless, Time
from .monitors import Event, Monitors, Violation, unrest
from .nodes import Computer, EngineFactory
from .schedule import Fault, Schedule, draw
from .store import Store

REST_SECONDS = 3.0  # a run is over when nothing has been wrong for so long
# After the last fault: whatever is wrong then is a violation. A node that comes too late for a round is in the next
# one, some ten seconds later, where another may be late: several in a row are seldom.
SETTLE_SECONDS = 120.0
SHRINK_RUNS_MAX = 400


@dataclass(frozen=True, slots=True)
class Run:
    """The result of a schedule: nothing wrong, or the property that does not hold. Seconds of virtual time."""

    schedule: Schedule
    violation: Violation | None
    log: list[Event] = field(repr=False)
    seconds: float

    @property
    def fails(self) -> str:
        """The property that does not hold; empty: all do."""
        return self.violation.name if self.violation is not None else ""


class World:
    """The nodes of a schedule, their store, and the monitors."""

    def __init__(self, schedule: Schedule, engine: EngineFactory) -> None:
        self.schedule = schedule
        self.time = Time()
        self.monitors = Monitors(self.time)
        self.store = Store(self.time, self.monitors.wrote)
        self.computers: dict[int, Computer] = {}
        for host in schedule.hosts:
            self.computers[host.number] = Computer(
                host, schedule, self.time, self.store, self.monitors, engine, self.computers
            )
        for fault in schedule.faults:
            self.time.at(fault.at, partial(self.begin, fault))

    def begin(self, fault: Fault) -> None:
        self.monitors.strikes(fault)
        if fault.kind == "outage":
            self.store.down_until = max(self.store.down_until, self.time.now + fault.seconds)
        elif fault.kind == "wipe":
            self.store.wipe()
        else:
            self.computers[fault.node].suffer(fault)

    def play(self) -> None:
        """Until everything is at rest.

        Raises:
            Violation: a property does not hold.
        """
        self.time.run(self.schedule.calm)
        ends, rests = self.schedule.calm + SETTLE_SECONDS, 0.0
        while rests < REST_SECONDS:
            self.time.run(self.time.now + 1.0)
            wrong = next(unrest(self.store.state, self.monitors.processes), None)
            rests = 0.0 if wrong is not None else rests + 1.0
            if wrong is not None and self.time.now > ends:
                raise Violation(*wrong)


def run(schedule: Schedule, engine: EngineFactory = Engine) -> Run:
    """Let a schedule happen."""
    world = World(schedule, engine)
    violation = None
    try:
        world.play()
    except Violation as found:
        violation = found
    except RendezvousStateError as refused:  # a node wrote no state: the reader of it raises this
        violation = Violation("states_are_well_formed", str(refused))
    except Endless as found:
        violation = Violation("nobody_spins", str(found))
    return Run(schedule, violation, world.monitors.log, world.time.now)


def shrink(failed: Run, engine: EngineFactory = Engine) -> Run:
    """The smallest schedule found that violates the same property: nodes and faults are dropped one by one."""
    tries = 0
    smaller: Iterator[Schedule] = failed.schedule.smaller()
    while tries < SHRINK_RUNS_MAX and (schedule := next(smaller, None)) is not None:
        tries += 1
        again = run(schedule, engine)
        if again.fails == failed.fails:
            failed, smaller = again, again.schedule.smaller()
    return failed


def sweep(seeds: Iterable[int], nodes: int | None = None) -> Iterator[Run]:
    """The runs of these seeds."""
    return (run(draw(seed, nodes)) for seed in tidily(seeds, 50))


def tidily(seeds: Iterable[int], runs: int) -> Iterator[int]:
    """These seeds; garbage is collected after each `runs` of them, and objects older than this call are set aside."""
    collecting = gc.isenabled()
    set_aside()
    gc.disable()
    try:
        for done, seed in enumerate(seeds):
            yield seed
            if done % runs == 0:
                gc.collect()
    finally:
        if collecting:
            gc.enable()
