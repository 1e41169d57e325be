"""Agents and workers that start, succeed and fail, and the faults that can be switched on: the same in every edition.

Theory of operation. A step of the environment waits for no decision. `fair` steps happen eventually if they stay
possible; faults are off unless a run names them, and happen at most as often as their bound allows. The editions differ
in two places, each a method that an edition overrides: whether workers die with their agent, and what a new agent
forgets. How a stopped agent continues is the edition's own step (`resume`).
"""

from __future__ import annotations

from ..language import *
from ..rendezvous.vocabulary import Membership
from .fields import KILLS, PROCESSES, UP, Fields
from .vocabulary import Ending, Loop, Pace, Stopping, WorkerState


class Environment(Fields):
    """Agents, workers, and faults."""

    def workers_die_with_their_agent(self) -> bool:
        """Workers get a signal when their agent dies."""
        raise NotImplementedError

    def forget_agent(self, s: SymbolicState, node: Expr) -> None:
        """A new agent does not have all that its predecessor remembered."""

    # ---- the life of workers

    @environment(fair=True, moves=[arc(Loop.AWAY, Loop.JOINING)])
    def start_agent(self, s: SymbolicState, node: Expr) -> None:
        """An agent starts, early or late."""
        self.goes(s, node, Loop.AWAY)
        s.loop[node] = Loop.JOINING

    @transition(moves=[arc(Loop.JOINING, Loop.STARTING)], cite="api.py:_rendezvous")
    def return_with_a_round(self, s: SymbolicState, node: Expr) -> None:
        """The round is complete: next_rendezvous returns with its world."""
        self.acts(s, node, Loop.JOINING)
        s.when(self.is_open(s), self.is_seated(s, node))
        s.current[node] = True
        s.loop[node] = Loop.STARTING

    @transition(
        moves=[arc(Loop.STARTING, Loop.MONITORING), arc((WorkerState.INIT, WorkerState.STOPPED), WorkerState.HEALTHY)],
        cite="api.py:_initialize_workers",
    )
    def start_workers(self, s: SymbolicState, node: Expr) -> None:
        """The agent starts its workers."""
        self.goes(s, node, Loop.STARTING)
        s.workers[node] = WorkerState.HEALTHY
        s.loop[node] = Loop.MONITORING

    @environment(fair=True, moves=[arc(WorkerState.HEALTHY, WorkerState.SUCCEEDED)])
    def workers_succeed(self, s: SymbolicState, node: Expr) -> None:
        """All workers of a node end with exit code 0; other nodes may need longer."""
        move(s.workers, WorkerState.HEALTHY, WorkerState.SUCCEEDED, s.pace[node] != Pace.NODE_STOPPED, at=node)
        s.when(self.ends > 0)

    @fault(
        "worker_failure",
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

    @environment(moves=[arc(Stopping.ASKED, Stopping.PROMPT)], cite="elastic-node-change 2.3.3.3")
    def end_in_time(self, s: SymbolicState, node: Expr) -> None:
        """A worker that got SIGTERM ends before the time-out."""
        move(s.stopping, Stopping.ASKED, Stopping.PROMPT, s.pace[node] != Pace.NODE_STOPPED, at=node)

    @transition(moves=[arc(Stopping.ASKED, Stopping.PROMPT)], cite="multiprocessing/api.py:_close")
    def kill_workers(self, s: SymbolicState, node: Expr) -> None:
        """The wait times out (30 s), and the agent sends SIGKILL."""
        s.when(s.pace[node] == Pace.GOES_ON, s.ending[node] != Ending.KILLED, s.stopping[node] == Stopping.ASKED)
        s.stopping[node] = Stopping.PROMPT

    # ---- faults

    @fault("deaf", moves=[arc(Stopping.PROMPT, Stopping.DEAF)])
    def ignore_sigterm(self, s: SymbolicState, node: Expr) -> None:
        """A worker ignores SIGTERM or ends late."""
        move(s.stopping, Stopping.PROMPT, Stopping.DEAF, s.workers[node] == WorkerState.HEALTHY, at=node)

    @fault(
        "crash",
        moves=[
            arc((Loop.JOINING, Loop.STARTING, Loop.MONITORING, Loop.BARRIER, Loop.RESTARTING), Loop.LEFT),
            may(Loop.LEAVING, Loop.LEFT),
            *may(PROCESSES, WorkerState.STOPPED),
            *KILLS,
        ],
    )
    def crash(self, s: SymbolicState, node: Expr) -> None:
        """An agent is killed."""
        move(s.loop, (*UP, Loop.LEAVING), Loop.LEFT, at=node)
        s.ending[node] = Ending.KILLED
        s.pace[node] = Pace.GOES_ON
        if self.workers_die_with_their_agent():
            self.kill(s, node)

    @fault(
        "newcomer",
        moves=[arc(Loop.LEFT, Loop.JOINING), *may(tuple(WorkerState)[1:], WorkerState.INIT), *KILLS],
        cite="elastic-node-change 2.1",
    )
    def start_newcomer(self, s: SymbolicState, node: Expr) -> None:
        """A new agent starts where another has ended, after the earlier one is off the lists."""
        move(s.loop, Loop.LEFT, Loop.JOINING, self.is_dead(s, node), s.member[node] == Membership.OUTSIDE, at=node)
        s.orphans[node] = self.runs(s, node)
        s.stopping[node] = ite(s.stopping[node] == Stopping.ASKED, Stopping.PROMPT, s.stopping[node])
        reset(s.workers, s.ending, s.signalled, s.current, at=node)
        self.forget_agent(s, node)

    @fault("stall")
    def stall(self, s: SymbolicState, node: Expr) -> None:
        """Only an agent stops for a while (SIGSTOP, Ctrl-Z, a debugger): its workers continue to run."""
        self.goes(s, node, *UP)
        s.pace[node] = Pace.AGENT_STOPPED

    @fault("freeze")
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
