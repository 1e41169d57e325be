"""The systems of the stores: what each edition violates, and that each property can be violated.

Every property is checked on servers of ours with one mistake: a property that no mistake violates would be worthless.
"""

from __future__ import annotations

from typing import Any

from trystate.model.language import Expr, SymbolicState, all_, not_
from trystate.model.store import frames, registrations, startup
from trystate.model.store.barriers import Barriers, Reply
from trystate.model.store.barriers import Ours as OurBarriers
from trystate.model.store.frames import Frames
from trystate.model.store.queues import Ours as OurQueues
from trystate.model.store.queues import Queues
from trystate.model.store.registers import Ours as OurRegisters
from trystate.model.store.registers import Registers
from trystate.model.store.registrations import Registrations
from trystate.model.store.startup import StartUps
from trystate.model.store.vocabulary import Connection, Edition, Fragment, Registration, Serving, StartUp, Waiter
from trystate.model.store.waits import Ours as OurWaits
from trystate.model.store.waits import Seed, Waits
from trystate.model.store.waits.fields import Answer as WaitAnswer
from trystate.model.store.watches import Ours as OurWatches
from trystate.model.store.watches import Watches
from trystate.model.store.watches.fields import Message
from trystate.property_tests.support.mutants import altered
from trystate.property_tests.support.pinned import Asked, Mutant, model_tests, of_plan
from trystate.property_tests.support.systems.changed import before, both, changed, puts, then, when

S = SymbolicState
SEED, TORCH, TRYSTATE = Edition.SEED, Edition.TORCH, Edition.TRYSTATE
ASKED = of_plan(Waits, Queues, most=200_000)


# ---- waits


def returns_late(self: Any, s: S, client: Expr) -> None:
    """A call returns as if satisfied, although its wait was cancelled."""
    self.reads(s, client, Waiter.CANCELLING, WaitAnswer.WAIT_CANCELED)
    self.ends(s, client, Waiter.SATISFIED)


CLEANS_NOTHING = changed(
    OurWaits,
    "CleansNothing",
    closes=lambda self, s, client, when: puts(closed=s.closed[client] | when)(self, s, client),
)
WAKES_NOBODY = changed(OurWaits, "WakesNobody", wakes=lambda self, s, key: None)
NEVER_GIVES_UP = changed(OurWaits, "NeverGivesUp", stop_reading=None)  # the server keeps our client's deadline

# ---- queues


def gives_back_silently(self: Any, s: S, client: Expr) -> None:
    number = s.reserved[client]
    s.reserved[client] = 0
    self.puts_back(s, number)


GIVES_BACK_SILENTLY = changed(OurQueues, "GivesBackSilently", gives_back=gives_back_silently)
PUSH_TELLS_GETTERS = changed(OurQueues, "PushTellsGetters", is_told=lambda self, s, client: s.on_key[client] > 0)
FORGETS_NOTHING = changed(
    OurQueues,
    "ForgetsNothing",
    forget_connection=both(when(lambda self, s, client: s.lost[client] & ~s.closed[client]), puts(closed=True)),
)


# fmt: off
MUTANTS = (
    ("no_wake_up_is_lost", WAKES_NOBODY, "client=1 key=1", ()),
    ("ready_waits_return", WAKES_NOBODY, "client=1 key=1", ()),
    ("keys_were_there_together", changed(OurWaits, "CountsDown", goes_missing=lambda *_: None), "client=1 key=2", ()),
    ("a_get_returns_what_was_set", changed(OurWaits, "KeepsNothing", keeps=lambda *_: None), "client=1 key=1", ()),
    ("answers_are_in_step", changed(OurWaits, "CancelsNothing", time_out=None,
        time_out_silently=Seed.time_out_silently), "client=1 key=1", ()),
    ("nobody_is_thrown_out", changed(OurWaits, "ClosesAfterEveryGet",
        closes=lambda self, s, client, _: OurWaits.closes(self, s, client, True)), "client=1 key=1", ()),
    ("nothing_of_a_closed_connection_is_left", CLEANS_NOTHING, "client=1 key=1", ("drop",)),
    ("only_writes_change_keys", changed(OurWaits, "FailedCompareSetDeletes", compare_set_fails=puts(holds=0)),
        "client=1 key=1", ()),
    ("the_late_raise", changed(OurWaits, "ReturnsLate", read_cancelled=returns_late), "client=1 key=1", ()),
    ("late_operations_end", NEVER_GIVES_UP, "client=1 key=1 torch_clients=0", ("freeze",)),
    ("deadlock_freedom", NEVER_GIVES_UP, "client=1 key=1 torch_clients=0", ("freeze",)),
    ("elements_are_delivered_once", altered("PopsWithoutRemoving", OurQueues, "take_pop_in_one", "s.queue.pop()",
        "pass"), "client=1 torch_clients=0", ()),
    ("no_element_vanishes", changed(OurQueues, "DropsReservations", gives_back=puts(reserved=0)),
        "client=1 torch_clients=1", ()),
    ("elements_leave_in_order", altered("GivesBackToTheFront", OurQueues, "puts_back", "place.element < number",
        "place.element < 0"), "client=2 torch_clients=2", ()),
    ("no_popper_sleeps_beside_an_element", GIVES_BACK_SILENTLY, "client=2 torch_clients=2", ()),
    ("poppers_are_served", GIVES_BACK_SILENTLY, "client=2 torch_clients=2", ()),
    ("a_blocking_pop_never_says_empty", changed(OurQueues, "ReservesTooBriefly",
        send_pop=then(OurQueues.send_pop, OurQueues.gives_back)), "client=2 torch_clients=2", ()),
    ("a_get_waits_for_its_key", PUSH_TELLS_GETTERS, "client=1", ()),
    ("both_were_there_together", PUSH_TELLS_GETTERS, "client=1", ()),
    ("a_wait_for_both_is_told", GIVES_BACK_SILENTLY, "client=2 torch_clients=2", ()),
    ("nothing_of_a_closed_connection_is_left", FORGETS_NOTHING, "client=1", ("drop",)),
    ("reservations_come_back", FORGETS_NOTHING, "client=1", ("drop",)),
    ("deadlock_freedom", changed(OurQueues, "NeverCancels", cancel_wait=None), "client=1", ()),
)
# fmt: on


# torch 1.9 does not cancel waits, so no answer meets a cancel.
SMALL = [a for a in ASKED if a.states < 700]
TestModel = model_tests(ASKED, MUTANTS, SMALL, unreached={SEED: ["an_answer_meets_a_cancel"]})


# ---- watches and barriers

ONE_KEY, WATCHES = "client=2 key=1 writes=2", "client=2 key=1 writes=3"
TWO_KEYS = "client=2 key=2 writes=2"
ITS_KEYS = "client=1 key=2 writes=2"
PAIR = "client=2 world=2 rounds=1"
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
OF_WATCHES = (
    *COMPARED,
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
TellsTwice = altered("TellsTwice", OurWatches, "announce", "self.give_up(s, j, full)",
    "self.give_up(s, j, full); s.messages[j].push(when=told & before.messages[j].is_empty, **event)")
# fmt: on


def of_event(kind: Any) -> Any:
    """Events have this kind."""

    def announce(self: Any, s: S, key: Expr, _: Any, old: Any, new: Any) -> None:
        OurWatches.announce(self, s, key, kind, old, new)

    return announce


OpensTooLate = changed(OurBarriers, "OpensTooLate", arrived=lambda self, s: OurBarriers.arrived(self, s) - 1)
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
WRONG_WATCHES: tuple[Mutant, ...] = (
    ("returned_means_registered", changed(OurWatches, "AcknowledgesOnly", register=then(OurWatches.register,
        puts(listed=0))), ONE_KEY, ()),
    ("every_change_is_on_its_way", altered("DeletesQuietly", OurWatches, "announce", "told & ~full,",
        "told & ~full & (kind is not Sent.DELETED),"), ONE_KEY, ()),
    ("once_and_in_order", TellsTwice, ONE_KEY, ()),
    ("callbacks_skip_nothing", TellsTwice, ONE_KEY, ()),
    ("kinds_fit_the_values", changed(OurWatches, "CallsEverythingAnUpdate", announce=of_event(Message.UPDATED)),
        ONE_KEY, ()),
    ("only_what_is_watched", altered("TellsOfAllKeys", OurWatches, "announce", "before.listed[j, key] > 0",
        "any_(before.listed[j, k] > 0 for k in before.key)"), TWO_KEYS, ()),
    ("no_event_for_a_stranger", KeepsEntries, ONE_KEY, ("leave", "newcomer")),
    ("nothing_is_left_behind", KeepsEntries, ONE_KEY, ("drop",)),
    ("nothing_after_cancelling", changed(OurWatches, "GoesOnAfterCancelling", unregister=then(OurWatches.unregister,
        puts(listed=1))), ONE_KEY, ("cancel",)),
    ("waiters_are_woken", altered("WakesForSetOnly", OurWatches, "append", "APPENDED)", "APPENDED, wakes=False)"),
        ONE_KEY, ("wait",)),
    ("nobody_is_closed_for_another", altered("ClosesTheWriter", OurWatches, "put", "before = s.fork()",
        "before = s.fork(); s.shut[client] = any_(~self.fits(s, j, key) for j in s.client)"), WATCHES, ()),
    ("watch_key_returns", AnswersNothing, ONE_KEY, ()),
    ("deadlock_freedom", AnswersNothing, ONE_KEY, ()),
    ("another_watch_returns", changed(OurWatches, "RegistersOneKey", register=before(OurWatches.register,
        when(lambda self, s, client, key: all_(s.listed[client, k] == 0 for k in s.key)))), ITS_KEYS, ("another",)),
    ("events_reach_the_callback", changed(OurWatches, "ReadsWhenFull", run_callback=before(OurWatches.run_callback,
        when(lambda self, s, client: s.messages[client].is_full))), ONE_KEY, ()),
    ("the_lost_are_told", altered("LosesSilently", OurWatches, "notice_loss",
        "s.watcher[client] = ite(self.watches(s, client), Watcher.LOST, s.watcher[client])", "pass"), ONE_KEY,
        ("drop",)),
    ("changes_are_answered", WaitsForReaders, WATCHES, ("slow",)),
    ("nobody_passes_before_all_are_in", CountsTheLate, PAIR, ("timeout",)),
    ("a_full_barrier_opens", OpensTooLate, TRIO, ()),
    ("enough_are_released", OpensTooLate, TRIO, ()),
    ("all_go_together", altered("ReleasesTheLast", OurBarriers, "release", "before.waiting[j] | own", "own"), PAIR, ()),
    ("released_once", CountsTheLate, PAIR, ("timeout",)),
    ("keys_stay_untouched", changed(OurBarriers, "LivesInAKey", count_in=then(OurBarriers.count_in, puts(key=1))),
        PAIR, ()),
    ("only_arrivals_release", changed(OurBarriers, "OpensForAKey", write_key=then(OurBarriers.write_key, lambda self,
        s: self.release(s, True))), PAIR, ("write",)),
    ("the_released_return", CountsTheLate, PAIR, ("timeout",)),
    ("failures_change_nothing", CountsTheLate, PAIR, ("timeout",)),
    ("nothing_is_left_behind", CountsTheLate, PAIR, ("timeout",)),
    ("timeouts_are_told", SwallowsTimeouts, PAIR, ("timeout",)),
    ("deadlock_freedom", SwallowsTimeouts, PAIR, ("timeout",)),
)
# fmt: on


TestWatches = model_tests(OF_WATCHES, WRONG_WATCHES, COMPARED)


# ---- registrations

# fmt: off
REGISTRATIONS = (
    Asked(Registrations, TRYSTATE, "thread=3", 159),
    Asked(Registrations, SEED, "thread=3", 135),
    *of_plan(Registrations),
)
# fmt: on


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


# ---- frames and start-ups

STRANGER = "only_the_validated_are_served"
WRONGED, REMAINS = "who_keeps_the_rules_stays", "nothing_is_left_of_the_closed"
MISCOUNTED = "started_means_enough_are_counted only_the_start_up_counts the_constructor_ends deadlock_freedom"
FOUR = ("crash", "freeze", "overwrite", "stop")
# fmt: off
OF_FRAMES = (
    *of_plan(Frames, StartUps),
    Asked(Frames, SEED, "connection=1", 15, STRANGER),
    Asked(Frames, TORCH, "connection=1", 358, f"requests_are_whole {STRANGER} {WRONGED} {REMAINS}"),
    Asked(Frames, TRYSTATE, "connection=1", 43, "", ("stop",)),
    Asked(StartUps, SEED, "client=3", 4331, MISCOUNTED, FOUR),
    Asked(StartUps, TRYSTATE, "client=2", 411, "", ("again", *FOUR)),
)
# fmt: on


def holds_nothing(self: Any, s: S) -> Any:
    return all_(held == Fragment.NOTHING for held in s.held)


WantsValidateWhole = changed(
    frames.Ours,
    "WantsValidateWhole",
    begin_to_validate=both(
        when(lambda self, s, connection: s.at[connection] == Connection.CONNECTING),
        lambda self, s, connection: self.close(s, connection, breaks_a_rule=False),
    ),
)
ServesStrangers = changed(
    frames.Ours,
    "ServesStrangers",
    stranger_is_refused=both(
        when(lambda self, s, connection: s.at[connection] == Connection.CONNECTING), puts(at=Connection.READY)
    ),
)
LeavesThemOpen = changed(
    frames.Ours,
    "LeavesThemOpen",
    finish=both(when(lambda self, s: s.serving == Serving.ENDING), puts(serving=Serving.ENDED)),
)
TakesAnyNumber = changed(
    startup.Ours, "TakesAnyNumber", overwrite=lambda self, s, number: setattr(s, "counter", number)
)
WritesWhatItHas = changed(frames.Ours, "WritesWhatItHas", set_begins=then(frames.Ours.set_begins, frames.Ours.write))
ReadsWithoutEnd = changed(startup.Ours, "ReadsWithoutEnd", counting_times_out=None)
ServesOn = changed(startup.Ours, "ServesOn", fails=puts(phase=StartUp.FAILED))

# fmt: off
WRONG_FRAMES = (
    ("requests_are_whole", WritesWhatItHas, "connection=1", ()),
    ("nothing_is_undone", WritesWhatItHas, "connection=2", ()),
    ("only_the_validated_are_served", ServesStrangers, "connection=1", ()),
    ("who_keeps_the_rules_stays", WantsValidateWhole, "connection=1", ()),
    ("nothing_is_left_of_the_closed", changed(frames.Ours, "ForgetsNothing", forget=lambda *_: None), "connection=1",
        ()),
    ("what_returned_has_happened", changed(frames.Ours, "AnswersFirst",
        ask=then(frames.Ours.ask, puts(returned=True))), "connection=1", ("stop",)),
    ("requests_are_served", changed(frames.Ours, "ReadsToTheEnd", is_free=holds_nothing), "connection=2", ()),
    ("an_end_is_reached", changed(frames.Ours, "WaitsForHalves",
        finish=before(frames.Ours.finish, when(holds_nothing))), "connection=1", ("end",)),
    ("an_end_leaves_nothing", LeavesThemOpen, "connection=1", ("end",)),
    ("deadlock_freedom", changed(frames.Ours, "NeverCleansUp", clean_up=None), "connection=1", ()),
    ("started_means_enough_are_counted", TakesAnyNumber, "client=2", ("overwrite",)),
    ("only_the_start_up_counts", TakesAnyNumber, "client=2", ("overwrite",)),
    ("a_master_that_failed_serves_nobody", ServesOn, "client=2", ()),
    ("a_constructor_that_failed_leaves_nothing", ServesOn, "client=2", ()),
    ("enough_counted_means_started", TakesAnyNumber, "client=2", ("overwrite",)),
    ("the_constructor_ends", ReadsWithoutEnd, "client=2", ("freeze",)),
    ("deadlock_freedom", ReadsWithoutEnd, "client=2", ("freeze",)),
)
# fmt: on


TestFrames = model_tests(OF_FRAMES, WRONG_FRAMES, [a for a in OF_FRAMES if a.states < 500])


# ---- registers

# fmt: off
REGISTERS = (
    Asked(Registers, SEED, "client=1 value=1", 62, "", ("drop",)),
    Asked(Registers, TORCH, "client=1 value=1", 84, "requests_are_whole", ("drop",)),
    Asked(Registers, TRYSTATE, "client=1 value=1", 82, "", ("drop",)),
    Asked(Registers, TRYSTATE, "client=3 value=1", 199186, "", ("drop",)),
    *of_plan(Registers, most=400_000),
)
# fmt: on


# fmt: off
SaysItIsStored = changed(OurRegisters, "SaysItIsStored", reply=lambda self, value, expected, desired, matches: desired)
ComparesNothing = changed(OurRegisters, "ComparesNothing", is_match=lambda *_: not_(False))
TakesHalves = changed(OurRegisters, "TakesHalves", takes_half=lambda self, s, value: self.stores(s, 1, value))
NeverAnswers = changed(OurRegisters, "NeverAnswers", read_answer=None)
OF_REGISTERS = (
    ("answers_are_those_of_one_moment", ComparesNothing, "client=1", ()),
    ("at_most_one_wins", ComparesNothing, "client=2", ()),
    ("desired_means_it_is_there", SaysItIsStored, "client=1", ()),
    ("failing_changes_nothing", ComparesNothing, "client=1", ()),
    ("multi_sets_are_seen_whole", TakesHalves, "client=2 value=1", ()),
    ("requests_are_whole", TakesHalves, "client=1 value=1", ("drop",)),
    ("operations_return", NeverAnswers, "client=1 value=1", ()),
    ("deadlock_freedom", NeverAnswers, "client=1 value=1", ()),
)
# fmt: on


TestRegisters = model_tests(REGISTERS, OF_REGISTERS, [a for a in REGISTERS if a.states < 100])
