"""References to a remote value: each property can be violated, and the runtime's tables do what the model says.

Each rule of the protocol is broken once in the model, where a property is violated, and once in the runtime, where the
replay of the model's edges notices it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from trystate.impl.rpc.errors import PeerLost
from trystate.impl.rpc.references import Fork, Happened, Held, Id, Owned, References
from trystate.model.autograd.references import Ours
from trystate.model.autograd.references import References as Model
from trystate.model.autograd.vocabulary import Edition
from trystate.model.language import Expr, SymbolicState, not_
from trystate.property_tests.adapters.our_autograd.conformance import CHECKS
from trystate.property_tests.adapters.our_autograd.reference_edges import ReferenceSteps
from trystate.property_tests.harness.paths import replay_every_edge
from trystate.property_tests.support.marks import by_verify
from trystate.property_tests.support.pinned import Asked, model_tests

S = SymbolicState
TRYSTATE = Edition.TRYSTATE
THREE = "worker=3"
ASKED = (
    Asked(Model, TRYSTATE, THREE, 4391),
    Asked(Model, TRYSTATE, THREE, 12309, "", ("crash",)),
    Asked(Model, TRYSTATE, THREE, 9955, "", ("owner_crash",)),
    Asked(Model, TRYSTATE, THREE, 24041, "", ("crash", "owner_crash")),
)


class KeepsNothing(Ours):
    """A worker that passes its handle on does not keep its own."""

    def keeps_its_own(self) -> bool:
        return False


class AlwaysConfirms(Ours):
    """The owner answers FORKED as if it had the value."""

    def has_value(self, s: S) -> Any:
        return not_(False)


class RefusesBeforeItIsMade(Ours):
    """The owner answers FORKED as if the value were gone, when the call that makes it comes later."""

    def has_value(self, s: S) -> Any:
        return ~s.gone & s.made


class LosesDeleted(Ours):
    """DELETED may be on its way for ever."""

    forget = replace(Ours.forget, fair=False)


class LosesForked(Ours):
    """FORKED may be on its way for ever."""

    register = replace(Ours.register, fair=False)


class LosesAccepted(Ours):
    """ACCEPTED may be on its way for ever."""

    accept = replace(Ours.accept, fair=False)


class ForgetsNothing(Ours):
    """The owner keeps the value whoever holds it."""

    def collects(self, s: S) -> None:
        pass


class KeepsForTheDead(Ours):
    """The forks of a worker that is lost do not end."""

    def ends_forks(self, worker: Expr) -> Any:
        return not_(True)


class HearsNothing(Ours):
    """The owner does not answer FORKED."""

    hear = None  # type: ignore[assignment]


class WaitsForTheLost(Ours):
    """A handle that the owner does not know waits for its answer, although the owner is lost."""

    def hears_of_the_owner(self, s: S, worker: Expr, when: Any) -> None:
        pass


# fmt: off
MUTANTS = (
    ("all_have_a_value_if_nobody_died", KeepsNothing, THREE, ()),
    ("no_handle_fails_if_nobody_died", RefusesBeforeItIsMade, THREE, ()),
    ("the_confirmed_have_a_value", AlwaysConfirms, THREE, ("crash",)),
    ("nothing_is_left", ForgetsNothing, THREE, ()),
    ("nothing_is_left", KeepsForTheDead, THREE, ("crash",)),
    ("it_is_forgotten", LosesDeleted, THREE, ()),
    ("a_handle_is_confirmed_or_fails", LosesForked, THREE, ()),
    ("nobody_keeps_a_handle_for_ever", LosesAccepted, THREE, ()),
    ("deadlock_freedom", HearsNothing, THREE, ()),
    ("nobody_waits_for_an_owner_that_is_lost", WaitsForTheLost, THREE, ("owner_crash",)),
)
# fmt: on


(
    test_ours_keeps_every_property_and_the_counts_are_pinned,
    test_every_step_is_taken_and_every_claimed_move_is_made,
    test_the_engines_agree,
    test_a_mutant_is_caught_by_the_property_that_is_about_it,
    test_every_property_is_violated_by_a_mutant,
) = model_tests(ASKED, MUTANTS, ASKED[:1])


# ---- the runtime


@by_verify
def test_the_runtime_does_what_the_model_says() -> None:
    check = next(check for check in CHECKS if check.name == "our references")
    found = check.run(lambda _: None)
    assert not found.disagreements
    assert found.compared == found.of == 15_383 + 50_181 + 35_382


class KeepsNoHandle(References):
    """A handle that is passed on is not kept."""

    def fork(self, ref: Owned | Held, to: int) -> Fork:
        fork = super().fork(ref, to)
        self._passed.clear()
        return fork


class KnowsNoFork(References):
    """The owner passes a handle, and does not note the fork."""

    def fork(self, ref: Owned | Held, to: int) -> Fork:
        fork = super().fork(ref, to)
        if isinstance(ref, Owned):
            self._unshare(fork.reference, fork.fork)
        return fork


class TellsNobody(References):
    """A worker that takes a handle from another user takes it for known."""

    def join(self, fork: Fork, peer: int) -> Owned | Held:
        if fork.owner == self.agent.me:
            return super().join(fork, peer)
        held = self.hold(fork)
        held.confirmed = True
        return held


class AcceptsAtOnce(References):
    """The worker that passed the handle is told before the owner knows the fork."""

    def join(self, fork: Fork, peer: int) -> Owned | Held:
        if fork.owner not in (self.agent.me, peer):
            self._tell(peer, Happened.ACCEPTED, fork.reference, fork.fork)
        return super().join(fork, peer)


class KeepsForGood(References):
    """A handle that comes home when the value is gone is not accepted: its sender keeps it."""

    def join(self, fork: Fork, peer: int) -> Owned | Held:
        if fork.owner == self.agent.me:
            self.owned(fork.reference)
        return super().join(fork, peer)


class DropsSilently(References):
    """The end of a handle is told to nobody."""

    def dropped(self, owner: int, reference: Id, fork: Id) -> None:
        self.agent.later(partial(int))


class KeepsForTheLost(References):
    """The loss of a worker ends no fork, and no keeping for it."""

    def _peer_lost(self, peer: int, reason: str) -> None:
        pass


class KeepsWhatNobodyHolds(References):
    """The last fork of a value stays in the table."""

    def _unshare(self, reference: Id, fork: Id, by: int | None = None) -> None:
        owned = self._shared.get(reference)
        if owned is not None and len(owned.forks) > 1:
            super()._unshare(reference, fork, by)


class WaitsForAnOwnerThatIsLost(References):
    """A handle that the owner does not know is left as it is when the owner is lost."""

    def _known_there(self, held: Held, parent: int, result: Any) -> None:
        if not isinstance(result, PeerLost):
            super()._known_there(held, parent, result)


class TakesIdsBeforehand(References):
    """A thread takes the id of its reference early: another thread's call with a larger id is sent before its own."""

    @contextmanager
    def making(self, to: int) -> Iterator[Fork]:
        with super().making(to) as fork:
            maker, number = fork.reference
            yield fork._replace(reference=(maker, (1 << 20) - number))


class KeepsNoPlace(References):
    """The owner takes a value that is still to be made for one that is gone."""

    def owned(self, reference: Id) -> Owned:
        if reference not in self._known:
            raise self._gone(reference)
        return super().owned(reference)


BROKEN = (
    (KeepsNoHandle, ()), (KnowsNoFork, ()), (TellsNobody, ()), (AcceptsAtOnce, ()), (KeepsForGood, ("crash",)),
    (DropsSilently, ()), (KeepsForTheLost, ("crash",)), (KeepsWhatNobodyHolds, ()),
    (WaitsForAnOwnerThatIsLost, ("owner_crash",)), (TakesIdsBeforehand, ()), (KeepsNoPlace, ()),
)  # fmt: skip


@pytest.mark.parametrize(("broken", "faults"), BROKEN, ids=lambda x: getattr(x, "__name__", ""))
def test_a_rule_that_the_runtime_breaks_is_a_disagreement(broken: type[References], faults: tuple[str, ...]) -> None:
    model = Model(faults=faults)
    subject = ReferenceSteps(model, broken)
    assert replay_every_edge(model, subject, refusals=True, repeats=False, stop_after=1).disagreements
