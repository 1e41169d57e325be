"""The edition TRYSTATE: restarts, successes and the verdict are part of the shared state.

What is different from torch's, each against the finding that it removes:

- A member reports its success, and waits until all members of its round have succeeded: that closes the rendezvous,
  and says so. While it waits it looks at the round: when that is replaced, it comes back and runs again (A2, A13).
- Only a verdict closes; who leaves does not (A2). Everybody who is there, spares included, ends with that verdict (A7).
- Restarts are counted once for the job: a failure or a departure spends one, and where none is left it closes as failed
  (A14). A node that waits, or an outage, spends none; after the first success nobody restarts for a node that waits.
- For a node that waits the round is replaced before any worker is stopped: whose peers stop, its workers may fail.
- Without the store an agent goes on: it stops its workers when its lease ends, and joins again afterwards (A4).
- A signal ends an agent in every state; a member that leaves withdraws, one that has succeeded just goes (A11).
- Workers die with their agent (A12).
- Workers of an agent that is stopped are killed by a watchdog when its lease ends (A15).

A node is expelled only when no worker of it runs. That stands for time, which the model leaves out: a lease is counted
from before a heartbeat was written, and is shorter than the window, which the others count from when they have read it.
So the watchdog, which has a clock and nothing to wait for, kills before any of them expels.
"""

from __future__ import annotations

from typing import Any

from ..language import Expr, all_, any_, arc, count, environment, fault, ite, may, named, ord_, transition
from .local import Local
from .shared import PROCESSES, TRYSTATE, UP, Condition, E, L, M, P, S, V, W

EXPECTED_OR_MEMBER = (M.PARTICIPANT, M.EXPECTED)
NOT_SEATED = (M.WAITING, M.REDUNDANT)
FAILS = may(V.NONE, V.FAILED)


class Repaired(Local):
    """The steps of our agent."""

    # ---- the rendezvous below

    def seats(self, s: S) -> Condition:
        """A seat that is kept for nobody."""
        return s.member.count(*EXPECTED_OR_MEMBER) < self.max_nodes

    def is_full(self, s: S) -> Condition:
        return ~s.complete & (self.members(s) == self.max_nodes)

    def replace_round(self, s: S, when: Any) -> None:
        """A new round: the members of the old one are expected; who waits moves up, then spares, by their names."""
        for j in s.node:
            s.member[j] = ite((s.member[j] == M.PARTICIPANT) & when, M.EXPECTED, s.member[j])
        self.forget_round(s, when)

    def move_up(self, s: S, when: Any) -> None:
        before = s.fork()
        seats = self.max_nodes - before.member.count(*EXPECTED_OR_MEMBER)
        waiting = before.member.count(M.WAITING)
        for j in s.node:
            kind = before.member[j]
            ahead = count((before.member[k] == kind) & (ord_(k) < ord_(j)) for k in s.node)
            place = ite(kind == M.REDUNDANT, waiting + ahead, ahead)
            s.member[j] = ite(when & kind.isin(NOT_SEATED) & (place < seats), M.PARTICIPANT, kind)
        self.settle(s, self.is_full(s))

    def spend(self, s: S, when: Any) -> Condition:
        """A failure or departure spends a restart, or closes as failed; true: the round is replaced."""
        left = s.spent < self.max_restarts
        s.verdict = ite(when & ~left, V.FAILED, s.verdict)
        s.spent = ite(when & left, s.spent + 1, s.spent)
        return when & left

    @transition(each="node", editions=TRYSTATE, cite="rendezvous-engine 4.1, 4.3")
    def take_a_place(self, s: S, node: Expr) -> None:
        """A node joins: as a participant, for the next round, or as a spare."""
        self.acts(s, node, L.JOINING)
        comes = (s.member[node] == M.EXPECTED) | (~s.complete & self.seats(s))
        listed = ite(comes, M.PARTICIPANT, ite(self.seats(s), M.WAITING, M.REDUNDANT))
        s.when(self.is_open(s), s.member[node] != M.PARTICIPANT, s.member[node] != listed)
        s.member[node] = listed
        self.settle(s, self.is_full(s))

    @transition(each="node", editions=TRYSTATE, cite="rendezvous-engine 4.5")
    def complete_round(self, s: S, node: Expr) -> None:
        """The last call is over, and nobody is expected any more."""
        self.acts(s, node, L.JOINING)
        s.when(self.is_open(s), ~s.complete, s.member[node] == M.PARTICIPANT)
        s.when(self.members(s) >= self.min_nodes, s.member.count(M.EXPECTED) == 0)
        self.settle(s, True)

    @environment(each="node", editions=TRYSTATE, fair=True, moves=[arc(L.JOINING, L.LEFT)])
    def give_up(self, s: S, node: Expr) -> None:
        """The join deadline passes: the node withdraws, closes nothing, and raises RendezvousTimeoutError."""
        self.acts(s, node, L.JOINING)
        s.when(self.is_open(s), self.too_few(s))
        self.unlist(s, node)
        self.end(s, node, E.TIMED_OUT)

    @transition(each="node", editions=TRYSTATE, moves=[*FAILS], cite="elastic-node-change 3.1")
    def expel(self, s: S, node: Expr) -> None:
        """Whoever is silent is expelled; a round that loses a member that has not succeeded is replaced, or fails."""
        self.acts(s, node, *UP)
        s.when(self.is_open(s), s.member[node] != M.OUTSIDE)
        before = s.fork()
        s.when(any_(self.is_expelled(before, j) for j in s.node))
        lost = any_(self.is_expelled(before, j) & self.is_seated(before, j) for j in s.node)
        replaced = self.spend(s, lost)
        self.replace_round(s, replaced)
        for j in s.node:
            gone = self.is_expelled(before, j)
            s.member[j] = ite(gone, M.OUTSIDE, s.member[j])
        self.move_up(s, replaced)

    def is_expelled(self, s: S, node: Expr) -> Condition:
        listed = s.member[node] != M.OUTSIDE
        return listed & self.is_dead(s, node) & ~s.succeeded[node] & ~self.is_leased(s, node)

    def is_leased(self, s: S, node: Expr) -> Condition:
        """The agent is stopped, and its watchdog has not found that the lease is over."""
        return (s.pace[node] == P.AGENT_STOPPED) & self.runs(s, node)

    # ---- the monitor loop

    @transition(
        each="node", editions=TRYSTATE, moves=[arc(L.MONITORING, L.BARRIER), arc(V.NONE, V.SUCCEEDED)],
        cite="api.py:_invoke_run, _exit_barrier",
    )  # fmt: skip
    def report_success(self, s: S, node: Expr) -> None:
        """The workers have succeeded: the agent reports it; the last one of the round closes as succeeded."""
        self.acts(s, node, L.MONITORING)
        s.when(self.is_open(s), s.workers[node] == W.SUCCEEDED, s.current[node])
        s.succeeded[node] = True
        s.loop[node] = L.BARRIER
        everybody = all_((s.member[j] != M.PARTICIPANT) | s.succeeded[j] for j in s.node)
        s.verdict = ite(everybody, V.SUCCEEDED, s.verdict)

    @transition(
        each="node", editions=TRYSTATE, moves=[arc(W.UNHEALTHY, W.FAILED), arc(L.MONITORING, L.RESTARTING)],
        cite="elastic-node-change 3.3",
    )  # fmt: skip
    def find_failed(self, s: S, node: Expr) -> None:
        """A worker has failed: the agent stops the others."""
        self.goes(s, node, L.MONITORING)
        s.when(s.workers[node] == W.UNHEALTHY)
        s.workers[node] = W.FAILED
        s.loop[node] = L.RESTARTING

    @transition(each="node", editions=TRYSTATE, cite="elastic-node-change 2.3.1")
    def make_room(self, s: S, node: Expr) -> None:
        """A node waits for a seat, nobody is done: who runs workers replaces the round, which spends nothing."""
        self.acts(s, node, L.MONITORING)
        s.when(self.is_open(s), s.current[node], s.workers[node] == W.HEALTHY, s.succeeded.count() == 0)
        s.when(named("num_nodes_waiting > 0", (s.member.count(M.WAITING) > 0) & self.seats(s)))
        self.replace_round(s, True)
        self.move_up(s, True)

    @transition(
        each="node", editions=TRYSTATE,
        moves=[arc((L.MONITORING, L.BARRIER), L.RESTARTING), arc(PROCESSES, W.STOPPED), arc(W.SUCCEEDED, W.STOPPED)],
        cite="elastic-node-change 2.3.1",
    )  # fmt: skip
    def find_change(self, s: S, node: Expr) -> None:
        """The round is replaced, maybe while the agent waits for the others: it stops its workers."""
        self.acts(s, node, L.MONITORING, L.BARRIER)
        s.when(self.is_open(s), ~s.current[node])
        s.workers[node] = W.STOPPED
        s.loop[node] = L.RESTARTING

    @transition(
        each="node", editions=TRYSTATE,
        moves=[arc(L.RESTARTING, L.JOINING), arc(L.RESTARTING, L.LEFT), arc(W.FAILED, W.STOPPED),
               arc(V.NONE, V.FAILED)],
        cite="elastic-node-change 3.3.1",
    )  # fmt: skip
    def leave_round(self, s: S, node: Expr) -> None:
        """A member replaces its round, unless that has happened; its failure spends a restart, or fails the job."""
        self.acts(s, node, L.RESTARTING)
        s.when(self.is_open(s))
        stands = self.is_seated(s, node)
        failed = s.workers[node] == W.FAILED
        replaced = self.spend(s, stands & failed) | (stands & ~failed)
        over = stands & ~replaced
        self.replace_round(s, replaced)
        s.member[node] = ite(stands, M.PARTICIPANT, s.member[node])
        self.move_up(s, replaced)
        s.workers[node] = ite(failed & ~over, W.STOPPED, s.workers[node])
        s.loop[node] = ite(over, L.LEFT, L.JOINING)
        s.ending[node] = ite(over, E.FAILED, s.ending[node])

    @transition(
        each="node", editions=TRYSTATE,
        moves=[arc((L.JOINING, L.MONITORING, L.BARRIER, L.RESTARTING), L.LEFT), arc(PROCESSES, W.STOPPED)],
    )  # fmt: skip
    def hear_the_verdict(self, s: S, node: Expr) -> None:
        """The rendezvous is closed: the agent stops its workers, and ends with the verdict of the job."""
        self.acts(s, node, L.JOINING, L.MONITORING, L.BARRIER, L.RESTARTING)
        s.when(~self.is_open(s))
        self.end(s, node, ite(s.verdict == V.SUCCEEDED, E.SUCCEEDED, E.FAILED))

    # ---- leases

    @environment(
        each="node", editions=TRYSTATE,
        moves=[arc(L.MONITORING, L.RESTARTING), arc(W.HEALTHY, W.STOPPED), arc(W.FAILED, W.STOPPED)],
    )  # fmt: skip
    def lose_the_lease(self, s: S, node: Expr) -> None:
        """A lease ends while the store is away: workers are stopped; if they failed, it may be for those of others."""
        self.goes(s, node, L.MONITORING, L.RESTARTING)
        s.when(s.store_down, s.workers[node].isin((W.HEALTHY, W.FAILED)))
        s.workers[node] = W.STOPPED
        s.loop[node] = L.RESTARTING

    @environment(each="node", editions=TRYSTATE, moves=[arc(PROCESSES, W.STOPPED)])
    def watchdog_kills(self, s: S, node: Expr) -> None:
        """The lease of a stopped agent ends: its watchdog kills the workers."""
        s.when(self.is_leased(s, node))
        s.workers[node] = W.STOPPED

    @environment(
        each="node", editions=TRYSTATE, fair=True,
        moves=[*may((L.STARTING, L.MONITORING), L.RESTARTING), *may((*PROCESSES, W.SUCCEEDED), W.STOPPED)],
    )  # fmt: skip
    def come_back(self, s: S, node: Expr) -> None:
        """A stopped agent, or node, goes on; one whose lease is over begins by stopping its workers."""
        s.when(s.pace[node] != P.GOES_ON)
        s.pace[node] = P.GOES_ON
        killed = (s.loop[node] == L.MONITORING) & (s.workers[node] == W.STOPPED)
        over = killed | (~s.current[node] & s.loop[node].isin((L.STARTING, L.MONITORING)))
        s.workers[node] = ite(over & (s.workers[node] != W.INIT), W.STOPPED, s.workers[node])
        s.loop[node] = ite(over, L.RESTARTING, s.loop[node])

    # ---- signals

    @fault("signal", each="node", editions=TRYSTATE, moves=[arc(UP, L.LEAVING), *may(PROCESSES, W.STOPPED)])
    def get_signal(self, s: S, node: Expr) -> None:
        """SIGTERM or Ctrl-C: the agent stops its workers, and leaves."""
        self.goes(s, node, *UP)
        s.signalled[node] = True
        s.loop[node] = L.LEAVING
        self.stop(s, node)

    @transition(each="node", editions=TRYSTATE, moves=[arc(L.LEAVING, L.LEFT), *FAILS])
    def withdraw(self, s: S, node: Expr) -> None:
        """An agent that leaves says so; a round that loses it before it has succeeded is replaced, or fails."""
        self.acts(s, node, L.LEAVING)
        stays = s.succeeded[node] | ~self.is_open(s)
        replaced = self.spend(s, self.is_seated(s, node) & ~stays)
        self.replace_round(s, replaced)
        s.member[node] = ite(stays, s.member[node], M.OUTSIDE)
        self.move_up(s, replaced)
        self.end(s, node, E.SIGNALLED)

    @transition(each="node", editions=TRYSTATE, moves=[arc(L.LEAVING, L.LEFT)])
    def go_unheard(self, s: S, node: Expr) -> None:
        """An agent that leaves does not wait for a store that it cannot reach: it is expelled afterwards."""
        self.goes(s, node, L.LEAVING)
        s.when(s.store_down)
        self.end(s, node, E.SIGNALLED)
