"""Ours: each worker that is told remembers that the context is over, whether it has it or not.

It tells all that it knows, and answers when they have answered, so that no answer hides a worker that was not told. A
repeated CLEAN changes nothing. CLEAN is believed from the creator, and from a worker whose call has brought the
context: it is not taken before that call. When one of those that were to be told is lost, it may have told others: then
CLEAN goes to the creator, which tells every worker, but none twice. The contexts of a creator that is lost are over,
also those that have not come yet.
"""

from __future__ import annotations

from typing import Any

from ...language import Expr, all_, and_, any_, arc, fault, ite, may, not_, or_, ord_, transition
from ..vocabulary import CallState, CleanUp, ContextState, Edition, Shipped
from .environment import TELLS
from .fields import CREATOR, LIVE, Condition, S
from .properties import Contexts

GONE = may((ContextState.ABSENT, *LIVE), ContextState.RELEASED)
CUT = may(Shipped.RUNNING, Shipped.FAILED)


class Ours(Contexts, edition=Edition.TRYSTATE):
    """Each worker remembers that a context is over, and answers CLEAN when all that it told have answered."""

    def creates(self, s: S, worker: Expr) -> Condition:
        """Not once the context is over here: the call then runs outside of any context."""
        return not_(s.over[worker])

    def recreates(self, s: S, worker: Expr) -> Condition:
        """A worker that asked has the context, or it is over there."""
        return not_(True)

    @transition(
        each="worker",
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
        """CLEAN to all that it knows, and on to the rest if one of these is lost; not to the worker that told it."""
        missing = any_(s.known[worker, j] & s.noticed[worker, j] for j in s.worker)
        for j in s.worker:
            known = and_(s.known[worker, j], not_(ord_(j) == CREATOR))  # the creator knows
            if told_by is not None:
                again = and_(ord_(told_by) == ord_(j), not_(ord_(j) == CREATOR))
                s.told[worker, j] = s.told[worker, j] | and_(when, again)
            self.tells(s, worker, j, and_(when, known | self.tells_the_rest(worker, j, missing)))
        self.has_answers(s, worker)

    def tells_the_rest(self, worker: Expr, other: Expr, missing: Any) -> Any:
        """The creator tells every worker; another worker tells the creator, which is believed everywhere."""
        return and_(missing, or_(ord_(worker) == CREATOR, ord_(other) == CREATOR))

    def tells(self, s: S, worker: Expr, other: Expr, when: Any) -> None:
        """CLEAN from one to another: once, and not to a worker that is lost."""
        now = and_(when, self.are_two(worker, other), ~s.noticed[worker, other], ~s.told[worker, other])
        s.told[worker, other] = s.told[worker, other] | now
        super().tells(s, worker, other, now)

    def has_answers(self, s: S, worker: Expr) -> None:
        """When all have answered no worker is left to tell; which ones it has told is forgotten."""
        waits = any_(s.clean[worker, j] != CleanUp.NONE for j in s.worker)
        for j in s.worker:
            s.told[worker, j] = s.told[worker, j] & waits

    @transition(
        each=("worker", "worker"),
        moves=[
            GONE, CUT, TELLS,
            arc(CleanUp.SENT, CleanUp.NONE), arc((CleanUp.SENT, CleanUp.AGAIN), CleanUp.PASSING_ON),
        ],
    )  # fmt: skip
    def take_clean_up(self, s: S, worker0: Expr, worker1: Expr) -> None:
        """A worker is told of the release."""
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
        """CLEAN of another worker than the creator counts when no call of that worker is on its way here."""
        unknown = ~any_(s.caller[j, worker] for j in s.worker)  # its caller waits no longer
        comes = and_(s.call[worker] == CallState.REQUESTED, s.caller[sender, worker] | unknown)
        return or_(ord_(sender) == CREATOR, s.over[worker], not_(comes))

    def is_news(self, s: S, worker: Expr) -> Condition:
        """Also to a worker that does not have the context: a call may yet bring it."""
        return ~s.over[worker]

    def taken(self, state: Any, first: Any) -> Any:
        """The worker that said it first is answered last, also when it says so again."""
        return ite(first | (state == CleanUp.AGAIN), CleanUp.PASSING_ON, CleanUp.NONE)

    @transition(each=("worker", "worker"), moves=[arc(CleanUp.PASSING_ON, CleanUp.NONE)])
    def answer_clean_up(self, s: S, worker0: Expr, worker1: Expr) -> None:
        """Those that it was passed on to have answered, and so does the worker."""
        s.when(s.clean[worker0, worker1] == CleanUp.PASSING_ON, ~s.dead[worker1])
        s.when(all_(s.clean[worker1, j] == CleanUp.NONE for j in s.worker))
        s.clean[worker0, worker1] = CleanUp.NONE
        self.has_answers(s, worker0)

    @fault("duplicate", each=("worker", "worker"), moves=[GONE, CUT, arc(CleanUp.SENT, CleanUp.AGAIN)])
    def duplicate(self, s: S, worker0: Expr, worker1: Expr) -> None:
        """A CLEAN arrives, and will arrive again."""
        s.when(s.clean[worker0, worker1] == CleanUp.SENT, ~s.dead[worker1], self.is_news(s, worker1))
        s.when(self.believes(s, worker1, worker0))
        self.releases(s, worker1, True, worker0)
        s.clean[worker0, worker1] = CleanUp.AGAIN

    # ---- workers that are lost

    notice = Contexts.notice.claiming(*Contexts.notice.arcs, GONE)

    def hears_of_loss(self, s: S, worker: Expr, other: Expr, untold: Any) -> None:
        """The lost worker may have told others: then the rest are told; a lost creator's contexts are over."""
        for j in s.worker:
            self.tells(s, worker, j, self.tells_the_rest(worker, j, untold))
        self.has_answers(s, worker)
        self.loses_creator(s, worker, and_(ord_(other) == CREATOR, ~s.over[worker]))

    def loses_creator(self, s: S, worker: Expr, when: Any) -> None:
        self.releases(s, worker, when)

    def dies(self, s: S, worker: Expr) -> None:
        super().dies(s, worker)
        for j in s.worker:
            s.told[worker, j] = False
