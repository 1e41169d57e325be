"""Runs of schedules: one, many, and the smallest that fails in the same way."""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from trystate.impl.rendezvous.errors import RendezvousStateError

from ..garbage import set_aside
from .machines import Machine
from .moments import Endless, Time
from .schedule import Fault, Schedule
from .threads import detach_finalizers
from .watch import Event, Violation, Watch

RUNS = 20  # between two collections of garbage
SHRINK_RUNS_MAX = 400


class World:
    """The hosts of a schedule, their store and their monitors, which a subclass makes. Times are virtual seconds."""

    rest_seconds = 3.0  # a run is over when nothing has been wrong for this long
    # Time after the last fault; unrest is a violation after it. A node that is late for a round joins the next one some
    # ten seconds later. Another node may be late then; several late nodes in a row are rare.
    settle_seconds = 120.0
    look_seconds = 1.0  # between two looks
    shared: Any  # has `down_until`
    watch: Watch
    hosts: Mapping[int, Machine]
    asked: Mapping[str, int] = {}  # requests to the store, by their kind
    settled_seconds = 0.0  # longest time until everything was at rest after the last fault

    def __init__(self, schedule: Schedule) -> None:
        self.schedule, self.time = schedule, Time()
        self.make()
        for fault in schedule.faults:
            self.time.at(fault.at, partial(self.begin, fault))

    def make(self) -> None:
        """Make the store, the monitors and the hosts."""
        raise NotImplementedError

    def begin(self, fault: Fault) -> None:
        self.watch.strikes(fault)
        if fault.kind == "outage":
            self.shared.down_until = max(self.shared.down_until, self.time.now + fault.seconds)
        elif fault.kind == "wipe":
            self.shared.wipe()
        else:
            self.hosts[fault.node].suffer(fault)

    def play(self, *, on: bool) -> None:
        """Run until everything is at rest or a property is violated; with `on`, also after a violation.

        Then the world is healed: hosts whose processes were killed start them, and everything comes to rest again.

        Raises:
            Violation: a property does not hold.
        """
        self._settle(self.schedule.calm, on=on)
        lost = [host for host in self.hosts.values() if host.lost]
        if lost and (on or not self.watch.violations):
            for host in lost:
                host.boot()
            self._settle(self.time.now, on=on)

    def _settle(self, calm: float, *, on: bool) -> None:
        rests = 0.0
        while rests < self.rest_seconds and (on or not self.watch.violations):
            self.time.run(self.time.now + self.look_seconds)
            self.watch.look()
            if self.time.now < calm:
                continue
            wrong = next(self.watch.unrest(), None)
            rests = 0.0 if wrong is not None else rests + self.look_seconds
            if wrong is not None and self.time.now > calm + self.settle_seconds:
                raise Violation(*wrong)
        self.settled_seconds = max(self.settled_seconds, self.time.now - rests - calm)

    def end(self) -> None:
        """End all threads."""
        self.time.end()


@dataclass(frozen=True, slots=True)
class Subject:
    """The programs on the hosts of a schedule, and the schedule of a seed for them."""

    world: Callable[[Schedule], World]
    name: str  # its kind in a campaign
    draw: Callable[[int, int | None], Schedule]
    inside: Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class Run:
    """The result of a schedule: nothing wrong, or the properties that do not hold. Seconds of virtual time."""

    subject: Subject
    schedule: Schedule
    violations: dict[str, Violation]  # ordered by the time when they were seen
    log: list[Event] = field(repr=False)
    seconds: float
    asked: Mapping[str, int] = field(repr=False)
    moments: int = 0
    settled_seconds: float = 0.0

    @property
    def violation(self) -> Violation | None:
        """The first one."""
        return next(iter(self.violations.values()), None)

    @property
    def fails(self) -> str:
        """The property that was violated first; empty: all hold."""
        return next(iter(self.violations), "")


def run(schedule: Schedule, subject: Subject, *, on: bool = False) -> Run:
    """Run a schedule until the first violation; with `on`, until it is at rest or does not come to rest."""
    with subject.inside():
        world = subject.world(schedule)
        found: tuple[str, str] | None = None
        try:
            world.play(on=on)
        except Violation as violation:
            found = violation.name, violation.seen
        except RendezvousStateError as refused:  # a node has read bytes that are not a state
            found = "states_are_well_formed", str(refused)
        except Endless as endless:
            found = "nobody_spins", str(endless)
        if found is not None:
            world.watch.demand(False, *found)
        return ended(world, subject)


def ended(world: World, subject: Subject) -> Run:
    """End a world, and return its result."""
    watch = world.watch
    done = Run(
        subject, world.schedule, {**watch.violations}, [*watch.log], world.time.now, {**world.asked},
        world.time.moments, world.settled_seconds,
    )  # fmt: skip
    world.end()
    detach_finalizers()
    return done


def shrink(failed: Run, name: str = "") -> Run:
    """The smallest run found that violates a property, or the same one first: nodes and faults are left out."""
    smaller = failed.schedule.smaller()
    for _ in range(SHRINK_RUNS_MAX):
        if (schedule := next(smaller, None)) is None:
            break
        again = run(schedule, failed.subject, on=bool(name))
        if name in again.violations or again.fails == (name or failed.fails):
            failed, smaller = again, again.schedule.smaller()
    return failed


def sweep(seeds: Iterable[int], subject: Subject) -> Generator[Run, None, None]:
    """The runs of these seeds."""
    return (run(subject.draw(seed, None), subject) for seed in tidily(seeds))


def tidily(seeds: Iterable[int]) -> Iterator[int]:
    """These seeds. Garbage is collected after each `RUNS` of them; objects older than this call are not collected."""
    collecting = gc.isenabled()
    set_aside()
    gc.disable()
    try:
        for done, seed in enumerate(seeds):
            yield seed
            if done % RUNS == 0:
                gc.collect()
    finally:
        if collecting:
            gc.enable()
