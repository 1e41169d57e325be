"""The properties of the rendezvous, asked of every edition alike, and the system that has them all."""

from __future__ import annotations

from ..language import Expr, all_, always, any_, count, implies, leads_to, ord_, sometimes, step, terminal
from .repaired import LISTED as LISTS
from .repaired import Repaired
from .shared import BEFORE, LEASED, OURS, Condition, D, H, M, P, S
from .vocabulary import Patience

TRYING = (P.EXITING, P.JOINING)


class Rendezvous(Repaired):
    """N nodes that meet: next_rendezvous, heartbeats, num_nodes_waiting, restarts and shutdown."""

    title = "Dynamic rendezvous, each successful compare-and-set atomic"

    @terminal
    def at_rest(self, s: S) -> Condition:
        """Everybody has left or died."""
        return all_((s.place[j] == P.LEFT) | s.crashed[j] for j in s.node)

    # ---- the shared state

    @sometimes()
    def a_round_is_complete(self, s: S) -> Condition:
        """A round is complete with at least min participants."""
        return s.complete & (self.participants(s) >= self.quorum(s))

    @sometimes()
    def somebody_waits(self, s: S) -> Condition:
        """A node waits for the next round, or is a spare."""
        return any_(x.isin((M.WAITING, M.REDUNDANT)) for x in s.member)

    @sometimes()
    def two_return(self, s: S) -> Condition:
        """Two nodes have returned from one round."""
        return s.returned.count() >= 2

    @sometimes()
    def two_run(self, s: S) -> Condition:
        """Two nodes run workers at once, with a master each."""
        return s.place.count(P.RUNNING) >= 2

    @sometimes()
    def a_last_call_runs(self, s: S) -> Condition:
        """A deadline is set, or a round is full at once."""
        return (s.deadline == D.RUNNING) | (s.complete & (self.participants(s) == self.max_nodes))

    @sometimes(needs="job_end")
    def it_is_closed(self, s: S) -> Condition:
        """The rendezvous is closed."""
        return s.closed

    @always(witness="a_round_is_complete", cite="rendezvous-engine 4.5")
    def ranks_are_ordered(self, s: S) -> Condition:
        """The ranks of a complete round are unique and in the order of the nodes."""
        member = [M.PARTICIPANT]
        return implies(
            s.complete,
            all_(
                implies(
                    s.member[j].isin(member) & s.member[k].isin(member) & (ord_(j) < ord_(k)), s.rank[j] < s.rank[k]
                )
                for j in s.node
                for k in s.node
            ),
        )

    @always(witness="a_round_is_complete", cite="rendezvous-engine 4.5")
    def ranks_are_dense(self, s: S) -> Condition:
        """The ranks of a complete round are 0 .. n-1."""
        size = self.participants(s)
        return implies(s.complete, all_(implies(s.member[j] == M.PARTICIPANT, s.rank[j] < size) for j in s.node))

    @always(witness="a_round_is_complete")
    def at_most_max(self, s: S) -> Condition:
        """A round never has more than max participants."""
        return self.participants(s) <= self.max_nodes

    @always(witness="a_round_is_complete")
    def at_least_min(self, s: S) -> Condition:
        """A complete round has at least min participants."""
        return implies(s.complete, self.participants(s) >= self.quorum(s))

    @always(witness="a_last_call_runs", cite="rendezvous-engine 4.1, 4.2, 4.5")
    def deadline_iff_last_call(self, s: S) -> Condition:
        """A deadline is set exactly while an incomplete round has at least min participants."""
        wanted = ~s.complete & (self.participants(s) >= self.quorum(s))
        return (s.deadline != D.UNSET) == wanted

    @always(witness="somebody_waits")
    def listed_means_heartbeat(self, s: S) -> Condition:
        """Everyone listed has a heartbeat, and nobody else has."""
        return all_(s.member[j].isin(LISTS) == (s.hb[j] != H.NONE) for j in s.node)

    @step(witness="a_round_is_complete")
    def rounds_only_advance(self, before: S, after: S) -> Condition:
        """The round counter stays or goes on by one, and only from a complete round."""
        follows = (after.round == before.round + 1) | ((after.round == 0) & (before.round + 1 == self.rounds))
        return (after.round == before.round) | (follows & before.complete)

    @step(witness="it_is_closed", needs="job_end")
    def closed_stays_closed(self, before: S, after: S) -> Condition:
        """Closing is for good."""
        return implies(before.closed, after.closed)

    # ---- agreement

    @always(witness="two_return")
    def agree_on_world(self, s: S) -> Condition:
        """All who return from one round agree on its members, and have different ranks below the world size."""
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
    def agree_on_master(self, s: S) -> Condition:
        """All who run in one round use the same master."""
        return all_(
            implies(self._runs(s, j) & s.returned[j] & self._runs(s, k) & s.returned[k], s.master[j] == s.master[k])
            for j in s.node
            for k in s.node
        )

    @always(witness="two_run")
    def never_two_groups(self, s: S) -> Condition:
        """Nobody runs in a group that has been replaced while a member of its successor runs."""
        return ~any_(
            self._runs(s, j) & self._runs(s, k) & s.returned[j] & ~s.returned[k] for j in s.node for k in s.node
        )

    @step(each="node", witness="two_run")
    def live_nodes_stay(self, before: S, after: S, node: Expr) -> Condition:
        """A live node that joins or runs, and did not stall, is never taken off a list by another."""
        active = (P.JOINING, P.RETURNING, P.CONNECTING, P.RUNNING)
        return all_(
            implies(
                (j != node) & before.member[j].isin(LISTS) & before.place[j].isin(active) & ~before.lapsed[j],
                after.member[j].isin(LISTS),
            )
            for j in before.node
        )

    @step(each="node", on=("shut_down", "close"), witness="two_run")
    def closing_is_earned(self, before: S, after: S, node: Expr) -> Condition:
        """A node that failed to join does not close the rendezvous of a group that runs."""
        return ~((before.place[node] == P.FAILED) & any_(self._runs(before, j) for j in before.node))

    # ---- why these hold in ours

    @sometimes(editions=OURS)
    def somebody_is_expected(self, s: S) -> Condition:
        """A round was replaced, and not all of its members have come."""
        return any_(x == M.EXPECTED for x in s.member)

    @always(editions=OURS, witness="two_return")
    def what_returned_stays_written(self, s: S) -> Condition:
        """A complete round is never changed: whoever returned from it has the rank and the members that it lists."""
        return all_(
            implies(
                s.returned[j],
                s.complete
                & (s.saw_rank[j] == s.rank[j])
                & all_(s.saw[j, k] == (s.member[k] == M.PARTICIPANT) for k in s.node),
            )
            for j in s.node
        )

    @step(editions=OURS, witness="somebody_is_expected")
    def a_round_ends_for_all(self, before: S, after: S) -> Condition:
        """A complete round ends by being replaced, for all of its members at once."""
        ends = before.complete & ~after.complete
        return implies(ends, ~any_(after.returned[j] | (after.rank[j] != 0) for j in before.node))

    @always(editions=OURS, witness="two_run")
    def who_runs_has_a_lease(self, s: S) -> Condition:
        """Whoever acts on what it returned with is listed, and silent to nobody."""
        return all_(implies(self._acts_on(s, j), s.hb[j].isin((H.FRESH, H.DUE))) for j in s.node)

    @always(editions=OURS, witness="somebody_is_expected")
    def the_replaced_are_expected(self, s: S) -> Condition:
        """Whoever acts on a round that has been replaced is expected in the next one."""
        return all_(implies(self._acts_on(s, j) & ~s.returned[j], s.member[j] == M.EXPECTED) for j in s.node)

    @always(editions=OURS, witness="somebody_is_expected")
    def the_complete_expect_nobody(self, s: S) -> Condition:
        """A round completes only when everybody who was expected has come, has gone, or has been expelled."""
        return implies(s.complete, s.member.count(M.EXPECTED) == 0)

    @always(editions=OURS, witness="somebody_is_expected")
    def seats_are_kept(self, s: S) -> Condition:
        """There is a seat for everybody who is expected."""
        return s.member.count(M.PARTICIPANT, M.EXPECTED) <= self.max_nodes

    @always(editions=OURS, witness="a_round_is_complete")
    def the_listed_agree(self, s: S) -> Condition:
        """Everybody listed has the settings in force."""
        return all_(
            implies(s.member[j] != M.OUTSIDE, (s.sterner[j] == s.agreed_stern) & (s.impatient[j] == s.agreed_hasty))
            for j in s.node
        )

    @leads_to(each="node", editions=OURS)
    def the_expected_come_or_go(self, s: S, node: Expr) -> tuple[Condition, Condition]:
        """While somebody tries, nobody is expected for ever."""
        tries = any_(self._up(s, j) & s.place[j].isin(TRYING) for j in s.node)
        waits = (s.member[node] == M.EXPECTED) & ~s.closed & tries
        return waits, ~waits

    def _acts_on(self, s: S, node: Expr) -> Condition:
        """The node acts on what next_rendezvous returned to it, or is about to."""
        return s.place[node].isin(LEASED) & self.live(s, node)

    def _runs(self, s: S, node: Expr) -> Condition:
        return (s.place[node] == P.RUNNING) & self.live(s, node)

    def _up(self, s: S, node: Expr) -> Condition:
        return ~s.crashed[node] & (s.place[node] != P.LEFT)

    # ---- progress

    @leads_to(cite="rendezvous-engine 3.2.4")
    def enough_nodes_complete_a_round(self, s: S) -> tuple[Condition, Condition]:
        """If enough live nodes keep trying, a round completes."""
        trying = count(self._up(s, j) & s.place[j].isin(TRYING) for j in s.node)
        enough = trying >= self.quorum(s)
        return enough & ~s.complete & ~s.closed, s.complete | s.closed | ~enough

    @leads_to(each="node", cite="elastic-node-change 2.3")
    def the_waiting_are_answered(self, s: S, node: Expr) -> tuple[Condition, Condition]:
        """A waiting node is included in a round, made a spare, or told no."""
        waits = (s.member[node] == M.WAITING) & self._up(s, node)
        return waits, ~waits

    @leads_to(each="node")
    def members_learn_the_master(self, s: S, node: Expr) -> tuple[Condition, Condition]:
        """Whoever returns from a round learns its master, unless the round is replaced."""
        lacks = (s.place[node] == P.CONNECTING) & s.returned[node] & self._up(s, node)
        return lacks, ~lacks

    @leads_to()
    def full_rounds_come_to_rest(self, s: S) -> tuple[Condition, Condition]:
        """A full round does not restart for ever because of a node that waits.

        A round that hangs for want of a master does not restart: `members_learn_the_master` asks about that.
        """
        full = s.complete & (self.participants(s) == self.max_nodes)
        waits = any_((s.member[j] == M.WAITING) & self._up(s, j) for j in s.node)
        coming = any_(
            (s.place[j] == P.RETURNING) | ((s.place[j] == P.JOINING) & (s.member[j] == M.PARTICIPANT)) for j in s.node
        )
        rests = ~waits | s.closed
        if self.edition in BEFORE:
            rests |= any_(x == P.CONNECTING for x in s.place) & (s.published == 0) & ~coming
        return full & waits, rests

    @leads_to(each="node")
    def the_removed_are_told(self, s: S, node: Expr) -> tuple[Condition, Condition]:
        """A node that runs but is no longer listed finds out."""
        unaware = (s.place[node] == P.RUNNING) & ~s.crashed[node] & (s.member[node] != M.PARTICIPANT)
        return unaware, ~unaware | s.closed

    @leads_to(each="node", needs="crash", cite="elastic-node-change 3.1")
    def departures_are_noticed(self, s: S, node: Expr) -> tuple[Condition, Condition]:
        """When a member dies, its group does not run on for ever."""
        lonely = s.crashed[node] & any_(self._runs(s, j) & s.returned[j] & s.saw[j, node] for j in s.node)
        return lonely, ~lonely | s.closed

    @leads_to(each="node", needs="job_end")
    def closing_reaches_everyone(self, s: S, node: Expr) -> tuple[Condition, Condition]:
        """After the rendezvous is closed, nobody joins or waits for ever."""
        hopes = s.closed & s.place[node].isin(TRYING) & ~s.crashed[node]
        return hopes, ~hopes

    @sometimes(needs="join_timeout")
    def somebody_gives_up(self, s: S) -> Condition:
        """A join deadline passes."""
        return any_(x != Patience.IN_TIME for x in s.patience)
