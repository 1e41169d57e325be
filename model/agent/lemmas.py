"""Lemmas of the proof of our agent: facts about the same steps that no user needs.

`trystate prove agents` proves them together with the properties. The plans of `trystate verify` do not have them: a
test searches small systems for a state that violates one.
"""

from __future__ import annotations

from ..language import Condition, Expr, SymbolicState, all_, always, any_, implies
from ..rendezvous.vocabulary import Membership
from .fields import PROCESSES, UP
from .ours import SEATED, Ours
from .vocabulary import Ending, Loop, Pace, Stopping, Verdict


class Lemmas(Ours):
    """The edition TRYSTATE, with the lemmas of its proof."""

    @always(witness="it_is_closed")
    def a_failed_job_has_its_cause(self, s: SymbolicState) -> Condition:
        """A job fails only if no restart is left or by a failure that is not restarted."""
        spent = s.failed_for_good | (s.spent >= self.max_restarts)
        return implies(s.verdict == Verdict.FAILED, spent) & implies(s.failed_for_good, s.verdict == Verdict.FAILED)

    @always(witness="it_is_closed")
    def an_agent_ends_with_the_verdict(self, s: SymbolicState) -> Condition:
        """An agent that ends with success or failure has the job's verdict; none ends closed, cut off or with None."""
        never = (Ending.CLOSED, Ending.CUT_OFF, Ending.NOTHING)
        return all_(
            ~x.isin(never)
            & implies(x == Ending.SUCCEEDED, s.verdict == Verdict.SUCCEEDED)
            & implies(x == Ending.FAILED, s.verdict == Verdict.FAILED)
            for x in s.ending
        )

    @always(witness="all_succeed")
    def all_have_succeeded(self, s: SymbolicState) -> Condition:
        """A job has succeeded only if all members of its round have."""
        members = all_((s.member[j] != Membership.PARTICIPANT) | s.succeeded[j] for j in s.node)
        return implies(s.verdict == Verdict.SUCCEEDED, members)

    @always(witness="it_is_closed")
    def the_signalled_leave(self, s: SymbolicState) -> Condition:
        """An agent that got a signal leaves, or has left."""
        return all_(implies(s.signalled[j], s.loop[j].isin((Loop.LEAVING, Loop.LEFT))) for j in s.node)

    @always(witness="two_run")
    def the_current_are_members(self, s: SymbolicState) -> Condition:
        """A node with the present round of an open rendezvous is a member of it; a joining node has no round."""
        return all_(
            implies(s.current[j] & self.is_open(s), self.is_seated(s, j))
            & implies(s.loop[j].isin((Loop.AWAY, Loop.JOINING)), ~s.current[j])
            for j in s.node
        )

    @always(witness="two_run")
    def workers_are_watched(self, s: SymbolicState) -> Condition:
        """Workers run only while the agent monitors them; it waits for a worker only after it has stopped all."""
        return all_(
            implies(s.workers[j].isin(PROCESSES), s.loop[j] == Loop.MONITORING)
            & implies(s.stopping[j] == Stopping.ASKED, s.loop[j].isin((Loop.RESTARTING, Loop.LEAVING, Loop.LEFT)))
            for j in s.node
        )

    @always(witness="two_run")
    def the_dead_have_no_workers(self, s: SymbolicState) -> Condition:
        """A killed agent has left and waits for no worker; no worker outlives its agent."""
        left = all_(
            implies(s.ending[j] == Ending.KILLED, (s.loop[j] == Loop.LEFT) & (s.stopping[j] != Stopping.ASKED))
            for j in s.node
        )
        return left & ~any_(s.orphans)

    @always(witness="two_run")
    def the_stopped_have_not_left(self, s: SymbolicState) -> Condition:
        """An agent or node that is stopped is neither about to end nor has ended."""
        return all_((s.pace[j] == Pace.GOES_ON) | s.loop[j].isin(UP) for j in s.node)

    @always(witness="two_run")
    def the_earlier_are_expected(self, s: SymbolicState) -> Condition:
        """A node that starts or has workers of an earlier round is expected, or is stopped and on no list."""
        return all_(
            implies(
                self.has_workers(s, j) & ~s.current[j],
                (s.member[j] == Membership.EXPECTED)
                | ((s.member[j] == Membership.OUTSIDE) & (s.pace[j] != Pace.GOES_ON) & ~self.runs(s, j)),
            )
            for j in s.node
        )

    def has_workers(self, s: SymbolicState, node: Expr) -> Condition:
        """Worker processes exist, or are about to start."""
        exist = s.workers[node].isin(PROCESSES) | (s.stopping[node] == Stopping.ASKED)
        return exist | (s.loop[node] == Loop.STARTING)

    @always(witness="two_run")
    def a_complete_round_expects_nobody(self, s: SymbolicState) -> Condition:
        """A node's present round is complete, and a complete round expects no node."""
        complete = implies(any_(s.current), s.complete)
        return complete & implies(s.complete, s.member.count(Membership.EXPECTED) == 0)

    @always(witness="two_run")
    def seats_are_kept(self, s: SymbolicState) -> Condition:
        """The participants and the expected nodes are at most max nodes."""
        return s.member.count(*SEATED) <= self.max_nodes
