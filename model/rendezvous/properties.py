"""The properties of the rendezvous, the same for every edition, and the system that a user names.

Theory of operation. `always` holds in each state, `step` for each step, and `leads_to` on every fair run; each `always`
has a `sometimes` as its witness, since a model in which nothing happens satisfies every `always`. The properties that
torch violates are in `findings.py`. `Rendezvous(edition=..., node=3)` builds the class of that edition, in `torch.py`
or `ours.py`.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import ClassVar

from ..language import *
from ..language.expressions import FALSE
from .environment import Environment
from .fields import LISTED
from .vocabulary import AgentPhase, Deadline, Edition, Heartbeat, JoinDeadline, Membership

TRYING = (AgentPhase.EXITING, AgentPhase.JOINING)
RETURNED = (AgentPhase.RETURNING, AgentPhase.CONNECTING, AgentPhase.EXCHANGING, AgentPhase.RUNNING)


class Rendezvous(Environment):
    """The rendezvous of N nodes: next_rendezvous, heartbeats, num_nodes_waiting, restarts and shutdown."""

    title = "Dynamic rendezvous, each successful compare-and-set atomic"
    Edition: ClassVar[Iterable[enum.Enum]] = Edition

    @terminal
    def at_rest(self, s: SymbolicState) -> Condition:
        """Each node has left or died."""
        return all_((s.phase[j] == AgentPhase.LEFT) | s.crashed[j] for j in s.node)

    # ---- the shared state

    @sometimes()
    def a_round_is_complete(self, s: SymbolicState) -> Condition:
        """A round is complete with at least min participants."""
        return s.complete & (self.participants(s) >= self.quorum(s))

    @sometimes()
    def somebody_waits(self, s: SymbolicState) -> Condition:
        """A node waits for the next round or is a spare."""
        return s.member.any(Membership.WAITING, Membership.REDUNDANT)

    @sometimes()
    def two_return(self, s: SymbolicState) -> Condition:
        """Two nodes have returned from one round."""
        return s.returned.count() >= 2

    @sometimes()
    def two_run(self, s: SymbolicState) -> Condition:
        """Two nodes run workers at once, and each has a master."""
        return s.phase.count(AgentPhase.RUNNING) >= 2

    @sometimes()
    def a_last_call_runs(self, s: SymbolicState) -> Condition:
        """The last call runs, or a complete round is full."""
        return (s.deadline == Deadline.RUNNING) | (s.complete & (self.participants(s) == self.max_nodes))

    @sometimes(needs="job_end")
    def it_is_closed(self, s: SymbolicState) -> Condition:
        """The rendezvous is closed."""
        return s.closed

    @always(witness="a_round_is_complete", cite="rendezvous-engine 4.5")
    def ranks_are_ordered(self, s: SymbolicState) -> Condition:
        """The ranks of a complete round are unique and in the order of the nodes."""
        member = [Membership.PARTICIPANT]
        return implies(
            s.complete,
            all_(
                implies(
                    s.member[j].isin(member) & s.member[k].isin(member) & self.comes_first(s, j, k),
                    s.rank[j] < s.rank[k],
                )
                for j in s.node
                for k in s.node
            ),
        )

    def comes_first(self, s: SymbolicState, one: Expr, other: Expr) -> Condition:
        """The order of nodes that is promised to users."""
        return ord_(one) < ord_(other)

    @always(witness="a_round_is_complete", cite="rendezvous-engine 4.5")
    def ranks_are_dense(self, s: SymbolicState) -> Condition:
        """The ranks of a complete round are 0 .. n-1."""
        size = self.participants(s)
        return implies(
            s.complete, all_(implies(s.member[j] == Membership.PARTICIPANT, s.rank[j] < size) for j in s.node)
        )

    @always(witness="a_round_is_complete")
    def at_most_max(self, s: SymbolicState) -> Condition:
        """A round never has more than max participants."""
        return self.participants(s) <= self.max_nodes

    @always(witness="a_round_is_complete")
    def at_least_min(self, s: SymbolicState) -> Condition:
        """A complete round has at least min participants."""
        return implies(s.complete, self.participants(s) >= self.quorum(s))

    @always(witness="a_last_call_runs", cite="rendezvous-engine 4.1, 4.2, 4.5")
    def deadline_iff_last_call(self, s: SymbolicState) -> Condition:
        """A deadline is set exactly while an incomplete round has at least min participants."""
        wanted = ~s.complete & (self.participants(s) >= self.quorum(s))
        return (s.deadline != Deadline.UNSET) == wanted

    @always(witness="somebody_waits")
    def listed_means_heartbeat(self, s: SymbolicState) -> Condition:
        """Each listed node has a heartbeat, and no other node has one."""
        return all_(s.member[j].isin(LISTED) == (s.heartbeat_age[j] != Heartbeat.NONE) for j in s.node)

    @step(witness="a_round_is_complete")
    def rounds_only_advance(self, before: SymbolicState, after: SymbolicState) -> Condition:
        """The round counter stays or increases by one, and increases only from a complete round."""
        follows = (after.round == before.round + 1) | ((after.round == 0) & (before.round + 1 == self.rounds))
        return (after.round == before.round) | (follows & before.complete)

    @step(witness="it_is_closed", needs="job_end")
    def closed_stays_closed(self, before: SymbolicState, after: SymbolicState) -> Condition:
        """A closed rendezvous stays closed."""
        return implies(before.closed, after.closed)

    # ---- agreement

    @always(witness="two_return")
    def agree_on_world(self, s: SymbolicState) -> Condition:
        """Nodes that return from one round agree on its members and have different ranks below the world size."""
        pairs = (
            implies(
                s.returned[j] & s.returned[k],
                all_(s.saw[j, m] == s.saw[k, m] for m in s.node) & ((j == k) | (s.saw_rank[j] != s.saw_rank[k])),
            )
            for j in s.node
            for k in s.node
        )
        ranked = (implies(s.returned[j], s.saw_rank[j] < count(s.saw[j, m] for m in s.node)) for j in s.node)
        return all_(pairs) & all_(ranked)

    @always(witness="two_run")
    def agree_on_master(self, s: SymbolicState) -> Condition:
        """Nodes that run in one round use the same master."""
        return all_(
            implies(
                self.runs_workers(s, j) & s.returned[j] & self.runs_workers(s, k) & s.returned[k],
                s.master[j] == s.master[k],
            )
            for j in s.node
            for k in s.node
        )

    @always(witness="two_run")
    def never_two_groups(self, s: SymbolicState) -> Condition:
        """No node runs in a group that has been replaced while a member of its successor runs."""
        return ~any_(
            self.runs_workers(s, j) & self.runs_workers(s, k) & s.returned[j] & ~s.returned[k]
            for j in s.node
            for k in s.node
        )

    @step(witness="two_run")
    def live_nodes_stay(self, before: SymbolicState, after: SymbolicState, node: Expr) -> Condition:
        """No other node removes from the lists a live, uninterrupted node that joins, runs or is done."""
        active = (*RETURNED, AgentPhase.JOINING, AgentPhase.DONE)
        return all_(
            implies(
                ~before.closed
                & (j != node)
                & before.member[j].isin(LISTED)
                & before.phase[j].isin(active)
                & ~before.interrupted[j],
                after.member[j].isin(LISTED),
            )
            for j in before.node
        )

    @step(on=("mark_closed",), witness="two_run")
    def closing_is_earned(self, before: SymbolicState, after: SymbolicState, node: Expr) -> Condition:
        """A node that failed to join does not close the rendezvous of a group that runs."""
        return ~((before.phase[node] == AgentPhase.FAILED) & any_(self.runs_workers(before, j) for j in before.node))

    def runs_workers(self, s: SymbolicState, node: Expr) -> Condition:
        return (s.phase[node] == AgentPhase.RUNNING) & self.live(s, node)

    def tries(self, s: SymbolicState, node: Expr) -> Condition:
        """The node is up and tries to be in a round."""
        return self.is_up(s, node) & s.phase[node].isin(TRYING)

    def is_up(self, s: SymbolicState, node: Expr) -> Condition:
        return ~s.crashed[node] & (s.phase[node] != AgentPhase.LEFT)

    # ---- progress

    @leads_to(cite="rendezvous-engine 3.2.4")
    def enough_nodes_complete_a_round(self, s: SymbolicState) -> tuple[Condition, Condition]:
        """If enough live nodes keep trying, a round completes."""
        trying = count(self.tries(s, j) for j in s.node)
        enough = trying >= self.quorum(s)
        return enough & ~s.complete & ~s.closed, s.complete | s.closed | ~enough

    @leads_to(cite="elastic-node-change 2.3")
    def the_waiting_are_answered(self, s: SymbolicState, node: Expr) -> tuple[Condition, Condition]:
        """A waiting node is included in a round, becomes a spare, or gets an error."""
        waits = (s.member[node] == Membership.WAITING) & self.is_up(s, node)
        return waits, ~waits

    @leads_to()
    def members_learn_the_master(self, s: SymbolicState, node: Expr) -> tuple[Condition, Condition]:
        """A node that returns from a round learns its master, unless the round is replaced."""
        lacks = (s.phase[node] == AgentPhase.CONNECTING) & s.returned[node] & self.is_up(s, node)
        return lacks, ~lacks

    @leads_to()
    def full_rounds_come_to_rest(self, s: SymbolicState) -> tuple[Condition, Condition]:
        """A full round does not restart for ever because of a node that waits.

        A round that hangs without a master does not restart; `members_learn_the_master` covers that case.
        """
        full = s.complete & (self.participants(s) == self.max_nodes)
        waits = any_((s.member[j] == Membership.WAITING) & self.is_up(s, j) for j in s.node)
        rests = ~waits | s.closed | self.hangs_without_a_master(s)
        return full & waits, rests

    def hangs_without_a_master(self, s: SymbolicState) -> Condition:
        """Members wait for the address of a master that no member is about to publish."""
        return FALSE

    @leads_to()
    def the_removed_are_told(self, s: SymbolicState, node: Expr) -> tuple[Condition, Condition]:
        """A node that runs but is no longer listed finds out."""
        unaware = (s.phase[node] == AgentPhase.RUNNING) & ~s.crashed[node] & (s.member[node] != Membership.PARTICIPANT)
        return unaware, ~unaware | s.closed

    @leads_to(needs="crash", cite="elastic-node-change 3.1")
    def departures_are_noticed(self, s: SymbolicState, node: Expr) -> tuple[Condition, Condition]:
        """When a member dies, its group does not continue to run for ever."""
        lonely = s.crashed[node] & any_(self.runs_workers(s, j) & s.returned[j] & s.saw[j, node] for j in s.node)
        return lonely, ~lonely | s.closed

    @leads_to(needs="job_end")
    def closing_reaches_everyone(self, s: SymbolicState, node: Expr) -> tuple[Condition, Condition]:
        """After the rendezvous is closed, no node joins or waits for ever."""
        hopes = s.closed & s.phase[node].isin(TRYING) & ~s.crashed[node]
        return hopes, ~hopes

    @sometimes(needs="join_timeout")
    def somebody_gives_up(self, s: SymbolicState) -> Condition:
        """A join deadline passes."""
        return any_(x != JoinDeadline.IN_TIME for x in s.join_deadline)
