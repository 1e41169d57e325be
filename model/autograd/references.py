"""A value that other workers hold references to: its owner keeps it as long as anybody does, and then forgets it.

Theory of operation. Worker 0 owns the value. The owner's program makes it, or a call of a user does: that user has the
first handle as soon as it sends the call, and may pass it on at once. So the owner may be sent references to a value
that is still to be made; it keeps a place for the value until the call comes. Each handle elsewhere is a fork, which
the owner knows by its id. A handle that the owner passes is known to it before it is sent. A user that passes its
handle on keeps its own until the receiver has told the owner (FORKED), has heard that it knows (KNOWN), and has told
the one that passed it (ACCEPTED): so that the owner always knows one of the two. A handle that is let go ends with
DELETED to the owner. Notices of two workers arrive in order; those of three have no order, and may be late as long as
they like.

When a user dies, the owner ends its forks, and the others their keeping for it. A handle that it had passed on may
then reach the owner too late: its holder is told that there is no value (FAILED). A handle that was confirmed is never
without one while the owner lives. When the owner dies its values are lost: a user that notices it knows whether its
handle was confirmed, and takes one that it does not know of, or that comes later from another user, for FAILED.

Abstractions: one value; a worker has one handle at a time, and gets another when all is quiet about the first; a user
does not die before the owner has received the call that makes the value.
"""

from __future__ import annotations

from typing import Any

from ..language import *
from .vocabulary import Edition, Handle, News

S = SymbolicState
Condition = Any  # an Expr: the attributes of a symbolic state are typed as Any
H, N = Handle, News
HAS = (H.HELD, H.CONFIRMED, H.FAILED)
GOOD = (H.PASSED, H.HELD, H.CONFIRMED)
CITE = "rref.rst: Protocol Scenarios"


class References(System):
    """One owner, worker 0, and users that pass a reference to its value among them and back to it."""

    title = "References to a remote value"
    Edition = (Edition.TRYSTATE,)

    worker = index(3, "0 is the owner")

    asked = flag(doc="the owner's program has begun with the value, or a user has sent the call that makes it")
    made = flag(doc="there is a value: the owner's program, or the call that the owner has received, has made it")
    let_go = flag(doc="the owner's program does not hold the value")
    gone = flag(doc="the owner has forgotten the value")
    known = flag(per="worker", doc="the owner knows a fork of this worker")

    handle = choice(Handle, per="worker")
    parent = integer(0, "worker", per="worker", doc="1 + the worker that passed the handle, or 0")
    wanted = flag(per="worker", doc="the worker's program holds the handle")
    keeps = flag(per=("worker", "worker"), doc="the first keeps its handle until the second's is known")
    news = choice(News, per="worker")
    deleted = flag(per="worker", doc="DELETED is on its way to the owner")

    dead = flag(per="worker")
    noticed = flag(per=("worker", "worker"), doc="the first has noticed that the second is lost")

    def lifelines(self) -> Lifelines:
        """The value, and what is known of forks, is at the owner."""
        at = ("asked", "made", "let_go", "gone", "known", "make", "owner_lets_go", "register", "forget")
        return Lifelines(places=dict.fromkeys(at, 0))

    @machine(Handle, each="worker")
    def handle_state(self, s: S, worker: Expr) -> Any:
        """A worker's handle."""
        return s.handle[worker]

    @machine(News, each="worker")
    def news_state(self, s: S, worker: Expr) -> Any:
        """The notices about a worker's fork."""
        return s.news[worker]

    # ---- helpers

    def is_owner(self, worker: Expr) -> Condition:
        return ord_(worker) == 0

    def is_parent(self, s: S, parent: Expr, worker: Expr) -> Condition:
        """It has passed the worker its handle."""
        return s.parent[worker] == ord_(parent) + 1

    def is_quiet(self, s: S, worker: Expr) -> Condition:
        """Nothing of a handle of this worker is left anywhere."""
        kept = any_(s.keeps[p, worker] for p in s.worker)
        return (s.handle[worker] == H.NONE) & (s.news[worker] == N.NONE) & ~s.deleted[worker] & ~s.known[worker] & ~kept

    def collects(self, s: S) -> None:
        """Without a holder the owner forgets the value."""
        s.gone = s.gone | (s.made & s.let_go & ~any_(s.known))

    # ---- to make the value

    @transition(fair=False, cite=CITE)
    def make(self, s: S) -> None:
        """The owner's program makes the value."""
        s.when(~s.asked, self.lives(s))
        s.asked = True
        s.made = True

    @transition(
        each="worker",
        fair=False,
        moves=[arc(H.NONE, H.HELD), arc(N.NONE, N.FORKED)],
        cite=CITE + ": user shares with owner as return value",
    )
    def have_it_made(self, s: S, worker: Expr) -> None:
        """A user sends the call that makes the value, and has a handle: the call is the notice of its fork."""
        s.when(~s.asked, ~self.is_owner(worker), ~s.dead[worker], ~self.knows_the_loss(s, worker))
        s.asked = True
        s.let_go = True
        s.handle[worker] = H.HELD
        s.wanted[worker] = True
        s.news[worker] = N.FORKED

    def makes(self, s: S, worker: Expr) -> Condition:
        """The notice of this worker's fork is the call that makes the value."""
        return ~s.made & (s.parent[worker] == 0)

    # ---- to pass a handle

    @transition(each="worker", fair=False, moves=[arc(H.NONE, H.PASSED)], cite=CITE + ": owner shares with user")
    def pass_from_owner(self, s: S, worker: Expr) -> None:
        """The owner passes a handle: it knows the fork before."""
        s.when(s.asked, ~s.let_go, ~self.is_owner(worker), ~s.dead[worker], self.is_quiet(s, worker))
        s.handle[worker] = H.PASSED
        s.parent[worker] = 1
        s.known[worker] = True

    @transition(
        each=("worker", "worker"),
        fair=False,
        moves=[arc(H.NONE, H.PASSED)],
        cite=CITE + ": user shares with user, user shares with owner",
    )
    def pass_on(self, s: S, worker: Expr, to: Expr) -> None:
        """A user passes its handle on, to the owner too, and keeps its own until that one is known."""
        s.when(worker != to, ~self.is_owner(worker), s.wanted[worker], s.handle[worker].isin((H.HELD, H.CONFIRMED)))
        s.when(~s.dead[to], self.is_quiet(s, to))
        s.handle[to] = H.PASSED
        s.parent[to] = ord_(worker) + 1
        s.keeps[worker, to] = self.keeps_its_own()

    def keeps_its_own(self) -> bool:
        return True

    @transition(
        each="worker",
        moves=[
            arc(H.PASSED, H.HELD), arc(H.PASSED, H.CONFIRMED), arc(H.PASSED, H.NONE), may(H.PASSED, H.FAILED),
            arc(N.NONE, N.FORKED), arc(N.NONE, N.ACCEPTED),
        ],
        cite=CITE,
    )  # fmt: skip
    def take(self, s: S, worker: Expr) -> None:
        """The handle arrives. The owner has its value again; a user tells the owner of a fork that it does not know."""
        s.when(s.handle[worker] == H.PASSED, ~s.dead[worker])
        home, lost = self.is_owner(worker), self.knows_the_loss(s, worker)
        from_owner = s.parent[worker] == 1
        s.handle[worker] = ite(home, H.NONE, ite(from_owner, H.CONFIRMED, ite(lost, H.FAILED, H.HELD)))
        s.news[worker] = ite(home, N.ACCEPTED, ite(from_owner, N.NONE, ite(lost, N.ACCEPTED, N.FORKED)))
        s.wanted[worker] = ~home
        s.let_go = s.let_go & (~home | s.gone)

    def knows_the_loss(self, s: S, worker: Expr) -> Condition:
        """Has the worker noticed that the owner is lost? Nothing is sent there then."""
        return any_(self.is_owner(j) & s.noticed[worker, j] for j in s.worker)

    def lives(self, s: S) -> Condition:
        """The owner lives."""
        return ~any_(self.is_owner(j) & s.dead[j] for j in s.worker)

    # ---- the notices

    @transition(each="worker", moves=[arc(N.FORKED, N.KNOWN), arc(N.FORKED, N.GONE)], cite=CITE)
    def register(self, s: S, worker: Expr) -> None:
        """FORKED, or the call that makes the value, arrives: the owner knows the fork, or answers GONE."""
        s.when(s.news[worker] == N.FORKED, ~s.dead[worker], self.lives(s))
        s.made = s.made | self.makes(s, worker)
        s.known[worker] = self.has_value(s)
        s.news[worker] = ite(self.has_value(s), N.KNOWN, N.GONE)

    def has_value(self, s: S) -> Condition:
        return ~s.gone

    @transition(
        each="worker",
        moves=[
            arc(H.HELD, H.CONFIRMED), arc(H.HELD, H.FAILED), arc(N.KNOWN, N.ACCEPTED), arc(N.GONE, N.ACCEPTED),
            may((N.KNOWN, N.GONE), N.NONE),
        ],
        cite=CITE,
    )  # fmt: skip
    def hear(self, s: S, worker: Expr) -> None:
        """The owner's answer arrives, and the worker tells the one that passed the handle, if another did."""
        s.when(s.news[worker].isin((N.KNOWN, N.GONE)))
        s.handle[worker] = ite(s.news[worker] == N.KNOWN, H.CONFIRMED, H.FAILED)
        lost = any_(s.noticed[worker, p] & self.is_parent(s, p, worker) for p in s.worker)
        s.news[worker] = ite(lost | (s.parent[worker] == 0), N.NONE, N.ACCEPTED)

    @transition(each="worker", moves=[arc(N.ACCEPTED, N.NONE)], cite=CITE)
    def accept(self, s: S, worker: Expr) -> None:
        """ACCEPTED arrives: the one that passed the handle need not keep its own."""
        s.when(s.news[worker] == N.ACCEPTED)
        s.news[worker] = N.NONE
        for p in s.worker:
            s.keeps[p, worker] = s.keeps[p, worker] & ~self.is_parent(s, p, worker)

    # ---- the end of a handle

    @transition(each="worker", fair=False)
    def drop(self, s: S, worker: Expr) -> None:
        """A program lets go of its handle."""
        s.when(s.wanted[worker])
        s.wanted[worker] = False

    @transition(each="worker", moves=[arc((H.CONFIRMED, H.FAILED), H.NONE)], cite=CITE)
    def end(self, s: S, worker: Expr) -> None:
        """Nothing keeps the handle: DELETED goes to the owner."""
        s.when(s.handle[worker].isin(HAS), ~s.wanted[worker], self.may_end(s, worker))
        s.handle[worker] = H.NONE
        s.deleted[worker] = ~self.knows_the_loss(s, worker)

    def may_end(self, s: S, worker: Expr) -> Condition:
        """No handle that it has passed on is unknown to the owner, and its own is known or failed."""
        waits = s.news[worker].isin((N.FORKED, N.KNOWN, N.GONE))
        return ~any_(s.keeps[worker, k] for k in s.worker) & ~waits

    @transition(each="worker", cite=CITE)
    def forget(self, s: S, worker: Expr) -> None:
        """DELETED arrives."""
        s.when(s.deleted[worker], self.lives(s))
        s.deleted[worker] = False
        s.known[worker] = False
        self.collects(s)

    @transition(fair=False)
    def owner_lets_go(self, s: S) -> None:
        """The owner's program lets go of the value."""
        s.when(s.asked, ~s.let_go)
        s.let_go = True
        self.collects(s)

    # ---- workers that die

    @fault(
        "crash",
        each="worker",
        moves=[may((H.PASSED, *HAS), H.NONE), may((N.FORKED, N.KNOWN, N.GONE, N.ACCEPTED), N.NONE)],
    )
    def crash(self, s: S, worker: Expr) -> None:
        """A user dies, with its handles and notices. A handle that it has passed may still arrive."""
        s.when(~self.is_owner(worker), ~s.dead[worker], ~((s.news[worker] == N.FORKED) & self.makes(s, worker)))
        self.dies(s, worker)

    @fault("owner_crash", each="worker", moves=[may(H.PASSED, H.NONE), may(N.ACCEPTED, N.NONE)])
    def owner_crashes(self, s: S, worker: Expr) -> None:
        """The owner dies, with the value. A handle that it has passed, and an answer, may still arrive."""
        s.when(self.is_owner(worker), ~s.dead[worker])
        self.dies(s, worker)
        s.asked = True
        s.let_go = True
        s.gone = True
        for k in s.worker:
            s.known[k] = False

    def dies(self, s: S, worker: Expr) -> None:
        s.dead[worker] = True
        s.handle[worker] = H.NONE
        s.wanted[worker] = False
        s.news[worker] = N.NONE
        s.deleted[worker] = False
        for k in s.worker:
            s.keeps[worker, k] = False

    @environment(
        each=("worker", "worker"),
        fair=True,
        moves=[
            may(H.PASSED, H.NONE), may(H.HELD, H.FAILED), may(N.ACCEPTED, N.NONE),
            may((N.FORKED, N.KNOWN, N.GONE), N.ACCEPTED), may((N.FORKED, N.KNOWN, N.GONE), N.NONE),
        ],
    )  # fmt: skip
    def notice(self, s: S, worker: Expr, lost: Expr) -> None:
        """A worker notices that another is lost: its forks end, and what it has sent comes no more."""
        s.when(s.dead[lost], ~s.dead[worker], ~s.noticed[worker, lost])
        s.noticed[worker, lost] = True
        self.hears_of_the_owner(s, worker, self.is_owner(lost))
        s.keeps[worker, lost] = False
        by_lost = self.is_parent(s, lost, worker)
        s.handle[worker] = ite((s.handle[worker] == H.PASSED) & by_lost, H.NONE, s.handle[worker])
        s.news[worker] = ite((s.news[worker] == N.ACCEPTED) & by_lost, N.NONE, s.news[worker])
        s.known[lost] = s.known[lost] & ~self.ends_forks(worker)
        self.collects(s)

    def hears_of_the_owner(self, s: S, worker: Expr, when: Any) -> None:
        """The owner is lost: a handle that waits for its answer has no value, and DELETED does not arrive."""
        waits = when & s.news[worker].isin((N.FORKED, N.KNOWN, N.GONE))
        lost = any_(s.noticed[worker, p] & self.is_parent(s, p, worker) for p in s.worker)
        alone = lost | (s.parent[worker] == 0)
        s.handle[worker] = ite(waits, H.FAILED, s.handle[worker])
        s.news[worker] = ite(waits, ite(alone, N.NONE, N.ACCEPTED), s.news[worker])
        s.deleted[worker] = s.deleted[worker] & ~when

    def ends_forks(self, worker: Expr) -> Condition:
        return self.is_owner(worker)

    # ---- what must hold

    def is_over(self, s: S) -> Condition:
        """No program holds it, and no handle is on its way."""
        return s.asked & s.let_go & ~any_(s.wanted) & ~any_(x == H.PASSED for x in s.handle)

    @terminal
    def at_rest(self, s: S) -> Condition:
        """No notice is on its way; programs may hold handles for as long as they like."""
        return all_((s.news[j] == N.NONE) & ~s.deleted[j] & (s.handle[j] != H.PASSED) for j in s.worker)

    @sometimes()
    def a_handle_is_passed_on_before_it_is_known(self, s: S) -> Condition:
        """A user has passed on a handle that the owner does not know yet, and nobody else holds the value."""
        unknown = any_((s.handle[j] == H.HELD) & any_(s.keeps[j, k] for k in s.worker) for j in s.worker)
        return unknown & s.let_go

    @sometimes()
    def a_handle_comes_before_the_value(self, s: S) -> Condition:
        """The owner knows a fork of a value that is still to be made."""
        return ~s.made & any_(s.known)

    @sometimes()
    def it_is_gone(self, s: S) -> Condition:
        """The owner has forgotten the value."""
        return s.gone

    @sometimes(needs="crash")
    def somebody_is_told_that_it_is_gone(self, s: S) -> Condition:
        """A handle has no value, because the worker that passed it died: this is not prevented."""
        return any_(x == H.FAILED for x in s.handle)

    @sometimes(needs="owner_crash")
    def a_handle_outlives_the_owner(self, s: S) -> Condition:
        """A worker knows that the owner is lost, and has a handle that was confirmed: its use raises PeerLost."""
        return any_((s.handle[j] == H.CONFIRMED) & self.knows_the_loss(s, j) for j in s.worker)

    @always(witness="a_handle_is_passed_on_before_it_is_known", cite=CITE)
    def the_confirmed_have_a_value(self, s: S) -> Condition:
        """While a worker has a handle that the owner knows, the owner has the value, unless it has died."""
        return implies(s.gone & any_(x == H.CONFIRMED for x in s.handle), ~self.lives(s))

    @always(witness="a_handle_outlives_the_owner", needs="owner_crash")
    def nobody_waits_for_an_owner_that_is_lost(self, s: S) -> Condition:
        """A worker that knows that the owner is lost has no handle whose state it is yet to learn."""
        return ~any_((s.handle[j] == H.HELD) & self.knows_the_loss(s, j) for j in s.worker)

    @always(witness="a_handle_is_passed_on_before_it_is_known")
    def all_have_a_value_if_nobody_died(self, s: S) -> Condition:
        """While any handle is held or on its way, the owner has the value, if no worker died."""
        return implies(s.gone & any_(x.isin(GOOD) for x in s.handle), any_(s.dead))

    @always(witness="a_handle_comes_before_the_value")
    def no_handle_fails_if_nobody_died(self, s: S) -> Condition:
        """The owner refuses no handle while all workers live, also if the call that makes the value comes later."""
        return implies(any_(x == H.FAILED for x in s.handle), any_(s.dead))

    @always(witness="it_is_gone", cite=CITE)
    def nothing_is_left(self, s: S) -> Condition:
        """When it is over and no notice is on its way, no worker keeps anything of it."""
        quiet = all_((s.news[j] == N.NONE) & ~s.deleted[j] & ~s.handle[j].isin(HAS) for j in s.worker)
        noticed = all_(s.noticed[0, j] | ~s.dead[j] for j in s.worker)
        return implies(self.is_over(s) & quiet & noticed, s.gone)

    @leads_to(cite=CITE)
    def it_is_forgotten(self, s: S) -> tuple[Condition, Condition]:
        """When no program holds it, the owner comes to forget it."""
        return self.is_over(s), s.gone

    @leads_to(each="worker", cite=CITE)
    def a_handle_is_confirmed_or_fails(self, s: S, worker: Expr) -> tuple[Condition, Condition]:
        """A worker comes to know whether its handle has a value."""
        return s.handle[worker] == H.HELD, s.handle[worker] != H.HELD

    @leads_to(each=("worker", "worker"), cite=CITE)
    def nobody_keeps_a_handle_for_ever(self, s: S, worker: Expr, to: Expr) -> tuple[Condition, Condition]:
        """A handle is not kept for another for ever."""
        return s.keeps[worker, to], ~s.keeps[worker, to]


class Ours(References, edition=Edition.TRYSTATE):
    """Ours: torch's protocol, over connections that keep their order and whose loss is noticed."""
