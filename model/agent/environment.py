"""Agents and workers that start, succeed and fail, and the faults that can be switched on: the same in every edition.

Theory of operation. A step of the environment waits for no decision. `fair` steps happen at last if they stay possible;
faults are off unless a run names them, and happen as often as their bound says. The editions differ in two places, each
a method that an edition overrides: whether workers die with their agent, and what a new agent forgets. How a stopped
agent goes on is the edition's own step (`resume`).
"""

from __future__ import annotations

from ..language import Expr, SymbolicState, arc, environment, fault, ite, may, transition
from ..rendezvous.vocabulary import Membership
from .fields import KILLS, PROCESSES, UP, Fields
from .vocabulary import Ending, Loop, Pace, Stopping, WorkerState


class Environment(Fields):
    """Agents, workers, and faults."""

    def workers_die_with_their_agent(self) -> bool:
        """Workers get a signal when their agent dies."""
        raise NotImplementedError

    def forget_agent(self, s: SymbolicState, node: Expr) -> None:
        """A new agent does not know all that the one before it knew."""

    # ---- the life of workers

    @environment(each="node", fair=True, moves=[arc(Loop.AWAY, Loop.JOINING)])
    def start_agent(self, s: SymbolicState, node: Expr) -> None:
        """An agent starts, early or late."""
        self.goes(s, node, Loop.AWAY)
        s.loop[node] = Loop.JOINING

    @transition(each="node", moves=[arc(Loop.JOINING, Loop.STARTING)], cite="api.py:_rendezvous")
    def return_with_a_round(self, s: SymbolicState, node: Expr) -> None:
        """The round is complete: next_rendezvous returns with its world."""
        self.acts(s, node, Loop.JOINING)
        s.when(self.is_open(s), self.is_seated(s, node))
        s.current[node] = True
        s.loop[node] = Loop.STARTING

    @transition(
        each="node",
        moves=[arc(Loop.STARTING, Loop.MONITORING), arc((WorkerState.INIT, WorkerState.STOPPED), WorkerState.HEALTHY)],
        cite="api.py:_initialize_workers",
    )
    def start_workers(self, s: SymbolicState, node: Expr) -> None:
        """The agent starts its workers."""
        self.goes(s, node, Loop.STARTING)
        s.workers[node] = WorkerState.HEALTHY
        s.loop[node] = Loop.MONITORING

    @environment(each="node", fair=True, moves=[arc(WorkerState.HEALTHY, WorkerState.SUCCEEDED)])
    def workers_succeed(self, s: SymbolicState, node: Expr) -> None:
        """All workers of a node end with exit code 0; other nodes may need longer."""
        s.when(s.pace[node] != Pace.NODE_STOPPED, s.workers[node] == WorkerState.HEALTHY)
        s.when(self.ends > 0)
        s.workers[node] = WorkerState.SUCCEEDED

    @fault(
        "worker_failure",
        each="node",
        bound=2,
        moves=[arc(WorkerState.HEALTHY, WorkerState.UNHEALTHY)],
        cite="elastic-node-change 3.3",
    )
    def worker_fails(self, s: SymbolicState, node: Expr) -> None:
        """A worker fails."""
        self.goes_wrong(s, node)

    def goes_wrong(self, s: SymbolicState, node: Expr) -> None:
        """Worker processes run, and one of them ends with an error."""
        s.when(
            s.pace[node] != Pace.NODE_STOPPED, s.loop[node] == Loop.MONITORING, s.workers[node] == WorkerState.HEALTHY
        )
        s.workers[node] = WorkerState.UNHEALTHY

    # ---- workers that do not end: SIGTERM was sent by a step of the edition

    @environment(each="node", moves=[arc(Stopping.ASKED, Stopping.PROMPT)], cite="elastic-node-change 2.3.3.3")
    def end_in_time(self, s: SymbolicState, node: Expr) -> None:
        """A worker that got SIGTERM ends after all, before the time-out."""
        s.when(s.pace[node] != Pace.NODE_STOPPED, s.stopping[node] == Stopping.ASKED)
        s.stopping[node] = Stopping.PROMPT

    @transition(each="node", moves=[arc(Stopping.ASKED, Stopping.PROMPT)], cite="multiprocessing/api.py:_close")
    def kill_workers(self, s: SymbolicState, node: Expr) -> None:
        """The time-out of the wait (30 s) is over: SIGKILL."""
        s.when(s.pace[node] == Pace.GOES_ON, s.ending[node] != Ending.KILLED, s.stopping[node] == Stopping.ASKED)
        s.stopping[node] = Stopping.PROMPT

    # ---- faults

    @fault("deaf", each="node", moves=[arc(Stopping.PROMPT, Stopping.DEAF)])
    def ignore_sigterm(self, s: SymbolicState, node: Expr) -> None:
        """A worker ignores SIGTERM, or takes its time to end."""
        s.when(s.stopping[node] == Stopping.PROMPT, s.workers[node] == WorkerState.HEALTHY)
        s.stopping[node] = Stopping.DEAF

    @fault(
        "crash",
        each="node",
        moves=[
            arc((Loop.JOINING, Loop.STARTING, Loop.MONITORING, Loop.BARRIER, Loop.RESTARTING), Loop.LEFT),
            may(Loop.LEAVING, Loop.LEFT),
            *may(PROCESSES, WorkerState.STOPPED),
            *KILLS,
        ],
    )
    def crash(self, s: SymbolicState, node: Expr) -> None:
        """An agent is killed."""
        s.when(s.loop[node].isin((*UP, Loop.LEAVING)))
        s.loop[node] = Loop.LEFT
        s.ending[node] = Ending.KILLED
        s.pace[node] = Pace.GOES_ON
        if self.workers_die_with_their_agent():
            self.kill(s, node)

    @fault(
        "newcomer",
        each="node",
        moves=[arc(Loop.LEFT, Loop.JOINING), *may(tuple(WorkerState)[1:], WorkerState.INIT), *KILLS],
        cite="elastic-node-change 2.1",
    )
    def start_newcomer(self, s: SymbolicState, node: Expr) -> None:
        """A new agent starts where another has ended, once that one is off the lists."""
        s.when(s.loop[node] == Loop.LEFT, self.is_dead(s, node), s.member[node] == Membership.OUTSIDE)
        s.orphans[node] = self.runs(s, node)
        s.stopping[node] = ite(s.stopping[node] == Stopping.ASKED, Stopping.PROMPT, s.stopping[node])
        s.loop[node] = Loop.JOINING
        s.workers[node] = WorkerState.INIT
        s.ending[node] = Ending.NONE
        s.signalled[node] = False
        s.current[node] = False
        self.forget_agent(s, node)

    @fault("stall", each="node")
    def stall(self, s: SymbolicState, node: Expr) -> None:
        """An agent alone stops for a while (SIGSTOP, Ctrl-Z, a debugger): its workers run on."""
        self.goes(s, node, *UP)
        s.pace[node] = Pace.AGENT_STOPPED

    @fault("freeze", each="node")
    def freeze(self, s: SymbolicState, node: Expr) -> None:
        """A node stops for a while, its workers included (swap, a frozen host)."""
        self.goes(s, node, *UP)
        s.pace[node] = Pace.NODE_STOPPED

    @fault("outage")
    def store_stops(self, s: SymbolicState) -> None:
        """The store cannot be reached."""
        s.when(~s.store_down)
        s.store_down = True

    @environment(fair=True)
    def store_returns(self, s: SymbolicState) -> None:
        """The store can be reached again, with its state."""
        s.when(s.store_down)
        s.store_down = False
