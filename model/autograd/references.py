"""A value that other workers hold references to: its owner keeps it as long as any worker does, and then forgets it.

Theory of operation. Worker 0 owns the value. The owner's program makes it, or a call of a user does. In the second
case, that user has the first handle as soon as it sends the call, and may pass it on at once. So the owner may receive
references to a value that is not made yet; it keeps a place for the value until the call arrives. Each handle elsewhere
is a fork, which the owner records by its id. The owner records a handle that it passes before it sends it. A user that
passes its handle on keeps its own until the receiver sends it ACCEPTED. Before, the receiver sends FORKED to the owner
and receives KNOWN from it. So the owner always has a record of one of the two. When a handle is dropped, DELETED goes
to the owner. Notices between two workers arrive in order; notices among three have no order, and any delay is possible.

When a user dies, the owner ends its forks, and the others stop keeping handles for it. A handle that it had passed on
may then be registered too late: its holder receives GONE, and the handle has no value (FAILED). A confirmed handle
always has a value while the owner lives. When the owner dies, its values are lost. A user that notices this has a
record of whether its handle was confirmed. A handle that was not, or that arrives later from another user, is FAILED.

Abstractions: one value; a worker has one handle at a time, and gets another only when nothing of the first is left; a
user does not die before the owner has received the call that makes the value.
"""

from __future__ import annotations

from typing import Any

from ..language import *
from .vocabulary import Edition, Handle, News

S = SymbolicState
HAS = (Handle.HELD, Handle.CONFIRMED, Handle.FAILED)
GOOD = (Handle.PASSED, Handle.HELD, Handle.CONFIRMED)
CITE = "rref.rst: Protocol Scenarios"


class References(System):
    """One owner, worker 0, and users that pass a reference to its value among themselves and back to the owner."""

    title = "References to a remote value"
    Edition = (Edition.TRYSTATE,)

    worker = index(3, "0 is the owner")

    asked = flag(doc="the owner's program has made the value, or a user has sent the call that makes it")
    made = flag(doc="the value exists: the owner's program or a call from a user has made it")
    let_go = flag(doc="the owner's program does not hold the value")
    gone = flag(doc="the owner has forgotten the value")
    known = flag(per="worker", doc="the owner has a record of this worker's fork")

    handle = choice(Handle, per="worker")
    parent = integer(0, "worker", per="worker", doc="1 + the worker that passed the handle, or 0")
    wanted = flag(per="worker", doc="the worker's program holds the handle")
    keeps = flag(per=("worker", "worker"), doc="the first keeps its handle until the owner has recorded the second's")
    news = choice(News, per="worker")
    deleted = flag(per="worker", doc="DELETED is on its way to the owner")

    dead = flag(per="worker")
    noticed = flag(per=("worker", "worker"), doc="the first has noticed that the second is lost")

    def lifelines(self) -> Lifelines:
        """The value and the records of forks are at the owner."""
        at = ("asked", "made", "let_go", "gone", "known", "make", "owner_lets_go", "register", "forget")
        return Lifelines(places=dict.fromkeys(at, 0))

    handle_state = machine_of(handle, "A worker's handle.")
    news_state = machine_of(news, "The notices about a worker's fork.")

    # ---- helpers

    def is_owner(self, worker: Expr) -> Condition:
        return ord_(worker) == 0

    def is_parent(self, s: S, parent: Expr, worker: Expr) -> Condition:
        """The parent has passed the worker its handle."""
        return s.parent[worker] == ord_(parent) + 1

    def is_quiet(self, s: S, worker: Expr) -> Condition:
        """Nothing of a handle of this worker is left anywhere."""
        kept = any_(s.keeps[p, worker] for p in s.worker)
        return (
            (s.handle[worker] == Handle.NONE)
            & (s.news[worker] == News.NONE)
            & ~s.deleted[worker]
            & ~s.known[worker]
            & ~kept
        )

    def collects(self, s: S) -> None:
        """The owner forgets the value if no worker holds it."""
        s.gone = s.gone | (s.made & s.let_go & ~any_(s.known))

    # ---- to make the value

    @transition(fair=False, cite=CITE)
    def make(self, s: S) -> None:
        """The owner's program makes the value."""
        s.when(~s.asked, self.lives(s))
        s.asked = True
        s.made = True

    @transition(
        fair=False,
        moves=[arc(Handle.NONE, Handle.HELD), arc(News.NONE, News.FORKED)],
        cite=CITE + ": user shares with owner as return value",
    )
    def have_it_made(self, s: S, worker: Expr) -> None:
        """A user sends the call that makes the value and has a handle: the call is the notice of its fork."""
        s.when(~s.asked, ~self.is_owner(worker), ~s.dead[worker], ~self.knows_the_loss(s, worker))
        s.asked = True
        s.let_go = True
        s.handle[worker] = Handle.HELD
        s.wanted[worker] = True
        s.news[worker] = News.FORKED

    def makes(self, s: S, worker: Expr) -> Condition:
        """The notice of this worker's fork is the call that makes the value."""
        return ~s.made & (s.parent[worker] == 0)

    # ---- to pass a handle

    @transition(fair=False, moves=[arc(Handle.NONE, Handle.PASSED)], cite=CITE + ": owner shares with user")
    def pass_from_owner(self, s: S, worker: Expr) -> None:
        """The owner passes a handle, after it has recorded the fork."""
        s.when(s.asked, ~s.let_go, ~self.is_owner(worker), ~s.dead[worker], self.is_quiet(s, worker))
        s.handle[worker] = Handle.PASSED
        s.parent[worker] = 1
        s.known[worker] = True

    @transition(
        each=("worker", "worker"),
        fair=False,
        moves=[arc(Handle.NONE, Handle.PASSED)],
        cite=CITE + ": user shares with user, user shares with owner",
    )
    def pass_on(self, s: S, worker: Expr, to: Expr) -> None:
        """A user passes its handle to another worker or to the owner, and keeps its own until the new one is known."""
        s.when(
            worker != to,
            ~self.is_owner(worker),
            s.wanted[worker],
            s.handle[worker].isin((Handle.HELD, Handle.CONFIRMED)),
        )
        s.when(~s.dead[to], self.is_quiet(s, to))
        s.handle[to] = Handle.PASSED
        s.parent[to] = ord_(worker) + 1
        s.keeps[worker, to] = self.keeps_its_own()

    def keeps_its_own(self) -> bool:
        return True

    @transition(
        moves=[
            arc(Handle.PASSED, (Handle.HELD, Handle.CONFIRMED, Handle.NONE)),
            may(Handle.PASSED, Handle.FAILED), arc(News.NONE, (News.FORKED, News.ACCEPTED)),
        ],
        cite=CITE,
    )  # fmt: skip
    def take(self, s: S, worker: Expr) -> None:
        """The handle arrives. The owner holds its value again; a user sends FORKED if the owner has no record of it."""
        s.when(s.handle[worker] == Handle.PASSED, ~s.dead[worker])
        home, lost = self.is_owner(worker), self.knows_the_loss(s, worker)
        from_owner = s.parent[worker] == 1
        s.handle[worker] = ite(
            home, Handle.NONE, ite(from_owner, Handle.CONFIRMED, ite(lost, Handle.FAILED, Handle.HELD))
        )
        s.news[worker] = ite(home, News.ACCEPTED, ite(from_owner, News.NONE, ite(lost, News.ACCEPTED, News.FORKED)))
        s.wanted[worker] = ~home
        s.let_go = s.let_go & (~home | s.gone)

    def knows_the_loss(self, s: S, worker: Expr) -> Condition:
        """Has the worker noticed that the owner is lost? Then it sends nothing there."""
        return any_(self.is_owner(j) & s.noticed[worker, j] for j in s.worker)

    def lives(self, s: S) -> Condition:
        """The owner lives."""
        return ~any_(self.is_owner(j) & s.dead[j] for j in s.worker)

    # ---- the notices

    @transition(moves=[arc(News.FORKED, (News.KNOWN, News.GONE))], cite=CITE)
    def register(self, s: S, worker: Expr) -> None:
        """FORKED, or the call that makes the value, arrives: the owner records the fork, or answers GONE."""
        s.when(s.news[worker] == News.FORKED, ~s.dead[worker], self.lives(s))
        s.made = s.made | self.makes(s, worker)
        s.known[worker] = self.has_value(s)
        s.news[worker] = ite(self.has_value(s), News.KNOWN, News.GONE)

    def has_value(self, s: S) -> Condition:
        return ~s.gone

    @transition(
        moves=[
            arc(Handle.HELD, (Handle.CONFIRMED, Handle.FAILED)), arc(News.KNOWN, News.ACCEPTED),
            arc(News.GONE, News.ACCEPTED), may((News.KNOWN, News.GONE), News.NONE),
        ],
        cite=CITE,
    )  # fmt: skip
    def hear(self, s: S, worker: Expr) -> None:
        """The owner's answer arrives; the worker sends ACCEPTED to the worker that passed the handle, if any."""
        s.when(s.news[worker].isin((News.KNOWN, News.GONE)))
        s.handle[worker] = ite(s.news[worker] == News.KNOWN, Handle.CONFIRMED, Handle.FAILED)
        lost = any_(s.noticed[worker, p] & self.is_parent(s, p, worker) for p in s.worker)
        s.news[worker] = ite(lost | (s.parent[worker] == 0), News.NONE, News.ACCEPTED)

    @transition(moves=[arc(News.ACCEPTED, News.NONE)], cite=CITE)
    def accept(self, s: S, worker: Expr) -> None:
        """ACCEPTED arrives: the worker that passed the handle need not keep its own."""
        move(s.news, News.ACCEPTED, News.NONE, at=worker)
        for p in s.worker:
            s.keeps[p, worker] = s.keeps[p, worker] & ~self.is_parent(s, p, worker)

    # ---- the end of a handle

    @transition(fair=False)
    def drop(self, s: S, worker: Expr) -> None:
        """A program drops its handle."""
        move(s.wanted, True, False, at=worker)

    @transition(moves=[arc((Handle.CONFIRMED, Handle.FAILED), Handle.NONE)], cite=CITE)
    def end(self, s: S, worker: Expr) -> None:
        """Nothing keeps the handle: the worker sends DELETED to the owner."""
        move(s.handle, HAS, Handle.NONE, ~s.wanted[worker], self.may_end(s, worker), at=worker)
        s.deleted[worker] = ~self.knows_the_loss(s, worker)

    def may_end(self, s: S, worker: Expr) -> Condition:
        """The owner has records of all handles that this worker has passed on, and its own is known or failed."""
        waits = s.news[worker].isin((News.FORKED, News.KNOWN, News.GONE))
        return ~any_(s.keeps[worker, k] for k in s.worker) & ~waits

    @transition(cite=CITE)
    def forget(self, s: S, worker: Expr) -> None:
        """DELETED arrives."""
        s.when(s.deleted[worker], self.lives(s))
        reset(s.deleted, s.known, at=worker)
        self.collects(s)

    @transition(fair=False)
    def owner_lets_go(self, s: S) -> None:
        """The owner's program drops the value."""
        s.when(s.asked, ~s.let_go)
        s.let_go = True
        self.collects(s)

    # ---- workers that die

    @fault(
        "crash",
        moves=[
            may((Handle.PASSED, *HAS), Handle.NONE),
            may((News.FORKED, News.KNOWN, News.GONE, News.ACCEPTED), News.NONE),
        ],
    )
    def crash(self, s: S, worker: Expr) -> None:
        """A user dies, with its handles and notices. A handle that it has passed may still arrive."""
        s.when(~self.is_owner(worker), ~s.dead[worker], ~((s.news[worker] == News.FORKED) & self.makes(s, worker)))
        self.dies(s, worker)

    @fault("owner_crash", moves=[may(Handle.PASSED, Handle.NONE), may(News.ACCEPTED, News.NONE)])
    def owner_crashes(self, s: S, worker: Expr) -> None:
        """The owner dies, with the value. A handle that it has passed, and an answer, may still arrive."""
        s.when(self.is_owner(worker), ~s.dead[worker])
        self.dies(s, worker)
        s.asked = True
        s.let_go = True
        s.gone = True
        reset(s.known)

    def dies(self, s: S, worker: Expr) -> None:
        s.dead[worker] = True
        reset(s.handle, s.wanted, s.news, s.deleted, s.keeps, at=worker)

    @environment(
        each=("worker", "worker"),
        fair=True,
        moves=[
            may(Handle.PASSED, Handle.NONE), may(Handle.HELD, Handle.FAILED), may(News.ACCEPTED, News.NONE),
            may((News.FORKED, News.KNOWN, News.GONE), (News.ACCEPTED, News.NONE)),

        ],
    )  # fmt: skip
    def notice(self, s: S, worker: Expr, lost: Expr) -> None:
        """A worker notices that another is lost: the forks of that worker end, and its messages no longer arrive."""
        move(s.noticed, False, True, s.dead[lost], ~s.dead[worker], at=(worker, lost))
        self.hears_of_the_owner(s, worker, self.is_owner(lost))
        s.keeps[worker, lost] = False
        by_lost = self.is_parent(s, lost, worker)
        s.handle[worker] = ite((s.handle[worker] == Handle.PASSED) & by_lost, Handle.NONE, s.handle[worker])
        s.news[worker] = ite((s.news[worker] == News.ACCEPTED) & by_lost, News.NONE, s.news[worker])
        s.known[lost] = s.known[lost] & ~self.ends_forks(worker)
        self.collects(s)

    def hears_of_the_owner(self, s: S, worker: Expr, when: Any) -> None:
        """The owner is lost: a handle that waits for its answer has no value, and DELETED does not arrive."""
        waits = when & s.news[worker].isin((News.FORKED, News.KNOWN, News.GONE))
        lost = any_(s.noticed[worker, p] & self.is_parent(s, p, worker) for p in s.worker)
        alone = lost | (s.parent[worker] == 0)
        s.handle[worker] = ite(waits, Handle.FAILED, s.handle[worker])
        s.news[worker] = ite(waits, ite(alone, News.NONE, News.ACCEPTED), s.news[worker])
        s.deleted[worker] = s.deleted[worker] & ~when

    def ends_forks(self, worker: Expr) -> Condition:
        return self.is_owner(worker)

    # ---- what must hold

    def is_over(self, s: S) -> Condition:
        """No program holds the value, and no handle is on its way."""
        return s.asked & s.let_go & ~any_(s.wanted) & ~s.handle.any(Handle.PASSED)

    @terminal
    def at_rest(self, s: S) -> Condition:
        """No notice is on its way; programs may hold handles for any time."""
        return all_((s.news[j] == News.NONE) & ~s.deleted[j] & (s.handle[j] != Handle.PASSED) for j in s.worker)

    @sometimes()
    def a_handle_is_passed_on_before_it_is_known(self, s: S) -> Condition:
        """A user has passed on a handle that the owner has not recorded yet, and no other holds the value."""
        unknown = any_((s.handle[j] == Handle.HELD) & any_(s.keeps[j, k] for k in s.worker) for j in s.worker)
        return unknown & s.let_go

    @sometimes()
    def a_handle_comes_before_the_value(self, s: S) -> Condition:
        """The owner has a record of a fork of a value that is not made yet."""
        return ~s.made & any_(s.known)

    @sometimes()
    def it_is_gone(self, s: S) -> Condition:
        """The owner has forgotten the value."""
        return s.gone

    @sometimes(needs="crash")
    def somebody_is_told_that_it_is_gone(self, s: S) -> Condition:
        """A handle has no value, because the worker that passed it died: this is not prevented."""
        return s.handle.any(Handle.FAILED)

    @sometimes(needs="owner_crash")
    def a_handle_outlives_the_owner(self, s: S) -> Condition:
        """A worker has noticed the loss of the owner and has a confirmed handle: its use raises PeerLost."""
        return any_((s.handle[j] == Handle.CONFIRMED) & self.knows_the_loss(s, j) for j in s.worker)

    @always(witness="a_handle_is_passed_on_before_it_is_known", cite=CITE)
    def the_confirmed_have_a_value(self, s: S) -> Condition:
        """While a worker has a confirmed handle, the owner has the value, unless the owner has died."""
        return implies(s.gone & s.handle.any(Handle.CONFIRMED), ~self.lives(s))

    @always(witness="a_handle_outlives_the_owner", needs="owner_crash")
    def nobody_waits_for_an_owner_that_is_lost(self, s: S) -> Condition:
        """A worker that has noticed the loss of the owner has no handle that waits for confirmation."""
        return ~any_((s.handle[j] == Handle.HELD) & self.knows_the_loss(s, j) for j in s.worker)

    @always(witness="a_handle_is_passed_on_before_it_is_known")
    def all_have_a_value_if_nobody_died(self, s: S) -> Condition:
        """While any handle is held or on its way, the owner has the value, if no worker died."""
        return implies(s.gone & s.handle.any(*GOOD), any_(s.dead))

    @always(witness="a_handle_comes_before_the_value")
    def no_handle_fails_if_nobody_died(self, s: S) -> Condition:
        """The owner refuses no handle while all workers live, also if the call that makes the value comes later."""
        return implies(s.handle.any(Handle.FAILED), any_(s.dead))

    @always(witness="it_is_gone", cite=CITE)
    def nothing_is_left(self, s: S) -> Condition:
        """When the value is no longer held and no notice is on its way, no worker keeps anything of it."""
        quiet = all_((s.news[j] == News.NONE) & ~s.deleted[j] & ~s.handle[j].isin(HAS) for j in s.worker)
        noticed = all_(s.noticed[0, j] | ~s.dead[j] for j in s.worker)
        return implies(self.is_over(s) & quiet & noticed, s.gone)

    @leads_to(cite=CITE)
    def it_is_forgotten(self, s: S) -> tuple[Condition, Condition]:
        """When no program holds the value, the owner finally forgets it."""
        return self.is_over(s), s.gone

    @leads_to(cite=CITE)
    def a_handle_is_confirmed_or_fails(self, s: S, worker: Expr) -> tuple[Condition, Condition]:
        """A worker's handle is finally confirmed or fails."""
        return s.handle[worker] == Handle.HELD, s.handle[worker] != Handle.HELD

    @leads_to(each=("worker", "worker"), cite=CITE)
    def nobody_keeps_a_handle_for_ever(self, s: S, worker: Expr, to: Expr) -> tuple[Condition, Condition]:
        """A worker does not keep a handle for another worker for ever."""
        return s.keeps[worker, to], ~s.keeps[worker, to]


class Ours(References, edition=Edition.TRYSTATE):
    """Ours: torch's protocol, over connections that keep their order and whose loss is noticed."""
