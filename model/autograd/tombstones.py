"""Tombstones: how workers remember another worker's contexts that are over, and how they forget them.

The creator's ids rise, so most contexts that are over are below its low-water mark: the oldest open context, or the
next one if no context is open. CLEAN from the creator carries the mark; the contexts below it are over and need not be
remembered one by one. When the mark rises, the creator also sends it to workers that remember something above the old
mark. It does so even if no call has taken the context that it just left to them: otherwise they would remember it for
ever.

A worker accepts a mark only from the creator. A worker that is reached through another gets CLEAN from that other
worker, without a mark, and the creator has no record of it. So it sends KEPT to the creator: it remembers something.

torch remembers nothing. Abstractions: the workers are a chain, each called by the one before it; a context is taken to
each worker at most once.
"""

from __future__ import annotations

from typing import Any

from ..language import *
from .vocabulary import Edition, Record

S = SymbolicState


class Tombstones(System):
    """The contexts of one creator, and the records of the workers that it reaches."""

    title = "Tombstones"
    Edition = (Edition.TORCH, Edition.TRYSTATE)

    context = index(3, "in the order of their ids")
    peer = index(2, "the creator calls the first, and each calls the next")

    opened = integer(0, "context", doc="how many have begun")
    left = flag(per="context", doc="its creator has left it")
    told = integer(0, "context", per="peer", doc="1 + the last that the peer remembers, by the creator's record, or 0")
    known = flag(per=("peer", "context"), doc="the previous worker has called the peer in it")
    request = flag(per=("peer", "context"), doc="the call that carries it there is on its way")
    passed = flag(per=("peer", "context"), doc="CLEAN of it from the previous peer is on its way")
    clean = flag(per=("peer", "context"), doc="CLEAN of it from the creator is on its way")
    carried = integer(0, "context", per=("peer", "context"), doc="the mark that this CLEAN carries")
    kept = flag(per=("peer", "context"), doc="KEPT is on its way to the creator: this is the last that is remembered")

    has = flag(per=("peer", "context"), doc="the peer has it")
    buried = flag(per=("peer", "context"), doc="the peer remembers that it is over, above its mark")
    ended = flag(per=("peer", "context"), doc="the truth: the peer has received that it is over")
    mark = integer(0, "context", per="peer", doc="by the peer's records, all contexts below are over")

    def lifelines(self) -> Lifelines:
        """Each context has a lifeline, and the workers share the last one."""
        return Lifelines("workers")

    @machine(Record)
    def record(self, s: S, context: Expr) -> Any:
        """The last peer's record of a context."""
        last = self.sizes["peer"] - 1
        has = s.has[last, context]
        kept = ite(has, Record.HELD, ite(s.buried[last, context], Record.BURIED, Record.UNHEARD))
        return ite(~has & (ord_(context) < s.mark[last]), Record.BELOW, kept)

    # ---- the creator

    def low(self, s: S) -> Any:
        """The oldest open context, or the next one."""
        return count(all_(s.left[k] | (ord_(k) > ord_(j)) for k in s.context) for j in s.context)

    @transition(fair=False, cite="distributed-autograd-contexts 4.3.2: newContext")
    def begin(self, s: S) -> None:
        """A context begins."""
        s.when(s.opened < self.sizes["context"])
        s.opened = s.opened + 1

    def is_first(self, peer: Expr) -> Condition:
        return ord_(peer) == 0

    @transition(fair=False)
    def ask(self, s: S, peer: Expr, context: Expr) -> None:
        """The creator, or a peer that has the context, calls the next peer."""
        before = any_((ord_(j) + 1 == ord_(peer)) & s.has[j, context] for j in s.peer)
        move(s.known, False, True, (self.is_first(peer) & self.is_open(s, context)) | before, at=(peer, context))
        s.request[peer, context] = True

    def is_open(self, s: S, context: Expr) -> Condition:
        return (ord_(context) < s.opened) & ~s.left[context]

    def leaves(self, s: S, context: Expr) -> tuple[Any, Any]:
        """The creator leaves a context; returns the marks before and after it."""
        s.when(self.is_open(s, context))
        before = self.low(s)
        s.left[context] = True
        return before, self.low(s)

    def sends_clean_up(self, s: S, peer: Expr, context: Expr, when: Any) -> None:
        s.told[peer] = ite(when & (s.told[peer] <= ord_(context)), ord_(context) + 1, s.told[peer])
        s.clean[peer, context] = s.clean[peer, context] | when

    # ---- the peers

    @transition(moves=[arc(Record.UNHEARD, Record.HELD)], cite="distributed-autograd-contexts 5.2: getOrCreateContext")
    def take_request(self, s: S, peer: Expr, context: Expr) -> None:
        """The call arrives and brings the context, unless the context is over."""
        move(s.request, True, False, at=(peer, context))
        s.has[peer, context] = not_(self.is_over(s, peer, context))

    def is_over(self, s: S, peer: Expr, context: Expr) -> Condition:
        return s.buried[peer, context] | (ord_(context) < s.mark[peer])

    def releases(self, s: S, peer: Expr, context: Expr, when: Any) -> None:
        """The context is over: a peer that has it drops it and passes CLEAN on to the next."""
        for next_one in s.peer:
            goes_on = s.has[peer, context] & s.known[next_one, context] & (ord_(next_one) == ord_(peer) + 1)
            s.passed[next_one, context] = s.passed[next_one, context] | (when & goes_on)
        s.has[peer, context] = s.has[peer, context] & not_(when)
        s.ended[peer, context] = s.ended[peer, context] | when

    # ---- what must hold

    def is_quiet(self, s: S) -> Condition:
        ways = (s.request, s.passed, s.clean, s.kept)
        return ~any_(any_(way[p, j] for way in ways) for p in s.peer for j in s.context)

    def is_idle(self, s: S) -> Condition:
        return self.is_quiet(s) & ~any_(self.is_open(s, j) for j in s.context)

    def somewhere(self, s: S, *what: Any) -> Condition:
        """All these fields hold for one peer and one context."""
        return any_(all_(each[p, j] for each in what) for p in s.peer for j in s.context)

    @terminal
    def at_rest(self, s: S) -> Condition:
        """No context is open, and nothing is on its way."""
        return self.is_idle(s)

    @sometimes()
    def clean_up_comes_first(self, s: S) -> Condition:
        """CLEAN has overtaken the call."""
        return self.somewhere(s, s.ended, s.request)

    @always(witness="clean_up_comes_first")
    def released_is_for_good(self, s: S) -> Condition:
        """Where a context was released it never exists again."""
        return ~self.somewhere(s, s.has, s.ended)

    @always(witness="clean_up_comes_first")
    def after_exit_and_quiet_nobody_has_it(self, s: S) -> Condition:
        """When nothing is on its way, no peer has a context that its creator has left."""
        return implies(self.is_quiet(s), ~any_(s.has[p, j] & s.left[j] for p in s.peer for j in s.context))

    @always(witness="clean_up_comes_first")
    def what_is_open_is_not_over(self, s: S) -> Condition:
        """No peer has a record that an open context is over."""
        return ~any_(self.is_open(s, j) & self.is_over(s, p, j) for p in s.peer for j in s.context)

    @always(witness="clean_up_comes_first")
    def nothing_is_remembered_for_ever(self, s: S) -> Condition:
        """When no context is open and nothing is on its way, no peer remembers any context above its mark."""
        return implies(self.is_idle(s), ~self.somewhere(s, s.buried))


# ---- the editions


class Torch(Tombstones, edition=Edition.TORCH):
    """torch 2.13 remembers nothing."""

    @transition()
    def leave(self, s: S, context: Expr) -> None:
        """The creator leaves a context, and sends CLEAN to the first peer if it has called it there."""
        self.leaves(s, context)
        for p in s.peer:
            self.sends_clean_up(s, p, context, self.is_first(p) & s.known[p, context])

    @transition(moves=[arc(Record.HELD, Record.UNHEARD)], cite="container.cpp: releaseContextIfPresent")
    def take_clean_up(self, s: S, peer: Expr, context: Expr) -> None:
        """CLEAN arrives: the context is dropped."""
        s.when(s.clean[peer, context] | s.passed[peer, context])
        reset(s.clean, s.passed, at=(peer, context))
        self.releases(s, peer, context, True)


class Ours(Tombstones, edition=Edition.TRYSTATE):
    """Ours: the peers remember the contexts that are over, down to the creator's low-water mark."""

    @transition()
    def leave(self, s: S, context: Expr) -> None:
        """The creator leaves a context, and sends CLEAN to each peer that it called there or that lacks the mark."""
        before, mark = self.leaves(s, context)
        for p in s.peer:
            lags = (mark > before) & (s.told[p] > before)
            tells = (self.is_first(p) & s.known[p, context]) | self.tells_who_lags(p, lags)
            self.sends_mark(s, p, context, tells)

    def sends_mark(self, s: S, peer: Expr, context: Expr, when: Any) -> None:
        self.sends_clean_up(s, peer, context, when)
        s.carried[peer, context] = ite(when, self.low(s), s.carried[peer, context])

    def tells_who_lags(self, peer: Expr, lags: Any) -> Any:
        return lags

    @transition(
        moves=[
            arc((Record.UNHEARD, Record.HELD), Record.BURIED),
            arc((Record.UNHEARD, Record.HELD, Record.BURIED), Record.BELOW),
            arc((Record.UNHEARD, Record.HELD, Record.BURIED), Record.BELOW, of="others"),
        ],
    )
    def take_clean_up(self, s: S, peer: Expr, context: Expr) -> None:
        """CLEAN from the creator arrives: the context is over, and so are all contexts below the mark."""
        s.when(s.clean[peer, context])
        mark = self.read_mark(s, s.carried[peer, context])
        reset(s.clean, s.carried, at=(peer, context))
        self.buries(s, peer, context, mark)

    def buries(self, s: S, peer: Expr, context: Expr, mark: Any) -> None:
        """A context and all below the mark are over; the peer's own mark rises up to the first that is not."""
        for j in s.context:
            now = (ord_(j) == ord_(context)) | (ord_(j) < mark)
            self.releases(s, peer, j, now)
            s.buried[peer, j] = s.buried[peer, j] | now
        s.mark[peer] = count(all_(self.is_over(s, peer, k) | (ord_(k) > ord_(j)) for k in s.context) for j in s.context)
        for j in s.context:
            s.buried[peer, j] = s.buried[peer, j] & (ord_(j) >= s.mark[peer])

    def read_mark(self, s: S, carried: Any) -> Any:
        return carried

    @transition(
        moves=[
            arc(Record.HELD, (Record.BURIED, Record.BELOW)),
            arc(Record.BURIED, Record.BELOW, of="others"),
        ],
    )
    def take_passed_on(self, s: S, peer: Expr, context: Expr) -> None:
        """CLEAN from another peer arrives, after its call; with one more gap to remember, the peer sends KEPT."""
        move(s.passed, True, False, ~s.request[peer, context] | self.is_over(s, peer, context), at=(peer, context))
        before = self.ranges(s, peer)
        self.buries(s, peer, context, 0)
        more = self.tells_the_creator(self.ranges(s, peer) > before)
        for j in s.context:
            later = any_(self.is_over(s, peer, k) & (ord_(k) > ord_(j)) for k in s.context)
            s.kept[peer, j] = s.kept[peer, j] | (more & self.is_over(s, peer, j) & ~later)

    def ranges(self, s: S, peer: Expr) -> Any:
        """The number of ranges of contexts that are over in the peer's records."""
        return count(
            self.is_over(s, peer, j) & ~any_(self.is_over(s, peer, k) & (ord_(k) + 1 == ord_(j)) for k in s.context)
            for j in s.context
        )

    def tells_the_creator(self, more: Any) -> Any:
        return more

    @transition()
    def take_kept(self, s: S, peer: Expr, context: Expr) -> None:
        """KEPT arrives: the creator sends the mark at once if it is above the peer's records, or otherwise later."""
        move(s.kept, True, False, at=(peer, context))
        s.told[peer] = ite(s.told[peer] <= ord_(context), ord_(context) + 1, s.told[peer])
        self.sends_mark(s, peer, context, self.low(s) > ord_(context))

    @sometimes()
    def something_is_remembered(self, s: S) -> Condition:
        """A peer remembers a context that is over, and an older one is not."""
        return self.somewhere(s, s.buried)
