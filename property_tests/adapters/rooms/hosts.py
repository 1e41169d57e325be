"""A simulated node of a room: a real `Member`, and the real decisions of the agent, with workers that fail and stop.

`Process` does what `impl/agent/local.py` and the handler below it do, in the same order: `impl/agent/core.py` decides
what comes next. As the protocol requires, workers that stop slowly are killed when the lease is over. Workers of a
frozen host do not run, as in the model. The workers of an agent that is stopped alone run until its watchdog kills
them, which decides like `impl/agent/watchdog.py`.
"""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from torch.distributed.elastic.agent.server.api import WorkerState

from trystate.impl.agent import core
from trystate.impl.agent.core import Order, View
from trystate.impl.agent.watchdog import LeaseWatch
from trystate.impl.rendezvous.encoding import decode
from trystate.impl.rendezvous.engine import RUNS, Joined, Standing
from trystate.impl.rendezvous.errors import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousDrained,
    RendezvousSettingsError,
    RendezvousTimeoutError,
)
from trystate.impl.rendezvous.rooms.member import Member
from trystate.impl.rendezvous.rooms.messages import ANYWAY, DRAIN, FULL, LEAVE, NOTICE, Intent
from trystate.impl.rendezvous.state import Closed, Node, Participant, State
from trystate.model.agent.vocabulary import Ending
from trystate.model.rendezvous.vocabulary import AgentPhase

from ..simulator.machines import KILL_SECONDS, LEAVE_SECONDS, START_SECONDS, Machine
from ..simulator.moments import Signal, Task, Time
from ..simulator.schedule import Fault, Host, Schedule

if TYPE_CHECKING:
    from .servers import Server

LOOK_SECONDS = 0.1  # longest time from the end of a worker to its agent's notice
TIED_SECONDS = 0.5  # longest time from the end of a worker to the failure of the others of its group
UNFIT = 0.3  # share of the health checks that fail
RETRY_SECONDS = 0.2  # longest time between two tries to reach the server
NOTICE_SECONDS = 1.0  # how long a process tries to announce its end before the end of its workers
LATE_SECONDS = 3.0  # longest time of a request whose connection breaks, and until the server detects the break
OPERATOR = Node("operator", 1, 0, "operator")


def postponed(time: Time, until: float, call: Callable[[], None]) -> bool:
    """Whether a process is frozen until a later time. The call is then made at that time."""
    if frozen := until > time.now:
        time.at(until, call)
    return frozen


class Wire:
    """A connection, ordered in both directions. `dead`: no message passes any more, and neither end has detected it."""

    def __init__(self, process: Process, server: Server) -> None:
        self.process, self.server, self.time = process, server, server.time
        self.link = process.computer.link
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


class Computer(Machine):
    """A host: its clock, its link to the server, and the process that runs on it."""

    def __init__(self, host: Host, schedule: Schedule, time: Time, server: Server, others: dict[int, Computer]) -> None:
        self.server, self.witness = server, server.watch
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
        if fault.kind == "reset":
            process.resets = True
        elif fault.kind == "drain":
            drain = Intent(DRAIN, OPERATOR.token, flags=ANYWAY, by=OPERATOR, whom=process.token)
            self.server.receive(None, drain.encode())
        elif fault.kind == "worker_failure" and not self.frozen:
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
    """One process of a node: an agent, its member of the room, and the member's connection."""

    def __init__(self, computer: Computer, number: int) -> None:
        self.computer, self.host, self.time = computer, computer.host, computer.time
        self.server, self.witness = computer.server, computer.witness
        name = f"{self.host.number}{'' if number == 0 else f'.{number}'}"
        node = Node(f"node{self.host.number}", 100 + number, 0, f"t{name}".replace(".", "-"))
        me = Participant(node, f"host{self.host.number}", 29_000 + number, rank_key=self.host.rank_key)
        self.member = Member(me, self.host.settings)
        self.left = 0  # the member's last join before it left
        self.was_leased = False  # whether it had its lease when it replaced its round
        self.wire: Wire | None = None
        self.resets = False  # its connection breaks with the next request under way
        self._alarm, self._known = 0.0, Standing.CURRENT
        self._waiter: Callable[[], None] = lambda: None
        self.up, self.running, self.workers = True, False, WorkerState.INIT
        self.phase = AgentPhase.JOINING
        self.joined: Joined | None = None
        self.restarting = self.signalled = False  # it joins because its workers failed; it got a signal
        self.checking = False  # its health command runs, or has failed
        self.cause = ""  # why its workers failed
        self.ending: Ending = Ending.NONE
        self.closed: Closed | None = None  # the closing that it has read
        self.lapsed = 0.0  # seconds without a lease, by its own clock
        self._lapsed: float | None = None
        self._watchdog, self._groups, self._killed = LeaseWatch(), 0, 0  # the groups started and killed last
        self._delays = random.Random(f"{computer.seed} {name} watchdog")
        self.member.lease.renewed = self._renewed
        self._tasks: list[Task] = []
        self._signal = Signal(self.time)
        self.witness.begins(self)
        self._thread(self._live)
        self.time.at(self.time.now, self._connect)

    @property
    def token(self) -> str:
        return self.member.token

    @property
    def leased(self) -> bool:
        return self.member.lease.holds(self.computer.clock())

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
        self.phase, self.member.makes_room, self.was_leased = AgentPhase.JOINING, False, self.leased
        lapsed = self._killed == self._groups
        joined = self._drive(lambda: self.member.join(
            self.computer.clock(), self.host.join_seconds, failed=self.restarting, lapsed=lapsed))  # fmt: skip
        self.witness.returned(self, joined)
        self.phase, self.joined = AgentPhase.RETURNING, joined
        self.restarting, self._signal = False, Signal(self.time)
        self.time.sleep(self._draw(START_SECONDS))
        order = Order.REJOIN
        if self._standing() in RUNS:
            self._start(joined)
            order = self._watch()
            if order is Order.LEAVE:
                self._give_notice()
            self._stop("signal" if order is Order.LEAVE else self._standing().name)
        if self.host.check_seconds and order in (Order.REJOIN, Order.RESTART):
            self._check(order is Order.RESTART)
        return order

    def _check(self, failed: bool) -> None:
        """Its health command runs before it joins again; a failure of the command delays the join."""
        self.restarting, self.checking, self.was_leased = failed, True, self.leased
        lapsed = self._killed == self._groups
        with contextlib.suppress(RendezvousConnectionError):
            self._drive(lambda: self.member.step_out(failed, self.computer.clock(), lapsed), NOTICE_SECONDS)
        self.time.sleep(self._draw(self.host.check_seconds))
        if self._draw(1.0) < UNFIT:
            self._take_off()
            self.time.sleep(self._draw(self.host.check_seconds))
        self.checking = False

    def _start(self, joined: Joined) -> None:
        self.phase, self.running, self.workers = AgentPhase.RUNNING, True, WorkerState.HEALTHY
        self._groups += 1
        self._watchdog.hear(f"guard {self._groups}")
        self._look()
        self.witness.starts(self)
        if self.host.work < math.inf:
            self.time.after(self.host.work, lambda: self.succeed() if self.joined is joined else None)

    def _watch(self) -> Order:
        """Run the agent's loop until an order ends the round."""
        reported, self._lapsed = False, None
        while True:
            self.member.makes_room = self.workers is WorkerState.HEALTHY
            order = core.decide(self._view(reported))
            if order is Order.REPORT:
                reported = self._report()
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
        return self.member.standing(self.computer.clock()) if self.member.joined is not None else Standing.EXPELLED

    def _report(self) -> bool:
        with contextlib.suppress(RendezvousConnectionError):
            self._drive(self.member.done, NOTICE_SECONDS)
            state = self._read(NOTICE_SECONDS)
            return state is not None and self.token in state.done
        return False

    def _wait(self, seconds: float) -> None:
        """Wait until something happens, the lease ends, or `seconds` have passed."""
        standing = self._standing()
        if standing in (*RUNS, Standing.REPLACED):
            settings, lease = self.host.settings, self.member.lease
            ends = lease.next_beat - settings.keep_alive_interval + settings.lease_seconds
            seconds = min(seconds, max(0.0, ends - self.computer.clock()) / self.host.rate + 1e-6)
        elif standing is Standing.LAPSED:
            seconds = min(seconds, self.host.settings.keep_alive_interval)
        self._signal.wait(seconds)

    def _stop(self, cause: str) -> None:
        """Stop the workers, at once as soon as other nodes may run."""
        self.member.makes_room = False
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
            self.witness.killed(self)
            self.computer.peers_fail(self.joined, "LAPSED")
            self._notice()

    # ---- its thread, and the operations of its member

    def _thread(self, body: Callable[[], None]) -> None:
        self._tasks.append(Task(self.time, lambda: self.computer.still_until, body))

    def _read(self, patience: float = math.inf) -> State | None:
        data = self._drive(self.member.look, patience).data
        return decode(data) if data else None

    def _drive(self, begin: Callable[[], int], patience: float = math.inf) -> Any:
        """Begin an operation, and return its result. RendezvousConnectionError: none for `patience` seconds."""
        m, ticket, ends = self.member, begin(), self.time.now + patience
        self._pump()
        while ticket not in m.results:
            if self.time.now >= ends:
                raise RendezvousConnectionError("the server did not answer")
            self._waiter = self.time.alarm()
            if ends < math.inf:
                self.time.at(ends, self._waiter)
            self.time.wait()
        result = m.results.pop(ticket)
        if ticket != m._join[0]:
            return result
        if m.joined is None:
            assert m.error is not None  # the join has ended
            raise m.error
        return self.witness.joined(self, m.joined)

    def _draw(self, most: float) -> float:
        return self.computer.rng.uniform(0.0, most)

    # ---- its connection

    def sender(self, kind: int) -> Any:
        """The node that sends a request of this kind. It may have made the request before a signal or a lease."""
        return SimpleNamespace(token=self.token, leaves=self.signalled and kind in (LEAVE, NOTICE),
                               restarting=self.restarting, leased=self.was_leased, cause=self.cause)  # fmt: skip

    def _runs(self, call: Callable[[], None]) -> bool:
        return self.up and not postponed(self.time, self.computer.still_until, call)

    def _connect(self) -> None:
        if self._runs(self._connect) and self.wire is None:
            if max(self.computer.link.cut_until, self.server.down_until) <= self.time.now:
                self.wire = Wire(self, self.server)
                self.member.connected(self.computer.clock())
                self._pump()
            else:
                self.time.after(self._draw(RETRY_SECONDS), self._connect)

    def breaks(self, wire: Wire | None = None) -> None:
        """Its connection, or only this one, is closed here; requests under way may arrive."""
        mine = self.wire
        if mine is not None and wire in (None, mine):
            self.wire = None
            self.member.disconnected()
            late = self._draw(LATE_SECONDS)
            self.time.at(max(mine.there_at, self.time.now) + late, lambda: self.server.ended(mine))
            self.time.after(self._draw(RETRY_SECONDS), self._connect)

    def receive(self, wire: Wire, data: bytes, notice: bool) -> None:
        if self._runs(lambda: self.receive(wire, data, notice)) and wire is self.wire:
            if data[:1] == bytes((FULL,)):
                watch = self.witness
                watch.version = max(watch.version, int.from_bytes(data[8:16], "little"))
            self.member.heard(data, notice, self.computer.clock())
            self._pump()

    def _pump(self) -> None:
        """After each event: the next request is sent, the agent is woken, and an alarm is set."""
        m, now = self.member, self.computer.clock()
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
            if not self.member.woke(self.computer.clock()):
                self.breaks()
            self._pump()

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
        self.witness.worked(self)
        self._notice()

    def _notice(self) -> None:
        signal = self._signal
        self.time.after(self._draw(LOOK_SECONDS), lambda: signal.set(True))

    def come_back(self) -> None:
        self._kill()
        self.witness.starts(self)

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
            self._give_notice()
        self.phase = AgentPhase.FAILED
        self._say_farewell("left")

    def _give_notice(self) -> None:
        with contextlib.suppress(RendezvousConnectionError):
            self._drive(self.member.give_notice, NOTICE_SECONDS)

    def _say_farewell(self, why: str) -> None:
        self._take_off()
        self._end(why)

    def _take_off(self) -> None:
        """Take its node off the lists."""
        self.left = self.member._joins
        with contextlib.suppress(RendezvousConnectionError):
            self._drive(self.member.leave, LEAVE_SECONDS)

    def die(self) -> None:
        """The process ends, with its workers."""
        if self.up:
            self.ending = Ending.KILLED
            self._end("died")

    def _end(self, why: str) -> None:
        silent = self.ending is Ending.KILLED and self._draw(1.0) < 0.5  # the server does not detect it
        if self.wire is not None and not silent:
            self.breaks()
        self.wire = None
        self._stopped("crash")
        self.up, self.phase = False, AgentPhase.LEFT
        for task in self._tasks:
            task.end()
        self.witness.ends(self, why)
