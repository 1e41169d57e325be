"""Time that passes, and the faults that can be switched on: the same in every edition.

Theory of operation. A step of the environment waits for no decision: a heartbeat ages, a deadline passes, a process
dies. `fair` steps happen eventually if they stay possible; faults are off unless a run names them, and happen at most
as often as their bound allows. The editions differ in three places, each a method that an edition overrides: what the
last call waits for (`guard_last_call`), which nodes have a join deadline (`guard_join_deadline`), and when a node
writes no heartbeat (`falls_silent`). How a process restarts or continues is the edition's own step (`restart_process`,
`resume`).
"""

from __future__ import annotations

from typing import Any

from ..language import *
from .fields import Fields
from .vocabulary import AgentPhase, Deadline, Heartbeat, JoinDeadline, Membership, Round


class Environment(Fields):
    """Time and faults."""

    def guard_last_call(self, s: SymbolicState) -> None:
        """The end of the last call may wait for something."""

    def guard_join_deadline(self, s: SymbolicState, node: Expr) -> None:
        """Some joining nodes may have no deadline."""

    def falls_silent(self, s: SymbolicState, node: Expr) -> Condition:
        """The node writes no heartbeat before its last one expires."""
        raise NotImplementedError

    def works(self, s: SymbolicState, node: Expr) -> None:
        """The node runs workers."""
        s.when(s.phase[node] == AgentPhase.RUNNING, self.live(s, node))

    # ---- time

    @environment(fair=True, moves=[arc(Round.LAST_CALL, Round.LAST_CALL)], cite="rendezvous-engine 3.2.4")
    def last_call_passes(self, s: SymbolicState) -> None:
        """The last call ends."""
        s.when(s.deadline == Deadline.RUNNING)
        self.guard_last_call(s)
        s.deadline = Deadline.PASSED

    @environment(fair=True, moves=[arc(Heartbeat.FRESH, Heartbeat.DUE)])
    def heartbeat_ages(self, s: SymbolicState, node: Expr) -> None:
        """The keep-alive interval passes."""
        move(s.heartbeat_age, Heartbeat.FRESH, Heartbeat.DUE, at=node)

    @environment(fair=True, moves=[arc(Heartbeat.DUE, Heartbeat.EXPIRED)])
    def heartbeat_expires(self, s: SymbolicState, node: Expr) -> None:
        """Interval × attempts pass for a node that does not beat."""
        move(s.heartbeat_age, Heartbeat.DUE, Heartbeat.EXPIRED, self.falls_silent(s, node), at=node)

    @environment(switch="join_timeout", bound=1, cite="rendezvous-engine 3.2.4")
    def join_deadline_passes(self, s: SymbolicState, node: Expr) -> None:
        """A node's join deadline passes."""
        move(s.join_deadline, JoinDeadline.IN_TIME, JoinDeadline.ROLLBACK, s.phase[node] == AgentPhase.JOINING, at=node)
        self.guard_join_deadline(s, node)

    @environment(switch="job_end", bound=2, moves=[arc(AgentPhase.RUNNING, AgentPhase.DONE)])
    def job_ends(self, s: SymbolicState, node: Expr) -> None:
        """The workers of a node are done."""
        self.works(s, node)
        s.phase[node] = AgentPhase.DONE

    # ---- faults of processes

    @fault("worker_failure", moves=[arc(AgentPhase.RUNNING, AgentPhase.EXITING)], cite="elastic-node-change 3.3")
    def worker_fails(self, s: SymbolicState, node: Expr) -> None:
        """A worker fails: the agent stops the others and calls next_rendezvous."""
        self.works(s, node)
        self.restart(s, node)

    @fault("crash")
    def crash(self, s: SymbolicState, node: Expr) -> None:
        """A process dies."""
        move(s.crashed, False, True, s.phase[node] != AgentPhase.LEFT, at=node)
        reset(s.stalled, s.partitioned, at=node)
        s.interrupted[node] = True

    @fault("stall")
    def stall(self, s: SymbolicState, node: Expr) -> None:
        """A process stops for a while (swap, a debugger, a frozen host)."""
        s.when(self.live(s, node), s.phase[node] != AgentPhase.LEFT)
        s.stalled[node] = True
        s.interrupted[node] = True

    # ---- faults of the network and of the store

    @fault("partition")
    def partition(self, s: SymbolicState, node: Expr) -> None:
        """A node cannot reach the store for a while but continues to run."""
        move(s.partitioned, False, True, self.live(s, node), s.phase[node] != AgentPhase.LEFT, at=node)
        s.interrupted[node] = True

    @environment(fair=True)
    def reconnect(self, s: SymbolicState, node: Expr) -> None:
        """A node that was partitioned reaches the store again."""
        move(s.partitioned, True, False, at=node)

    @fault("outage")
    def store_stops(self, s: SymbolicState) -> None:
        """The store cannot be reached."""
        s.when(~s.store_down)
        s.store_down = True
        for j in s.node:
            s.interrupted[j] = True

    @environment(fair=True)
    def store_returns(self, s: SymbolicState) -> None:
        """The store can be reached again, with its state."""
        s.when(s.store_down)
        s.store_down = False

    # ---- differing settings and clocks

    def configures(self, s: SymbolicState, node: Expr, setting: Any) -> None:
        """The node is about to start, and gets a setting that it does not have."""
        s.when(s.phase[node] == AgentPhase.EXITING, s.member[node] == Membership.OUTSIDE, self.live(s, node))
        move(setting, False, True, at=node)

    @fault("other_min")
    def start_with_other_min(self, s: SymbolicState, node: Expr) -> None:
        """A node starts with min + 1 (differing settings)."""
        self.configures(s, node, s.larger_min)
        s.when(self.min_nodes < self.max_nodes)  # every edition refuses a min above max before it reads the store

    @fault("other_expiry")
    def start_with_shorter_expiry(self, s: SymbolicState, node: Expr) -> None:
        """A node starts with interval × attempts below the others' interval (differing settings)."""
        self.configures(s, node, s.shorter_window)

    @fault("clock_skew")
    def start_with_late_clock(self, s: SymbolicState, node: Expr) -> None:
        """A node starts on a host whose clock is behind by more than the expiry window."""
        self.configures(s, node, s.clock_behind)

    @fault("clock_step")
    def clock_steps_back(self, s: SymbolicState, node: Expr) -> None:
        """A running node's wall clock is set back by more than the expiry window."""
        move(s.clock_behind, False, True, self.live(s, node), s.member[node] != Membership.OUTSIDE, at=node)
