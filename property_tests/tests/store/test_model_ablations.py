"""Each finding of the stores is the cause of its violations: its cure removes exactly the violations that it explains.

A cure changes the edition with the finding, and repairs only this finding. A violation that several findings explain
ends when all of them are cured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest

from trystate.model.checker.check import check
from trystate.model.checker.expectations import Run
from trystate.model.language import Expr, SymbolicState, System, any_, as_int, count, integer, ite, transition
from trystate.model.language.transitions import Rule
from trystate.model.store.barriers import Barriers
from trystate.model.store.barriers.fields import Reply
from trystate.model.store.barriers.fields import Request as Arriving
from trystate.model.store.findings import FINDINGS, PLAN
from trystate.model.store.queues import Queues
from trystate.model.store.queues import Torch as TorchQueues
from trystate.model.store.queues.fields import Doing
from trystate.model.store.vocabulary import Arrival, Edition, Waiter, Watcher
from trystate.model.store.waits import Cancelling, Seed, Torch, Waits
from trystate.model.store.waits import Ours as OurWaits
from trystate.model.store.watches import Ours as OurWatches
from trystate.model.store.watches import Watches
from trystate.property_tests.support.nightly import NIGHTLY, a_third
from trystate.property_tests.support.pinned import bare, violated
from trystate.property_tests.support.systems.changed import before, both, changed, instead, puts, then

S = SymbolicState
Base = Any  # a type[System] whose steps and helpers are read by name
Members = dict[str, Any]  # the steps and helpers of a subclass
Cure = Callable[[Base], Members]


# ---- waits


GIVES_UP: Members = {"stop_reading": OurWaits.stop_reading, "has_deadline": lambda self, client: True}
CANCELS: Members = {
    "time_out_silently": None, "time_out": Cancelling.time_out, "cancel_wait": Cancelling.cancel_wait,
    "read_late_answer": Cancelling.read_late_answer, "read_cancelled": Cancelling.read_cancelled,
}  # fmt: skip


class AnswersFromTheWait(Waits):
    """S3: a GET is answered with the value that satisfied the WAIT."""

    keeps_values = True

    def counts_down(self, s: S, key: Expr) -> None:
        before = s.fork()
        super().counts_down(s, key)
        for j in s.client:
            told = (before.awaited[j] > 0) & (s.awaited[j] == 0)
            s.kept[key, j] = ite(told, s.holds[key], s.kept[key, j])


class DropsHalves(Waits):
    """S17: half a request is dropped with its connection."""

    def closes(self, s: S, client: Expr, when: Any) -> None:
        super().closes(s, client, when)
        s.half[client] = s.half[client] & ~s.closed[client]


class AnnouncesCompareSet(Waits):
    """S21: a compare_set that stores a value wakes like a set."""

    def comes_to_hold(self, s: S, key: Expr, value: Any) -> None:
        super().comes_to_hold(s, key, value)
        self.wakes(s, key)


# ---- queues


def may_pop(s: S, client: Expr) -> Any:
    """Whether the client waits only for the queue, or did so when it cancelled. A server has this information."""
    return (s.doing[client] == Doing.POP) | ((s.waiter[client] == Waiter.CANCELLING) & (s.on_key[client] == 0))


class ForgetsTheCounted(TorchQueues):
    """S4, S5: an entry counts once, an answered client leaves every list, and a wake-up goes to a popper only."""

    def wakes_one(self, s: S, when: Any = True) -> None:
        before = s.fork()
        super().wakes_one(s, when)
        self.tidies(s, before)

    def wakes_all_on_key(self, s: S) -> None:
        before = s.fork()
        super().wakes_all_on_key(s)
        for j in s.client:  # a key does not concern the queue: only answered clients leave its line
            before.awaited[j] = s.awaited[j]
        self.tidies(s, before)

    def uses_up(self, s: S, client: Expr) -> Any:
        return super().uses_up(s, client) & may_pop(s, client)

    def tidies(self, s: S, before: S) -> None:
        for j in s.client:
            ahead = count(self.leaves(s, before, k) & (before.place[k] < before.place[j]) for k in s.client)
            stays = self.in_line(before, j) & ~self.leaves(s, before, j)
            s.place[j] = ite(stays, before.place[j] - ahead, 0)
            s.on_key[j] = ite(s.awaited[j] > 0, s.on_key[j], 0)

    def leaves(self, s: S, before: S, client: Expr) -> Any:
        done = (s.awaited[client] < before.awaited[client]) | (s.awaited[client] == 0)
        return self.in_line(before, client) & done


class CountsTheMissing(TorchQueues):
    """S6: a wait for a queue and a key counts only the missing one."""

    @transition(each="client")
    def take_wait_for_both(self, s: S, client: Expr) -> None:
        """A queue that has an element is not waited for."""
        before = s.fork()
        TorchQueues.take_wait_for_both.body(self, s, client)
        ready = ~before.queue.is_empty
        s.place[client] = ite(ready, 0, s.place[client])
        s.awaited[client] = s.awaited[client] - as_int(ready & (s.awaited[client] > 0))


class ReservesForTheWoken(TorchQueues):
    """S28: an element is kept for the popper that it wakes. If this popper cancels or is lost, the next one gets it."""

    def wakes_one(self, s: S, when: Any = True) -> None:
        before = s.fork()
        super().wakes_one(s, when)
        for j in s.client:
            woken = may_pop(before, j) & (before.awaited[j] == 1) & (s.awaited[j] == 0)
            s.reserved[j] = ite(woken, before.queue.head.element, before.reserved[j])
        s.queue.pop(when=any_(s.reserved[j] != before.reserved[j] for j in s.client))

    def forgets(self, s: S, client: Expr) -> None:
        super().forgets(s, client)
        number = s.reserved[client]
        s.reserved[client] = 0
        self.puts_back(s, number)
        self.remembers(s)
        self.wakes_one(s, number > 0)


class ReservesForTheAnswered(ReservesForTheWoken):
    """S7: an element is kept for every popper that is answered because of it."""

    @transition(each="client")
    def take_wait_for_queue(self, s: S, client: Expr) -> None:
        """A WAIT that is answered at once takes the element out of the queue."""
        before = s.fork()
        TorchQueues.take_wait_for_queue.body(self, s, client)
        s.reserved[client] = ite(before.queue.is_empty, 0, before.queue.head.element)
        s.queue.pop(when=~before.queue.is_empty)


# ---- barriers


def withdraw_who_leaves(base: Base) -> Members:
    """S11: a client that cancels, disconnects or comes again on another connection is no longer counted."""

    def uncount(s: S, there: Any) -> None:
        s.key = s.key - ite(there & (s.key > 0), 1, 0)

    def cancels(self: Any, s: S, client: Expr) -> None:
        uncount(s, s.waiting[client])

    def ends(self: Any, s: S, client: Expr) -> None:
        uncount(s, s.held[client])

    return {
        "take_cancel": before(base.take_cancel, cancels), "notice_end": before(base.notice_end, ends),
        "count_in": before(base.count_in, both(ends, puts(held=False, lost=False))),
    }  # fmt: skip


def begin_anew(base: Base) -> Members:
    """S12: the count that opens the barrier is 0 after it."""

    def reset(self: Any, s: S, client: Expr) -> None:
        s.key = ite(s.key >= self.world, 0, s.key)

    return {"count_in": then(base.count_in, reset)}


def keep_apart_from_keys(base: Base) -> Members:
    """S13: the count is not in a key, and a write of the key releases no client."""

    def apart(rule: Rule) -> Rule:
        def body(self: Any, s: S, *indices: Expr) -> None:
            key = s.fork().key
            s.key = s.counter
            rule.body(self, s, *indices)
            s.counter = s.fork().key
            s.key = key

        return instead(rule, body)

    return {
        "counter": integer(0, "world", doc="how many the server counts"), "counted": lambda self, s: s.counter,
        "count_in": apart(base.count_in), "take_cancel": apart(base.take_cancel),
        "notice_end": apart(base.notice_end), "write_key": instead(base.write_key, puts(key=1)),
    }  # fmt: skip


def decide_at_the_server(base: Base) -> Members:
    """S27: a CANCEL_WAIT that comes after the release is not answered, and the client returns."""

    def cancel(self: Any, s: S, client: Expr) -> None:
        """The server takes the client off the list of waiters, if it is still there."""
        self.takes(s, client, Arriving.CANCEL)
        in_time = s.fork().waiting[client]
        s.waiting[client] = False
        self.answer(s, client, Reply.CANCELED, in_time)

    def passes(self: Any, s: S, client: Expr) -> None:
        """The answer is read: barrier() returns."""
        self.reads(s, client, Reply.STOP)
        s.cancelling[client] = False
        s.place[client] = Arrival.RELEASED
        s.passed[client] = s.passed[client] + 1

    steps = {"take_cancel": replace(base.take_cancel, body=cancel), "read_on": None}
    return {**steps, "pass_through": replace(base.pass_through, body=passes)}


# ---- watches


def leave_nothing_behind(base: Base) -> Members:
    """S20: a connection that ends leaves every table."""

    def remove(self: Any, s: S, client: Expr) -> None:
        for k in s.key:
            s.listed[client, k] = 0

    return {"notice_end": then(base.notice_end, remove)}


def announce_alike(base: Base) -> Members:
    """S21: a compare_set wakes as a set does."""

    def put(self: Any, s: S, client: Expr, key: Expr, verb: Any, *, wakes: bool = True) -> None:
        base.put(self, s, client, key, verb)

    return {"put": put}


def close_who_does_not_read(base: Base) -> Members:
    """S22: a change does not wait for watchers; a watcher without room for its event is closed."""

    def announce(self: Any, s: S, key: Expr, kind: Any, old: Any, new: Any) -> None:
        at = s.fork()
        for j in s.client:
            self.give_up(s, j, (at.listed[j, key] > 0) & ~base.fits(self, at, j, key))
        base.announce(self, s, key, kind, old, new)

    return {"announce": announce, "fits": lambda self, s, client, key: s.stuck == 0}


def tell_of_a_loss(base: Base) -> Members:
    """S24: a client reports the end of its connection, also to watch_key."""

    return {"notice_loss": OurWatches.notice_loss}


def enter_once(base: Base) -> Members:
    """S25: a client that watches a second time has one entry."""

    return {"register": then(base.register, puts(listed=1))}


def set_the_flag_under_its_lock(base: Base) -> Members:
    """S26: watch_key sees the flag before it sleeps, or is woken."""

    return {"notify_nobody": then(base.notify_nobody, puts(watcher=Watcher.REGISTERED))}


# ---- all of them

# Waits and queues: cured classes, and the findings that each class cures.
CLASSES: Mapping[type[System], frozenset[str]] = {
    cls: frozenset(numbers.split())
    for cls, numbers in (
        (changed(Torch, "WakesWhenKeysAre", compare_set_fails=lambda self, s, key: self.serves(s)), "S1"),
        (changed(Waits, "LooksAtAllKeys", counts_together=True), "S2"), (AnswersFromTheWait, "S3"),
        (changed(Torch, "GivesUpByItself", **GIVES_UP), "S14"), (DropsHalves, "S17"),
        (changed(Seed, "Cancels", **GIVES_UP, **CANCELS), "S18"),  # the answer to the cancel is read if it is in time
        (AnnouncesCompareSet, "S21"), (ForgetsTheCounted, "S4 S5"),
        (CountsTheMissing, "S6"), (ReservesForTheWoken, "S28"), (ReservesForTheAnswered, "S7 S28"),
    )
}  # fmt: skip
# Watches and barriers: cures, in the order of their application. The cure of S22 includes the cure of S24, because a
# client that the server closes must report the loss.
CURES: Mapping[str, tuple[Cure, ...]] = {
    "S27": (decide_at_the_server,), "S12": (begin_anew,), "S11": (withdraw_who_leaves,),
    "S13": (keep_apart_from_keys,), "S20": (leave_nothing_behind,), "S21": (announce_alike,),
    "S22": (tell_of_a_loss, close_who_does_not_read), "S24": (tell_of_a_loss,), "S25": (enter_once,),
    "S26": (set_the_flag_under_its_lock,),
}  # fmt: skip


def labels(run: Run) -> Mapping[str, frozenset[str]]:
    """A violated property of a run -> the numbers of the findings that explain it."""
    return {name: frozenset(FINDINGS[f].number for f in findings) for name, findings in run.findings.items()}


def usable(run: Run) -> list[type[System]]:
    """The classes that cure something of a run of waits or queues."""
    shown = frozenset[str]().union(*labels(run).values())
    return [cls for cls, numbers in CLASSES.items() if issubclass(cls, run.system) and numbers & shown]


def is_shown_by_a_smaller_run(run: Run) -> bool:
    clients, keys = run.sizes.get("client", 1), run.sizes.get("key", 1)
    seeds = run.edition is Edition.SEED and clients > 1
    return len(run.faults) > 1 or seeds or (not NIGHTLY and clients > 1 and keys > 1)


def sick() -> Iterator[tuple[Run, frozenset[str]]]:
    """The planned runs with findings, each with the findings to cure: all that explain a label, or all but one.

    Not every set of findings is cured, because a finding may show only together with another. In a run of one round,
    only a client that raised although it was released (S27) comes again to a barrier that stayed open (S12).
    """
    for run in PLAN:
        causes = {*labels(run).values()}
        if run.system in (Waits, Queues) and not is_shown_by_a_smaller_run(run):
            causes = {CLASSES[cls] for cls in usable(run)}
        elif run.system in (Watches, Barriers):
            causes |= {frozenset(c) for numbers in causes for c in combinations(numbers, len(numbers) - 1) if c}
        else:
            continue
        everything = frozenset[str]().union(*causes)
        for cured in sorted({*causes, everything}, key=sorted):
            if cured:
                yield run, cured


def healed(run: Run, cured: frozenset[str]) -> type[System]:
    if run.system in (Waits, Queues):
        chosen = [cls for cls in usable(run) if CLASSES[cls] <= cured]
        own = [cls for cls in chosen if not any(other is not cls and issubclass(other, cls) for other in chosen)]
        return type("Cured", tuple(own), {})
    system = run.system.for_edition(run.edition)
    for number, cures in CURES.items():
        for cure in cures if number in cured else ():
            system = type(system.__name__, (system,), cure(system))
    return system


SICK = tuple(sick())


@pytest.mark.parametrize(
    ("run", "cured"), [pytest.param(run, c, id=f"{run.label}-{'+'.join(sorted(c))}") for run, c in a_third(SICK)]
)
def test_a_label_goes_when_all_that_explains_it_is_cured_and_not_before(run: Run, cured: frozenset[str]) -> None:
    system = bare(healed(run, cured))(edition=run.edition, faults=run.faults, max_faults=run.max_faults, **run.sizes)
    expected = {name for name, numbers in labels(run).items() if not numbers <= cured}
    assert violated(check(system, engine="explicit")) == expected


def test_every_finding_has_a_cure() -> None:
    runs = [run for run in PLAN if run.system in (Waits, Queues, Watches, Barriers)]
    known = frozenset(CURES).union(*CLASSES.values())
    assert frozenset[str]().union(*(numbers for run in runs for numbers in labels(run).values())) == known
