"""The elastic agent of torch 2.13 (TORCH) and up to 2.7 (TORCH_2_7), on a rendezvous that works.

Theory of operation. LocalElasticAgent runs the workers, and launch_agent runs the agent. Each agent decides for itself
and does not write its decisions: it counts its own restarts, waits in the exit barrier without monitoring anything, and
closes the rendezvous when it ends. Since 2.8 it does not close if a signal ended it (A16). The defects are in
`findings.py`: agents end with different verdicts (A2, A13), restart too often (A14), end because the store is away
(A4), or leave workers behind (A12, A15).
"""

from __future__ import annotations

from typing import Any

from ..language import *
from ..rendezvous.vocabulary import Membership
from .fields import ASKS, PROCESSES, UP
from .properties import Agents
from .vocabulary import Edition, Ending, Loop, Pace, Verdict, WorkerState

CALLS = (Loop.JOINING, Loop.MONITORING, Loop.RESTARTING)  # where an agent calls the rendezvous
OUT = (*arc(Loop.BARRIER, Loop.LEAVING), *may(Loop.BARRIER, Loop.LEFT))
CLOSES = may(Verdict.NONE, Verdict.UNSAID)


class Torch(Agents, edition=Edition.TORCH):
    """The steps of torch's agent."""

    own = integer(0, "max_restarts", per="node", doc="restarts that this agent has spent")
    world = integer(0, "node", doc="how many members the round had when it completed")
    broken = flag(doc="a member of the present round has failed")

    def workers_die_with_their_agent(self) -> bool:
        """torch starts workers in their own session (A12)."""
        return False

    def signals_close(self) -> bool:
        """An agent that a signal ends closes the rendezvous (A16)."""
        return False

    def forget_agent(self, s: SymbolicState, node: Expr) -> None:
        """A new agent forgets its restarts, because each agent counts its own (A14)."""
        s.own[node] = 0

    def settle(self, s: SymbolicState, when: Any) -> None:
        super().settle(s, when)
        s.world = ite(when, self.members(s), s.world)

    def forget_round(self, s: SymbolicState, replaced: Any) -> None:
        super().forget_round(s, replaced)
        s.world = ite(replaced, 0, s.world)
        s.broken = ite(replaced, False, s.broken)

    # ---- the rendezvous below

    def leave_members(self, s: SymbolicState, node: Expr) -> None:
        """A node is removed from the lists; a complete round without members is over."""
        self.unlist(s, node)
        self.forget_round(s, s.complete & (self.members(s) == 0))

    @transition(cite="rendezvous-engine 4.1, 4.3")
    def join(self, s: SymbolicState, node: Expr) -> None:
        """A node joins as a participant, on the wait list, or as a spare."""
        self.acts(s, node, Loop.JOINING)
        room = self.members(s) < self.max_nodes
        late = ite(
            room,
            Membership.WAITING,
            ite(s.member[node] == Membership.WAITING, Membership.WAITING, Membership.REDUNDANT),
        )
        listed = ite(s.complete, late, Membership.PARTICIPANT)
        s.when(self.is_open(s), s.member[node] != Membership.PARTICIPANT, s.member[node] != listed)
        s.member[node] = listed
        self.settle(s, ~s.complete & (self.members(s) == self.max_nodes))

    @transition(cite="rendezvous-engine 4.5")
    def mark_complete(self, s: SymbolicState, node: Expr) -> None:
        """The last call is over, and every live node that tries to join has polled. The round completes."""
        self.acts(s, node, Loop.JOINING)
        s.when(
            self.is_open(s), ~s.complete, s.member[node] == Membership.PARTICIPANT, self.members(s) >= self.min_nodes
        )
        trying = any_(
            (s.loop[j] == Loop.JOINING) & ~self.is_dead(s, j) & (s.member[j] != Membership.PARTICIPANT) for j in s.node
        )
        s.when(named("every live node has polled", ~trying))
        self.settle(s, True)

    @transition(cite="dynamic_rendezvous.py:_sanitize")
    def expel(self, s: SymbolicState, node: Expr) -> None:
        """A silent node is removed, and no node is notified."""
        self.acts(s, node, *UP)
        before = s.fork()
        s.when(any_((before.member[j] != Membership.OUTSIDE) & self.is_dead(before, j) for j in s.node))
        for j in s.node:
            s.member[j] = ite(self.is_dead(before, j), Membership.OUTSIDE, s.member[j])
            s.succeeded[j] = s.succeeded[j] & ~self.is_dead(before, j)
        self.forget_round(s, s.complete & (self.members(s) == 0))

    @environment(fair=True)
    def resume(self, s: SymbolicState, node: Expr) -> None:
        """A stopped agent or node continues as if nothing had happened."""
        s.when(s.pace[node] != Pace.GOES_ON)
        s.pace[node] = Pace.GOES_ON

    # ---- the monitor loop

    @transition(moves=[arc(Loop.MONITORING, Loop.BARRIER)], cite="api.py:_invoke_run")
    def enter_barrier(self, s: SymbolicState, node: Expr) -> None:
        """The workers have succeeded: the agent waits for as many agents as the round had members, and only waits."""
        self.goes(s, node, Loop.MONITORING)
        s.when(s.workers[node] == WorkerState.SUCCEEDED)
        s.loop[node] = Loop.BARRIER
        s.succeeded[node] = s.current[node] & (s.member[node] == Membership.PARTICIPANT)

    def leaves_barrier(self, s: SymbolicState, node: Expr) -> None:
        """A signal that arrived while the agent waited is raised now."""
        s.loop[node] = ite(s.signalled[node], Loop.LEFT, Loop.LEAVING)
        s.ending[node] = ite(s.signalled[node], Ending.SIGNALLED, Ending.SUCCEEDED)
        if self.signals_close():
            self.close(s, s.signalled[node])

    @transition(moves=OUT, cite="api.py:_exit_barrier")
    def pass_barrier(self, s: SymbolicState, node: Expr) -> None:
        """As many agents have arrived as the round had members: run() returns."""
        self.acts(s, node, Loop.BARRIER)
        s.when(s.current[node], s.succeeded.count() == s.world)
        self.leaves_barrier(s, node)

    @environment(fair=True, moves=OUT, cite="api.py:_exit_barrier (exit_barrier_timeout)")
    def barrier_times_out(self, s: SymbolicState, node: Expr) -> None:
        """After 300 s the barrier fails, which is only logged: run() returns nevertheless."""
        self.goes(s, node, Loop.BARRIER)
        # A13. Workers of another node may still run and fail later: this agent has succeeded nevertheless.
        s.when(named("300 s: no other agent has anything to do", all_((j == node) | self.idles(s, j) for j in s.node)))
        self.leaves_barrier(s, node)

    def idles(self, s: SymbolicState, node: Expr) -> Condition:
        """The agent is stopped, waits for others, or monitors workers that run."""
        watches = (s.loop[node] == Loop.MONITORING) & (s.workers[node] == WorkerState.HEALTHY) & ~s.store_down
        few = (s.member[node] == Membership.PARTICIPANT) & ~s.complete & (self.members(s) < self.min_nodes)
        waits = (
            (s.loop[node] == Loop.JOINING)
            & (s.member[node].isin((Membership.WAITING, Membership.REDUNDANT)) | few)
            & self.is_open(s)
        )
        return self.is_dead(s, node) | s.loop[node].isin((Loop.AWAY, Loop.BARRIER)) | watches | waits

    @transition(
        moves=[
            arc(WorkerState.UNHEALTHY, WorkerState.FAILED),
            arc(Loop.MONITORING, (Loop.RESTARTING, Loop.LEAVING)),
            *ASKS,
        ],
        cite="elastic-node-change 3.3",
    )
    def find_failure(self, s: SymbolicState, node: Expr) -> None:
        """A worker has failed: the agent stops the others; it restarts if its own count allows, else it ends."""
        self.goes(s, node, Loop.MONITORING)
        s.when(s.workers[node] == WorkerState.UNHEALTHY)
        again = s.own[node] < self.max_restarts
        first = again & ~s.broken & (s.spent < self.counted)
        self.terminate(s, node)
        s.workers[node] = WorkerState.FAILED
        # A14. An agent whose worker fails in a later round has its own count: the job restarts once more.
        s.own[node] = ite(again, s.own[node] + 1, s.own[node])
        s.spent = ite(first, s.spent + 1, s.spent)
        s.broken = s.broken | again
        s.loop[node] = ite(again, Loop.RESTARTING, Loop.LEAVING)
        s.ending[node] = ite(again, s.ending[node], Ending.FAILED)

    @transition(
        moves=[arc(Loop.MONITORING, Loop.RESTARTING), arc(WorkerState.HEALTHY, WorkerState.STOPPED), *ASKS],
        cite="elastic-node-change 2.3.1",
    )
    def restart_workers(self, s: SymbolicState, node: Expr) -> None:
        """A node waits: the agent stops its workers and restarts them with it."""
        self.acts(s, node, Loop.MONITORING)
        s.when(
            s.workers[node] == WorkerState.HEALTHY,
            named("num_nodes_waiting > 0", s.member.count(Membership.WAITING) > 0),
        )
        self.terminate(s, node)
        s.workers[node] = WorkerState.STOPPED
        s.loop[node] = Loop.RESTARTING

    @transition(
        moves=[arc(Loop.RESTARTING, Loop.JOINING), arc(WorkerState.FAILED, WorkerState.STOPPED)],
        cite="rendezvous-engine 3.2.3",
    )
    def exit_round(self, s: SymbolicState, node: Expr) -> None:
        """A restarting node removes itself from its round."""
        self.acts(s, node, Loop.RESTARTING)
        self.has_stopped(s, node)
        self.leave_members(s, node)
        s.workers[node] = WorkerState.STOPPED
        s.loop[node] = Loop.JOINING

    # ---- how it ends

    def fails(self, s: SymbolicState, node: Expr, ending: Any) -> None:
        """The agent raises an exception, and launch_agent will close the rendezvous."""
        s.loop[node] = Loop.LEAVING
        s.ending[node] = ending
        self.stop(s, node)

    @transition(
        moves=[arc(CALLS, Loop.LEAVING), *may(PROCESSES, WorkerState.STOPPED), *ASKS],
        cite="dynamic_rendezvous.py:num_nodes_waiting",
    )
    def error_connection(self, s: SymbolicState, node: Expr) -> None:
        """The store cannot be reached: the exception of the rendezvous ends the agent."""
        self.goes(s, node, *CALLS)
        self.has_stopped(s, node)
        s.when(
            s.store_down,
            s.workers[node].isin((WorkerState.INIT, WorkerState.HEALTHY, WorkerState.STOPPED, WorkerState.FAILED)),
        )
        self.fails(s, node, Ending.CUT_OFF)

    @transition(moves=[arc(Loop.JOINING, Loop.LEAVING)], cite="rendezvous-engine 3.2.4")
    def error_closed(self, s: SymbolicState, node: Expr) -> None:
        """The rendezvous is closed: RendezvousClosedError; a spare exits gracefully, and run() returns None."""
        self.acts(s, node, Loop.JOINING)
        s.when(~self.is_open(s))
        self.fails(s, node, ite(s.member[node] == Membership.REDUNDANT, Ending.NOTHING, Ending.CLOSED))

    @environment(fair=True, moves=[arc(Loop.JOINING, Loop.LEAVING)])
    def error_timeout(self, s: SymbolicState, node: Expr) -> None:
        """The join deadline passes, and next_rendezvous raises RendezvousTimeoutError."""
        self.acts(s, node, Loop.JOINING)
        s.when(self.is_open(s), self.too_few(s))
        self.leave_members(s, node)
        self.fails(s, node, Ending.TIMED_OUT)

    @transition(
        moves=[arc(Loop.LEAVING, Loop.LEFT), arc(Verdict.NONE, Verdict.UNSAID)],
        cite="launcher/api.py:launch_agent",
    )
    def mark_closed(self, s: SymbolicState, node: Expr) -> None:
        """An agent that ends closes the rendezvous for all, without a reason, if the store can be reached."""
        # A2. Another agent may be joining the next round: its next_rendezvous raises RendezvousClosedError.
        self.goes(s, node, Loop.LEAVING)
        self.has_stopped(s, node)
        self.close(s, True)
        s.loop[node] = Loop.LEFT

    def close(self, s: SymbolicState, when: Any) -> None:
        """Closes the rendezvous for all, if the store can be reached."""
        s.verdict = ite(when & ~s.store_down & self.is_open(s), Verdict.UNSAID, s.verdict)

    @fault(
        "signal",
        moves=[
            arc((Loop.JOINING, Loop.STARTING, Loop.MONITORING, Loop.RESTARTING), Loop.LEFT),
            *may(PROCESSES, WorkerState.STOPPED),
            *ASKS,
        ],
    )
    def receive_signal(self, s: SymbolicState, node: Expr) -> None:
        """SIGTERM or Ctrl-C: SignalException stops workers and agent; in the exit barrier it is raised afterwards."""
        self.goes(s, node, *UP)
        s.signalled[node] = True
        blocked = s.loop[node] == Loop.BARRIER
        s.loop[node] = ite(blocked, Loop.BARRIER, Loop.LEFT)
        s.ending[node] = ite(blocked, s.ending[node], Ending.SIGNALLED)
        if self.signals_close():
            self.close(s, ~blocked)
        self.stop(s, node)


class Torch27(Torch, edition=Edition.TORCH_2_7):
    """torch up to 2.7: LocalElasticAgent._shutdown, which a signal calls, closes the rendezvous for all."""

    def signals_close(self) -> bool:
        # A16. A node is drained and replaced: its agent gets SIGTERM, and its successor finds the rendezvous closed.
        return True

    pass_barrier = Torch.pass_barrier.claiming(OUT, CLOSES)
    barrier_times_out = Torch.barrier_times_out.claiming(OUT, CLOSES)
    receive_signal = Torch.receive_signal.also(CLOSES)
