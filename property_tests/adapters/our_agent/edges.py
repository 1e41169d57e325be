"""Steps of the model `Agents`, performed by the agent's decisions and the engine: an agent's orders and writes.

Theory of operation. The subject has one state of the rendezvous, which is the runtime's own value, and a seat for each
node: its engine, the round that it joined, its worker processes, and its place in the loop of `impl/agent/local.py`.
Three parts of the runtime decide:

    core.decide         what an agent with a round does: report, rejoin, restart, leave, end
    operators, changes  what a node that joins or leaves a round writes
    engine              done, give_notice, leave, and the upkeep of a round: run as generators, to their end

Rule: a step is refused if the runtime gives another order, or if the node's loop does not decide at this place. The
subject takes nothing from the model's state: the engine reports the standing of a round, and each seat keeps the last
state that its node read, for decisions without the store.

Time passes only in steps of the model: a last call ends, a silent node has been watched for the window, a lease ends.
A due heartbeat is written before a step that needs a lease. The window of a stopped agent ends after its
workers are killed, as the lease is shorter. A node that is on no list has not watched other nodes.

The model is coarser in two places. No node reads the lists of a closed rendezvous: they are compared while it is open.
When a node leaves a seat, a spare takes that seat in its next turn. Here it does so in the same step, if it is not
stopped.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch.distributed.elastic.agent.server.api import WorkerState as Seen

from trystate.impl.agent import core
from trystate.impl.agent.core import Order, View
from trystate.impl.rendezvous import engine as engines
from trystate.impl.rendezvous import operators
from trystate.impl.rendezvous.engine import RUNS, Effect, Engine, Joined, Standing, Write
from trystate.impl.rendezvous.observer import Lease
from trystate.impl.rendezvous.operators import View as NodeView
from trystate.impl.rendezvous.state import Closed, Settings, State
from trystate.model.agent import Agents
from trystate.model.agent.vocabulary import Ending, Loop, Pace, Stopping, Verdict, WorkerState
from trystate.model.language import Kind
from trystate.model.language.sorts import ordinal
from trystate.model.rendezvous.vocabulary import Action, Membership

from ...harness.subjects import Refused
from ..our_rendezvous.parts import changed
from ..simulator.edges import engine
from ..steps import Steps

NOW = 0.0  # the time on every clock: no time passes within a step
JOINS = (Action.ADD_TO_PARTICIPANTS, Action.ADD_TO_WAIT_LIST, Action.ADD_TO_REDUNDANCY_LIST)
WITHOUT_STORE = ("start_workers", "find_failure", "leave_without_store", "kill_workers")
PROCESSES = (WorkerState.HEALTHY, WorkerState.UNHEALTHY)
MONITORS = (Loop.MONITORING, Loop.BARRIER)  # the agent has a round and calls `decide`
UP = (Loop.JOINING, Loop.STARTING, *MONITORS, Loop.RESTARTING)
# The workers as torch's monitor sees them: one that was killed has failed.
LOOKS = {
    WorkerState.HEALTHY: Seen.HEALTHY,
    WorkerState.UNHEALTHY: Seen.FAILED,
    WorkerState.STOPPED: Seen.FAILED,
    WorkerState.SUCCEEDED: Seen.SUCCEEDED,
}
OVER = (Order.REJOIN, Order.RESTART, Order.FAIL, Order.END)  # orders that stop the workers
ENDINGS = {Seen.SUCCEEDED: Ending.SUCCEEDED, Seen.FAILED: Ending.FAILED}
VERDICTS = {"succeeded": Verdict.SUCCEEDED, "failed": Verdict.FAILED, "": Verdict.UNSAID}


@dataclass(slots=True)
class Seat:
    """One node: its agent, and its workers."""

    number: int
    engine: Engine
    loop: Loop = Loop.AWAY
    workers: WorkerState = WorkerState.INIT
    pace: Pace = Pace.GOES_ON
    ending: Ending = Ending.NONE
    signalled: bool = False
    joined: Joined | None = None
    reported: bool = False  # the agent's own `_reported`
    killed: bool = False  # whether the watchdog has killed the workers
    failed: bool = False  # the last order was RESTART, or FAIL
    code: bool = False  # a worker has ended with an exit code that is not restarted
    final: str = ""  # the last order was FAIL
    orphans: bool = False
    stopping: Stopping = Stopping.PROMPT
    read: State | None = None  # the state that this node read last

    @property
    def token(self) -> str:
        return self.engine.token

    @property
    def runs(self) -> bool:
        return (self.workers in PROCESSES or self.waits) and self.pace is not Pace.NODE_STOPPED

    @property
    def waits(self) -> bool:
        """Its `_stop` waits for a worker that does not end."""
        return self.stopping is Stopping.ASKED

    @property
    def dead(self) -> bool:
        """It sends no more heartbeats, and the window is over."""
        watched = self.pace is Pace.AGENT_STOPPED and self.runs
        return ((self.loop is Loop.LEFT and not self.waits) or self.pace is not Pace.GOES_ON) and not watched

    def stop_workers(self, standing: Standing) -> None:
        """Like `_stop` and `_close`: SIGTERM and a wait, or SIGKILL."""
        if self.workers in PROCESSES:
            if self.stopping is Stopping.DEAF and core.may_finish(standing):
                self.stopping = Stopping.ASKED
            self.workers = WorkerState.STOPPED

    def kill_workers(self) -> None:
        if self.waits:
            self.stopping = Stopping.PROMPT
        if self.workers in PROCESSES:
            self.workers = WorkerState.STOPPED

    def end(self, ending: Ending) -> None:
        self.loop, self.ending = Loop.LEFT, ending


class Happenings(Steps):
    """Steps that happen to nodes and to the store, for torch's agents and ours."""

    down = False

    def _workers_succeed(self, node: Any) -> None:
        node.workers = WorkerState.SUCCEEDED

    def _worker_fails(self, node: Any) -> None:
        node.workers = WorkerState.UNHEALTHY

    def _stall(self, node: Any) -> None:
        node.pace = Pace.AGENT_STOPPED

    def _freeze(self, node: Any) -> None:
        node.pace = Pace.NODE_STOPPED

    def _store_stops(self) -> None:
        self.down = True

    def _store_returns(self) -> None:
        self.down = False

    def see(self, node: Any) -> dict[str, int]:
        """The cells of a node that any agent has."""
        seen = {name: ordinal(getattr(node, name)) for name in ("loop", "workers", "ending", "pace")}
        seen |= {name: int(getattr(node, name)) for name in ("signalled", "orphans")}
        return {f"{name}[{node.number}]": value for name, value in seen.items()}


class AgentSteps(Happenings):
    """Subject for the model `Agents` (edition TRYSTATE)."""

    def __init__(self, model: Agents) -> None:
        self.model = model
        # The others happen to it.
        self.TRIED = self.decided = {t.name for t in model.transitions if t.kind is Kind.PROTOCOL}
        self.settings = Settings(int(model.min_nodes), int(model.max_nodes), max_restarts=int(model.max_restarts))
        self.reset()

    def reset(self) -> None:
        self.state: State | None = None
        self.before_closing: State | None = None
        self.down = False
        self.lives = 0
        self.seats = [Seat(k, engine(k, 0, self.settings)) for k in range(self.model.sizes["node"])]

    def perform(self, step: str, indices: tuple[int, ...]) -> None:
        seats = [self.seats[k] for k in indices]
        if step in self.decided:
            (seat,) = seats
            if seat.pace is not Pace.GOES_ON or (self.down and step not in WITHOUT_STORE):
                raise Refused("the agent does not act")
        getattr(self, f"_{step}")(*seats)
        if step in self.decided and step not in WITHOUT_STORE:
            seats[0].read = self.state

    # ---- what a node sees and writes

    def view(self, seat: Seat, **facts: Any) -> NodeView:
        """The node's view of the store; `facts` come from its clock."""
        return NodeView(self.state, seat.token, self.settings, lease=seat.engine.lease.holds(NOW), **facts)

    def _in(self, seat: Seat, *loops: Loop) -> None:
        if seat.loop not in loops:
            raise Refused(f"the agent is {seat.loop.name}")

    def _has_stopped(self, seat: Seat) -> None:
        if seat.waits:
            raise Refused("the agent waits for its workers")

    def _run(self, steps: Generator[Effect, engines.Seen, Any]) -> Any:
        """Run an operation of the engine, alone on the store; returns its result."""
        effect = next(steps)
        while True:
            won = isinstance(effect, Write)
            if isinstance(effect, Write):
                self.state = effect.state
                if self.state.closed is None:
                    self.before_closing = self.state
            try:
                effect = steps.send(engines.Seen(self.state, NOW, won))
            except StopIteration as end:
                return end.value

    def _write(self, seat: Seat, action: Action, view: NodeView, changed: State | None = None) -> None:
        changed = changed or seat.engine._changed(action, view)
        self._run(seat.engine._attempt(action, changed, view, engines.Seen(self.state, NOW), 0))

    def _joins(self, seat: Seat, *wanted: Action, **facts: Any) -> NodeView:
        """The view in which a joining node takes one of these actions, after the heartbeat that renews its lease."""
        self._in(seat, Loop.JOINING)
        view = self.view(seat, **facts)
        action = seat.engine._decide(view, leaving=False)
        beats = action is Action.KEEP_ALIVE
        if beats:
            action = seat.engine._decide(replace(view, lease=True), leaving=False)
        if action not in wanted:
            raise Refused(f"the engine decides {action.name}")
        if beats:
            self._write(seat, Action.KEEP_ALIVE, view)
        return self.view(seat, **facts)

    def standing(self, seat: Seat, state: State | None) -> Standing:
        assert seat.joined is not None
        return seat.engine.standing(seat.joined, state, NOW)

    def order(self, seat: Seat, state: State | None) -> Order:
        """The agent's decision when it looks at its workers and at this state."""
        self._in(seat, *MONITORS)
        return core.decide(
            View(LOOKS[seat.workers], self.standing(seat, state), signalled=seat.signalled, reported=seat.reported,
                 final=seat.code, killed=seat.killed)
        )  # fmt: skip

    def _ordered(self, seat: Seat, state: State | None, *wanted: Order) -> None:
        order = self.order(seat, state)
        if order not in wanted:
            raise Refused(f"the agent decides {order.name}")
        seat.failed, seat.final = order in (Order.RESTART, Order.FAIL), "for good" if order is Order.FAIL else ""

    # ---- joining

    def _join(self, seat: Seat) -> None:
        view = self._joins(seat, *JOINS)
        self._write(seat, seat.engine._decide(view, leaving=False), view)

    def _mark_complete(self, seat: Seat) -> None:
        view = self._joins(seat, Action.MARK_RENDEZVOUS_COMPLETE, call_over=True)
        self._write(seat, Action.MARK_RENDEZVOUS_COMPLETE, view)

    def _return_with_a_round(self, seat: Seat) -> None:
        view = self._joins(seat, Action.FINISH)
        seat.joined = seat.engine._ends(Action.FINISH, view, NOW)
        seat.reported = False
        seat.loop = Loop.STARTING

    def _start_workers(self, seat: Seat) -> None:
        self._in(seat, Loop.STARTING)
        seat.workers, seat.loop = WorkerState.HEALTHY, Loop.MONITORING
        seat.killed = seat.code = False  # Watchdog.guard; `_run_round`
        self._ordered(seat, seat.read, Order.GO_ON, *OVER)

    def _exit_round(self, seat: Seat) -> None:
        self._in(seat, Loop.RESTARTING)
        self._has_stopped(seat)
        view = self.view(seat)
        if self.state is not None and self.state.closed is not None:
            raise Refused("the rendezvous is closed")
        if operators.exit_(view) is Action.REPLACE_ROUND:
            changed = seat.engine._rejoined(view, seat.failed, seat.killed, seat.final)
            self._write(seat, Action.REPLACE_ROUND, view, changed)
        if self._closed is not None:
            self._end_closed(seat)
            return
        if seat.workers is WorkerState.FAILED:
            seat.workers = WorkerState.STOPPED
        seat.failed, seat.loop = False, Loop.JOINING

    def _error_timeout(self, seat: Seat) -> None:
        view = self._joins(seat, Action.ERROR_TIMEOUT, Action.WITHDRAW, late=True)
        if view.state is not None and view.membership is not Membership.OUTSIDE:
            self._write(seat, Action.WITHDRAW, view, changed("withdraw", view.state, seat.engine.me))
        seat.end(Ending.TIMED_OUT)

    # ---- with a round

    def _expel(self, seat: Seat) -> None:
        self._in(seat, *UP)
        listed = self.view(seat).membership is not Membership.OUTSIDE
        done = self.state.done if self.state is not None else ()
        gone = self._listed() - {s.token for s in self.seats}  # processes that have a successor
        silent = {s.token for s in self.seats if s.dead} | gone if listed else set()
        view = self.view(seat, silent=frozenset(silent).difference(done).intersection(self._listed()))
        if operators.expel(view) is not Action.EXPEL:
            raise Refused("the engine expels no node")
        self._write(seat, Action.EXPEL, view)

    def _listed(self) -> set[str]:
        return {p.node.token for p in self.state.listed()} if self.state is not None else set()

    def _mark_done(self, seat: Seat) -> None:
        self._ordered(seat, self.state, Order.REPORT)
        assert seat.joined is not None
        if not self._run(seat.engine.done(seat.joined)):
            raise Refused("the engine reports nothing")
        seat.reported, seat.loop = True, Loop.BARRIER

    def _find_failure(self, seat: Seat) -> None:
        if LOOKS.get(seat.workers) is not Seen.FAILED:
            raise Refused("the workers have not failed")
        self._ordered(seat, seat.read, *OVER)  # it may have read no newer state
        seat.stop_workers(self.standing(seat, seat.read))
        seat.workers, seat.loop = WorkerState.FAILED, Loop.RESTARTING

    def _replace_round(self, seat: Seat) -> None:
        self._ordered(seat, self.state, Order.GO_ON)
        seat.engine.makes_room = seat.workers is WorkerState.HEALTHY
        view = self.view(seat)
        assert seat.joined is not None
        if seat.engine._upkeep(view, seat.joined, NOW) is not Action.REPLACE_ROUND or self.state is None:
            raise Refused("the engine makes no room")
        given = changed("give_notice", self.state, seat.engine.me, leaving=False)
        self._write(seat, Action.REPLACE_ROUND, view, given)

    def _restart_workers(self, seat: Seat) -> None:
        self._ordered(seat, self.state, Order.REJOIN)
        self._stopped(seat, self.standing(seat, self.state))

    def _stopped(self, seat: Seat, standing: Standing) -> None:
        seat.stop_workers(standing)
        if seat.workers is not WorkerState.INIT:
            seat.workers = WorkerState.STOPPED
        seat.loop = Loop.RESTARTING

    def _kill_workers(self, seat: Seat) -> None:
        if not seat.waits:
            raise Refused("no worker got SIGTERM and runs on")
        seat.kill_workers()

    # ---- ends

    @property
    def _closed(self) -> Closed | None:
        return self.state.closed if self.state is not None else None

    def _error_closed(self, seat: Seat) -> None:
        self._in(seat, Loop.JOINING, *MONITORS, Loop.RESTARTING)
        self._has_stopped(seat)
        if seat.loop in MONITORS:
            self._ordered(seat, self.state, Order.END)
            seat.stop_workers(self.standing(seat, self.state))
        else:
            leaving = operators.exit_(self.view(seat)) is Action.REPLACE_ROUND
            if seat.engine._decide(self.view(seat), leaving) is not Action.ERROR_CLOSED:
                raise Refused("the rendezvous is open")
        self._end_closed(seat)

    def _end_closed(self, seat: Seat) -> None:
        """The agent also removes itself from the lists, which is left out here: no node reads them any more."""
        seat.end(ENDINGS[core.ending(self._closed)])

    def _withdraw(self, seat: Seat) -> None:
        self._in(seat, Loop.LEAVING)
        self._has_stopped(seat)
        if self._closed is None:
            if seat.joined is not None:
                self._run(seat.engine.give_notice(seat.joined))
            if self._closed is None:
                self._run(seat.engine.leave())
                self._take_seats()
        seat.end(Ending.SIGNALLED)

    def _take_seats(self) -> None:
        """Spares take the free seats of an open round at once, as in the model."""
        for seat in self.seats:
            view = self.view(seat)
            spare = view.membership is Membership.REDUNDANT and seat.loop is Loop.JOINING and not seat.dead
            if spare and operators.join(view) is Action.ADD_TO_PARTICIPANTS:
                self._write(seat, Action.ADD_TO_PARTICIPANTS, view)

    def _leave_without_store(self, seat: Seat) -> None:
        self._in(seat, Loop.LEAVING)
        self._has_stopped(seat)
        if not self.down:
            raise Refused("the store answers: the agent withdraws")
        seat.end(Ending.SIGNALLED)

    # ---- what happens to it

    def _start_agent(self, seat: Seat) -> None:
        seat.loop = Loop.JOINING

    def _worker_fails_for_good(self, seat: Seat) -> None:
        seat.workers, seat.code = WorkerState.UNHEALTHY, True

    def _receive_signal(self, seat: Seat) -> None:
        seat.signalled = True
        if seat.loop in MONITORS:
            self._ordered(seat, seat.read, Order.LEAVE)
            seat.stop_workers(Standing.CURRENT)  # only a second signal kills them
        seat.loop = Loop.LEAVING

    def _lose_lease(self, seat: Seat) -> None:
        seat.engine.lease = Lease(seat.engine.settings)
        if seat.loop in MONITORS:
            self._ordered(seat, seat.read, Order.REJOIN, Order.END)
            self._stopped(seat, self.standing(seat, seat.read))
        if not core.may_finish(Standing.LAPSED):  # `_must_end`, while it waits
            seat.kill_workers()
        if seat.workers is WorkerState.FAILED:
            seat.workers = WorkerState.STOPPED

    def _watchdog_kills(self, seat: Seat) -> None:
        seat.kill_workers()
        seat.killed = True

    def _ignore_sigterm(self, seat: Seat) -> None:
        seat.stopping = Stopping.DEAF

    def _end_in_time(self, seat: Seat) -> None:
        seat.stopping = Stopping.PROMPT

    def _resume(self, seat: Seat) -> None:
        """The agent checks its round, as it was before the rendezvous was closed; another step handles the close."""
        seat.pace = Pace.GOES_ON
        if seat.loop is Loop.STARTING:
            over = self.standing(seat, self.before_closing) not in RUNS
        else:
            over = seat.loop is Loop.MONITORING and self.order(seat, self.before_closing) is Order.REJOIN
        if over:
            self._stopped(seat, self.standing(seat, self.before_closing))
        if seat.waits and not core.may_finish(self.standing(seat, self.before_closing)):
            seat.kill_workers()  # the watchdog resumes as well, and the lease is over

    def _crash(self, seat: Seat) -> None:
        seat.pace = Pace.GOES_ON
        seat.end(Ending.KILLED)
        seat.kill_workers()  # SIGKILL, when their parent dies

    def _start_newcomer(self, seat: Seat) -> None:
        self.lives += 1
        new = Seat(seat.number, engine(seat.number, self.lives, self.settings), Loop.JOINING, orphans=seat.runs)
        if seat.stopping is Stopping.DEAF:
            new.stopping = Stopping.DEAF  # the program of the workers ignores the signal
        self.seats[seat.number] = new

    # ---- what can be seen

    def observe(self) -> Mapping[str, int]:
        state = self.state
        out = {
            "verdict": ordinal(VERDICTS[self._closed.verdict] if self._closed is not None else Verdict.NONE),
            "spent": state.spent if state is not None else 0,
            "store_down": int(self.down),
        }
        if self._closed is None:
            out["complete"] = int(state is not None and state.complete)
            for seat in self.seats:
                self._observe_lists(out, seat, state)
        for seat in self.seats:
            out |= self.see(seat)
            if f"stopping[{seat.number}]" in self.model.positions:
                out[f"stopping[{seat.number}]"] = ordinal(seat.stopping)
        return out

    def _observe_lists(self, out: dict[str, int], seat: Seat, state: State | None) -> None:
        k, joined = seat.number, seat.joined
        out[f"member[{k}]"] = ordinal(state.membership(seat.token) if state is not None else Membership.OUTSIDE)
        out[f"succeeded[{k}]"] = int(state is not None and seat.token in state.done)
        out[f"current[{k}]"] = int(joined is not None and state is not None and joined.state.round == state.round)
