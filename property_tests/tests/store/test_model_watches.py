"""Watches and barriers: what each edition violates and why, pinned; and every property catches a mutant.

Rule: a mutant is one change of the edition TRYSTATE, which violates nothing as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from trystate.model import UsageError
from trystate.model.language import Expr, SymbolicState, all_, any_, ord_
from trystate.model.language.transitions import Rule
from trystate.model.store.barriers import Barriers
from trystate.model.store.barriers import Ours as OurBarriers
from trystate.model.store.barriers.fields import Reply
from trystate.model.store.vocabulary import Edition
from trystate.model.store.watches import Ours as OurWatches
from trystate.model.store.watches import Watches
from trystate.model.store.watches.fields import EVENTS, Message, Request
from trystate.property_tests.support.pinned import Asked, Mutant, model_tests

S = SymbolicState
SEED, TORCH, TRYSTATE = Edition.SEED, Edition.TORCH, Edition.TRYSTATE
SMALL, WATCHES = "client=2 key=1 writes=2", "client=2 key=1 writes=3"
TWO_KEYS, LARGE = "client=2 key=2 writes=2", "client=2 key=2 writes=3"
ITS_KEYS = "client=1 key=2 writes=2"
PAIR, TWICE = "client=2 world=2 rounds=1", "client=2 world=2 rounds=2"
TRIO, TRIO_TWICE = "client=3 world=3 rounds=1", "client=3 world=3 rounds=2"
NEARLY_ALL = ("again", "cancel", "drop", "leave", "newcomer", "slow")
ALL_BARRIER_FAULTS = ("delete", "drop", "timeout", "write")
TWICE_TOLD = "once_and_in_order callbacks_skip_nothing"
LEFT, CLOSED = "nothing_is_left_behind", "nobody_is_closed_for_another"
STRANGERS = f"{TWICE_TOLD} no_event_for_a_stranger {LEFT} {CLOSED}"
ON_ITS_WAY = "every_change_is_on_its_way"
NEVER = "watch_key_returns deadlock_freedom"
KEY, COUNTED = "keys_stay_untouched", "nobody_passes_before_all_are_in keys_stay_untouched"
FAILED = "failures_change_nothing"
DELETED = f"{COUNTED} {FAILED} a_full_barrier_opens enough_are_released only_arrivals_release the_released_return"
# fmt: off
COMPARED = (
    Asked(Watches, SEED, "client=2 key=1 writes=1", 708, STRANGERS, ("leave", "newcomer")),
    Asked(Watches, TRYSTATE, "client=2 key=1 writes=1", 217, "", ("slow",)),
    Asked(Watches, TRYSTATE, ITS_KEYS, 466, "", ("another",)),
    Asked(Barriers, TORCH, PAIR, 2021, DELETED, ALL_BARRIER_FAULTS),
    Asked(Barriers, TRYSTATE, PAIR, 650, "", ALL_BARRIER_FAULTS),
)
ASKED = (
    *COMPARED,
    Asked(Watches, SEED, SMALL, 453),
    Asked(Watches, SEED, TWO_KEYS, 2442),
    Asked(Watches, SEED, ITS_KEYS, 383, "", ("another",)),
    Asked(Watches, SEED, WATCHES, 13066, f"{STRANGERS} {ON_ITS_WAY}", ("leave", "newcomer")),
    Asked(Watches, SEED, TWO_KEYS, 27776, f"{STRANGERS} {ON_ITS_WAY} only_what_is_watched", ("leave", "newcomer")),
    Asked(Watches, SEED, WATCHES, 14943,
        f"{NEVER} the_lost_are_told {LEFT} {CLOSED} {ON_ITS_WAY} once_and_in_order", ("drop",)),
    Asked(Watches, SEED, WATCHES, 4700, "waiters_are_woken", ("wait",)),
    Asked(Watches, SEED, WATCHES, 4255, "watch_key_returns changes_are_answered", ("slow",)),
    Asked(Watches, SEED, WATCHES, 6461, TWICE_TOLD, ("again",)),
    Asked(Watches, SEED, WATCHES, 2435, NEVER, ("preempted",)),
    Asked(Watches, TRYSTATE, SMALL, 699),
    Asked(Watches, TRYSTATE, TWO_KEYS, 13094, "", ("another",)),
    Asked(Watches, TRYSTATE, "client=1 key=2 writes=3", 6516, "", ("another", "cancel")),
    Asked(Watches, TRYSTATE, "client=3 key=1 writes=3", 79079),
    Asked(Watches, TRYSTATE, LARGE, 102234, "", ("drop",)),
    Asked(Watches, TRYSTATE, LARGE, 74916, "", ("slow", "newcomer")),
    Asked(Watches, TRYSTATE, TWO_KEYS, 33848, "", ("cancel", "leave", "newcomer")),
    Asked(Watches, TRYSTATE, WATCHES, 146834, "", ("again", "drop", "newcomer")),
    Asked(Watches, TRYSTATE, WATCHES, 29874, "", ("slow", "wait")),
    Asked(Barriers, TORCH, PAIR, 12, KEY),
    Asked(Barriers, TORCH, TWICE, 33, COUNTED),
    Asked(Barriers, TORCH, TRIO_TWICE, 151, COUNTED),
    Asked(Barriers, TORCH, PAIR, 73, f"{COUNTED} {FAILED} the_released_return", ("timeout",)),
    Asked(Barriers, TORCH, TRIO, 268, f"{COUNTED} {FAILED} the_released_return", ("timeout",)),
    Asked(Barriers, TORCH, TRIO, 233, f"{COUNTED} {FAILED}", ("drop",)),
    Asked(Barriers, TORCH, PAIR, 40, f"{COUNTED} only_arrivals_release", ("write",)),
    Asked(Barriers, TORCH, PAIR, 33, f"{KEY} a_full_barrier_opens enough_are_released deadlock_freedom", ("delete",)),
    Asked(Barriers, TRYSTATE, PAIR, 12),
    Asked(Barriers, TRYSTATE, "client=3 world=2 rounds=1", 281, "", ("drop",)),
    Asked(Barriers, TRYSTATE, TRIO_TWICE, 1873, "", ("drop", "timeout")),
    Asked(Barriers, TRYSTATE, "client=3 world=2 rounds=2", 21995, "", ALL_BARRIER_FAULTS),
    Asked(Barriers, TRYSTATE, "client=4 world=3 rounds=2", 142795, "", ALL_BARRIER_FAULTS),
    Asked(Watches, TRYSTATE, WATCHES, 290941, "", ("cancel", "drop", "slow")),
    Asked(Watches, TRYSTATE, SMALL, 545355, "", NEARLY_ALL),
)
# fmt: on


def test_an_edition_without_the_request_is_refused() -> None:
    with pytest.raises(UsageError, match="no edition 'TORCH': it has SEED, TRYSTATE"):
        Watches(edition="TORCH")
    with pytest.raises(UsageError, match="no edition 'SEED': it has TORCH, TRYSTATE"):
        Barriers(edition="SEED")


# ---- mutants


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


class AcknowledgesOnly(OurWatches):
    """Acknowledges a watch without entering it into the table."""

    def _unlist(self, s: S, client: Expr, key: Expr) -> None:
        s.listed[client, key] = 0

    register = then(OurWatches.register, _unlist)


class DeletesQuietly(OurWatches):
    """Tells nobody of a deletion."""

    def announce(self, s: S, key: Expr, kind: Any, old: Any, new: Any) -> None:
        if kind is not Message.DELETED:
            super().announce(s, key, kind, old, new)


class TellsTwice(OurWatches):
    """Sends an event twice where there is room."""

    def announce(self, s: S, key: Expr, kind: Any, old: Any, new: Any) -> None:
        before = s.fork()
        super().announce(s, key, kind, old, new)
        for j in s.client:
            room = (before.listed[j, key] > 0) & before.messages[j].is_empty
            s.messages[j].push(when=room, kind=kind, key=1, old=old, new=new)


class Compacts(OurWatches):
    """Empties a full queue of CREATED and DELETED, instead of giving the watcher up."""

    def announce(self, s: S, key: Expr, kind: Any, old: Any, new: Any) -> None:
        for j in s.client:
            (_, first), (_, second) = s.messages[j]
            both = (first.kind == Message.CREATED) & (second.kind == Message.DELETED)
            s.messages[j].clear(when=s.messages[j].is_full & both)
        super().announce(s, key, kind, old, new)


class TellsOfTheLatest(OurWatches):
    """Calls the callback with the last event that has come, and drops those before."""

    def tells(self, s: S, client: Expr) -> None:
        last = s.fork().messages[client]
        s.messages[client].pop(when=last.is_full & last.read(1, "kind").isin(EVENTS))
        super().tells(s, client)


class TellsNoOldValue(OurWatches):
    """Leaves the old value of an event out."""

    def announce(self, s: S, key: Expr, kind: Any, old: Any, new: Any) -> None:
        super().announce(s, key, kind, 0, new)


class CallsEverythingAnUpdate(OurWatches):
    """Says UPDATED where a key comes to be."""

    def announce(self, s: S, key: Expr, kind: Any, old: Any, new: Any) -> None:
        super().announce(s, key, Message.UPDATED, old, new)


class TellsOfAllKeys(OurWatches):
    """Sends the events of one key to the watchers of all."""

    def announce(self, s: S, key: Expr, kind: Any, old: Any, new: Any) -> None:
        for j in s.client:
            watches = any_(s.listed[j, k] > 0 for k in s.key)
            s.messages[j].push(when=watches & ~s.messages[j].is_full, kind=kind, key=1, old=old, new=new)


class KeepsEntries(OurWatches):
    """Leaves a closed connection in the table, as torch 1.9 did."""

    def _end(self, s: S, client: Expr) -> None:
        before = s.fork()
        OurWatches.notice_end.body(self, s, client)
        for k in s.key:
            s.listed[client, k] = before.listed[client, k]

    notice_end = instead(OurWatches.notice_end, _end)


class GoesOnAfterCancelling(OurWatches):
    """Acknowledges that a watch is over, and keeps it."""

    def _list(self, s: S, client: Expr, key: Expr) -> None:
        s.listed[client, key] = 1

    unregister = then(OurWatches.unregister, _list)


class WakesForSetOnly(OurWatches):
    """Wakes waiters for a set, not for an append."""

    def put(self, s: S, client: Expr, key: Expr, verb: Message, *, wakes: bool = True) -> None:
        super().put(s, client, key, verb, wakes=verb is not Message.APPENDED)


class ClosesTheWriter(OurWatches):
    """Where a watcher is too slow it is the writer whose connection is closed as well."""

    def put(self, s: S, client: Expr, key: Expr, verb: Message, *, wakes: bool = True) -> None:
        before = s.fork()
        super().put(s, client, key, verb, wakes=wakes)
        s.shut[client] = ~self.all_fit(before, key)

    def all_fit(self, s: S, key: Expr) -> Any:
        return all_(self.fits(s, j, key) for j in s.client)


class AnswersNothing(OurWatches):
    """Registers a watch, and does not say so."""

    def answers(self, s: S, client: Expr, key: Expr, requests: tuple[Request, ...], answer: Message) -> Any:
        full = super().answers(s, client, key, requests, answer)
        s.messages[client].clear(when=answer is Message.REGISTERED)
        return full


class RegistersOneKey(OurWatches):
    """Takes no second key on a connection."""

    def _register(self, s: S, client: Expr, key: Expr) -> None:
        s.when(all_(s.listed[client, k] == 0 for k in s.key))
        OurWatches.register.body(self, s, client, key)

    register = instead(OurWatches.register, _register)


class HasOneCallback(OurWatches):
    """Forgets the callback of one key for that of another: its map has one place."""

    def _replace(self, s: S, client: Expr, key: Expr) -> None:
        for k in s.key:
            s.watched[client, k] = ord_(k) == ord_(key)

    watch_another = then(OurWatches.watch_another, _replace)


class CancelsAllKeys(OurWatches):
    """Takes all keys of a connection out of the table for the end of one watch."""

    def _unlist(self, s: S, client: Expr, key: Expr) -> None:
        for k in s.key:
            s.listed[client, k] = 0

    unregister = then(OurWatches.unregister, _unlist)


class ReadsWhenFull(OurWatches):
    """Lets events lie until there is no room for more."""

    def _wait(self, s: S, client: Expr) -> None:
        s.when(s.messages[client].is_full)
        OurWatches.run_callback.body(self, s, client)

    run_callback = instead(OurWatches.run_callback, _wait)


class LosesSilently(OurWatches):
    """Finds its connection closed, and tells nobody."""

    def _silent(self, s: S, client: Expr) -> None:
        before = s.fork()
        OurWatches.notice_loss.body(self, s, client)
        s.watcher[client] = before.watcher[client]

    notice_loss = instead(OurWatches.notice_loss, _silent)


class WaitsForReaders(OurWatches):
    """Serves a change only when every watcher has room, as torch 1.9 did."""

    def takes(self, s: S, client: Expr, key: Expr) -> None:
        self._fit(s, client, key)
        super().takes(s, client, key)

    def _fit(self, s: S, client: Expr, key: Expr) -> None:
        s.when(all_(self.fits(s, j, key) for j in s.client))

    change_nothing = then(OurWatches.change_nothing, _fit)


class CountsConnections(OurBarriers):
    """Counts connections instead of clients."""

    def moves(self, s: S, client: Expr) -> None:
        pass

    def arrived(self, s: S) -> Any:
        return s.waiting.count() + s.held.count()


class OpensTooEarly(OurBarriers):
    """Takes one client too few for all."""

    def arrived(self, s: S) -> Any:
        return super().arrived(s) + 1


class OpensTooLate(OurBarriers):
    """Waits for one client more than there has to be."""

    def arrived(self, s: S) -> Any:
        return super().arrived(s) - 1


class ReleasesTheLast(OurBarriers):
    """Answers only the client that arrives last."""

    def release(self, s: S, opens: Any, newcomer: Expr | None = None) -> None:
        if newcomer is not None:
            self.answer(s, newcomer, Reply.STOP, opens)
            s.waiting[newcomer] = s.waiting[newcomer] & ~opens


class KeepsTheAnswered(OurBarriers):
    """Leaves whom it has answered in the table."""

    def release(self, s: S, opens: Any, newcomer: Expr | None = None) -> None:
        before = s.fork()
        super().release(s, opens, newcomer)
        for j in s.client:
            s.waiting[j] = before.waiting[j]


class LivesInAKey(OurBarriers):
    """Has a key of its own in the store."""

    def _write(self, s: S, client: Expr) -> None:
        s.key = 1

    count_in = then(OurBarriers.count_in, _write)


class TimeoutWrites(OurBarriers):
    """Leaves a key when a barrier was not in time."""

    def _write(self, s: S, client: Expr) -> None:
        s.key = 1

    run_out_of_time = then(OurBarriers.run_out_of_time, _write)


class OpensForAKey(OurBarriers):
    """Releases who waits when somebody sets the key."""

    def _open(self, s: S) -> None:
        self.release(s, True)

    write_key = then(OurBarriers.write_key, _open)


class CountsTheLate(OurBarriers):
    """Tells a client that it was not in time, and counts it all the same."""

    def _late(self, s: S, client: Expr) -> None:
        s.when(s.waiting[client], s.replies[client].is_empty)
        self.answer(s, client, Reply.TIMED_OUT)

    run_out_of_time = instead(OurBarriers.run_out_of_time, _late)


class KeepsTheBroken(OurBarriers):
    """Keeps the arrival of a connection that it knows to be broken."""

    def _end(self, s: S, client: Expr) -> None:
        s.when(s.lost[client])
        s.lost[client] = False

    notice_end = instead(OurBarriers.notice_end, _end)


class SwallowsTimeouts(OurBarriers):
    """Never reads that it was not in time."""

    raise_timeout = None  # type: ignore[assignment]  # a step that is dropped


# fmt: off
MUTANTS: tuple[Mutant, ...] = (
    ("returned_means_registered", AcknowledgesOnly, SMALL, ()),
    ("every_change_is_on_its_way", DeletesQuietly, SMALL, ()),
    ("once_and_in_order", TellsTwice, SMALL, ()),
    ("once_and_in_order", Compacts, WATCHES, ()),
    ("callbacks_skip_nothing", TellsOfTheLatest, SMALL, ()),
    ("once_and_in_order", TellsNoOldValue, SMALL, ()),
    ("kinds_fit_the_values", TellsNoOldValue, SMALL, ()),
    ("kinds_fit_the_values", CallsEverythingAnUpdate, SMALL, ()),
    ("only_what_is_watched", TellsOfAllKeys, TWO_KEYS, ()),
    ("no_event_for_a_stranger", KeepsEntries, SMALL, ("leave", "newcomer")),
    ("nothing_is_left_behind", KeepsEntries, SMALL, ("drop",)),
    ("nothing_after_cancelling", GoesOnAfterCancelling, SMALL, ("cancel",)),
    ("waiters_are_woken", WakesForSetOnly, SMALL, ("wait",)),
    ("nobody_is_closed_for_another", ClosesTheWriter, WATCHES, ()),
    ("watch_key_returns", AnswersNothing, SMALL, ()),
    ("deadlock_freedom", AnswersNothing, SMALL, ()),
    ("another_watch_returns", RegistersOneKey, ITS_KEYS, ("another",)),
    ("only_what_is_watched", HasOneCallback, ITS_KEYS, ("another",)),
    ("events_reach_the_callback", HasOneCallback, ITS_KEYS, ("another",)),
    ("returned_means_registered", CancelsAllKeys, ITS_KEYS, ("another", "cancel")),
    ("events_reach_the_callback", ReadsWhenFull, SMALL, ()),
    ("the_lost_are_told", LosesSilently, SMALL, ("drop",)),
    ("changes_are_answered", WaitsForReaders, WATCHES, ("slow",)),
    ("nobody_passes_before_all_are_in", CountsConnections, PAIR, ("drop",)),
    ("nobody_passes_before_all_are_in", OpensTooEarly, PAIR, ()),
    ("a_full_barrier_opens", OpensTooLate, TRIO, ()),
    ("enough_are_released", OpensTooLate, TRIO, ()),
    ("all_go_together", ReleasesTheLast, PAIR, ()),
    ("released_once", KeepsTheAnswered, TWICE, ()),
    ("keys_stay_untouched", LivesInAKey, PAIR, ()),
    ("keys_stay_untouched", TimeoutWrites, PAIR, ("timeout",)),
    ("only_arrivals_release", OpensForAKey, PAIR, ("write",)),
    ("the_released_return", CountsTheLate, PAIR, ("timeout",)),
    ("failures_change_nothing", CountsTheLate, PAIR, ("timeout",)),
    ("failures_change_nothing", KeepsTheBroken, PAIR, ("drop",)),
    ("nothing_is_left_behind", KeepsTheBroken, PAIR, ("drop",)),
    ("timeouts_are_told", SwallowsTimeouts, PAIR, ("timeout",)),
    ("deadlock_freedom", SwallowsTimeouts, PAIR, ("timeout",)),
)
# fmt: on


(
    test_an_edition_violates_what_is_known_of_it_and_no_more,
    test_every_step_is_taken_and_every_claimed_move_is_made,
    test_the_engines_agree,
    test_a_mutant_is_caught_by_the_property_that_is_about_it,
    test_every_property_is_violated_by_a_mutant,
) = model_tests(ASKED, MUTANTS, COMPARED)
