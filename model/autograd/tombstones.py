"""A worker's memory of another's contexts that are over, and how it comes to forget them.

The creator's ids rise, so that most contexts that are over lie below its low-water mark: the oldest context that is
open, or the next one if none is. CLEAN carries the mark; the contexts below it are over, and need not be remembered one
by one. When the mark rises, the creator also tells those that remember something above the old one, although they may
never have heard of the context that it just left: else they would remember it for ever.

torch remembers nothing. Abstractions: two workers; a context is taken to the other at most once.
"""

from __future__ import annotations

from typing import Any

from ..language import (
    Expr,
    SymbolicState,
    System,
    all_,
    always,
    any_,
    arc,
    count,
    flag,
    implies,
    index,
    integer,
    ite,
    machine,
    not_,
    ord_,
    sometimes,
    terminal,
    transition,
)
from ..language.lifelines import Lifelines
from .vocabulary import Edition, Record

S = SymbolicState
Condition = Any  # an Expr: the attributes of a symbolic state are typed as Any


class Tombstones(System):
    """The contexts of one creator, and what one peer keeps of them."""

    title = "Tombstones"
    Edition = (Edition.TORCH, Edition.TRYSTATE)

    context = index(3, "in the order of their ids")

    opened = integer(0, "context", doc="how many have begun")
    left = flag(per="context", doc="its creator has left it")
    told = flag(per="context", doc="the creator has sent CLEAN of it to the peer")
    known = flag(per="context", doc="the creator has taken it to the peer")
    request = flag(per="context", doc="the call that takes it there is on its way")
    clean = flag(per="context", doc="CLEAN of it is on its way")
    carried = integer(0, "context", per="context", doc="... with this mark")

    has = flag(per="context", doc="the peer has it")
    buried = flag(per="context", doc="the peer remembers that it is over")
    ended = flag(per="context", doc="the truth: the peer was told that it is over")
    mark = integer(0, "context", doc="the creator's low-water mark, as the peer knows it")

    def lifelines(self) -> Lifelines:
        """Each context has a lifeline, and the two workers the last one."""
        return Lifelines("workers")

    @machine(Record, each="context")
    def record(self, s: S, context: Expr) -> Any:
        """The peer's record of a context."""
        kept = ite(s.has[context], Record.HELD, ite(s.buried[context], Record.BURIED, Record.UNHEARD))
        return ite(~s.has[context] & (ord_(context) < s.mark), Record.BELOW, kept)

    # ---- the creator

    def low(self, s: S) -> Any:
        """The oldest context that is open, or the next one."""
        return count(all_(s.left[k] | (ord_(k) > ord_(j)) for k in s.context) for j in s.context)

    @transition(fair=False, cite="distributed-autograd-contexts 4.3.2: newContext")
    def begin(self, s: S) -> None:
        """A context begins."""
        s.when(s.opened < self.sizes["context"])
        s.opened = s.opened + 1

    @transition(each="context", fair=False)
    def ask(self, s: S, context: Expr) -> None:
        """A call takes it to the peer."""
        s.when(self.is_open(s, context), ~s.known[context])
        s.known[context] = True
        s.request[context] = True

    def is_open(self, s: S, context: Expr) -> Condition:
        return (ord_(context) < s.opened) & ~s.left[context]

    def leaves(self, s: S, context: Expr) -> tuple[Any, Any]:
        """The creator leaves a context: the mark after it, and whether a peer lags behind that mark."""
        s.when(self.is_open(s, context))
        before = self.low(s)
        s.left[context] = True
        after = self.low(s)
        return after, (after > before) & any_(s.told[j] & (ord_(j) >= before) for j in s.context)

    def sends_clean_up(self, s: S, context: Expr, when: Any) -> None:
        s.told[context] = when
        s.clean[context] = when

    # ---- the peer

    @transition(
        each="context",
        moves=[arc(Record.UNHEARD, Record.HELD)],
        cite="distributed-autograd-contexts 5.2: getOrCreateContext",
    )
    def take_request(self, s: S, context: Expr) -> None:
        """The call arrives; a context that is over does not come back."""
        s.when(s.request[context])
        s.request[context] = False
        s.has[context] = not_(self.is_over(s, context))

    def is_over(self, s: S, context: Expr) -> Condition:
        return s.buried[context] | (ord_(context) < s.mark)

    def takes_clean_up(self, s: S, context: Expr) -> None:
        """CLEAN arrives: the context is over."""
        s.when(s.clean[context])
        s.clean[context] = False
        s.carried[context] = 0
        s.has[context] = False
        s.ended[context] = True

    # ---- what must hold

    def is_quiet(self, s: S) -> Condition:
        return ~any_(s.request[j] | s.clean[j] for j in s.context)

    def is_idle(self, s: S) -> Condition:
        return self.is_quiet(s) & ~any_(self.is_open(s, j) for j in s.context)

    @terminal
    def at_rest(self, s: S) -> Condition:
        """No context is open, and nothing is on its way."""
        return self.is_idle(s)

    @sometimes()
    def clean_up_comes_first(self, s: S) -> Condition:
        """CLEAN has overtaken the call."""
        return any_(s.ended[j] & s.request[j] for j in s.context)

    @always(witness="clean_up_comes_first")
    def released_is_for_good(self, s: S) -> Condition:
        """Where a context was released it never exists again."""
        return ~any_(s.has[j] & s.ended[j] for j in s.context)

    @always(witness="clean_up_comes_first")
    def after_exit_and_quiet_nobody_has_it(self, s: S) -> Condition:
        """When nothing is on its way, the peer has no context that its creator has left."""
        return implies(self.is_quiet(s), ~any_(s.has[j] & s.left[j] for j in s.context))

    @always(witness="clean_up_comes_first")
    def what_is_open_is_not_over(self, s: S) -> Condition:
        """The peer takes no context for over that is open."""
        return ~any_(self.is_open(s, j) & self.is_over(s, j) for j in s.context)

    @always(witness="clean_up_comes_first")
    def nothing_is_remembered_for_ever(self, s: S) -> Condition:
        """When no context is open, and nothing is on its way, the peer remembers none of them."""
        return implies(self.is_idle(s), ~any_(s.buried[j] for j in s.context))


# ---- the editions


class Torch(Tombstones, edition=Edition.TORCH):
    """torch 2.13 remembers nothing."""

    @transition(each="context")
    def leave(self, s: S, context: Expr) -> None:
        """The creator leaves it, and tells the peer if that knows it."""
        self.leaves(s, context)
        self.sends_clean_up(s, context, s.known[context])

    @transition(each="context", moves=[arc(Record.HELD, Record.UNHEARD)], cite="container.cpp: releaseContextIfPresent")
    def take_clean_up(self, s: S, context: Expr) -> None:
        """CLEAN arrives: the context is dropped."""
        self.takes_clean_up(s, context)


class Ours(Tombstones, edition=Edition.TRYSTATE):
    """Ours: the peer remembers what is over, down to the creator's low-water mark."""

    @transition(each="context")
    def leave(self, s: S, context: Expr) -> None:
        """The creator leaves it, and tells each peer that knows it or lags behind the mark."""
        mark, behind = self.leaves(s, context)
        tells = s.known[context] | self.tells_who_lags(behind)
        self.sends_clean_up(s, context, tells)
        s.carried[context] = ite(tells, mark, 0)

    def tells_who_lags(self, behind: Any) -> Any:
        return behind

    @transition(
        each="context",
        moves=[
            arc((Record.UNHEARD, Record.HELD), Record.BURIED),
            arc((Record.UNHEARD, Record.HELD), Record.BELOW),
            arc((Record.UNHEARD, Record.HELD, Record.BURIED), Record.BELOW, of="others"),
        ],
    )
    def take_clean_up(self, s: S, context: Expr) -> None:
        """CLEAN arrives: the context is over, and so is all that is below the mark."""
        mark = self.read_mark(s, s.carried[context])
        self.takes_clean_up(s, context)
        s.buried[context] = True
        s.mark = ite(mark > s.mark, mark, s.mark)
        for j in s.context:
            below = ord_(j) < s.mark
            s.has[j] = s.has[j] & ~below
            s.buried[j] = s.buried[j] & ~below
            s.ended[j] = s.ended[j] | below

    def read_mark(self, s: S, carried: Any) -> Any:
        return carried

    @sometimes()
    def something_is_remembered(self, s: S) -> Condition:
        """A context is over, and an older one is not."""
        return any_(s.buried[j] for j in s.context)
