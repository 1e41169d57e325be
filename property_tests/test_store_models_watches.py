"""Watches and barriers: what each edition violates and why, pinned; and every property catches a planted mistake.

Rule: a mistake is one change of the edition TRYSTATE, which violates nothing as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pytest
from trystate.model import UsageError
from trystate.model.checker.check import check
from trystate.model.checker.expectations import gaps
from trystate.model.checker.verdicts import Report
from trystate.model.language import Expr, SymbolicState, System, all_
from trystate.model.language.properties import Form
from trystate.model.language.transitions import Rule
from trystate.model.store.barriers import Barriers, Reply
from trystate.model.store.watches import Watches
from trystate.model.store.watching import EVENTS, Message, Request
from trystate.property_tests.pinned import violated

from .runs import assert_is_a_fair_lasso, assert_is_a_run, refutes
from .test_published_counts import AVAILABLE

S = SymbolicState
SMALL = {"client": 2, "key": 1, "writes": 2}
WATCHES = {"client": 2, "key": 1, "writes": 3}
TWO_KEYS = {"client": 2, "key": 2, "writes": 2}
PAIR = {"client": 2, "world": 2, "rounds": 1}
TRIO = {"client": 3, "world": 3, "rounds": 1}
TWICE = {"client": 2, "world": 2, "rounds": 2}
NEARLY_ALL = ("again", "cancel", "drop", "leave", "newcomer", "slow")
ALL_WATCH_FAULTS = (*NEARLY_ALL, "wait")
ALL_BARRIER_FAULTS = ("delete", "drop", "timeout", "write")


@dataclass(frozen=True)
class Case:
    """One run: how many states it has, and what it violates (`sometimes` that it cannot reach are left out)."""

    system: type[System]
    sizes: Mapping[str, int]
    edition: str
    faults: tuple[str, ...]
    states: int
    violated: tuple[str, ...] = ()

    def __str__(self) -> str:
        sizes = "-".join(map(str, self.sizes.values()))
        return "-".join([self.system.__name__, self.edition, sizes, *self.faults])

    def build(self) -> System:
        return self.system(edition=self.edition, faults=self.faults, **self.sizes)


TWICE_TOLD = ("once_and_in_order", "callbacks_skip_nothing")
LEFT_BEHIND = (
    *TWICE_TOLD, "no_event_for_a_stranger", "nothing_is_left_behind", "nobody_is_closed_for_another",
)  # fmt: skip
NEVER_TOLD = ("watch_key_returns", "the_lost_are_told", "deadlock_freedom")
FAILED = "failures_change_nothing"
COUNTED = ("nobody_passes_before_all_are_in", "keys_stay_untouched")
# fmt: off
CASES = (
    Case(Watches, SMALL, "SEED", (), 453),
    Case(Watches, TWO_KEYS, "SEED", (), 2442),
    Case(Watches, WATCHES, "SEED", ("leave", "newcomer"), 12400, LEFT_BEHIND),
    Case(Watches, TWO_KEYS, "SEED", ("leave", "newcomer"), 27536, (*LEFT_BEHIND, "only_what_is_watched")),
    Case(Watches, WATCHES, "SEED", ("drop",), 14631,
         (*NEVER_TOLD, "nothing_is_left_behind", "nobody_is_closed_for_another")),
    Case(Watches, WATCHES, "SEED", ("wait",), 4700, ("waiters_are_woken",)),
    Case(Watches, WATCHES, "SEED", ("slow",), 4255, ("watch_key_returns", "changes_are_answered")),
    Case(Watches, WATCHES, "SEED", ("again",), 6461, TWICE_TOLD),
    Case(Watches, WATCHES, "SEED", ("preempted",), 2435, ("watch_key_returns", "deadlock_freedom")),
    Case(Watches, SMALL, "TRYSTATE", (), 699),
    Case(Watches, {**WATCHES, "client": 3}, "TRYSTATE", (), 79079),
    Case(Watches, {**TWO_KEYS, "writes": 3}, "TRYSTATE", ("drop",), 102234),
    Case(Watches, {**TWO_KEYS, "writes": 3}, "TRYSTATE", ("slow", "newcomer"), 74916),
    Case(Watches, TWO_KEYS, "TRYSTATE", ("cancel", "leave", "newcomer"), 33848),
    Case(Watches, WATCHES, "TRYSTATE", ("cancel", "drop", "slow"), 290941),
    Case(Watches, WATCHES, "TRYSTATE", ("again", "drop", "newcomer"), 146834),
    Case(Watches, WATCHES, "TRYSTATE", ("slow", "wait"), 29874),
    Case(Watches, SMALL, "TRYSTATE", NEARLY_ALL, 545355),
    Case(Barriers, PAIR, "TORCH", (), 12, ("keys_stay_untouched",)),
    Case(Barriers, TWICE, "TORCH", (), 33, COUNTED),
    Case(Barriers, {**TRIO, "rounds": 2}, "TORCH", (), 151, COUNTED),
    Case(Barriers, PAIR, "TORCH", ("timeout",), 73, (*COUNTED, FAILED, "the_released_return")),
    Case(Barriers, TRIO, "TORCH", ("timeout",), 268, (*COUNTED, FAILED, "the_released_return")),
    Case(Barriers, TRIO, "TORCH", ("drop",), 233, (*COUNTED, FAILED)),
    Case(Barriers, PAIR, "TORCH", ("write",), 40, (*COUNTED, "only_arrivals_release")),
    Case(Barriers, PAIR, "TORCH", ("delete",), 33,
         ("keys_stay_untouched", "a_full_barrier_opens", "enough_are_released", "deadlock_freedom")),
    Case(Barriers, PAIR, "TRYSTATE", (), 12),
    Case(Barriers, {**TRIO, "world": 2}, "TRYSTATE", ("drop",), 281),
    Case(Barriers, {**TRIO, "rounds": 2}, "TRYSTATE", ("drop", "timeout"), 1873),
    Case(Barriers, {**TRIO, "world": 2, "rounds": 2}, "TRYSTATE", ALL_BARRIER_FAULTS, 21995),
    Case(Barriers, {"client": 4, "world": 3, "rounds": 2}, "TRYSTATE", ALL_BARRIER_FAULTS, 142795),
)
# fmt: on


@cache
def checked(number: int) -> Report:
    return check(CASES[number].build(), engine="explicit")


@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda k: str(CASES[k]))
def test_an_edition_violates_what_is_known_of_it_and_no_more(number: int) -> None:
    case, report = CASES[number], checked(number)
    assert violated(report) == set(case.violated)
    assert report.exploration.distinct == case.states


@pytest.mark.parametrize("edition", ["SEED", "TRYSTATE"])
@pytest.mark.parametrize("system", [Watches, Barriers])
def test_every_step_and_every_claimed_move_happens_in_some_run(system: type[System], edition: str) -> None:
    edition = "TORCH" if system is Barriers and edition == "SEED" else edition
    reports = [checked(k) for k, c in enumerate(CASES) if c.system is system and c.edition == edition]
    assert gaps(reports) == ([], [])


@cache
def interpreted(system: System) -> Report:
    return check(system, engine="interpret")


@pytest.mark.parametrize("engine", AVAILABLE)
@pytest.mark.parametrize(
    "system",
    [
        Watches(edition="SEED", faults=["leave", "newcomer"], client=2, key=1, writes=1),
        Watches(edition="TRYSTATE", faults=["slow"], **SMALL),
        Barriers(edition="TORCH", faults=ALL_BARRIER_FAULTS, **PAIR),
        Barriers(edition="TRYSTATE", faults=ALL_BARRIER_FAULTS, **PAIR),
    ],
    ids=lambda system: system.label,
)
def test_the_engines_agree(engine: str, system: System) -> None:
    report, expected = check(system, engine=engine), interpreted(system)
    assert report.exploration.distinct == expected.exploration.distinct
    assert {v.property.name: v.status for v in report.verdicts} == {
        v.property.name: v.status for v in expected.verdicts
    }
    for verdict in report.violated:
        run = verdict.run
        if run is None:
            continue
        if run.loop is None:
            assert_is_a_run(system, run.path)
        else:
            assert_is_a_fair_lasso(system, run)
            assert refutes(system, run, verdict.property)


def test_an_edition_without_the_request_is_refused() -> None:
    with pytest.raises(UsageError, match="no edition 'TORCH': it has SEED, TRYSTATE"):
        Watches(edition="TORCH")
    with pytest.raises(UsageError, match="no edition 'SEED': it has TORCH, TRYSTATE"):
        Barriers(edition="SEED")


# ---- planted mistakes


def then(rule: Rule, change: Callable[..., None]) -> Rule:
    """The same step, and one thing more."""

    def body(self: Any, s: S, *indices: Expr) -> None:
        """The step, changed."""
        rule.body(self, s, *indices)
        change(self, s, *indices)

    return replace(rule, body=body)


def instead(rule: Rule, change: Callable[..., None]) -> Rule:
    """Another step in its place."""
    change.__doc__ = "Another step."
    return replace(rule, body=change)


class AcknowledgesOnly(Watches):
    """Acknowledges a watch without entering it into the table."""

    def _unlist(self, s: S, client: Expr, key: Expr) -> None:
        s.listed[client, key] = 0

    register = then(Watches.register, _unlist)


class DeletesQuietly(Watches):
    """Tells nobody of a deletion."""

    def announce(self, s: S, key: Expr, kind: Any, old: Any, new: Any) -> None:
        if kind is not Message.DELETED:
            super().announce(s, key, kind, old, new)


class TellsTwice(Watches):
    """Sends an event twice where there is room."""

    def announce(self, s: S, key: Expr, kind: Any, old: Any, new: Any) -> None:
        before = s.fork()
        super().announce(s, key, kind, old, new)
        for j in s.client:
            room = (before.listed[j, key] > 0) & before.messages[j].is_empty
            s.messages[j].push(when=room, kind=kind, key=1, old=old, new=new)


class Compacts(Watches):
    """Empties a full queue of CREATED and DELETED, instead of giving the watcher up."""

    def announce(self, s: S, key: Expr, kind: Any, old: Any, new: Any) -> None:
        for j in s.client:
            (_, first), (_, second) = s.messages[j]
            both = (first.kind == Message.CREATED) & (second.kind == Message.DELETED)
            s.messages[j].clear(when=s.messages[j].is_full & both)
        super().announce(s, key, kind, old, new)


class TellsOfTheLatest(Watches):
    """Calls the callback with the last event that has come, and drops those before."""

    def tells(self, s: S, client: Expr) -> None:
        last = s.fork().messages[client]
        s.messages[client].pop(when=last.is_full & last.read(1, "kind").isin(EVENTS))
        super().tells(s, client)


class TellsNoOldValue(Watches):
    """Leaves the old value of an event out."""

    def announce(self, s: S, key: Expr, kind: Any, old: Any, new: Any) -> None:
        super().announce(s, key, kind, 0, new)


class CallsEverythingAnUpdate(Watches):
    """Says UPDATED where a key comes to be."""

    def announce(self, s: S, key: Expr, kind: Any, old: Any, new: Any) -> None:
        super().announce(s, key, Message.UPDATED, old, new)


class TellsOfAllKeys(Watches):
    """Sends the events of one key to the watchers of all."""

    def announce(self, s: S, key: Expr, kind: Any, old: Any, new: Any) -> None:
        for j in s.client:
            for k in range(self.sizes["key"]):
                s.messages[j].push(
                    when=(s.listed[j, k] > 0) & ~s.messages[j].is_full, kind=kind, key=1, old=old, new=new
                )


class KeepsEntries(Watches):
    """Leaves a closed connection in the table, as torch 1.9 did."""

    def _end(self, s: S, client: Expr) -> None:
        before = s.fork()
        Watches.notice_end.body(self, s, client)
        for k in s.key:
            s.listed[client, k] = before.listed[client, k]

    notice_end = instead(Watches.notice_end, _end)


class GoesOnAfterCancelling(Watches):
    """Acknowledges that a watch is over, and keeps it."""

    def _list(self, s: S, client: Expr, key: Expr) -> None:
        s.listed[client, key] = 1

    unregister = then(Watches.unregister, _list)


class WakesForSetOnly(Watches):
    """Wakes waiters for a set, not for an append."""

    def put(self, s: S, client: Expr, key: Expr, verb: Message, *, wakes: bool = True) -> None:
        super().put(s, client, key, verb, wakes=verb is not Message.APPENDED)


class ClosesTheWriter(Watches):
    """Where a watcher is too slow it is the writer whose connection is closed as well."""

    def put(self, s: S, client: Expr, key: Expr, verb: Message, *, wakes: bool = True) -> None:
        before = s.fork()
        super().put(s, client, key, verb, wakes=wakes)
        s.shut[client] = ~self.all_fit(before, key)

    def all_fit(self, s: S, key: Expr) -> Any:
        return all_(self.fits(s, j, key) for j in s.client)


class AnswersNothing(Watches):
    """Registers a watch, and does not say so."""

    def answers(self, s: S, client: Expr, key: Expr, request: Request, answer: Message) -> Any:
        full = super().answers(s, client, key, request, answer)
        s.messages[client].clear(when=answer is Message.REGISTERED)
        return full


class ReadsWhenFull(Watches):
    """Lets events lie until there is no room for more."""

    def _wait(self, s: S, client: Expr) -> None:
        s.when(s.messages[client].is_full)
        Watches.run_callback.body(self, s, client)

    run_callback = instead(Watches.run_callback, _wait)


class LosesSilently(Watches):
    """Finds its connection closed, and tells nobody."""

    def _silent(self, s: S, client: Expr) -> None:
        before = s.fork()
        Watches.notice_loss.body(self, s, client)
        s.watcher[client] = before.watcher[client]

    notice_loss = instead(Watches.notice_loss, _silent)


class WaitsForReaders(Watches):
    """Serves a change only when every watcher has room, as torch 1.9 did."""

    def takes(self, s: S, client: Expr, key: Expr) -> None:
        self._fit(s, client, key)
        super().takes(s, client, key)

    def _fit(self, s: S, client: Expr, key: Expr) -> None:
        s.when(all_(self.fits(s, j, key) for j in s.client))

    change_nothing = then(Watches.change_nothing, _fit)


class CountsConnections(Barriers):
    """Counts connections instead of clients."""

    def moves(self, s: S, client: Expr) -> None:
        pass

    def arrived(self, s: S) -> Any:
        return s.waiting.count() + s.held.count()


class OpensTooEarly(Barriers):
    """Takes one client too few for all."""

    def arrived(self, s: S) -> Any:
        return super().arrived(s) + 1


class OpensTooLate(Barriers):
    """Waits for one client more than there has to be."""

    def arrived(self, s: S) -> Any:
        return super().arrived(s) - 1


class ReleasesTheLast(Barriers):
    """Answers only the client that arrives last."""

    def release(self, s: S, opens: Any, newcomer: Expr | None = None) -> None:
        if newcomer is not None:
            self.answer(s, newcomer, Reply.STOP, opens)
            s.waiting[newcomer] = s.waiting[newcomer] & ~opens


class KeepsTheAnswered(Barriers):
    """Leaves whom it has answered in the table."""

    def release(self, s: S, opens: Any, newcomer: Expr | None = None) -> None:
        before = s.fork()
        super().release(s, opens, newcomer)
        for j in s.client:
            s.waiting[j] = before.waiting[j]


class LivesInAKey(Barriers):
    """Has a key of its own in the store."""

    def _write(self, s: S, client: Expr) -> None:
        s.key = 1

    count_in = then(Barriers.count_in, _write)


class TimeoutWrites(Barriers):
    """Leaves a key when a barrier was not in time."""

    def _write(self, s: S, client: Expr) -> None:
        s.key = 1

    run_out_of_time = then(Barriers.run_out_of_time, _write)


class OpensForAKey(Barriers):
    """Releases who waits when somebody sets the key."""

    def _open(self, s: S) -> None:
        self.release(s, True)

    write_key = then(Barriers.write_key, _open)


class CountsTheLate(Barriers):
    """Tells a client that it was not in time, and counts it all the same."""

    def _late(self, s: S, client: Expr) -> None:
        s.when(s.waiting[client], s.replies[client].is_empty)
        self.answer(s, client, Reply.TIMED_OUT)

    run_out_of_time = instead(Barriers.run_out_of_time, _late)


class KeepsTheBroken(Barriers):
    """Keeps the arrival of a connection that it knows to be broken."""

    def _end(self, s: S, client: Expr) -> None:
        s.when(s.lost[client])
        s.lost[client] = False

    notice_end = instead(Barriers.notice_end, _end)


class SwallowsTimeouts(Barriers):
    """Never reads that it was not in time."""

    raise_timeout = None  # type: ignore[assignment]  # a step that is dropped


# fmt: off
MISTAKES: tuple[tuple[type[System], Mapping[str, int], tuple[str, ...], str], ...] = (
    (AcknowledgesOnly, SMALL, (), "returned_means_registered"),
    (DeletesQuietly, SMALL, (), "every_change_is_on_its_way"),
    (TellsTwice, SMALL, (), "once_and_in_order"),
    (Compacts, WATCHES, (), "once_and_in_order"),
    (TellsOfTheLatest, SMALL, (), "callbacks_skip_nothing"),
    (TellsNoOldValue, SMALL, (), "once_and_in_order"),
    (TellsNoOldValue, SMALL, (), "kinds_fit_the_values"),
    (CallsEverythingAnUpdate, SMALL, (), "kinds_fit_the_values"),
    (TellsOfAllKeys, TWO_KEYS, (), "only_what_is_watched"),
    (KeepsEntries, SMALL, ("leave", "newcomer"), "no_event_for_a_stranger"),
    (KeepsEntries, SMALL, ("drop",), "nothing_is_left_behind"),
    (GoesOnAfterCancelling, SMALL, ("cancel",), "nothing_after_cancelling"),
    (WakesForSetOnly, SMALL, ("wait",), "waiters_are_woken"),
    (ClosesTheWriter, WATCHES, (), "nobody_is_closed_for_another"),
    (AnswersNothing, SMALL, (), "watch_key_returns"),
    (AnswersNothing, SMALL, (), "deadlock_freedom"),
    (ReadsWhenFull, SMALL, (), "events_reach_the_callback"),
    (LosesSilently, SMALL, ("drop",), "the_lost_are_told"),
    (WaitsForReaders, WATCHES, ("slow",), "changes_are_answered"),
    (CountsConnections, PAIR, ("drop",), "nobody_passes_before_all_are_in"),
    (OpensTooEarly, PAIR, (), "nobody_passes_before_all_are_in"),
    (OpensTooLate, TRIO, (), "a_full_barrier_opens"),
    (OpensTooLate, TRIO, (), "enough_are_released"),
    (ReleasesTheLast, PAIR, (), "all_go_together"),
    (KeepsTheAnswered, TWICE, (), "released_once"),
    (LivesInAKey, PAIR, (), "keys_stay_untouched"),
    (TimeoutWrites, PAIR, ("timeout",), "keys_stay_untouched"),
    (OpensForAKey, PAIR, ("write",), "only_arrivals_release"),
    (CountsTheLate, PAIR, ("timeout",), "the_released_return"),
    (CountsTheLate, PAIR, ("timeout",), "failures_change_nothing"),
    (KeepsTheBroken, PAIR, ("drop",), "failures_change_nothing"),
    (KeepsTheBroken, PAIR, ("drop",), "nothing_is_left_behind"),
    (SwallowsTimeouts, PAIR, ("timeout",), "timeouts_are_told"),
)
# fmt: on


@pytest.mark.parametrize(
    ("system", "sizes", "faults", "caught"), MISTAKES, ids=[f"{m[0].__name__}-{m[3]}" for m in MISTAKES]
)
def test_a_mistake_is_caught_by_the_property_that_is_about_it(
    system: type[System], sizes: Mapping[str, int], faults: tuple[str, ...], caught: str
) -> None:
    assert violated(check(system.__base__(edition="TRYSTATE", faults=faults, **sizes))) == set()  # type: ignore[misc]
    assert caught in violated(check(system(edition="TRYSTATE", faults=faults, **sizes)))


@pytest.mark.parametrize("system", [Watches, Barriers])
def test_every_property_has_a_mistake_that_it_catches(system: type[System]) -> None:
    faults = ALL_WATCH_FAULTS if system is Watches else ALL_BARRIER_FAULTS
    asked = {p.name for p in system(edition="TRYSTATE", faults=faults).properties if p.form is not Form.SOMETIMES}
    assert asked - {caught for mistaken, _, _, caught in MISTAKES if issubclass(mistaken, system)} == set()
