"""The systems of waits and queues: what each edition violates, and that each property can be violated.

Every property is asked of a server of ours that is wrong in one place: a property that nothing violates says nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from trystate.model.errors import UsageError
from trystate.model.language import Expr, SymbolicState, ite, not_, transition
from trystate.model.store.queues import Ours as OurQueues
from trystate.model.store.queues import Queues
from trystate.model.store.queues.fields import Answer as QueueAnswer
from trystate.model.store.queues.fields import Request as QueueRequest
from trystate.model.store.vocabulary import Edition, Waiter
from trystate.model.store.waits import Ours as OurWaits
from trystate.model.store.waits import Seed, Waits
from trystate.model.store.waits.fields import Answer as WaitAnswer
from trystate.model.store.waits.properties import WRITES
from trystate.property_tests.support.pinned import Asked, model_tests

S = SymbolicState
SEED, TORCH, TRYSTATE = Edition.SEED, Edition.TORCH, Edition.TRYSTATE
ALL = ("drop", "freeze", "half_frame")
KEYS, GET, STEP = "keys_were_there_together", "a_get_returns_what_was_set", "answers_are_in_step"
SLEEP, FROZEN = "no_wake_up_is_lost ready_waits_return", "late_operations_end deadlock_freedom"
LEFT, THROWN = "nothing_of_a_closed_connection_is_left", "nobody_is_thrown_out"
TAKEN, EMPTY = "no_popper_sleeps_beside_an_element poppers_are_served", "a_blocking_pop_never_says_empty"
PUSHED, EARLY, UNTOLD = "a_get_waits_for_its_key", "both_were_there_together", "a_wait_for_both_is_told"
# fmt: off
ASKED = (
    # one cause each: an answer that comes late, a compare_set that wakes nobody
    Asked(Waits, SEED, "client=1 key=1 deletes=0 compares=0", 303, STEP),
    Asked(Waits, SEED, "client=1 key=1 deletes=0 compares=1", 527, f"{STEP} {SLEEP}"),
    Asked(Waits, SEED, "client=1 key=1 value=2 deletes=1 compares=0", 1786, f"{STEP} {KEYS} {THROWN}"),
    Asked(Waits, SEED, "client=1 key=2", 84512, f"{STEP} {SLEEP} {KEYS} {THROWN}", ALL),
    # one cause each: a compare_set that fails, a key that is deleted, a counter, a frozen server, half a request
    Asked(Waits, TORCH, "client=1 key=1 deletes=0 compares=0", 100),
    Asked(Waits, TORCH, "client=1 key=1 deletes=0 compares=1", 180, f"{KEYS} {GET}"),
    Asked(Waits, TORCH, "client=1 key=1 deletes=1 compares=0", 180, GET),
    Asked(Waits, TORCH, "client=1 key=2 deletes=1 compares=0", 658, f"{KEYS} {GET}"),
    Asked(Waits, TORCH, "client=2 key=2 deletes=0 compares=0", 49696, FROZEN, ("freeze",)),
    Asked(Waits, TORCH, "client=2 key=2 deletes=0 compares=0", 70656, LEFT, ("half_frame",)),
    Asked(Waits, TORCH, "client=2 key=2 deletes=0 compares=0", 85872, "", ("drop",)),
    Asked(Waits, TRYSTATE, "client=2 key=2", 144320),
    Asked(Waits, TRYSTATE, "client=1 key=2 value=2 torch_clients=0", 9360, "", ALL),
    Asked(Waits, TRYSTATE, "client=1 key=3", 42192, "", ALL),
    # clients that stay in the line; with them, a ready queue that is counted; without both: taken wakes and elements
    Asked(Queues, TORCH, "client=1 both=0", 326, f"{PUSHED} {EMPTY}"),
    Asked(Queues, TORCH, "client=1", 425, f"{PUSHED} {EMPTY} {EARLY} {UNTOLD}"),
    Asked(Queues, TORCH, "client=2 element=1 both=0", 3959, f"{TAKEN} {EMPTY}"),
    Asked(Queues, TORCH, "client=2 both=0 timeouts=0", 6160, f"{TAKEN} {EMPTY} {PUSHED}"),
    Asked(Queues, TORCH, "client=2", 78554, f"{TAKEN} {EMPTY} {PUSHED} {EARLY} {UNTOLD}", ("drop",)),
    Asked(Queues, TRYSTATE, "client=2 torch_clients=0", 44575, "", ("drop",)),
    Asked(Queues, TRYSTATE, "client=2 torch_clients=1", 128889, "", ("drop", "dawdle")),
    Asked(Queues, TRYSTATE, "client=2 torch_clients=2", 182312, "", ("drop", "dawdle")),
    Asked(Waits, TRYSTATE, "client=2 key=1 value=2", 904896, "", ALL),
)
# fmt: on


def test_there_is_no_queue_in_the_oldest_edition() -> None:
    with pytest.raises(UsageError, match=r"no edition .*SEED.*: it has TORCH, TRYSTATE"):
        Queues(edition=SEED)


# ---- waits


class TellsNobody(OurWaits):
    """A write wakes nobody."""

    def wakes(self, s: S, key: Expr) -> None:
        pass


class CountsDown(OurWaits):
    """A key that is deleted again still counts."""

    def goes_missing(self, s: S, key: Expr) -> None:
        pass


class KeepsNothing(OurWaits):
    """The value that satisfied a wait is not kept for the GET that follows."""

    def keeps(self, s: S, client: Expr, target: Any, when: Any) -> None:
        pass


class ForgetsToDrop(OurWaits):
    """The value that satisfied a wait is kept until a later GET."""

    def drops_kept(self, s: S, client: Expr) -> None:
        pass

    def keeps(self, s: S, client: Expr, target: Any, when: Any) -> None:
        for k in s.key:
            s.kept[k, client] = ite(
                (s.kept[k, client] == 0) & when & self.among(target, k), s.holds[k], s.kept[k, client]
            )


class NeverTimesOut(OurWaits):
    """A client of torch's waits for as long as it takes."""

    time_out = None  # type: ignore[assignment]


class NeverExpires(OurWaits):
    """The server does not look at the deadline of our client's request."""

    expires = None  # type: ignore[assignment]


class NeverGivesUp(OurWaits):
    """Our client leaves it to the server to look at the time."""

    stop_reading = None  # type: ignore[assignment]


class ReturnsLate(OurWaits):
    """A client that has cancelled returns all the same."""

    @transition(each="client")
    def read_cancelled(self, s: S, client: Expr) -> None:
        """The wait was cancelled, and nobody is told."""
        self.reads(s, client, Waiter.CANCELLING, WaitAnswer.WAIT_CANCELED)
        self.ends(s, client, Waiter.SATISFIED)


class FailedCompareSetDeletes(OurWaits):
    """A compare_set that fails deletes the key."""

    @transition(each="key")
    def compare_set_fails(self, s: S, key: Expr) -> None:
        """The key is gone."""
        s.holds[key] = 0


class CancelsNothing(OurWaits):
    """A client that takes too long sends no CANCEL_WAIT."""

    time_out = None  # type: ignore[assignment]
    time_out_silently = Seed.time_out_silently


class ClosesAfterEveryGet(OurWaits):
    """The server closes the connection of whoever asks for a value."""

    def closes(self, s: S, client: Expr, when: Any) -> None:
        super().closes(s, client, True)


class CleansNothing(OurWaits):
    """A connection that closes stays in the lists of waiters."""

    def closes(self, s: S, client: Expr, when: Any) -> None:
        s.closed[client] = s.closed[client] | when


class CancelDeletes(OurWaits):
    """A CANCEL_WAIT deletes keys."""

    def drops_kept(self, s: S, client: Expr) -> None:
        super().drops_kept(s, client)
        for k in s.key:
            s.holds[k] = 0


class NeverTakesAWait(OurWaits):
    """The server may leave a WAIT unread for ever."""

    take_wait = replace(OurWaits.take_wait, fair=False)


# ---- queues


class PopsWithoutRemoving(OurQueues):
    """An element that is popped stays in the queue."""

    @transition(each="client")
    def take_pop_in_one(self, s: S, client: Expr) -> None:
        """Answers with the first element, and leaves it."""
        self.takes(s, client, QueueRequest.TAKE)
        s.answers[client].push(when=~s.queue.is_empty, kind=QueueAnswer.ELEMENT, element=s.queue.head.element)
        self.joins_line(s, client, s.queue.is_empty)


class DropsReservations(OurQueues):
    """An element is dropped with its reservation."""

    def gives_back(self, s: S, client: Expr) -> None:
        s.reserved[client] = 0


class GivesBackToTheFront(OurQueues):
    """An element that comes back goes before all others, also before those that were pushed earlier."""

    def puts_back(self, s: S, number: Any) -> None:
        before = s.fork()
        s.queue.clear()
        s.queue.push(when=number > 0, element=number)
        for there, place in before.queue:
            s.queue.push(when=there, element=place.element)


class GivesBackSilently(OurQueues):
    """An element that comes back is offered to nobody."""

    def gives_back(self, s: S, client: Expr) -> None:
        number = s.reserved[client]
        s.reserved[client] = 0
        self.puts_back(s, number)


class ReservesTooBriefly(OurQueues):
    """A reservation ends before the pop that it is for."""

    @transition(each="client")
    def send_pop(self, s: S, client: Expr) -> None:
        """A client that is told of an element competes for it."""
        OurQueues.send_pop.body(self, s, client)
        self.gives_back(s, client)


class PushTellsGetters(OurQueues):
    """A push wakes whoever waits for the key."""

    def is_told(self, s: S, client: Expr) -> Any:
        return s.on_key[client] > 0


class IgnoresTheKey(OurQueues):
    """A client that waits for both is told when the queue has an element."""

    def is_told(self, s: S, client: Expr) -> Any:
        return self.in_line(s, client) & (s.on_key[client] > 0)


class ForgetsThoseOfBoth(OurQueues):
    """A client that waits for both is never told."""

    def is_told(self, s: S, client: Expr) -> Any:
        return not_(True)


class ForgetsNothing(OurQueues):
    """A connection that closes stays in every list."""

    @transition(each="client")
    def forget_connection(self, s: S, client: Expr) -> None:
        """Closes, and no more."""
        s.when(s.lost[client], ~s.closed[client])
        s.closed[client] = True


class NeverTakesAPop(OurQueues):
    """The server may leave the WAIT of a pop unread for ever."""

    take_wait_for_queue = replace(OurQueues.take_wait_for_queue, fair=False)


class NeverFindsOut(OurQueues):
    """The server may never find out that a connection is lost."""

    forget_connection = replace(OurQueues.forget_connection, fair=False)


class NeverCancels(OurQueues):
    """The server does not know CANCEL_WAIT."""

    cancel_wait = None  # type: ignore[assignment]


# fmt: off
MUTANTS = (
    ("no_wake_up_is_lost", TellsNobody, "client=1 key=1", ()),
    ("ready_waits_return", TellsNobody, "client=1 key=1", ()),
    ("ready_waits_return", NeverTakesAWait, "client=1 key=1", ()),
    ("keys_were_there_together", CountsDown, "client=1 key=2", ()),
    ("a_get_returns_what_was_set", KeepsNothing, "client=1 key=1", ()),
    ("answers_are_in_step", CancelsNothing, "client=1 key=1", ()),
    ("nobody_is_thrown_out", ClosesAfterEveryGet, "client=1 key=1", ()),
    ("nothing_of_a_closed_connection_is_left", CleansNothing, "client=1 key=1", ("drop",)),
    ("nothing_of_a_closed_connection_is_left", CleansNothing, "client=1 key=1", ("half_frame",)),
    ("a_get_returns_what_was_set", ForgetsToDrop, "client=1 key=1 value=2", ()),
    ("only_writes_change_keys", CancelDeletes, "client=1 key=1", ()),
    ("only_writes_change_keys", FailedCompareSetDeletes, "client=1 key=1", ()),
    ("the_late_raise", ReturnsLate, "client=1 key=1", ()),
    ("late_operations_end", NeverTimesOut, "client=1 key=1", ()),
    ("late_operations_end", NeverExpires, "client=1 key=1 torch_clients=0", ()),
    ("late_operations_end", NeverGivesUp, "client=1 key=1 torch_clients=0", ("freeze",)),
    ("deadlock_freedom", NeverGivesUp, "client=1 key=1 torch_clients=0", ("freeze",)),
    ("elements_are_delivered_once", PopsWithoutRemoving, "client=1 torch_clients=0", ()),
    ("no_element_vanishes", DropsReservations, "client=1 torch_clients=1", ()),
    ("elements_leave_in_order", GivesBackToTheFront, "client=2 torch_clients=2", ()),
    ("no_popper_sleeps_beside_an_element", GivesBackSilently, "client=2 torch_clients=2", ()),
    ("poppers_are_served", GivesBackSilently, "client=2 torch_clients=2", ()),
    ("poppers_are_served", NeverTakesAPop, "client=1 torch_clients=1", ()),
    ("a_blocking_pop_never_says_empty", ReservesTooBriefly, "client=2 torch_clients=2", ()),
    ("a_get_waits_for_its_key", PushTellsGetters, "client=1", ()),
    ("both_were_there_together", IgnoresTheKey, "client=1", ()),
    ("a_wait_for_both_is_told", ForgetsThoseOfBoth, "client=1", ()),
    ("nothing_of_a_closed_connection_is_left", ForgetsNothing, "client=1", ("drop",)),
    ("reservations_come_back", NeverFindsOut, "client=1 torch_clients=1", ("drop",)),
    ("deadlock_freedom", NeverCancels, "client=1", ()),
)
# fmt: on


# In torch 1.9 no wait is cancelled, so that no answer meets a cancel.
(
    test_an_edition_violates_what_is_known_of_it_and_no_more,
    test_every_step_is_taken_and_every_claimed_move_is_made,
    test_the_engines_agree,
    test_a_mutant_is_caught_by_the_property_that_is_about_it,
    test_every_property_is_violated_by_a_mutant,
) = model_tests(ASKED, MUTANTS, [a for a in ASKED if a.states < 700], unreached={SEED: ["an_answer_meets_a_cancel"]})


@pytest.mark.parametrize("edition", Edition)
def test_what_changes_no_key_is_asked_of_every_step_but_the_writes(edition: Edition) -> None:
    system = Waits(edition=edition, faults=ALL)
    conditions = system.claim("only_writes_change_keys").conditions
    assert conditions is not None
    assert {*conditions} == {t.name for t in system.transitions} - {*WRITES}
