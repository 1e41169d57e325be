"""The properties of the elastic agent, the same for every edition, and the system that a user names.

Theory of operation. `always` holds in each state, `step` for each step, and `leads_to` on every fair run; each `always`
has a `sometimes` as its witness. The properties that torch violates are in `findings.py`.
`Agents(edition=..., node=3)` builds the class of that edition, in `torch.py` or `ours.py`.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import ClassVar

from ..language import *
from ..rendezvous.vocabulary import Membership
from .environment import Environment
from .fields import PROCESSES
from .vocabulary import Edition, Ending, Loop, Pace, Stopping, Verdict, WorkerState


class Agents(Environment):
    """Agents that start, watch, restart and stop the workers of one job, and end."""

    title = "The elastic agent"
    Edition: ClassVar[Iterable[enum.Enum]] = Edition

    @terminal
    def at_rest(self, s: SymbolicState) -> Condition:
        """Each agent has ended, or workers that never end continue to run and the other agents are spares."""
        runs_on = and_(self.ends == 0, s.loop.any(Loop.MONITORING))
        ended = s.loop.all(Loop.LEFT)
        return ended | (runs_on & all_((s.loop[j] == Loop.LEFT) | self.stays(s, j) for j in s.node))

    def stays(self, s: SymbolicState, node: Expr) -> Condition:
        """It runs workers that never end, or is a spare."""
        return (s.loop[node] == Loop.MONITORING) | (s.member[node] == Membership.REDUNDANT)

    # ---- what can be seen

    @sometimes()
    def two_run(self, s: SymbolicState) -> Condition:
        """Two nodes run workers in the present round."""
        return count(self.runs(s, j) & s.current[j] for j in s.node) >= 2

    @sometimes()
    def a_round_is_replaced(self, s: SymbolicState) -> Condition:
        """A node joins again after its first round."""
        return any_((s.loop[j] == Loop.JOINING) & (s.workers[j] == WorkerState.STOPPED) for j in s.node)

    @sometimes()
    def all_succeed(self, s: SymbolicState) -> Condition:
        """Every agent has ended with success."""
        return s.ending.all(Ending.SUCCEEDED)

    @sometimes()
    def one_waits_for_another(self, s: SymbolicState) -> Condition:
        """An agent waits in the exit barrier while workers of another run."""
        return any_((s.loop[j] == Loop.BARRIER) & self.runs(s, k) for j in s.node for k in s.node)

    @sometimes(needs="worker_failure")
    def the_last_restart_is_spent(self, s: SymbolicState) -> Condition:
        """All restarts are spent."""
        return s.spent == self.max_restarts

    @sometimes(needs="worker_failure")
    def the_job_fails(self, s: SymbolicState) -> Condition:
        """An agent has ended with a failure."""
        return s.ending.any(Ending.FAILED)

    @sometimes(needs="final_failure")
    def it_fails_for_good(self, s: SymbolicState) -> Condition:
        """A failure that is not restarted has ended the job, and no restart is spent."""
        return s.failed_for_good & (s.spent == 0)

    @sometimes(needs="signal")
    def one_ends_by_a_signal(self, s: SymbolicState) -> Condition:
        """A signal has ended an agent."""
        return s.ending.any(Ending.SIGNALLED)

    @sometimes(needs="signal")
    def one_gets_a_signal_when_done(self, s: SymbolicState) -> Condition:
        """An agent whose workers have succeeded has got a signal."""
        return any_(s.signalled[j] & s.succeeded[j] for j in s.node)

    @sometimes(needs="newcomer")
    def a_new_agent_runs(self, s: SymbolicState) -> Condition:
        """The successor of an agent that has ended runs workers."""
        return any_((s.loop[j] == Loop.MONITORING) & (s.newcomer_left == 0) for j in s.node)

    @sometimes(needs="outage")
    def the_store_is_away(self, s: SymbolicState) -> Condition:
        """The store cannot be reached while a node runs workers."""
        return s.store_down & any_(self.runs(s, j) for j in s.node)

    @sometimes(needs="stall")
    def workers_run_without_their_agent(self, s: SymbolicState) -> Condition:
        """An agent is stopped while its workers run."""
        return any_((s.pace[j] == Pace.AGENT_STOPPED) & self.runs(s, j) for j in s.node)

    @sometimes(needs="deaf")
    def a_worker_does_not_end(self, s: SymbolicState) -> Condition:
        """An agent waits for a worker that got SIGTERM."""
        return s.stopping.any(Stopping.ASKED)

    @sometimes()
    def it_is_closed(self, s: SymbolicState) -> Condition:
        """The rendezvous is closed."""
        return ~self.is_open(s)

    # ---- workers

    @always(witness="two_run")
    def one_group_on_a_node(self, s: SymbolicState) -> Condition:
        """Workers of two rounds never run at once on one node."""
        return ~any_((s.orphans[j] & self.runs(s, j)) | self.runs_two(s, j) for j in s.node)

    def runs_two(self, s: SymbolicState, node: Expr) -> Condition:
        """The agent has started workers while it waits for an earlier worker to end."""
        return (s.stopping[node] == Stopping.ASKED) & s.workers[node].isin(PROCESSES)

    @always(witness="two_run")
    def one_group_in_the_job(self, s: SymbolicState) -> Condition:
        """No worker of an earlier round runs on any node while a worker of the present round runs."""
        present = any_(self.runs(s, j) & s.current[j] for j in s.node)
        earlier = any_((self.runs(s, j) & ~s.current[j]) | s.orphans[j] | self.runs_two(s, j) for j in s.node)
        return ~(present & earlier)

    @step(on=("return_with_a_round",), witness="a_round_is_replaced")
    def a_restart_is_a_new_round(self, before: SymbolicState, after: SymbolicState, node: Expr) -> Condition:
        """A node never begins the same round twice: every restart has a new round."""
        return ~before.current[node]

    # ---- restarts

    @always(witness="the_last_restart_is_spent", needs="worker_failure")
    def restarts_are_limited(self, s: SymbolicState) -> Condition:
        """The job restarts after failures and departures at most max_restarts times."""
        return s.spent <= self.max_restarts

    @step(witness="a_round_is_replaced")
    def coming_spends_nothing(self, before: SymbolicState, after: SymbolicState, node: Expr) -> Condition:
        """Only a failed worker or the loss of a member spends a restart; a newcomer or an outage does not."""
        failed = before.workers[node].isin((WorkerState.UNHEALTHY, WorkerState.FAILED))
        return implies(after.spent > before.spent, failed | self.loses_a_member(before, after))

    def loses_a_member(self, before: SymbolicState, after: SymbolicState) -> Condition:
        return any_(
            (before.member[j] == Membership.PARTICIPANT) & (after.member[j] == Membership.OUTSIDE) for j in before.node
        )

    @always(witness="it_is_closed")
    def restarts_left_are_used(self, s: SymbolicState) -> Condition:
        """No agent ends with a failure while a restart is left, and none ends only because the rendezvous is closed."""
        failed = s.ending.any(Ending.FAILED) & ~s.failed_for_good
        return ~s.ending.any(Ending.CLOSED) & implies(failed, s.spent >= self.max_restarts)

    # ---- the verdict

    @always(witness="all_succeed")
    def one_verdict(self, s: SymbolicState) -> Condition:
        """Agents never end with success on one node and failure on another."""
        failed = s.ending.any(Ending.FAILED, Ending.CLOSED)
        return ~(failed & s.ending.any(Ending.SUCCEEDED))

    @step(witness="all_succeed")
    def success_is_everybodys(self, before: SymbolicState, after: SymbolicState) -> Condition:
        """An agent ends with success only when every member of its round has succeeded."""
        anew = any_((after.ending[j] == Ending.SUCCEEDED) & (before.ending[j] != Ending.SUCCEEDED) for j in before.node)
        everybody = all_((after.member[j] != Membership.PARTICIPANT) | after.succeeded[j] for j in before.node)
        return implies(anew, everybody)

    @always(witness="it_is_closed")
    def closing_says_why(self, s: SymbolicState) -> Condition:
        """A closed rendezvous records whether the job has succeeded or failed."""
        return s.verdict != Verdict.UNSAID

    @step(witness="it_is_closed")
    def the_verdict_is_final(self, before: SymbolicState, after: SymbolicState) -> Condition:
        """A closed rendezvous stays closed, with the same verdict."""
        return self.is_open(before) | (after.verdict == before.verdict)

    # ---- how an agent ends

    @always(witness="it_is_closed")
    def everybody_gets_an_answer(self, s: SymbolicState) -> Condition:
        """Every agent that has ended has a result or an error: run() never returns None."""
        ended = all_((s.loop[j] != Loop.LEFT) | (s.ending[j] != Ending.NONE) for j in s.node)
        return ended & ~s.ending.any(Ending.NOTHING)

    @always(witness="the_store_is_away", needs="outage")
    def outages_are_survived(self, s: SymbolicState) -> Condition:
        """No agent that has started workers ends because the store cannot be reached."""
        return all_((s.ending[j] != Ending.CUT_OFF) | (s.workers[j] == WorkerState.INIT) for j in s.node)

    @always(witness="one_gets_a_signal_when_done", needs="signal")
    def signals_are_obeyed(self, s: SymbolicState) -> Condition:
        """An agent that got a signal does not wait for other agents."""
        return ~any_(s.signalled[j] & (s.loop[j] == Loop.BARRIER) for j in s.node)

    # ---- progress

    def is_up(self, s: SymbolicState, node: Expr) -> Condition:
        return ~s.loop[node].isin((Loop.AWAY, Loop.LEFT))

    @leads_to()
    def everybody_ends(self, s: SymbolicState, node: Expr) -> tuple[Condition, Condition]:
        """If workers end, every agent ends."""
        return and_(self.is_up(s, node), self.ends > 0), s.loop[node] == Loop.LEFT

    @leads_to(cite="elastic-node-change 3.3.1")
    def joins_end(self, s: SymbolicState, node: Expr) -> tuple[Condition, Condition]:
        """Every join and every restart ends in a new round or with the agent's end; only a spare keeps waiting."""
        joins = s.loop[node].isin((Loop.JOINING, Loop.RESTARTING))
        return joins, s.loop[node].isin((Loop.STARTING, Loop.LEFT)) | (s.member[node] == Membership.REDUNDANT)

    @leads_to(cite="elastic-node-change 2.3")
    def the_waiting_are_answered(self, s: SymbolicState, node: Expr) -> tuple[Condition, Condition]:
        """A node that waits gets into a round, becomes a spare, or ends."""
        waits = (s.member[node] == Membership.WAITING) & self.is_up(s, node)
        return waits, ~waits

    @leads_to(needs="crash", cite="elastic-node-change 3.1")
    def departures_are_noticed(self, s: SymbolicState, node: Expr) -> tuple[Condition, Condition]:
        """When a member dies before it has succeeded, its group does not continue to run."""
        member = s.current[node] | self.is_seated(s, node)
        gone = (s.ending[node] == Ending.KILLED) & member & ~s.succeeded[node]
        alone = gone & any_(self.runs(s, j) & self.is_up(s, j) & s.current[j] for j in s.node)
        return alone, ~alone

    @leads_to(needs="deaf", cite="elastic-node-change 2.3.3.3")
    def stopped_workers_end(self, s: SymbolicState, node: Expr) -> tuple[Condition, Condition]:
        """An agent does not wait for ever for a worker that it stops."""
        waits = (s.stopping[node] == Stopping.ASKED) & (s.ending[node] != Ending.KILLED)
        return waits, ~waits

    @leads_to()
    def the_verdict_reaches_everybody(self, s: SymbolicState, node: Expr) -> tuple[Condition, Condition]:
        """After the rendezvous is closed, every agent ends."""
        return ~self.is_open(s) & self.is_up(s, node), s.loop[node] == Loop.LEFT
