"""A simulated node: the real engine, and the real decisions of the agent, with workers that succeed, fail and stop.

`Process` does what `impl/agent/local.py` and the handler below it do, in the same order: it asks `impl/agent/core.py`
what comes next. Besides, the protocol asks this of it: workers that take their time to stop are killed when the lease
is over. Workers of a host that stands still do not run, as in the model; those of an agent that is stopped alone do,
until its watchdog, which decides as `impl/agent/watchdog.py`, kills them.
"""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Callable, Generator
from functools import partial
from typing import Protocol, TypeVar

from torch.distributed.elastic.agent.server.api import WorkerState

from trystate.impl.agent import core
from trystate.impl.agent.core import Order, View
from trystate.impl.agent.watchdog import Watch
from trystate.impl.rendezvous.engine import Effect, Engine, Joined, Seen, Standing, Sync, Write
from trystate.impl.rendezvous.errors import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousSettingsError,
    RendezvousTimeoutError,
)
from trystate.impl.rendezvous.state import Closed, Node, Participant, State
from trystate.model.agent.vocabulary import Ending
from trystate.model.rendezvous.vocabulary import AgentPhase

from .moments import Signal, Task, Time
from .schedule import NO_RETURN, Fault, Host, Schedule
from .store import Line, Link, Store

KILL_SECONDS = 0.25  # to kill workers, at most
START_SECONDS = 0.1  # from the return of next_rendezvous to the start of the workers, at most
LOOK_SECONDS = 0.1  # from the end of a worker to its agent's notice, at most
TIED_SECONDS = 0.5  # from the end of a worker to the failure of those that work with it, at most
UNFIT = 0.3  # of the health checks
RETRY_SECONDS = 0.2  # between two tries to reach the store, at most
NOTICE_SECONDS, LEAVE_SECONDS = 1.0, 3.0  # how long a process that ends tries to say so, before and after its workers
BEGUN = (Standing.CURRENT, Standing.NEWCOMERS)
EngineFactory = Callable[..., Engine]
T = TypeVar("T")


class Witness(Protocol):
    """An observer of the events of a run."""

    def begins(self, process: Process) -> None: ...
    def noted(self, process: Process, write: Write, won: bool) -> None: ...
    def returned(self, process: Process, joined: Joined) -> None: ...
    def starts(self, process: Process) -> None: ...
    def worked(self, process: Process) -> None: ...
    def killed(self, process: Process) -> None: ...
    def ends(self, process: Process, why: str) -> None: ...


class Computer:
    """A host: its clock, its way to the store, and the process that runs on it."""

    def __init__(
        self, host: Host, schedule: Schedule, time: Time, store: Store, witness: Witness, engine: EngineFactory,
        others: dict[int, Computer],
    ) -> None:  # fmt: skip
        self.host, self.time, self.store, self.witness, self.engine = host, time, store, witness, engine
        self.seed = f"{schedule.seed} {host.number}"
        self.rng = random.Random(self.seed)
        self.link = Link(time, self.rng, deaf=host.deaf, prompt=schedule.prompt)
        self.frozen_until = self.stopped_until = self.disturbed_until = 0.0  # the host; its agent alone; whatever else
        self.processes: list[Process] = []
        self._tied, self._others = schedule.tied, others
        time.at(host.start, self.boot)

    def clock(self) -> float:
        return self.host.clock + self.host.rate * self.time.now

    @property
    def frozen(self) -> bool:
        return self.frozen_until > self.time.now

    @property
    def still_until(self) -> float:
        """When its agent goes on."""
        return max(self.frozen_until, self.stopped_until)

    def boot(self) -> None:
        self.processes.append(Process(self, len(self.processes)))

    def suffer(self, fault: Fault) -> None:
        """A fault of this node begins."""
        self._disturbed(fault.seconds)
        if fault.kind == "stall":
            self._stall(fault.seconds)
        elif fault.kind == "stall_in_write":
            self.link.trap = lambda: self._stall(fault.seconds)
        elif fault.kind == "stop":
            self._stop(fault.seconds)
        elif fault.kind == "stop_in_write":
            self.link.trap = lambda: self._stop(fault.seconds)
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

    def _stop(self, seconds: float) -> None:
        self._disturbed(seconds)
        self.stopped_until = max(self.stopped_until, self.time.now + seconds)

    def _hit(self, process: Process, fault: Fault) -> None:
        if fault.kind == "crash":
            process.die()
            self.frozen_until = self.stopped_until = self.time.now
            if fault.seconds < NO_RETURN:
                self.time.after(fault.seconds, self.boot)
        elif fault.kind == "leave":
            self.time.at(self.still_until, process.leave)
        elif fault.kind == "worker_failure" and not self.frozen:
            process.fail(fault.kind)
        elif fault.kind == "success" and not self.frozen:
            process.succeed()

    def _thaw(self) -> None:
        """A host that comes back after its lease begins by killing its workers: none of them has run before that."""
        if not self.frozen and self.processes:
            self.processes[-1].come_back()

    def peers_fail(self, of: Joined, cause: str) -> None:
        """Workers of this host have stopped before their end: those that work with them fail soon."""
        for computer in self._others.values() if self._tied else ():
            if computer is not self and computer.processes and computer.processes[-1].joined is not None:
                fails = partial(computer.processes[-1].fail, cause, of.state)
                self.time.after(self.rng.uniform(0.0, TIED_SECONDS), fails)


class Process:
    """One process of a node: an agent, and a thread that beats while it is in a round."""

    def __init__(self, computer: Computer, number: int) -> None:
        self.computer, self.host, self.time = computer, computer.host, computer.time
        self.name = f"{self.host.number}{'' if number == 0 else f'.{number}'}"
        node = Node(f"node{self.host.number}", 100 + number, 0, f"t{self.name}")
        me = Participant(node, f"host{self.host.number}", 29_000 + number, rank_key=self.host.rank_key)
        self.engine = computer.engine(me, self.host.settings, draw=computer.rng.random, life=f"life of {self.name}")
        self.up, self.running, self.workers = True, False, WorkerState.INIT
        self.phase = AgentPhase.JOINING
        self.joined: Joined | None = None
        self.restarting = self.signalled = False  # it joins because its workers failed; it was told to end
        self.checking = False  # its health command runs, or has failed
        self.cause = ""  # why its workers failed
        self.ending: Ending = Ending.NONE
        self.closed: Closed | None = None  # as it has heard
        self._state: State | None = None  # as the thread that beats saw it last
        self.lapsed = 0.0  # for how long there has been no lease, by its own clock
        self._lapsed: float | None = None
        self._watchdog, self._groups, self._killed = Watch(), 0, 0  # the group that was started, and killed, last
        self._delays = random.Random(f"{computer.seed} {self.name} watchdog")
        self.engine.lease.renewed = self._renewed
        self._tasks: list[Task] = []
        self._signal = Signal(self.time)
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
        return self.running and self.up and not self.computer.frozen

    # ---- the agent

    def _live(self) -> None:
        self.ending, why = self._rounds()
        self.phase = AgentPhase.FAILED
        self._say_farewell(why)

    def _rounds(self) -> tuple[Ending, str]:
        """One round after the other, until it is over; how this ends, and why."""
        state = self._drive(_look())
        late, order = state is not None and state.closed is not None, Order.REJOIN
        while order in (Order.REJOIN, Order.RESTART):
            self.restarting = order is Order.RESTART
            try:
                order = self._round() if not self.signalled else Order.LEAVE
            except RendezvousTimeoutError as error:
                return Ending.TIMED_OUT, f"RendezvousTimeoutError: {error}"
            except RendezvousSettingsError as error:
                return Ending.NONE, f"RendezvousSettingsError: {error}"
            except RendezvousClosedError as error:
                if late:
                    return Ending.CLOSED, f"RendezvousClosedError: {error}"
                order = Order.END
        if order is Order.LEAVE:
            return Ending.SIGNALLED, "left"
        if order is Order.GIVE_UP:
            return Ending.CUT_OFF, "gives up: the store is away"
        succeeded = core.ending(self.closed) is WorkerState.SUCCEEDED
        return (Ending.SUCCEEDED, "ends with success") if succeeded else (Ending.FAILED, "ends with a failure")

    def _round(self) -> Order:
        """Join a round, and look after it until it is over, and its workers are stopped; the order that ended it."""
        self.phase, self.engine.makes_room = AgentPhase.JOINING, False
        joined = self._drive(
            self.engine.join(self.host.join_seconds, failed=self.restarting, lapsed=self._killed == self._groups)
        )
        self.computer.witness.returned(self, joined)
        self.phase, self.joined, self._state = AgentPhase.RETURNING, joined, joined.state
        self.restarting, self._signal = False, Signal(self.time)
        beats = self._thread(lambda: self._beat(joined))
        self.time.sleep(self._draw(START_SECONDS))
        order = Order.REJOIN
        if self._standing() in BEGUN:
            self._start(joined)
            order = self._watch(joined)
            if order is Order.LEAVE:
                self._give_notice(joined)
            self._stop("signal" if order is Order.LEAVE else self._standing().name)
        if self.host.check_seconds and order in (Order.REJOIN, Order.RESTART):
            self._check(order is Order.RESTART)
        beats.end()
        return order

    def _check(self, failed: bool) -> None:
        """Its health command runs before it joins again; one that fails keeps it out of the round for a while."""
        self.restarting, self.checking = failed, True
        with contextlib.suppress(RendezvousConnectionError):
            self._drive(self.engine.step_out(failed, self._killed == self._groups), NOTICE_SECONDS)
        self.time.sleep(self._draw(self.host.check_seconds))
        if self._draw(1.0) < UNFIT:
            with contextlib.suppress(RendezvousConnectionError):
                self._drive(self.engine.leave(), LEAVE_SECONDS)
            self.time.sleep(self._draw(self.host.check_seconds))
        self.checking = False

    def _start(self, joined: Joined) -> None:
        self.phase, self.running, self.workers = AgentPhase.RUNNING, True, WorkerState.HEALTHY
        self._groups += 1
        self._watchdog.guard(self._groups)
        self._look()
        self.computer.witness.starts(self)
        if self.host.work < math.inf:
            self.time.after(self.host.work, lambda: self.succeed() if self.joined is joined else None)

    def _watch(self, joined: Joined) -> Order:
        """The agent's loop, until its order is to do something else."""
        reported, self._lapsed = False, None
        while True:
            self.engine.makes_room = self.workers is WorkerState.HEALTHY
            order = core.decide(self._view(reported))
            if order is Order.REPORT:
                reported = self._report(joined)
            if order not in (Order.REPORT, Order.GO_ON):
                return order
            self._wait(math.inf if order is Order.GO_ON else self._draw(RETRY_SECONDS))

    def _view(self, reported: bool) -> View:
        standing, now = self._standing(), self.computer.clock()
        if standing is not Standing.LAPSED:
            self._lapsed = None
        elif self._lapsed is None:
            self._lapsed = now
        self.lapsed = now - self._lapsed if self._lapsed is not None else 0.0
        return View(self.workers, standing, self.signalled, reported, cut_off=self.lapsed >= self.host.join_seconds,
                    killed=self._killed == self._groups)  # fmt: skip

    def _standing(self) -> Standing:
        assert self.joined is not None
        return self.engine.standing(self.joined, self._state, self.computer.clock())

    def _report(self, joined: Joined) -> bool:
        with contextlib.suppress(RendezvousConnectionError):
            self._drive(self.engine.done(joined), NOTICE_SECONDS)
            state = self._drive(_look(), NOTICE_SECONDS)
            return state is not None and self.token in state.done
        return False

    def _wait(self, seconds: float) -> None:
        """Until something happens, or the lease ends, or so many seconds have passed."""
        standing = self._standing()
        if standing in (*BEGUN, Standing.REPLACED):
            settings, lease = self.engine.settings, self.engine.lease
            ends = lease.next_beat - settings.keep_alive_interval + settings.lease_seconds
            seconds = min(seconds, max(0.0, ends - self.computer.clock()) / self.host.rate + 1e-6)
        elif standing is Standing.LAPSED:
            seconds = min(seconds, self.engine.settings.keep_alive_interval)
        self._signal.wait(seconds)

    def _stop(self, cause: str) -> None:
        """Stop the workers: at once if other nodes may run already, or as soon as they may."""
        self.engine.makes_room = False
        if self.running:
            self._stop_those_that_run(cause)
        self._watchdog.rest()

    def _stop_those_that_run(self, cause: str) -> None:
        self.phase = AgentPhase.EXITING
        gentle = core.may_finish(self._standing())
        ends = self.time.now + self._draw(self.host.stop_seconds if gentle else KILL_SECONDS)
        while gentle and self.time.now < ends:
            self._wait(ends - self.time.now)
            gentle = core.may_finish(self._standing())
        self.time.sleep(min(max(0.0, ends - self.time.now), self._draw(KILL_SECONDS)))
        self._stopped(self.cause if self.workers is WorkerState.FAILED else cause)

    def _stopped(self, cause: str) -> None:
        if self.running and self.joined is not None:
            self.running = False
            self.computer.peers_fail(self.joined, cause)

    # ---- its watchdog

    def _renewed(self, ends: float) -> None:
        self._watchdog.renew(ends)
        self.time.after(max(0.0, ends - self.computer.clock()) / self.host.rate + 1e-6, self._look)

    def _look(self) -> None:
        """The watchdog looks at its clock. It stands still with its host, and not with its agent."""
        if self.computer.frozen:
            self.time.at(self.computer.frozen_until, self._look)
        elif self._watchdog.over(self.computer.clock()):
            self.time.after(self._delays.uniform(0.0, KILL_SECONDS), self._kill)

    def _kill(self) -> None:
        if self.running and self.runs and self.joined is not None and self._watchdog.over(self.computer.clock()):
            self._killed, self.running = self._groups, False
            self.workers, self.cause = WorkerState.FAILED, "watchdog"
            self.computer.witness.killed(self)
            self.computer.peers_fail(self.joined, "LAPSED")
            self._notice()

    # ---- the heartbeats

    def _beat(self, joined: Joined) -> None:
        """The thread of the heartbeats, which goes on without a lease as well."""
        beats = self.engine.keep_alive(joined, until=(Standing.EXPELLED, Standing.CLOSED))
        line, signal, known = self._line(), self._signal, Standing.CURRENT
        effect: Effect = next(beats)
        with contextlib.suppress(StopIteration):
            while True:
                seen = self._reach(line, effect, math.inf)
                self._state = seen.state
                if (standing := self._standing()) is not known:
                    known = standing
                    signal.set(True)
                effect = beats.send(seen)

    # ---- its threads, and their way to the store

    def _thread(self, body: Callable[[], None]) -> Task:
        task = Task(self.time, lambda: self.computer.still_until, body)
        self._tasks.append(task)
        return task

    def _line(self) -> Line:
        return Line(self.computer.store, self.computer.link, self.computer.clock, self.host.rate, self.token)

    def _drive(self, steps: Generator[Effect, Seen, T], patience: float = math.inf) -> T:
        """Carry out what a generator yields. Raises RendezvousConnectionError: the store was away for longer."""
        line, seen = self._line(), None
        try:
            while True:
                effect = next(steps) if seen is None else steps.send(seen)
                seen = self._reach(line, effect, patience)
        except StopIteration as end:
            value: T = end.value
            return value

    def _reach(self, line: Line, effect: Effect, patience: float) -> Seen:
        """Carry out an effect, for as long as it takes to reach the store, or as there is patience."""
        ends = self.time.now + patience
        while True:
            try:
                seen = line.perform(effect)
            except RendezvousConnectionError:
                if self.time.now >= ends:
                    raise
                self.time.sleep(self._draw(RETRY_SECONDS))
                effect = Sync() if isinstance(effect, Sync) else effect  # a write is tried again as it was
            else:
                if isinstance(effect, Write):
                    self.computer.witness.noted(self, effect, seen.won)
                if seen.state is not None and seen.state.closed is not None:
                    self.closed = seen.state.closed
                return seen

    def _draw(self, most: float) -> float:
        return self.computer.rng.uniform(0.0, most)

    # ---- what happens to it

    def fail(self, cause: str, of: State | None = None) -> None:
        """A worker fails; `of`: if its workers are still those of this round."""
        if not self.running or self.workers is not WorkerState.HEALTHY or self.joined is None:
            return
        if of is not None and (of.life, of.round) != (self.joined.state.life, self.joined.state.round):
            return
        if self.computer.frozen:
            return self.time.at(self.computer.frozen_until, lambda: self.fail(cause, of))
        self.workers, self.cause = WorkerState.FAILED, cause
        self.computer.peers_fail(self.joined, cause)
        self._notice()

    def succeed(self) -> None:
        """All workers end by themselves."""
        if not self.running or self.workers is not WorkerState.HEALTHY or self.phase is not AgentPhase.RUNNING:
            return
        if self.computer.frozen:
            return self.time.at(self.computer.frozen_until, self.succeed)
        self.running, self.workers, self.phase = False, WorkerState.SUCCEEDED, AgentPhase.DONE
        self.computer.witness.worked(self)
        self._notice()

    def _notice(self) -> None:
        signal = self._signal
        self.time.after(self._draw(LOOK_SECONDS), lambda: signal.set(True))

    def come_back(self) -> None:
        self._kill()
        self.computer.witness.starts(self)

    def leave(self) -> None:
        """SIGTERM: it says so, stops its workers, and takes itself off the list if it can."""
        if not self.up or self.signalled or self.phase is AgentPhase.FAILED:
            return
        self.signalled = True
        if self.phase in (AgentPhase.JOINING, AgentPhase.RETURNING):  # its wait is interrupted
            self._tasks[0].end()
            self._thread(self._depart)
        else:
            self._signal.set(True)

    def _depart(self) -> None:
        self.ending = Ending.SIGNALLED
        if self.joined is not None:
            self._give_notice(self.joined)
        self.phase = AgentPhase.FAILED
        for task in self._tasks[1:-1]:
            task.end()
        self._say_farewell("left")

    def _give_notice(self, joined: Joined) -> None:
        with contextlib.suppress(RendezvousConnectionError):
            self._drive(self.engine.give_notice(joined), NOTICE_SECONDS)

    def _say_farewell(self, why: str) -> None:
        with contextlib.suppress(RendezvousConnectionError):
            self._drive(self.engine.leave(), LEAVE_SECONDS)
        self._end(why)

    def die(self) -> None:
        """The process is gone, with its workers."""
        if self.up:
            self.ending = Ending.KILLED
            self._end("died")

    def _end(self, why: str) -> None:
        self._stopped("crash")
        self.up, self.phase = False, AgentPhase.LEFT
        for task in self._tasks:
            task.end()
        self.computer.witness.ends(self, why)


def _look() -> Generator[Effect, Seen, State | None]:
    return (yield Sync()).state
