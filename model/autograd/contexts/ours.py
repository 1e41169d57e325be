"""Ours: each worker that receives CLEAN remembers that the context is over, whether it has the context or not.

It sends CLEAN to all workers that it has called, and answers when they have answered. So when a worker has answered,
all workers that it has called have CLEAN too. A repeated CLEAN changes nothing. A worker accepts CLEAN from the
creator, and from a worker whose call has brought the context, but not before that call. If a worker is lost before it
has answered CLEAN, it may have called others: then CLEAN goes to the creator, which sends it once to every worker. When
a creator is lost, its contexts are over, also contexts that have not arrived yet.
"""

from __future__ import annotations

from typing import Any

from ...language import *
from ..vocabulary import CallState, CleanUp, ContextState, Edition, Shipped
from .environment import TELLS
from .fields import CREATOR, LIVE, S
from .properties import Contexts

GONE = may((ContextState.ABSENT, *LIVE), ContextState.RELEASED)
CUT = may(Shipped.RUNNING, Shipped.FAILED)


class Ours(Contexts, edition=Edition.TRYSTATE):
    """Each worker remembers that a context is over, and answers CLEAN when all its own CLEANs are answered."""

    def creates(self, s: S, worker: Expr) -> Condition:
        """A request creates the context unless it is over here: the call then runs outside of any context."""
        return not_(s.over[worker])

    def recreates(self, s: S, worker: Expr) -> Condition:
        """An answer never creates the context: the caller has it, or it is over there."""
        return not_(True)

    @transition(
        moves=[
            arc((ContextState.CREATED, ContextState.SHARED), ContextState.RELEASED),
            may(ContextState.IN_USE, ContextState.RELEASED),
            TELLS,
        ],
        cite="distributed-autograd-contexts 4.3.2: __exit__",
    )
    def leave(self, s: S, worker: Expr) -> None:
        """The creator leaves the context; a pass that runs in it fails."""
        s.when(ord_(worker) == CREATOR, s.open)
        if not self.outlives:
            s.when(~self.waits(s, worker), ~s.running)
        s.open = False
        self.releases(s, worker, True)

    def releases(self, s: S, worker: Expr, when: Any, told_by: Expr | None = None) -> None:
        super().releases(s, worker, when, told_by)
        self.stops_using(s, worker, when)

    def stops_using(self, s: S, worker: Expr, when: Any) -> None:
        s.shipped[worker] = ite(and_(when, s.shipped[worker] == Shipped.RUNNING), Shipped.FAILED, s.shipped[worker])
        s.running = s.running & not_(and_(when, ord_(worker) == CREATOR))

    def passes_on(self, s: S, worker: Expr, when: Any, told_by: Expr | None) -> None:
        """Send CLEAN to all workers in `known`, and to the rest if one of these is lost; not back to its sender."""
        missing = any_(s.known[worker, j] & s.noticed[worker, j] for j in s.worker)
        for j in s.worker:
            known = and_(s.known[worker, j], not_(ord_(j) == CREATOR))  # the creator needs no CLEAN
            if told_by is not None:
                again = and_(ord_(told_by) == ord_(j), not_(ord_(j) == CREATOR))
                s.told[worker, j] = s.told[worker, j] | and_(when, again)
            self.tells(s, worker, j, and_(when, known | self.tells_the_rest(worker, j, missing)))
        self.has_answers(s, worker)

    def tells_the_rest(self, worker: Expr, other: Expr, missing: Any) -> Any:
        """The creator sends CLEAN to every worker; any other worker sends it to the creator, which all believe."""
        return and_(missing, or_(ord_(worker) == CREATOR, ord_(other) == CREATOR))

    def tells(self, s: S, worker: Expr, other: Expr, when: Any) -> None:
        """Send CLEAN from one worker to another: once, and not to a lost worker."""
        now = and_(when, self.are_two(worker, other), ~s.noticed[worker, other], ~s.told[worker, other])
        s.told[worker, other] = s.told[worker, other] | now
        super().tells(s, worker, other, now)

    def has_answers(self, s: S, worker: Expr) -> None:
        """When all have answered, no worker is left that needs CLEAN, and `told` is cleared."""
        waits = any_(s.clean[worker, j] != CleanUp.NONE for j in s.worker)
        for j in s.worker:
            s.told[worker, j] = s.told[worker, j] & waits

    @transition(
        moves=[
            GONE, CUT, TELLS,
            arc(CleanUp.SENT, CleanUp.NONE), arc((CleanUp.SENT, CleanUp.AGAIN), CleanUp.PASSING_ON),
        ],
    )  # fmt: skip
    def take_clean_up(self, s: S, worker0: Expr, worker1: Expr) -> None:
        """A worker receives CLEAN."""
        state = s.clean[worker0, worker1]
        s.when(state.isin((CleanUp.SENT, CleanUp.AGAIN)), ~s.dead[worker1], self.believes(s, worker1, worker0))
        first = self.is_news(s, worker1)
        s.clean[worker0, worker1] = self.taken(state, first)
        self.has_answers(s, worker0)
        self.releases(s, worker1, first, worker0)
        for j in s.worker:
            self.tells(s, worker1, j, and_(ord_(worker1) == CREATOR, self.are_two(worker0, j)))
        self.has_answers(s, worker1)

    def believes(self, s: S, worker: Expr, sender: Expr) -> Condition:
        """CLEAN from a worker other than the creator counts only if no call of that worker is on its way here."""
        unknown = ~any_(s.caller[j, worker] for j in s.worker)  # its caller waits no longer
        comes = and_(s.call[worker] == CallState.REQUESTED, s.caller[sender, worker] | unknown)
        return or_(ord_(sender) == CREATOR, s.over[worker], not_(comes))

    def is_news(self, s: S, worker: Expr) -> Condition:
        """CLEAN changes a worker without the context too: a call may yet bring the context."""
        return ~s.over[worker]

    def taken(self, state: Any, first: Any) -> Any:
        """The first sender of CLEAN is answered last, also if it sends CLEAN again."""
        return ite(first | (state == CleanUp.AGAIN), CleanUp.PASSING_ON, CleanUp.NONE)

    @transition(moves=[arc(CleanUp.PASSING_ON, CleanUp.NONE)])
    def answer_clean_up(self, s: S, worker0: Expr, worker1: Expr) -> None:
        """All workers to which a worker has passed CLEAN on have answered, so it answers too."""
        s.when(s.clean[worker0, worker1] == CleanUp.PASSING_ON, ~s.dead[worker1])
        s.when(all_(s.clean[worker1, j] == CleanUp.NONE for j in s.worker))
        s.clean[worker0, worker1] = CleanUp.NONE
        self.has_answers(s, worker0)

    @fault("duplicate", moves=[GONE, CUT, arc(CleanUp.SENT, CleanUp.AGAIN)])
    def duplicate(self, s: S, worker0: Expr, worker1: Expr) -> None:
        """A CLEAN arrives, and will arrive again."""
        s.when(s.clean[worker0, worker1] == CleanUp.SENT, ~s.dead[worker1], self.is_news(s, worker1))
        s.when(self.believes(s, worker1, worker0))
        self.releases(s, worker1, True, worker0)
        s.clean[worker0, worker1] = CleanUp.AGAIN

    # ---- workers that are lost

    notice = Contexts.notice.also(GONE)

    def hears_of_loss(self, s: S, worker: Expr, other: Expr, untold: Any) -> None:
        """The lost worker may have called others: then the rest get CLEAN; a lost creator's contexts are over."""
        for j in s.worker:
            self.tells(s, worker, j, self.tells_the_rest(worker, j, untold))
        self.has_answers(s, worker)
        self.loses_creator(s, worker, and_(ord_(other) == CREATOR, ~s.over[worker]))

    def loses_creator(self, s: S, worker: Expr, when: Any) -> None:
        self.releases(s, worker, when)

    def dies(self, s: S, worker: Expr) -> None:
        super().dies(s, worker)
        reset(s.told, at=worker)
