"""A simulated node: the real engine, and an agent that joins, runs workers, and does what an elastic agent must.

What an agent owes the protocol: it stops its workers before it joins again, and at once when its lease is over, also
in the middle of stopping them gently. Workers of a host that stands still do not run, as in the model.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Generator
from typing import Any, Protocol, TypeVar

from trystate.impl.rendezvous.engine import Effect, Engine, Joined, Seen, Standing, Sync
from trystate.impl.rendezvous.errors import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousSettingsError,
    RendezvousTimeoutError,
)
from trystate.impl.rendezvous.state import Node, Participant, State
from trystate.model.rendezvous.vocabulary import Action, Place

from .moments import Signal, Task, Time
from .schedule import NO_RETURN, Fault, Host, Schedule
from .store import Line, Link, Store

KILL_SECONDS = 0.25  # what killing workers takes at most
START_SECONDS = 0.1  # from the return of next_rendezvous to the start of the workers, at most
RETRY_SECONDS = 0.2  # between two tries to reach the store, at most
LEAVE_SECONDS = 2.0  # how long a process that was told to end tries to say so
OVER = (Standing.EXPELLED, Standing.LAPSED)
EngineFactory = Callable[..., Engine]
T = TypeVar("T")


class Witness(Protocol):
    """Whoever is told what happens in a run."""

    def begins(self, process: Process) -> None: ...
    def noted(self, process: Process, action: Action, state: State, won: bool) -> None: ...
    def returned(self, process: Process, joined: Joined) -> None: ...
    def starts(self, process: Process) -> None: ...
    def ends(self, process: Process, why: str) -> None: ...


class Computer:
    """A host: its clock, its way to the store, and the process that runs on it."""

    def __init__(
        self, host: Host, schedule: Schedule, time: Time, store: Store, witness: Witness, engine: EngineFactory
    ) -> None:  # fmt: skip
        self.host, self.time, self.store, self.witness, self.engine = host, time, store, witness, engine
        self.rng = random.Random(f"{schedule.seed} {host.number}")
        self.link = Link(time, self.rng, deaf=host.deaf, prompt=schedule.prompt)
        self.frozen_until = self.disturbed_until = 0.0
        self.processes: list[Process] = []
        time.at(host.start, self.boot)

    def clock(self) -> float:
        return self.host.clock + self.host.rate * self.time.now

    @property
    def frozen(self) -> bool:
        return self.frozen_until > self.time.now

    def boot(self) -> None:
        self.processes.append(Process(self, len(self.processes)))

    def suffer(self, fault: Fault) -> None:
        """A fault of this node begins."""
        self._disturbed(fault.seconds)
        if fault.kind == "stall":
            self._stall(fault.seconds)
        elif fault.kind == "stall_in_write":
            self.link.trap = lambda: self._stall(fault.seconds)
        elif fault.kind in ("cut", "loss", "slow"):
            name = f"{fault.kind}_until"
            setattr(self.link, name, max(getattr(self.link, name), self.time.now + fault.seconds))
        elif self.processes and self.processes[-1].up:
            self._hit(self.processes[-1], fault)

    def _disturbed(self, seconds: float) -> None:
        self.disturbed_until = max(self.disturbed_until, self.time.now + (seconds if seconds < NO_RETURN else 0.0))

    def _stall(self, seconds: float) -> None:
        self._disturbed(seconds)
        self.frozen_until = max(self.frozen_until, self.time.now + seconds)
        self.time.after(seconds, self._thaw)

    def _hit(self, process: Process, fault: Fault) -> None:
        if fault.kind == "crash":
            process.die()
            self.frozen_until = self.time.now
            if fault.seconds < NO_RETURN:
                self.time.after(fault.seconds, self.boot)
        elif fault.kind == "leave":
            process.leave()
        elif fault.kind in ("worker_failure", "job_end") and process.place is Place.RUNNING and not self.frozen:
            process.signal.set(fault.kind)

    def _thaw(self) -> None:
        """Who comes back after its lease begins by stopping its workers; nothing of it has run before that."""
        if not self.frozen and self.processes:
            self.processes[-1].come_back()


class Process:
    """One process of a node: an agent, and a thread that beats while the workers run."""

    def __init__(self, computer: Computer, number: int) -> None:
        self.computer, self.host, self.time = computer, computer.host, computer.time
        self.name = f"{self.host.number}{'' if number == 0 else f'.{number}'}"
        node = Node(f"node{self.host.number}", 100 + number, 0, f"t{self.name}")
        me = Participant(node, f"host{self.host.number}", 29_000 + number)
        self.engine = computer.engine(
            me, self.host.settings, draw=computer.rng.random, life=f"life of {self.name}",
            note=lambda action, state, won: computer.witness.noted(self, action, state, won),
        )  # fmt: skip
        self.up, self.workers = True, False
        self.place = Place.JOINING
        self.joined: Joined | None = None
        self._tasks: list[Task] = []
        self.signal = Signal(self.time)
        computer.witness.begins(self)
        self._thread(self._live)

    @property
    def token(self) -> str:
        return self.engine.token

    @property
    def leased(self) -> bool:
        return self.engine.lease.holds(self.computer.clock())

    @property
    def runs(self) -> bool:
        return self.workers and self.up and not self.computer.frozen

    # ---- the agent

    def _live(self) -> None:
        try:
            while (joined := self._drive(self.engine.join(self.host.join_seconds))) and self._use(joined):
                self.place = Place.JOINING
        except (RendezvousClosedError, RendezvousSettingsError, RendezvousTimeoutError) as error:
            self._end(f"{type(error).__name__}: {error}")

    def _use(self, joined: Joined) -> bool:
        """Run workers in the round that was joined. False: the job is over."""
        self.computer.witness.returned(self, joined)
        self.place, self.joined = Place.RETURNING, joined
        beats = self._thread(lambda: self._beat(joined))
        self.time.sleep(self._draw(START_SECONDS))
        if self.leased:
            self.place, self.workers = Place.RUNNING, True
            self.computer.witness.starts(self)
            if self._watch() == "job_end":
                self._finish()
                return False
        beats.end()
        return True

    def _watch(self) -> object:
        """Until something ends the round; then the workers are stopped. Says what it was."""
        what = self._wait(math.inf)
        if what != "job_end":
            self.place = Place.EXITING
            gentle = what in (Standing.NEWCOMERS, Standing.REPLACED)
            stopped = self.time.now + self._draw(self.host.stop_seconds if gentle else KILL_SECONDS)
            while gentle and self.time.now < stopped and self._wait(stopped - self.time.now) not in (None, *OVER):
                pass
            self.time.sleep(min(max(0.0, stopped - self.time.now), self._draw(KILL_SECONDS)))
        self.workers, self.signal = False, Signal(self.time)
        return what

    def _wait(self, seconds: float) -> object:
        """What happens within some seconds; the end of the lease, at the latest. After the closing nothing matters."""
        until = self.time.now + seconds
        while (left := until - self.time.now) > 0:
            if not self.leased:
                return Standing.LAPSED
            lease = self.engine.lease.next_beat - self.engine.settings.interval + self.engine.settings.lease
            what = self.signal.wait(min(left, max(0.0, lease - self.computer.clock()) / self.host.rate + 1e-6))
            if what is Standing.CLOSED:
                return self._outlast()
            if what not in (None, Standing.CURRENT):
                return what
        return None

    def _outlast(self) -> object:
        """Nobody is expelled from a closed rendezvous, and no round follows: the job goes on to its end."""
        while (what := self.signal.wait(1e6)) not in ("worker_failure", "job_end"):
            pass
        return what

    def _finish(self) -> None:
        """The job is over: a member closes the rendezvous."""
        self.place = Place.DONE
        self._drive(self.engine.close("the job is over"))
        self._end("job over")

    def _beat(self, joined: Joined) -> None:
        beats = self.engine.keep_alive(joined)
        line = self._line()
        seen: Any = None
        signal = self.signal
        while True:
            try:
                seen = self._reach(line, beats.send(seen))
            except StopIteration as end:
                return signal.set(end.value)
            signal.set(self.engine.standing(joined, seen.state, seen.now))

    # ---- its threads, and their way to the store

    def _thread(self, body: Callable[[], None]) -> Task:
        task = Task(self.time, lambda: self.computer.frozen_until, body)
        self._tasks.append(task)
        return task

    def _line(self) -> Line:
        return Line(self.computer.store, self.computer.link, self.computer.clock, self.host.rate, self.token)

    def _drive(self, generator: Generator[Effect, Seen, T]) -> T:
        line = self._line()
        seen: Any = None
        while True:
            try:
                effect = generator.send(seen)
            except StopIteration as end:
                value: T = end.value
                return value
            seen = self._reach(line, effect)

    def _reach(self, line: Line, effect: Effect) -> Seen:
        """Carry out an effect, for as long as it takes to reach the store."""
        while True:
            try:
                return line.perform(effect)
            except RendezvousConnectionError:
                self.time.sleep(self._draw(RETRY_SECONDS))
                effect = Sync() if isinstance(effect, Sync) else effect  # a write is tried again as it was

    def _draw(self, most: float) -> float:
        return self.computer.rng.uniform(0.0, most)

    # ---- what happens to it

    def come_back(self) -> None:
        if not self.leased:
            self.workers = False
        self.computer.witness.starts(self)

    def leave(self) -> None:
        """Somebody ends the process: it stops its workers, and takes itself off the list if it can."""
        self._halt()
        self.place = Place.FAILED
        self._thread(self._depart)
        self.time.after(LEAVE_SECONDS, self.die)

    def _depart(self) -> None:
        self._drive(self.engine.leave())
        self._end("left")

    def die(self) -> None:
        """The process is gone, with its workers."""
        if self.up:
            self._end("died")
            self._halt()

    def _halt(self) -> None:
        self.workers = False
        for task in self._tasks:
            task.end()

    def _end(self, why: str) -> None:
        self.up, self.workers, self.place = False, False, Place.LEFT
        for task in self._tasks[1:]:
            task.end()
        self.computer.witness.ends(self, why)
