"""The edition TORCH: torch 2.13's LocalElasticAgent and launch_agent, on a rendezvous that works.

Each agent counts its own restarts, waits in the exit barrier without looking at anything, and closes the rendezvous
when it ends, unless a signal ended it. Nothing of that is written anywhere.
"""

from __future__ import annotations

from typing import Any

from ..language import Expr, all_, any_, arc, environment, fault, ite, may, named, transition
from .shared import PROCESSES, TORCH, UP, Condition, E, L, M, P, S, Shared, V, W

CALLS = (L.JOINING, L.MONITORING, L.RESTARTING)  # where an agent calls the rendezvous
OUT = [arc(L.BARRIER, L.LEAVING), may(L.BARRIER, L.LEFT)]


class Local(Shared):
    """The steps of torch's agent."""

    # ---- the rendezvous below

    def leave_members(self, s: S, node: Expr, gone: Any = True) -> None:
        """A node is taken off the lists; a complete round without members is over."""
        s.member[node] = ite(gone, M.OUTSIDE, s.member[node])
        s.succeeded[node] = s.succeeded[node] & (s.member[node] != M.OUTSIDE)
        self.forget_round(s, s.complete & (self.members(s) == 0))

    @transition(each="node", editions=TORCH, cite="rendezvous-engine 4.1, 4.3")
    def join(self, s: S, node: Expr) -> None:
        """A node joins: as a participant, for the next round, or as a spare."""
        self.acts(s, node, L.JOINING)
        room = self.members(s) < self.max_nodes
        late = ite(room, M.WAITING, ite(s.member[node] == M.WAITING, M.WAITING, M.REDUNDANT))
        listed = ite(s.complete, late, M.PARTICIPANT)
        s.when(self.is_open(s), s.member[node] != M.PARTICIPANT, s.member[node] != listed)
        s.member[node] = listed
        self.settle(s, ~s.complete & (self.members(s) == self.max_nodes))

    @transition(each="node", editions=TORCH, cite="rendezvous-engine 4.5")
    def end_last_call(self, s: S, node: Expr) -> None:
        """The last call is over, and every live node that tries has polled."""
        self.acts(s, node, L.JOINING)
        s.when(self.is_open(s), ~s.complete, s.member[node] == M.PARTICIPANT, self.members(s) >= self.min_nodes)
        trying = any_((s.loop[j] == L.JOINING) & ~self.is_dead(s, j) & (s.member[j] != M.PARTICIPANT) for j in s.node)
        s.when(named("every live node has polled", ~trying))
        self.settle(s, True)

    @transition(each="node", editions=TORCH, cite="dynamic_rendezvous.py:_sanitize")
    def sanitise(self, s: S, node: Expr) -> None:
        """Whoever is silent is dropped, and nobody is told."""
        self.acts(s, node, *UP)
        before = s.fork()
        s.when(any_((before.member[j] != M.OUTSIDE) & self.is_dead(before, j) for j in s.node))
        for j in s.node:
            s.member[j] = ite(self.is_dead(before, j), M.OUTSIDE, s.member[j])
            s.succeeded[j] = s.succeeded[j] & ~self.is_dead(before, j)
        self.forget_round(s, s.complete & (self.members(s) == 0))

    @environment(each="node", editions=TORCH, fair=True)
    def go_on(self, s: S, node: Expr) -> None:
        """A stopped agent, or node, goes on as if nothing had happened."""
        s.when(s.pace[node] != P.GOES_ON)
        s.pace[node] = P.GOES_ON

    # ---- the monitor loop

    @transition(each="node", editions=TORCH, moves=[arc(L.MONITORING, L.BARRIER)], cite="api.py:_invoke_run")
    def enter_barrier(self, s: S, node: Expr) -> None:
        """The workers have succeeded: the agent waits for as many as the round had members, and looks at nothing."""
        self.goes(s, node, L.MONITORING)
        s.when(s.workers[node] == W.SUCCEEDED)
        s.loop[node] = L.BARRIER
        s.succeeded[node] = s.current[node] & (s.member[node] == M.PARTICIPANT)

    def leaves_barrier(self, s: S, node: Expr) -> None:
        """A signal that came while the agent waited is raised now; it does not close the rendezvous."""
        s.loop[node] = ite(s.signalled[node], L.LEFT, L.LEAVING)
        s.ending[node] = ite(s.signalled[node], E.SIGNALLED, E.SUCCEEDED)

    @transition(each="node", editions=TORCH, moves=OUT, cite="api.py:_exit_barrier")
    def pass_barrier(self, s: S, node: Expr) -> None:
        """As many have come as the round had members: run() returns."""
        self.acts(s, node, L.BARRIER)
        s.when(s.current[node], s.succeeded.count() == s.world)
        self.leaves_barrier(s, node)

    @environment(each="node", editions=TORCH, fair=True, moves=OUT, cite="api.py:_exit_barrier (exit_barrier_timeout)")
    def run_out_of_barrier_time(self, s: S, node: Expr) -> None:
        """After 300 s the barrier fails, which is logged and ignored: run() returns all the same."""
        self.goes(s, node, L.BARRIER)
        s.when(named("300 s: no other agent has anything to do", all_((j == node) | self.idles(s, j) for j in s.node)))
        self.leaves_barrier(s, node)

    def idles(self, s: S, node: Expr) -> Condition:
        """The agent does not go on, waits for others, or looks at workers that run."""
        watches = (s.loop[node] == L.MONITORING) & (s.workers[node] == W.HEALTHY) & ~s.store_down
        few = (s.member[node] == M.PARTICIPANT) & ~s.complete & (self.members(s) < self.min_nodes)
        waits = (s.loop[node] == L.JOINING) & (s.member[node].isin((M.WAITING, M.REDUNDANT)) | few) & self.is_open(s)
        return self.is_dead(s, node) | s.loop[node].isin((L.AWAY, L.BARRIER)) | watches | waits

    @transition(
        each="node", editions=TORCH,
        moves=[arc(W.UNHEALTHY, W.FAILED), arc(L.MONITORING, L.RESTARTING), arc(L.MONITORING, L.LEAVING)],
        cite="elastic-node-change 3.3",
    )  # fmt: skip
    def find_a_failure(self, s: S, node: Expr) -> None:
        """A worker has failed: the agent stops the others; it restarts if its own count allows, else it ends."""
        self.goes(s, node, L.MONITORING)
        s.when(s.workers[node] == W.UNHEALTHY)
        again = s.own[node] < self.max_restarts
        first = again & ~s.broken & (s.spent < self.counted)
        s.workers[node] = W.FAILED
        s.own[node] = ite(again, s.own[node] + 1, s.own[node])
        s.spent = ite(first, s.spent + 1, s.spent)
        s.broken = s.broken | again
        s.loop[node] = ite(again, L.RESTARTING, L.LEAVING)
        s.ending[node] = ite(again, s.ending[node], E.FAILED)

    @transition(
        each="node", editions=TORCH, moves=[arc(L.MONITORING, L.RESTARTING), arc(W.HEALTHY, W.STOPPED)],
        cite="elastic-node-change 2.3.1",
    )  # fmt: skip
    def find_waiting(self, s: S, node: Expr) -> None:
        """A node waits: the agent stops its workers, and restarts them with it."""
        self.acts(s, node, L.MONITORING)
        s.when(s.workers[node] == W.HEALTHY, named("num_nodes_waiting > 0", s.member.count(M.WAITING) > 0))
        s.workers[node] = W.STOPPED
        s.loop[node] = L.RESTARTING

    @transition(
        each="node", editions=TORCH, moves=[arc(L.RESTARTING, L.JOINING), arc(W.FAILED, W.STOPPED)],
        cite="rendezvous-engine 3.2.3",
    )  # fmt: skip
    def exit_round(self, s: S, node: Expr) -> None:
        """A restarting node takes itself off the round that it was in."""
        self.acts(s, node, L.RESTARTING)
        self.leave_members(s, node)
        s.workers[node] = W.STOPPED
        s.loop[node] = L.JOINING

    # ---- how it ends

    def fails(self, s: S, node: Expr, ending: Any) -> None:
        """Something is raised: launch_agent will close the rendezvous."""
        s.loop[node] = L.LEAVING
        s.ending[node] = ending
        self.stop(s, node)

    @transition(
        each="node", editions=TORCH, moves=[arc(CALLS, L.LEAVING), *may(PROCESSES, W.STOPPED)],
        cite="dynamic_rendezvous.py:num_nodes_waiting",
    )  # fmt: skip
    def be_cut_off(self, s: S, node: Expr) -> None:
        """The store cannot be reached: what the rendezvous raises ends the agent."""
        self.goes(s, node, *CALLS)
        s.when(s.store_down, s.workers[node].isin((W.INIT, W.HEALTHY, W.STOPPED, W.FAILED)))
        self.fails(s, node, E.CUT_OFF)

    @transition(each="node", editions=TORCH, moves=[arc(L.JOINING, L.LEAVING)], cite="rendezvous-engine 3.2.4")
    def find_closed(self, s: S, node: Expr) -> None:
        """The rendezvous is closed: RendezvousClosedError; a spare gets a graceful exit, and run() returns None."""
        self.acts(s, node, L.JOINING)
        s.when(~self.is_open(s))
        self.fails(s, node, ite(s.member[node] == M.REDUNDANT, E.NOTHING, E.CLOSED))

    @environment(each="node", editions=TORCH, fair=True, moves=[arc(L.JOINING, L.LEAVING)])
    def be_too_late(self, s: S, node: Expr) -> None:
        """The join deadline passes: RendezvousTimeoutError."""
        self.acts(s, node, L.JOINING)
        s.when(self.is_open(s), self.too_few(s))
        self.leave_members(s, node)
        self.fails(s, node, E.TIMED_OUT)

    @transition(
        each="node", editions=TORCH, moves=[arc(L.LEAVING, L.LEFT), arc(V.NONE, V.UNSAID)],
        cite="launcher/api.py:launch_agent",
    )  # fmt: skip
    def shut_down(self, s: S, node: Expr) -> None:
        """Whoever ends closes the rendezvous for all, if the store can be reached, and says nothing of its reason."""
        self.goes(s, node, L.LEAVING)
        s.verdict = ite(s.store_down | ~self.is_open(s), s.verdict, V.UNSAID)
        s.loop[node] = L.LEFT

    @fault(
        "signal", each="node", editions=TORCH,
        moves=[arc((L.JOINING, L.STARTING, L.MONITORING, L.RESTARTING), L.LEFT), *may(PROCESSES, W.STOPPED)],
    )  # fmt: skip
    def receive_signal(self, s: S, node: Expr) -> None:
        """SIGTERM or Ctrl-C: SignalException stops workers and agent; in the exit barrier it comes after that."""
        self.goes(s, node, *UP)
        s.signalled[node] = True
        blocked = s.loop[node] == L.BARRIER
        s.loop[node] = ite(blocked, L.BARRIER, L.LEFT)
        s.ending[node] = ite(blocked, s.ending[node], E.SIGNALLED)
        self.stop(s, node)
