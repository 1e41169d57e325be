"""The elastic agent of the edition TRYSTATE: restarts, successes and the verdict are part of the shared state.

Theory of operation. An agent writes each decision into the state of the rendezvous, and every agent that reads it acts
on it. The differences from torch's agent, each with the findings that it removes:

- A member reports its success and waits until all members of its round have succeeded: that closes the rendezvous with
  the verdict. While it waits it monitors the round: when the round is replaced, it stops waiting and runs again (A2,
  A13).
- Only a verdict closes the rendezvous; an agent that leaves does not (A2). Every agent, spares included, ends with that
  verdict (A7).
- Restarts are counted once for the job: a failure or a departure spends one, and if none is left, it closes as failed
  (A14). A waiting node or an outage spends none; after the first success no agent restarts for a waiting node.
- For a waiting node, the round is replaced before any worker is stopped: a worker whose peers stop may fail.
- Without the store an agent continues: it stops its workers when its lease ends, and joins again afterwards (A4).
- A worker that ends with an exit code that is not restarted closes the rendezvous as failed, which spends nothing.
- A signal ends an agent in every state; a member that leaves withdraws, unless it has succeeded (A11).
- Workers die with their agent (A12).
- Workers of an agent that is stopped are killed by a watchdog when its lease ends (A15).

A node is expelled only when no worker of it runs. This replaces time, which the model leaves out: a lease starts before
its heartbeat is written and is shorter than the window, which starts when another node has read the heartbeat. So the
watchdog, which has a clock and waits for nothing else, kills the workers before any other node expels.
"""

from __future__ import annotations

from typing import Any

from ..language import *
from ..rendezvous.vocabulary import Membership
from .fields import ASKS, KILLS, PROCESSES, UP
from .properties import Agents
from .vocabulary import Edition, Ending, Loop, Pace, Stopping, Verdict, WorkerState

SEATED = (Membership.PARTICIPANT, Membership.EXPECTED)  # has a seat, or a seat is kept for it
QUEUED = (Membership.WAITING, Membership.REDUNDANT)
FAILS = may(Verdict.NONE, Verdict.FAILED)


class Ours(Agents, edition=Edition.TRYSTATE):
    """The steps of our agent."""

    def workers_die_with_their_agent(self) -> bool:
        """Workers have a parent-death signal (A12)."""
        return True

    def forget_agent(self, s: SymbolicState, node: Expr) -> None:
        """A new agent forgets how the workers of its predecessor failed."""
        s.final[node] = False

    @fault("final_failure", moves=[arc(WorkerState.HEALTHY, WorkerState.UNHEALTHY)])
    def worker_fails_for_good(self, s: SymbolicState, node: Expr) -> None:
        """A worker ends with an exit code that is not restarted."""
        self.goes_wrong(s, node)
        s.final[node] = True

    # ---- the rendezvous below

    def seats(self, s: SymbolicState) -> Condition:
        """A seat is free and not kept for an expected node."""
        return s.member.count(*SEATED) < self.max_nodes

    def is_full(self, s: SymbolicState) -> Condition:
        return ~s.complete & (self.members(s) == self.max_nodes)

    def begin_new_round(self, s: SymbolicState, when: Any) -> None:
        """Replaces the round by a new one that expects the members of the old one."""
        for j in s.node:
            s.member[j] = ite((s.member[j] == Membership.PARTICIPANT) & when, Membership.EXPECTED, s.member[j])
        self.forget_round(s, when)

    def move_up(self, s: SymbolicState, when: Any) -> None:
        """Waiting nodes become participants first, then spares, each in the order of their names."""
        before = s.fork()
        seats = self.max_nodes - before.member.count(*SEATED)
        waiting = before.member.count(Membership.WAITING)
        for j in s.node:
            kind = before.member[j]
            ahead = count((before.member[k] == kind) & (ord_(k) < ord_(j)) for k in s.node)
            place = ite(kind == Membership.REDUNDANT, waiting + ahead, ahead)
            s.member[j] = ite(when & kind.isin(QUEUED) & (place < seats), Membership.PARTICIPANT, kind)
        self.settle(s, self.is_full(s))

    def spend(self, s: SymbolicState, when: Any) -> Condition:
        """A failure or departure spends a restart or closes as failed; returns whether the round is replaced."""
        left = s.spent < self.max_restarts
        s.verdict = ite(when & ~left, Verdict.FAILED, s.verdict)
        s.spent = ite(when & left, s.spent + 1, s.spent)
        return when & left

    @transition(cite="rendezvous-engine 4.1, 4.3")
    def join(self, s: SymbolicState, node: Expr) -> None:
        """A node joins as a participant, on the wait list, or as a spare."""
        self.acts(s, node, Loop.JOINING)
        comes = (s.member[node] == Membership.EXPECTED) | (~s.complete & self.seats(s))
        listed = ite(comes, Membership.PARTICIPANT, ite(self.seats(s), Membership.WAITING, Membership.REDUNDANT))
        s.when(self.is_open(s), s.member[node] != Membership.PARTICIPANT, s.member[node] != listed)
        s.member[node] = listed
        self.settle(s, self.is_full(s))

    @transition(cite="rendezvous-engine 4.5")
    def mark_complete(self, s: SymbolicState, node: Expr) -> None:
        """The last call is over and no node is expected any more: the round completes."""
        self.acts(s, node, Loop.JOINING)
        s.when(self.is_open(s), ~s.complete, s.member[node] == Membership.PARTICIPANT)
        s.when(self.members(s) >= self.min_nodes, s.member.count(Membership.EXPECTED) == 0)
        self.settle(s, True)

    @environment(fair=True, moves=[arc(Loop.JOINING, Loop.LEFT)])
    def error_timeout(self, s: SymbolicState, node: Expr) -> None:
        """The join deadline passes: the node withdraws, closes nothing, and raises RendezvousTimeoutError."""
        self.acts(s, node, Loop.JOINING)
        s.when(self.is_open(s), self.too_few(s))
        self.unlist(s, node)
        self.move_up(s, ~s.complete)
        self.end(s, node, Ending.TIMED_OUT)

    @transition(moves=[*FAILS], cite="elastic-node-change 3.1")
    def expel(self, s: SymbolicState, node: Expr) -> None:
        """A silent node is expelled; a round that loses an unsuccessful member is replaced, or the job fails."""
        self.acts(s, node, *UP)
        s.when(self.is_open(s), s.member[node] != Membership.OUTSIDE)
        before = s.fork()
        s.when(any_(self.is_expelled(before, j) for j in s.node))
        lost = any_(self.is_expelled(before, j) & self.is_seated(before, j) for j in s.node)
        replaced = self.spend(s, lost)
        self.begin_new_round(s, replaced)
        for j in s.node:
            gone = self.is_expelled(before, j)
            s.member[j] = ite(gone, Membership.OUTSIDE, s.member[j])
        self.move_up(s, ~s.complete)

    def is_expelled(self, s: SymbolicState, node: Expr) -> Condition:
        listed = s.member[node] != Membership.OUTSIDE
        return listed & self.is_dead(s, node) & ~s.succeeded[node] & ~self.is_leased(s, node)

    def is_leased(self, s: SymbolicState, node: Expr) -> Condition:
        """The agent is stopped, and its watchdog has not killed the workers yet."""
        return (s.pace[node] == Pace.AGENT_STOPPED) & self.runs(s, node)

    # ---- the monitor loop

    @transition(
        moves=[arc(Loop.MONITORING, Loop.BARRIER), arc(Verdict.NONE, Verdict.SUCCEEDED)],
        cite="api.py:_invoke_run, _exit_barrier",
    )
    def mark_done(self, s: SymbolicState, node: Expr) -> None:
        """The workers have succeeded: the agent reports that; the last agent of the round closes as succeeded."""
        self.acts(s, node, Loop.MONITORING)
        s.when(self.is_open(s), s.workers[node] == WorkerState.SUCCEEDED, s.current[node])
        s.succeeded[node] = True
        s.loop[node] = Loop.BARRIER
        everybody = all_((s.member[j] != Membership.PARTICIPANT) | s.succeeded[j] for j in s.node)
        s.verdict = ite(everybody, Verdict.SUCCEEDED, s.verdict)

    @transition(
        moves=[arc(WorkerState.UNHEALTHY, WorkerState.FAILED), arc(Loop.MONITORING, Loop.RESTARTING), *ASKS],
        cite="elastic-node-change 3.3",
    )
    def find_failure(self, s: SymbolicState, node: Expr) -> None:
        """A worker has failed: the agent stops the other workers."""
        self.goes(s, node, Loop.MONITORING)
        s.when(s.workers[node] == WorkerState.UNHEALTHY)
        self.terminate(s, node)
        s.workers[node] = WorkerState.FAILED
        s.loop[node] = Loop.RESTARTING

    @transition(cite="elastic-node-change 2.3.1")
    def replace_round(self, s: SymbolicState, node: Expr) -> None:
        """A node waits, a seat is free and no member is done: a running member replaces the round for free."""
        self.acts(s, node, Loop.MONITORING)
        s.when(self.is_open(s), s.current[node], s.workers[node] == WorkerState.HEALTHY, s.succeeded.count() == 0)
        s.when(named("num_nodes_waiting > 0", (s.member.count(Membership.WAITING) > 0) & self.seats(s)))
        # The round is replaced before any worker is stopped. Stopping first would let workers of other nodes fail
        # because their peers have ended, and a failure spends a restart.
        self.begin_new_round(s, True)
        self.move_up(s, True)

    @transition(
        moves=[
            arc((Loop.MONITORING, Loop.BARRIER), Loop.RESTARTING),
            arc(PROCESSES, WorkerState.STOPPED),
            arc(WorkerState.SUCCEEDED, WorkerState.STOPPED),
            *ASKS,
        ],
        cite="elastic-node-change 2.3.1",
    )
    def restart_workers(self, s: SymbolicState, node: Expr) -> None:
        """The round is replaced, possibly while the agent waits for the others: it stops its workers."""
        self.acts(s, node, Loop.MONITORING, Loop.BARRIER)
        s.when(self.is_open(s), ~s.current[node])
        self.terminate(s, node)
        s.workers[node] = WorkerState.STOPPED
        s.loop[node] = Loop.RESTARTING

    @transition(
        moves=[
            arc(Loop.RESTARTING, (Loop.JOINING, Loop.LEFT)),
            arc(WorkerState.FAILED, WorkerState.STOPPED),
            arc(Verdict.NONE, Verdict.FAILED),
        ],
        cite="elastic-node-change 3.3.1",
    )
    def exit_round(self, s: SymbolicState, node: Expr) -> None:
        """A member replaces its round if no other has; its failure spends a restart or fails the job."""
        self.acts(s, node, Loop.RESTARTING)
        self.has_stopped(s, node)
        s.when(self.is_open(s))
        # If another member has replaced the round first for the same failure, this member spends nothing.
        stands = self.is_seated(s, node)
        failed = s.workers[node] == WorkerState.FAILED
        for_good = stands & failed & s.final[node]
        s.verdict = ite(for_good, Verdict.FAILED, s.verdict)
        s.failed_for_good = s.failed_for_good | for_good
        replaced = self.spend(s, stands & failed & ~for_good) | (stands & ~failed)
        over = stands & ~replaced
        s.final[node] = False
        self.begin_new_round(s, replaced)
        s.member[node] = ite(stands, Membership.PARTICIPANT, s.member[node])
        self.move_up(s, replaced)
        s.workers[node] = ite(failed & ~over, WorkerState.STOPPED, s.workers[node])
        s.loop[node] = ite(over, Loop.LEFT, Loop.JOINING)
        s.ending[node] = ite(over, Ending.FAILED, s.ending[node])

    @transition(
        moves=[
            arc((Loop.JOINING, Loop.MONITORING, Loop.BARRIER, Loop.RESTARTING), Loop.LEFT),
            arc(PROCESSES, WorkerState.STOPPED),
            *ASKS,
        ],
    )
    def error_closed(self, s: SymbolicState, node: Expr) -> None:
        """The rendezvous is closed: the agent stops its workers and ends with the verdict of the job."""
        self.acts(s, node, Loop.JOINING, Loop.MONITORING, Loop.BARRIER, Loop.RESTARTING)
        self.has_stopped(s, node)
        s.when(~self.is_open(s))
        self.end(s, node, ite(s.verdict == Verdict.SUCCEEDED, Ending.SUCCEEDED, Ending.FAILED))

    # ---- leases

    @environment(
        moves=[
            arc(Loop.MONITORING, Loop.RESTARTING),
            arc(WorkerState.HEALTHY, WorkerState.STOPPED),
            arc(WorkerState.FAILED, WorkerState.STOPPED),
            *KILLS,
        ],
    )
    def lose_lease(self, s: SymbolicState, node: Expr) -> None:
        """A lease ends while the store is away: workers are killed; failures, maybe caused by peers, do not count."""
        self.goes(s, node, Loop.MONITORING, Loop.RESTARTING)
        asked = s.stopping[node] == Stopping.ASKED
        s.when(s.store_down, s.workers[node].isin((WorkerState.HEALTHY, WorkerState.FAILED)) | asked)
        self.kill(s, node)
        s.workers[node] = WorkerState.STOPPED
        s.loop[node] = Loop.RESTARTING

    @environment(moves=[arc(PROCESSES, WorkerState.STOPPED), *KILLS])
    def watchdog_kills(self, s: SymbolicState, node: Expr) -> None:
        """The lease of a stopped agent ends: its watchdog kills the workers."""
        s.when(self.is_leased(s, node))
        self.kill(s, node)

    @environment(
        fair=True,
        moves=[
            *may((Loop.STARTING, Loop.MONITORING), Loop.RESTARTING),
            *may((*PROCESSES, WorkerState.SUCCEEDED), WorkerState.STOPPED),
            *ASKS,
            *KILLS,
        ],
    )
    def resume(self, s: SymbolicState, node: Expr) -> None:
        """A stopped agent or node continues; if its lease is over, it stops its workers first."""
        s.when(s.pace[node] != Pace.GOES_ON)
        s.pace[node] = Pace.GOES_ON
        # The watchdog killed the workers, or the others expelled the node, while it was stopped.
        killed = (s.loop[node] == Loop.MONITORING) & (s.workers[node] == WorkerState.STOPPED)
        over = killed | (~s.current[node] & s.loop[node].isin((Loop.STARTING, Loop.MONITORING)))
        waits = s.fork()
        self.terminate(waits, node)
        # If the node is on no list, other nodes may already run. Then its workers get SIGKILL at once, also a worker
        # that got SIGTERM before and has not ended: the watchdog continues with the node and finds the lease over.
        listed = s.member[node] != Membership.OUTSIDE
        s.stopping[node] = ite(over & listed, waits.stopping[node], s.stopping[node])
        asked = s.stopping[node] == Stopping.ASKED
        s.stopping[node] = ite(asked & ~listed, Stopping.PROMPT, s.stopping[node])
        s.workers[node] = ite(over & (s.workers[node] != WorkerState.INIT), WorkerState.STOPPED, s.workers[node])
        s.loop[node] = ite(over, Loop.RESTARTING, s.loop[node])

    # ---- signals

    @fault("signal", moves=[arc(UP, Loop.LEAVING), *may(PROCESSES, WorkerState.STOPPED), *ASKS])
    def receive_signal(self, s: SymbolicState, node: Expr) -> None:
        """An agent gets SIGTERM or Ctrl-C, stops its workers, and leaves."""
        self.goes(s, node, *UP)
        s.signalled[node] = True
        s.loop[node] = Loop.LEAVING
        self.stop(s, node)

    @transition(moves=[arc(Loop.LEAVING, Loop.LEFT), *FAILS])
    def withdraw(self, s: SymbolicState, node: Expr) -> None:
        """An agent that leaves withdraws; if it has not succeeded, its round is replaced or the job fails."""
        self.acts(s, node, Loop.LEAVING)
        self.has_stopped(s, node)
        stays = s.succeeded[node] | ~self.is_open(s)
        replaced = self.spend(s, self.is_seated(s, node) & ~stays)
        self.begin_new_round(s, replaced)
        s.member[node] = ite(stays, s.member[node], Membership.OUTSIDE)
        self.move_up(s, ~stays & ~s.complete)
        self.end(s, node, Ending.SIGNALLED)

    @transition(moves=[arc(Loop.LEAVING, Loop.LEFT)])
    def leave_without_store(self, s: SymbolicState, node: Expr) -> None:
        """An agent that leaves does not wait for a store that it cannot reach; it is expelled afterwards."""
        self.goes(s, node, Loop.LEAVING)
        self.has_stopped(s, node)
        s.when(s.store_down)
        self.end(s, node, Ending.SIGNALLED)

    # ---- what restarts cost

    @step(on=("expel", "exit_round", "withdraw"), witness="a_round_is_replaced")
    def losses_spend(self, before: SymbolicState, after: SymbolicState, node: Expr) -> Condition:
        """A round that is replaced after a failure or a departure spends a restart."""
        failed = (before.workers[node] == WorkerState.FAILED) & self.is_seated(before, node)
        replaced = any_(before.current[j] & ~after.current[j] for j in before.node)
        return implies(replaced & (failed | self.loses_a_member(before, after)), after.spent > before.spent)

    @step(on=("exit_round",), witness="it_fails_for_good", needs="final_failure")
    def some_failures_end_the_job(self, before: SymbolicState, after: SymbolicState, node: Expr) -> Condition:
        """A failure that is not restarted, in a complete round, fails the job and spends nothing; no other does."""
        final = before.final[node] & (before.workers[node] == WorkerState.FAILED) & self.is_seated(before, node)
        ends = (after.verdict == Verdict.FAILED) & (after.spent == before.spent)
        return implies(final, ends & after.failed_for_good) & implies(after.failed_for_good, final)
