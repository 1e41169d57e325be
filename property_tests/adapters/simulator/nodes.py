"""A simulated node: the real engine, and the real decisions of the agent, with workers that succeed, fail and stop.

`Process` does what `impl/agent/local.py` and the handler below it do, in the same order: `impl/agent/core.py` decides
what comes next. As the protocol requires, workers that stop slowly are killed when the lease is over. Workers of a
frozen host do not run, as in the model. The workers of an agent that is stopped alone run until its watchdog kills
them, which decides like `impl/agent/watchdog.py`.
"""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Callable, Generator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from torch.distributed.elastic.agent.server.api import WorkerState

from trystate.impl.agent import core
from trystate.impl.agent.core import Order, View
from trystate.impl.agent.watchdog import LeaseWatch
from trystate.impl.rendezvous.engine import RUNS, Effect, Engine, Joined, Seen, Standing, Sync, Write, look
from trystate.impl.rendezvous.errors import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousDrained,
    RendezvousSettingsError,
    RendezvousTimeoutError,
)
from trystate.impl.rendezvous.state import Closed, Node, Participant, State
from trystate.model.agent.vocabulary import Ending
from trystate.model.rendezvous.vocabulary import AgentPhase

from .machines import Machine
from .moments import Signal, Task, Time
from .schedule import Fault, Host, Schedule
from .store import Line, Store

if TYPE_CHECKING:
    from .monitors import Monitors

KILL_SECONDS = 0.25  # longest time to kill workers
START_SECONDS = 0.1  # longest time from the return of next_rendezvous to the start of the workers
LOOK_SECONDS = 0.1  # longest time from the end of a worker to its agent's notice
TIED_SECONDS = 0.5  # longest time from the end of a worker to the failure of the others of its group
UNFIT = 0.3  # share of the health checks that fail
RETRY_SECONDS = 0.2  # longest time between two tries to reach the store
NOTICE_SECONDS, LEAVE_SECONDS = 1.0, 3.0  # how long a process tries to announce its end, before and after its workers
T = TypeVar("T")


class Computer(Machine):
    """A host: its clock, its link to the store, and the process that runs on it."""

    def __init__(
        self, host: Host, schedule: Schedule, time: Time, store: Store, witness: Monitors, others: dict[int, Computer]
    ) -> None:
        self.store, self.witness = store, witness
        self.stopped_until = 0.0  # the end of a stop of its agent alone
        self._tied, self._others = schedule.tied, others
        super().__init__(host, schedule, time)

    @property
    def still_until(self) -> float:
        return max(self.frozen_until, self.stopped_until)

    def started(self, number: int) -> Process:
        return Process(self, number)

    def suffer(self, fault: Fault) -> None:
        if fault.kind == "stop":
            self._disturbed(fault.seconds)
            self._stop(fault.seconds)
        elif fault.kind == "stop_in_write":
            self._disturbed(fault.seconds)
            self.link.trap = lambda: self._stop(fault.seconds)
        else:
            super().suffer(fault)

    def _stop(self, seconds: float) -> None:
        self._disturbed(seconds)
        self.stopped_until = max(self.stopped_until, self.time.now + seconds)

    def _hit(self, process: Process, fault: Fault) -> None:
        super()._hit(process, fault)
        if fault.kind == "crash":
            self.stopped_until = self.time.now

    def strike(self, process: Process, fault: Fault) -> None:
        if fault.kind == "worker_failure" and not self.frozen:
            process.fail(fault.kind)
        elif fault.kind == "success" and not self.frozen:
            process.succeed()

    def thaw(self) -> None:
        """A host that continues after its lease first kills its workers, which have not run since the freeze."""
        if not self.frozen and self.processes:
            self.processes[-1].come_back()

    def peers_fail(self, of: Joined, cause: str) -> None:
        """Workers of this host have stopped early: the other workers of their group fail soon."""
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
        self.engine = self._made(me)
        self.up, self.running, self.workers = True, False, WorkerState.INIT
        self.phase = AgentPhase.JOINING
        self.joined: Joined | None = None
        self.restarting = self.signalled = False  # it joins because its workers failed; it got a signal
        self.leaves = self._departs = False  # the request that arrives is of its departure; so are those that it sends
        self.checking = False  # its health command runs, or has failed
        self.cause = ""  # why its workers failed
        self.ending: Ending = Ending.NONE
        self.closed: Closed | None = None  # the closing that it has read
        self._state: State | None = None  # the state that the heartbeat thread read last
        self.lapsed = 0.0  # seconds without a lease, by its own clock
        self._lapsed: float | None = None
        self._watchdog, self._groups, self._killed = LeaseWatch(), 0, 0  # the groups started and killed last
        self._delays = random.Random(f"{computer.seed} {self.name} watchdog")
        self.engine.lease.renewed = self._renewed
        self._tasks: list[Task] = []
        self._signal = Signal(self.time)
        computer.witness.begins(self)
        self._thread(self._live)

    def _made(self, me: Participant) -> Engine:
        return Engine(me, self.host.settings, draw=self.computer.rng.random, life=f"life of {self.name}")

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
        """Join one round after the other until the job is over. Returns how that ends, and why."""
        state = self._read()
        late, order = state is not None and state.closed is not None, Order.REJOIN
        while order in (Order.REJOIN, Order.RESTART):
            self.restarting = order is Order.RESTART
            try:
                order = self._round() if not self.signalled else Order.LEAVE
            except RendezvousTimeoutError as error:
                return Ending.TIMED_OUT, f"RendezvousTimeoutError: {error}"
            except (RendezvousSettingsError, RendezvousDrained) as error:
                return Ending.NONE, f"{type(error).__name__}: {error}"
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
        """Join a round, and stay until it is over and its workers are stopped. Returns the order that ended it."""
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
        if self._standing() in RUNS:
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
        """Its health command runs before it joins again; a failure of the command delays the join."""
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
        self._watchdog.hear(f"guard {self._groups}")
        self._look()
        self.computer.witness.starts(self)
        if self.host.work < math.inf:
            self.time.after(self.host.work, lambda: self.succeed() if self.joined is joined else None)

    def _watch(self, joined: Joined) -> Order:
        """Run the agent's loop until an order ends the round."""
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
            state = self._read(NOTICE_SECONDS)
            return state is not None and self.token in state.done
        return False

    def _wait(self, seconds: float) -> None:
        """Wait until something happens, the lease ends, or `seconds` have passed."""
        standing = self._standing()
        if standing in (*RUNS, Standing.REPLACED):
            settings, lease = self.engine.settings, self.engine.lease
            ends = lease.next_beat - settings.keep_alive_interval + settings.lease_seconds
            seconds = min(seconds, max(0.0, ends - self.computer.clock()) / self.host.rate + 1e-6)
        elif standing is Standing.LAPSED:
            seconds = min(seconds, self.engine.settings.keep_alive_interval)
        self._signal.wait(seconds)

    def _stop(self, cause: str) -> None:
        """Stop the workers, at once as soon as other nodes may run."""
        self.engine.makes_room = False
        if self.running:
            self._stop_those_that_run(cause)
        self._watchdog.hear("rest")

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
        self._watchdog.hear(f"until {ends}")
        self.time.after(max(0.0, ends - self.computer.clock()) / self.host.rate + 1e-6, self._look)

    def _look(self) -> None:
        """The watchdog reads its clock. It is frozen with its host, and not with its agent."""
        if self.computer.frozen:
            self.time.at(self.computer.frozen_until, self._look)
        elif self._watchdog.over(self.computer.clock()):
            self.time.after(self._delays.uniform(0.0, KILL_SECONDS), self._kill)

    def _kill(self) -> None:
        if self.running and self.runs and self.joined is not None and self._watchdog.over(self.computer.clock()):
            self._killed, self.running = self._groups, False
            if self.workers is not WorkerState.FAILED:  # or the cause is known
                self.workers, self.cause = WorkerState.FAILED, "watchdog"
            self.computer.witness.killed(self)
            self.computer.peers_fail(self.joined, "LAPSED")
            self._notice()

    # ---- the heartbeats

    def _beat(self, joined: Joined) -> None:
        """The thread of the heartbeats, which continues without a lease as well."""
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

    # ---- its threads, and their requests to the store

    def _thread(self, body: Callable[[], None]) -> Task:
        task = Task(self.time, lambda: self.computer.still_until, body)
        self._tasks.append(task)
        return task

    def _line(self) -> Line:
        departs, computer = self._departs, self.computer

        def arrives() -> None:
            self.leaves = departs

        return Line(computer.store, computer.link, computer.clock, self.host.rate, self.token, arrives)

    def _read(self, patience: float = math.inf) -> State | None:
        return self._drive(look(), patience)

    def _drive(self, steps: Generator[Effect, Seen, T], patience: float = math.inf) -> T:
        """Carry out the effects of a generator. RendezvousConnectionError: no store for `patience` seconds."""
        line, seen = self._line(), None
        try:
            while True:
                effect = next(steps) if seen is None else steps.send(seen)
                seen = self._reach(line, effect, patience)
        except StopIteration as end:
            value: T = end.value
            return value

    def _reach(self, line: Line, effect: Effect, patience: float) -> Seen:
        """Carry out an effect; retry until the store is reached, or `patience` seconds have passed."""
        ends = self.time.now + patience
        while True:
            try:
                seen = line.perform(effect)
            except RendezvousConnectionError:
                if self.time.now >= ends:
                    raise
                self.time.sleep(self._draw(RETRY_SECONDS))
                if isinstance(effect, Sync):  # a write is repeated unchanged
                    effect = replace(effect, seconds=0.0, revision=None)
            else:
                if isinstance(effect, Write):
                    self.computer.witness.noted(self, effect, seen.won)
                if seen.state is not None and seen.state.closed is not None:
                    self.closed = seen.state.closed
                return seen

    def _draw(self, most: float) -> float:
        return self.computer.rng.uniform(0.0, most)

    # ---- faults

    def fail(self, cause: str, of: State | None = None) -> None:
        """A worker fails; with `of`, only if its workers still belong to this round."""
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
        """SIGTERM: it announces its end, stops its workers, and takes itself off the list if it can."""
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
        self._departs = True
        with contextlib.suppress(RendezvousConnectionError):
            self._drive(self.engine.give_notice(joined), NOTICE_SECONDS)

    def _say_farewell(self, why: str) -> None:
        with contextlib.suppress(RendezvousConnectionError):
            self._drive(self.engine.leave(), LEAVE_SECONDS)
        self._end(why)

    def die(self) -> None:
        """The process ends, with its workers."""
        if self.up:
            self.ending = Ending.KILLED
            self._end("died")

    def _end(self, why: str) -> None:
        self._stopped("crash")
        self.up, self.phase = False, AgentPhase.LEFT
        for task in self._tasks:
            task.end()
        self.computer.witness.ends(self, why)
