"""torchft's manager of a replica: its ranks request a quorum together, and vote on the step.

Theory of operation. A replica has one manager server, and each of its ranks is a client. A rank that requests a quorum
is added to the participants. When all ranks participate, the manager clears the participants and sends one request to
the lighthouse, with the values of the rank that came last. The answer is sent to each rank that waits at that time. A
rank that votes (should_commit) is added to the voters, and to the failures if its step has failed. When all ranks have
voted, the manager sends the decision to each rank that waits, and clears both.

Failures:

- A rank's request times out, and its program continues. The manager does not notice it.
- The request to the lighthouse fails.

Abstractions. A rank between two votes trains a step. Requests to the lighthouse that overlap are one request. Healing,
checkpoints and the step numbers in requests, which the manager does not read, are left out.
"""

from __future__ import annotations

from typing import Any

from ..language import *
from .vocabulary import Edition, Rank

S = SymbolicState


class Managers(System):
    """The ranks of one replica, and their manager."""

    title = "torchft's manager"
    Edition = Edition

    rank = index(2)
    steps = constant(2, "the training is complete after so many steps")

    at = choice(Rank, per="rank")
    step = integer(0, "steps", per="rank", doc="how many steps it has committed")
    present = flag(per="rank", doc="participants")
    sent = flag(doc="the request to the lighthouse is sent")
    voted = flag(per="rank", doc="should_commit_count")
    denied = flag(per="rank", doc="should_commit_failures")
    early = flag(doc="a quorum was requested while a rank did not wait")

    def lifelines(self) -> Lifelines:
        """The manager has the participants and the voters."""
        return served("manager", "present sent voted denied", here="early")

    member = machine_of(at, "A rank of a replica.")

    # ---- a quorum

    @transition(moves=[arc(Rank.IDLE, Rank.WAITING)], cite="manager.rs: quorum")
    def ask(self, s: S, rank: Expr) -> None:
        """A rank requests a quorum. The last of them makes the manager send the request to the lighthouse."""
        s.when(s.at[rank] == Rank.IDLE, s.step[rank] < self.steps)
        s.at[rank], s.present[rank] = Rank.WAITING, True
        complete = all_(s.present[r] for r in s.rank)
        s.early = s.early | (complete & ~s.at.all(Rank.WAITING))
        s.sent = s.sent | complete
        reset(s.present, when=complete)

    @environment(
        fair=True, moves=[arc(Rank.WAITING, Rank.TRAINING, of="others")], cite="manager.rs: _run_quorum, channel.send"
    )
    def answer(self, s: S) -> None:
        """The lighthouse answers: each rank that waits has the quorum."""
        s.when(s.sent)
        self.leave(s, Rank.TRAINING)

    def leave(self, s: S, to: Rank) -> None:
        """The request to the lighthouse has ended, and so have the requests of ranks."""
        s.sent = False
        for r in s.rank:
            self.forget(s, r, s.at[r] == Rank.WAITING)
            s.at[r] = ite(s.at[r] == Rank.WAITING, to, s.at[r])

    def forget(self, s: S, r: Expr, ended: Any) -> None:
        """The request of a rank has ended."""

    @fault("failure", moves=[may(Rank.WAITING, Rank.IDLE, of="others")], cite="manager.rs: _run_quorum, TODO")
    def lighthouse_fails(self, s: S) -> None:
        """The request to the lighthouse fails."""
        s.when(s.sent)
        self.lose(s)

    def lose(self, s: S) -> None:
        """No rank is answered."""
        s.sent = False

    # ---- the votes

    def cast(self, s: S, rank: Expr, denied: bool) -> None:
        s.when(s.at[rank] == Rank.TRAINING)
        s.at[rank], s.voted[rank] = Rank.VOTING, True
        s.denied[rank] = s.denied[rank] | denied
        complete, agreed = all_(s.voted[r] for r in s.rank), not_(any_(s.denied[r] for r in s.rank))
        for r in s.rank:
            decided = complete & (s.at[r] == Rank.VOTING)
            s.step[r] = ite(decided & agreed, s.step[r] + 1, s.step[r])
            s.at[r] = ite(decided, Rank.IDLE, s.at[r])
        reset(s.voted, s.denied, when=complete)

    @transition(
        moves=[arc(Rank.TRAINING, (Rank.VOTING, Rank.IDLE)), may(Rank.VOTING, Rank.IDLE, of="others")],
        cite="manager.rs: should_commit",
    )
    def vote(self, s: S, rank: Expr) -> None:
        """A rank votes for its step. With the last vote all ranks that wait have the decision."""
        self.cast(s, rank, False)

    @environment(
        switch="veto", moves=[arc(Rank.TRAINING, (Rank.VOTING, Rank.IDLE)), may(Rank.VOTING, Rank.IDLE, of="others")],
        cite="manager.rs: should_commit, should_commit_failures",
    )  # fmt: skip
    def veto(self, s: S, rank: Expr) -> None:
        """A rank votes against its step, since it has had an error."""
        self.cast(s, rank, True)

    @fault("timeout", moves=[arc((Rank.WAITING, Rank.VOTING), Rank.IDLE)])
    def time_out(self, s: S, rank: Expr) -> None:
        """The request of a rank times out, and its program continues with the next request for a quorum."""
        s.when(s.at[rank].isin((Rank.WAITING, Rank.VOTING)))
        self.forget(s, rank, True)
        s.at[rank] = Rank.IDLE

    # ---- what must hold

    @terminal
    def at_rest(self, s: S) -> Condition:
        """Not all ranks wait for the same. If some are at another request, their timeouts follow."""
        return not_(s.at.all(Rank.WAITING) | s.at.all(Rank.VOTING))

    @sometimes()
    def a_step_is_committed(self, s: S) -> Condition:
        """All ranks have committed a step."""
        return all_(s.step[r] > 0 for r in s.rank)

    @always(witness="a_step_is_committed")
    def a_quorum_is_of_all_ranks(self, s: S) -> Condition:
        """A quorum is requested from the lighthouse only while all ranks wait for it."""
        return ~s.early

    @always(witness="a_step_is_committed")
    def ranks_commit_together(self, s: S) -> Condition:
        """All ranks have committed the same number of steps."""
        return all_(s.step[a] == s.step[b] for a in s.rank for b in s.rank)

    @leads_to()
    def who_waits_is_answered(self, s: S) -> Condition:
        """If all ranks wait for a quorum, they have an answer or an error."""
        return s.at.all(Rank.WAITING), not_(s.at.all(Rank.WAITING))


class Mended(Managers, edition=Edition.MENDED):
    """With the remedies of L5 to L7.

    The manager removes a rank, its participation and its vote, when its request ends, and sends an error to all ranks
    if the request to the lighthouse fails.
    """

    def forget(self, s: S, r: Expr, ended: Any) -> None:
        reset(s.present, s.voted, s.denied, at=r, when=ended)

    def lose(self, s: S) -> None:
        self.leave(s, Rank.IDLE)
