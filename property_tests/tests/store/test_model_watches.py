"""The systems of watches, barriers and registrations: what each edition violates; and every property catches a mutant.

Rule: a mutant has one change of the edition TRYSTATE, which violates nothing without it.
"""

from __future__ import annotations

from typing import Any

import pytest

from trystate.model.language import Expr, SymbolicState, all_
from trystate.model.store import registrations
from trystate.model.store.barriers import Barriers, Reply
from trystate.model.store.barriers import Ours as OurBarriers
from trystate.model.store.registrations import Registrations
from trystate.model.store.vocabulary import Edition, Registration
from trystate.model.store.watches import Ours as OurWatches
from trystate.model.store.watches import Watches
from trystate.model.store.watches.fields import Message
from trystate.property_tests.support.mutants import altered
from trystate.property_tests.support.pinned import Asked, Mutant, bare, model_tests, of_plan, report, violated
from trystate.property_tests.support.systems.changed import before, both, changed, puts, then, when

S = SymbolicState
SEED, TORCH, TRYSTATE = Edition.SEED, Edition.TORCH, Edition.TRYSTATE
SMALL, WATCHES = "client=2 key=1 writes=2", "client=2 key=1 writes=3"
TWO_KEYS = "client=2 key=2 writes=2"
ITS_KEYS = "client=1 key=2 writes=2"
PAIR, TWICE = "client=2 world=2 rounds=1", "client=2 world=2 rounds=2"
TRIO = "client=3 world=3 rounds=1"
ALL_BARRIER_FAULTS = ("delete", "drop", "timeout", "write")
TWICE_TOLD = "once_and_in_order callbacks_skip_nothing"
LEFT, CLOSED = "nothing_is_left_behind", "nobody_is_closed_for_another"
STRANGERS = f"{TWICE_TOLD} no_event_for_a_stranger {LEFT} {CLOSED}"
COUNTED = "nobody_passes_before_all_are_in keys_stay_untouched"
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
    Asked(Watches, SEED, ITS_KEYS, 383, "", ("another",)),
    Asked(Watches, TRYSTATE, TWO_KEYS, 13094, "", ("another",)),
    Asked(Watches, TRYSTATE, "client=1 key=2 writes=3", 6516, "", ("another", "cancel")),
    *of_plan(Watches, Barriers, most=200_000),
)
# fmt: on


# ---- mutants


all_fit = when(lambda self, s, client, key: all_(self.fits(s, j, key) for j in s.client))
KeepsEntries = changed(OurWatches, "KeepsEntries", unlists=lambda *_: None)
WaitsForReaders = changed(
    OurWatches,
    "WaitsForReaders",
    takes=both(all_fit, OurWatches.takes),
    change_nothing=then(OurWatches.change_nothing, all_fit),
)
# fmt: off
AnswersNothing = altered("AnswersNothing", OurWatches, "register", "full = self.registers(s, client, key)",
    "full = self.registers(s, client, key); s.messages[client].clear()")
KeepsTheAnswered = altered("KeepsTheAnswered", OurBarriers, "release", "s.waiting[j] & ~out", "before.waiting[j]")
# fmt: on


def of_event(kind: Any) -> Any:
    """Events have this kind."""

    def announce(self: Any, s: S, key: Expr, _: Any, old: Any, new: Any) -> None:
        OurWatches.announce(self, s, key, kind, old, new)

    return announce


OpensTooLate = changed(OurBarriers, "OpensTooLate", arrived=lambda self, s: OurBarriers.arrived(self, s) - 1)
KeepsTheBroken = changed(
    OurBarriers, "KeepsTheBroken", notice_end=both(when(lambda self, s, client: s.lost[client]), puts(lost=False))
)
CountsTheLate = changed(
    OurBarriers,
    "CountsTheLate",
    run_out_of_time=both(
        when(lambda self, s, client: s.waiting[client] & s.replies[client].is_empty),
        lambda self, s, client: self.answer(s, client, Reply.TIMED_OUT),
    ),
)
SwallowsTimeouts = changed(OurBarriers, "SwallowsTimeouts", raise_timeout=None)

# fmt: off
MUTANTS: tuple[Mutant, ...] = (
    ("returned_means_registered", changed(OurWatches, "AcknowledgesOnly", register=then(OurWatches.register,
        puts(listed=0))), SMALL, ()),
    ("every_change_is_on_its_way", altered("DeletesQuietly", OurWatches, "announce", "told & ~full,",
        "told & ~full & (kind is not Message.DELETED),"), SMALL, ()),
    ("once_and_in_order", altered("TellsTwice", OurWatches, "announce", "self.give_up(s, j, full)",
        "self.give_up(s, j, full); s.messages[j].push(when=told & before.messages[j].is_empty, **event)"), SMALL, ()),
    ("callbacks_skip_nothing", altered("TellsOfTheLatest", OurWatches, "tells", "event = ",
        "last = s.fork().messages[client]; s.messages[client].pop(when=last.is_full"
        " & last.read(1, 'kind').isin(EVENTS)); event = "), SMALL, ()),
    ("kinds_fit_the_values", changed(OurWatches, "CallsEverythingAnUpdate", announce=of_event(Message.UPDATED)),
        SMALL, ()),
    ("only_what_is_watched", altered("TellsOfAllKeys", OurWatches, "announce", "before.listed[j, key] > 0",
        "before.listed[j, 0] + before.listed[j, 1] > 0"), TWO_KEYS, ()),
    ("no_event_for_a_stranger", KeepsEntries, SMALL, ("leave", "newcomer")),
    ("nothing_is_left_behind", KeepsEntries, SMALL, ("drop",)),
    ("nothing_after_cancelling", changed(OurWatches, "GoesOnAfterCancelling", unregister=then(OurWatches.unregister,
        puts(listed=1))), SMALL, ("cancel",)),
    ("waiters_are_woken", altered("WakesForSetOnly", OurWatches, "append", "APPENDED)", "APPENDED, wakes=False)"),
        SMALL, ("wait",)),
    ("nobody_is_closed_for_another", altered("ClosesTheWriter", OurWatches, "put", "before = s.fork()",
        "before = s.fork(); s.shut[client] = any_(~self.fits(s, j, key) for j in s.client)"), WATCHES, ()),
    ("watch_key_returns", AnswersNothing, SMALL, ()),
    ("deadlock_freedom", AnswersNothing, SMALL, ()),
    ("another_watch_returns", changed(OurWatches, "RegistersOneKey", register=before(OurWatches.register,
        when(lambda self, s, client, key: all_(s.listed[client, k] == 0 for k in s.key)))), ITS_KEYS, ("another",)),
    ("events_reach_the_callback", changed(OurWatches, "ReadsWhenFull", run_callback=before(OurWatches.run_callback,
        when(lambda self, s, client: s.messages[client].is_full))), SMALL, ()),
    ("the_lost_are_told", altered("LosesSilently", OurWatches, "notice_loss",
        "s.watcher[client] = ite(self.watches(s, client), Watcher.LOST, s.watcher[client])", "pass"), SMALL, ("drop",)),
    ("changes_are_answered", WaitsForReaders, WATCHES, ("slow",)),
    ("nobody_passes_before_all_are_in", changed(OurBarriers, "CountsConnections", moves=lambda *_: None,
        arrived=lambda self, s: s.waiting.count() + s.held.count()), PAIR, ("drop",)),
    ("a_full_barrier_opens", OpensTooLate, TRIO, ()),
    ("enough_are_released", OpensTooLate, TRIO, ()),
    ("all_go_together", altered("ReleasesTheLast", OurBarriers, "release", "before.waiting[j] | own", "own"), PAIR, ()),
    ("released_once", KeepsTheAnswered, TWICE, ()),
    ("keys_stay_untouched", changed(OurBarriers, "LivesInAKey", count_in=then(OurBarriers.count_in, puts(key=1))),
        PAIR, ()),
    ("only_arrivals_release", changed(OurBarriers, "OpensForAKey", write_key=then(OurBarriers.write_key, lambda self,
        s: self.release(s, True))), PAIR, ("write",)),
    ("the_released_return", CountsTheLate, PAIR, ("timeout",)),
    ("failures_change_nothing", CountsTheLate, PAIR, ("timeout",)),
    ("nothing_is_left_behind", KeepsTheBroken, PAIR, ("drop",)),
    ("timeouts_are_told", SwallowsTimeouts, PAIR, ("timeout",)),
    ("deadlock_freedom", SwallowsTimeouts, PAIR, ("timeout",)),
)
# fmt: on


TestModel = model_tests(ASKED, MUTANTS, COMPARED)


# ---- registrations

# fmt: off
REGISTRATIONS = (
    Asked(Registrations, TRYSTATE, "thread=2", 27),
    Asked(Registrations, TRYSTATE, "thread=3", 159),
    Asked(Registrations, SEED, "thread=2", 33),
    Asked(Registrations, SEED, "thread=3", 135),
)
# fmt: on
DEPTHS = {SEED: (44, 12), TRYSTATE: (40, 8)}  # edges and depth with two threads


WakesAny = altered("WakesAny", registrations.Ours, "acknowledge", "s.answers.head.thread == ord_(thread) + 1",
    "s.call[thread] == Call.SENT")  # fmt: skip
WithoutTheMutex = changed(registrations.Seed, "WithoutTheMutex", take_the_mutex=None, may_send=Registrations.may_send)
KeepsTheMutex = changed(registrations.Seed, "KeepsTheMutex", returns=puts(call=Registration.RETURNED))
# fmt: off
OF_REGISTRATIONS = (
    ("returned_means_registered", WithoutTheMutex, "thread=2", ()),
    ("one_is_between", WithoutTheMutex, "thread=2", ()),
    ("calls_return", KeepsTheMutex, "thread=2", ()),
    ("deadlock_freedom", KeepsTheMutex, "thread=2", ()),
)
# fmt: on

TestRegistrations = model_tests(REGISTRATIONS, OF_REGISTRATIONS, REGISTRATIONS)


@pytest.mark.parametrize("edition", DEPTHS)
def test_the_graph_is_of_this_size(edition: Edition) -> None:
    found = report(Asked(Registrations, edition, "thread=2", 0)).exploration
    assert (found.edges, found.depth) == DEPTHS[edition]


def test_an_acknowledgement_of_ours_for_any_thread_is_caught() -> None:
    assert "returned_means_registered" in violated(report(Asked(bare(WakesAny), TRYSTATE, "thread=2", 0)))
