"""Each finding of the waits and queues is the cause it is said to be: cured, it takes with it exactly what it explains.

A cure is the remedy of one finding, put into the edition that has it, and nothing else; what several findings explain
goes when all of them are cured.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from trystate.model.checker.check import check
from trystate.model.checker.expectations import Run
from trystate.model.language import Expr, SymbolicState, System, any_, as_int, count, ite, transition
from trystate.model.store.findings import FINDINGS, PLAN
from trystate.model.store.queues import Queues
from trystate.model.store.queues import Torch as TorchQueues
from trystate.model.store.queues.fields import Doing
from trystate.model.store.vocabulary import Edition, Waiter
from trystate.model.store.waits import Cancelling, Ours, Seed, Torch, Waits
from trystate.property_tests.support.nightly import NIGHTLY, a_third
from trystate.property_tests.support.pinned import bare, violated

S = SymbolicState
SEED = Edition.SEED
NUMBER = {finding.name: finding.number for finding in FINDINGS.values()}


# ---- waits


class WakesWhenKeysAre(Torch):
    """S1: a compare_set that fails wakes nobody."""

    compare_set_fails = replace(Torch.compare_set_fails, body=lambda self, s, key: self.serves(s))


class LooksAtAllKeys(Waits):
    """S2: a wait ends when all its keys are there together."""

    counts_together = True


class AnswersFromTheWait(Waits):
    """S3: a GET is answered from what satisfied the WAIT."""

    keeps_values = True

    def counts_down(self, s: S, key: Expr) -> None:
        before = s.fork()
        super().counts_down(s, key)
        for j in s.client:
            told = (before.awaited[j] > 0) & (s.awaited[j] == 0)
            s.kept[key, j] = ite(told, s.holds[key], s.kept[key, j])


class GivesUpByItself(Torch):
    """S14: a client waits for no answer without end."""

    stop_reading = Ours.stop_reading

    def has_deadline(self, client: Expr) -> Any:
        return True


class DropsHalves(Waits):
    """S17: half a request goes with its connection."""

    def closes(self, s: S, client: Expr, when: Any) -> None:
        super().closes(s, client, when)
        s.half[client] = s.half[client] & ~s.closed[client]


class Cancels(Seed):
    """S18: a wait that timed out is taken back, and the answer to that is read, if it comes in time."""

    time_out_silently = None  # type: ignore[assignment]
    time_out = Cancelling.time_out
    cancel_wait = Cancelling.cancel_wait
    read_late_answer = Cancelling.read_late_answer
    read_cancelled = Cancelling.read_cancelled
    stop_reading = Ours.stop_reading

    def has_deadline(self, client: Expr) -> Any:
        return True


class AnnouncesCompareSet(Waits):
    """S21: a compare_set that stores a value wakes like a set."""

    def comes_to_hold(self, s: S, key: Expr, value: Any) -> None:
        super().comes_to_hold(s, key, value)
        self.wakes(s, key)


# ---- queues


def may_pop(s: S, client: Expr) -> Any:
    """A server can know this: the client waits for the queue alone, or did when it cancelled."""
    return (s.doing[client] == Doing.POP) | ((s.waiter[client] == Waiter.CANCELLING) & (s.on_key[client] == 0))


class ForgetsTheCounted(TorchQueues):
    """S4, S5: an entry counts once, who is answered is taken off every list, and only a popper uses up a wake."""

    def wakes_one(self, s: S, when: Any = True) -> None:
        before = s.fork()
        super().wakes_one(s, when)
        self.tidies(s, before)

    def wakes_all_on_key(self, s: S) -> None:
        before = s.fork()
        super().wakes_all_on_key(s)
        for j in s.client:  # a key says nothing about the queue: only the answered leave its line
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
    """S6: of a queue and a key, a wait counts what is missing."""

    @transition(each="client")
    def take_wait_for_both(self, s: S, client: Expr) -> None:
        """A queue that has an element is not waited for."""
        before = s.fork()
        TorchQueues.take_wait_for_both.body(self, s, client)
        ready = ~before.queue.is_empty
        s.place[client] = ite(ready, 0, s.place[client])
        s.awaited[client] = s.awaited[client] - as_int(ready & (s.awaited[client] > 0))


class ReservesForTheWoken(TorchQueues):
    """S28: an element is kept for the popper who is woken by it; from who cancels or is gone it goes to the next."""

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
    """S7: an element is kept for every popper who is told of it."""

    @transition(each="client")
    def take_wait_for_queue(self, s: S, client: Expr) -> None:
        """A WAIT that is answered at once takes the element out of the queue."""
        before = s.fork()
        TorchQueues.take_wait_for_queue.body(self, s, client)
        s.reserved[client] = ite(before.queue.is_empty, 0, before.queue.head.element)
        s.queue.pop(when=~before.queue.is_empty)


Cures = tuple[type[System], frozenset[str]]
CURES: tuple[Cures, ...] = tuple(
    (cls, frozenset(numbers.split()))
    for cls, numbers in (
        (WakesWhenKeysAre, "S1"), (LooksAtAllKeys, "S2"), (AnswersFromTheWait, "S3"), (GivesUpByItself, "S14"),
        (DropsHalves, "S17"), (Cancels, "S18"), (AnnouncesCompareSet, "S21"), (ForgetsTheCounted, "S4 S5"),
        (CountsTheMissing, "S6"), (ReservesForTheWoken, "S28"), (ReservesForTheAnswered, "S7 S28"),
    )
)  # fmt: skip


def labels(run: Run) -> frozenset[str]:
    return frozenset(NUMBER[name] for names in run.findings.values() for name in names)


def cases() -> Iterator[tuple[Run, Cures]]:
    """Each run with each cure of something that it shows, and with all of them."""
    for run in PLAN:
        if run.system not in (Waits, Queues) or len(run.faults) > 1:  # one by one the faults show the same
            continue
        if run.edition is SEED and run.sizes["client"] > 1:
            continue
        if not NIGHTLY and run.sizes["client"] > 1 and run.sizes.get("key", 1) > 1:  # smaller runs show it, too
            continue
        usable = [cure for cure in CURES if issubclass(cure[0], run.system) and cure[1] & labels(run)]
        yield from ((run, cure) for cure in usable)
        classes = [
            cls for cls, _ in usable if not any(other is not cls and issubclass(other, cls) for other, _ in usable)
        ]
        if len(classes) > 1:
            healed = frozenset[str]().union(*(numbers for _, numbers in usable))
            yield run, (type("Cured", tuple(classes), {}), healed)


def name_of(run: Run, cure: Cures) -> str:
    return f"{run.label} {' '.join(sorted(cure[1]))}"


@pytest.mark.parametrize(("run", "cure"), [pytest.param(r, c, id=name_of(r, c)) for r, c in a_third([*cases()])])
def test_what_a_finding_explains_goes_when_it_is_cured(run: Run, cure: Cures) -> None:
    cured = bare(cure[0])(edition=run.edition, faults=run.faults, **run.sizes)
    left = {name for name, why in run.findings.items() if not {NUMBER[each] for each in why} <= cure[1]}
    assert violated(check(cured, engine="explicit")) == left


def test_every_finding_has_a_cure() -> None:
    assert {number for _, numbers in CURES for number in numbers} == {
        number for run in PLAN if run.system in (Waits, Queues) for number in labels(run)
    }
