"""The systems of waits and queues: what each edition violates, and that each property can be violated.

Every property is checked on servers of ours with one mistake: a property that no mistake violates would be worthless.
"""

from __future__ import annotations

from typing import Any

import pytest

from trystate.model.language import Expr, SymbolicState, not_
from trystate.model.store.queues import Ours as OurQueues
from trystate.model.store.queues import Queues
from trystate.model.store.vocabulary import Edition, Waiter
from trystate.model.store.waits import Ours as OurWaits
from trystate.model.store.waits import Seed, Waits
from trystate.model.store.waits.fields import Answer as WaitAnswer
from trystate.model.store.waits.properties import WRITES
from trystate.property_tests.support.mutants import altered
from trystate.property_tests.support.pinned import model_tests, of_plan
from trystate.property_tests.support.systems.changed import both, changed, puts, then, when

S = SymbolicState
SEED, TORCH, TRYSTATE = Edition.SEED, Edition.TORCH, Edition.TRYSTATE
ALL = ("drop", "freeze", "half_frame")
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


def is_told_of_one(self: Any, s: S, client: Expr) -> Any:
    """A client that waits for both is woken when the queue has an element."""
    return self.in_line(s, client) & (s.on_key[client] > 0)


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
    ("a_get_waits_for_its_key", changed(OurQueues, "PushTellsGetters",
        is_told=lambda self, s, client: s.on_key[client] > 0), "client=1", ()),
    ("both_were_there_together", changed(OurQueues, "IgnoresTheKey", is_told=is_told_of_one), "client=1", ()),
    ("a_wait_for_both_is_told", changed(OurQueues, "ForgetsBoth", is_told=lambda *_: not_(True)), "client=1", ()),
    ("nothing_of_a_closed_connection_is_left", changed(OurQueues, "ForgetsNothing", forget_connection=both(
        when(lambda self, s, client: s.lost[client] & ~s.closed[client]), puts(closed=True))), "client=1", ("drop",)),
    ("reservations_come_back", changed(OurQueues, "NeverFindsOut", forget_connection="unfair"),
        "client=1 torch_clients=1", ("drop",)),
    ("deadlock_freedom", changed(OurQueues, "NeverCancels", cancel_wait=None), "client=1", ()),
)
# fmt: on


# torch 1.9 does not cancel waits, so no answer meets a cancel.
SMALL = [a for a in ASKED if a.states < 700]
TestModel = model_tests(ASKED, MUTANTS, SMALL, unreached={SEED: ["an_answer_meets_a_cancel"]})


@pytest.mark.parametrize("edition", Edition)
def test_every_step_but_the_writes_is_checked_to_change_no_key(edition: Edition) -> None:
    system = Waits(edition=edition, faults=ALL)
    conditions = system.claim("only_writes_change_keys").conditions
    assert conditions is not None
    assert {*conditions} == {t.name for t in system.transitions} - {*WRITES}
