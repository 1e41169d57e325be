"""Lemmas of the proofs of our rendezvous: facts about the same steps that no user needs.

`trystate prove rendezvous`, `served` and `rooms` prove them together with the properties. The plans of `trystate
verify` do not have them: a test searches two nodes for a state that violates one.
"""

from __future__ import annotations

from ..language import *
from .fields import LEASED
from .ours import Ours
from .rooms import EARLIER, LATEST, TRYING, Answer, Offer, Request, Rooms
from .served import Served
from .vocabulary import AgentPhase, Heartbeat, Membership


class Lemmas(Ours):
    """The edition TRYSTATE, with the lemmas of its proof."""

    @always(witness="two_return")
    def the_returned_are_members(self, s: SymbolicState) -> Condition:
        """A node that returned from the current round is a member of it, and the round is complete."""
        return all_(implies(s.returned[j], s.complete & (s.member[j] == Membership.PARTICIPANT)) for j in s.node)

    @always(witness="two_return")
    def the_leased_are_seated(self, s: SymbolicState) -> Condition:
        """A listed node that acts on a round is a member of it or is expected, even if it is stalled."""
        return all_(
            implies(
                s.phase[j].isin(LEASED) & (s.member[j] != Membership.OUTSIDE),
                s.member[j] == ite(s.returned[j], Membership.PARTICIPANT, Membership.EXPECTED),
            )
            for j in s.node
        )

    @always(witness="two_return")
    def the_exiting_wait_for_nothing(self, s: SymbolicState) -> Condition:
        """A node that leaves a round is a member of a complete round, is expected, or is not listed."""
        return all_(
            implies(
                (s.phase[j] == AgentPhase.EXITING) & ~s.predecessor_listed[j],
                s.member[j].isin((Membership.OUTSIDE, Membership.EXPECTED))
                | ((s.member[j] == Membership.PARTICIPANT) & s.complete),
            )
            for j in s.node
        )

    @always(witness="two_return")
    def the_unfit_do_not_join(self, s: SymbolicState) -> Condition:
        """A node whose check failed does not join an open rendezvous, and its predecessor is not listed."""
        ended = (AgentPhase.EXITING, AgentPhase.FAILED, AgentPhase.LEFT)
        return all_(
            implies(
                s.unhealthy[j],
                ~s.predecessor_listed[j] & (s.phase[j].isin(ended) | (s.closed & (s.phase[j] == AgentPhase.JOINING))),
            )
            for j in s.node
        )

    @always(witness="two_return")
    def members_of_a_young_round_rest(self, s: SymbolicState) -> Condition:
        """While a round is within the scale-up interval, each member that acts on it is within the interval too."""
        rest = all_(implies(s.returned[j] & s.phase[j].isin(LEASED), s.rests[j]) for j in s.node)
        return implies(s.young, s.holds_back & rest)

    @always(witness="two_return")
    def a_larger_min_fits(self, s: SymbolicState) -> Condition:
        """Neither a node's settings nor the settings in force have a min above max."""
        return implies(s.agreed_larger_min | any_(s.larger_min), self.min_nodes < self.max_nodes)

    @always(witness="two_return")
    def the_succeeding_stay_outside(self, s: SymbolicState) -> Condition:
        """A new process under a listed address has not joined."""
        ended = (AgentPhase.JOINING, AgentPhase.FAILED, AgentPhase.LEFT)
        return all_(
            implies(s.predecessor_listed[j], (s.phase[j] == AgentPhase.EXITING) | (s.closed & s.phase[j].isin(ended)))
            for j in s.node
        )

    @always(witness="two_return")
    def rounds_are_counted(self, s: SymbolicState) -> Condition:
        """The round counter is below its modulus."""
        return s.round < self.rounds

    @always(witness="two_return")
    def the_silent_were_interrupted(self, s: SymbolicState) -> Condition:
        """A heartbeat expires only if its node was interrupted, was replaced, or has left."""
        return all_(
            implies(
                s.heartbeat_age[j] == Heartbeat.EXPIRED,
                s.interrupted[j] | s.predecessor_listed[j] | (s.phase[j] == AgentPhase.LEFT),
            )
            & implies(s.crashed[j] | s.stalled[j] | s.partitioned[j], s.interrupted[j])
            for j in s.node
        )

    @always(witness="a_round_is_complete")
    def one_member_is_first(self, s: SymbolicState) -> Condition:
        """A complete round has a member with the rank 0."""
        return implies(s.complete, any_(self.is_first(s, k) for k in s.node))

    @always(witness="two_return")
    def the_first_is_master(self, s: SymbolicState) -> Condition:
        """A node that returned from the current round uses its first member as master, or has stopped its workers."""
        return all_(
            implies(
                s.returned[j] & self.is_first(s, k),
                (s.master[j] == ord_(k) + 1) | ((s.master[j] == 0) & ~s.phase[j].isin(LEASED)),
            )
            for j in s.node
            for k in s.node
        )

    def is_first(self, s: SymbolicState, node: Expr) -> Condition:
        return (s.member[node] == Membership.PARTICIPANT) & (s.rank[node] == 0)


class ServedLemmas(Lemmas, Served):
    """The system `Served`, with the same lemmas."""


class RoomLemmas(ServedLemmas, Rooms):
    """The system `Rooms`, with lemmas on what is under way."""

    @always(witness="two_return")
    def a_request_is_of_a_node_that_waits(self, s: SymbolicState) -> Condition:
        """A node that has sent a request, or that an answer is on its way to, has stopped its workers and waits."""
        return all_(
            implies(s.asked[j, LATEST] != Request.NONE, s.answer[j] == Answer.NONE)
            & implies(self.waits_for(s, j, Request.JOIN), s.phase[j].isin(TRYING))
            & implies(self.waits_for(s, j, Request.LEAVE), s.phase[j].isin((*TRYING, AgentPhase.LEFT)))
            for j in s.node
        )

    def waits_for(self, s: SymbolicState, node: Expr, request: Request) -> Condition:
        """The node waits for the answer to this request."""
        answers = (Answer.CONTINUE, Answer.ENDED) if request is Request.JOIN else (Answer.GONE,)
        return (s.asked[node, LATEST] == request) | s.answer[node].isin(answers)

    @always(witness="two_return")
    def a_late_request_is_sent_again(self, s: SymbolicState) -> Condition:
        """A request on an earlier connection was sent again on the latest one, where it has not arrived."""
        return all_(
            implies(
                s.asked[j, EARLIER] != Request.NONE,
                (s.asked[j, EARLIER] == s.asked[j, LATEST]) & (s.of[j, EARLIER] == s.of[j, LATEST]),
            )
            for j in s.node
        )

    @always(witness="two_return")
    def an_offer_is_of_its_round(self, s: SymbolicState) -> Condition:
        """A notice of the present round is for a member of it; one of a replaced round is for an expected node."""
        return all_(
            implies(s.offer[j] == Offer.PRESENT, s.complete & (s.member[j] == Membership.PARTICIPANT))
            & implies(
                (s.offer[j] == Offer.PAST) & (s.asked[j, LATEST] == Request.NONE) & (s.phase[j] == AgentPhase.JOINING),
                s.member[j].isin((Membership.EXPECTED, Membership.OUTSIDE)),
            )
            for j in s.node
        )

    @always(witness="two_return")
    def the_dead_have_sent_nothing(self, s: SymbolicState) -> Condition:
        """A process that has died has no request, answer or notice under way."""
        return all_(
            implies(
                s.crashed[j],
                all_(s.asked[j, c] == Request.NONE for c in s.connection)
                & (s.answer[j] == Answer.NONE)
                & (s.offer[j] == Offer.NONE),
            )
            for j in s.node
        )

    @always(witness="two_return")
    def who_leaves_a_round_has_returned(self, s: SymbolicState) -> Condition:
        """A JOIN that leaves the present round is of a node that has returned from it and has not joined since."""
        return all_(
            implies(
                s.of[j, c],
                s.returned[j]
                & ~s.predecessor_listed[j]
                & (s.asked[j, c] == Request.JOIN)
                & (s.closed | (s.phase[j] == AgentPhase.EXITING)),
            )
            for j in s.node
            for c in s.connection
        )

    @always(witness="two_return")
    def no_node_has_a_health_command(self, s: SymbolicState) -> Condition:
        """No step of `Rooms` sets the options that `Rooms` leaves out."""
        return ~any_(s.checks[j] | s.unhealthy[j] for j in s.node)
