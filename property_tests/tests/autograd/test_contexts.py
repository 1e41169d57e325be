"""Contexts, their ids, and what is remembered of them: what each edition violates, and what each repair is there for.

Each ablation undoes one of our repairs: what breaks then is exactly what it is there for.
"""

from __future__ import annotations

from typing import Any

import pytest

from trystate.model.autograd import contexts, ids, tombstones
from trystate.model.autograd.contexts import Contexts
from trystate.model.autograd.findings import FINDINGS, PLAN
from trystate.model.autograd.ids import Ids
from trystate.model.autograd.tombstones import Tombstones
from trystate.model.autograd.vocabulary import CleanUp, Edition
from trystate.model.language import Expr, SymbolicState, System, ite, not_, ord_
from trystate.property_tests.support.pinned import (
    Asked,
    bare,
    claims,
    pinned_tests,
    report,
    violated,
)

S = SymbolicState
TORCH, TRYSTATE = Edition.TORCH, Edition.TRYSTATE
TWO, THREE = "worker=2 passes=0", "worker=3 passes=0"
PAIR, TRIO = "worker=2", "worker=3"
WAITS = "outlives=0"
LOSSES = ("crash", "creator_crash", "timeout", "lose", "duplicate")
STAYS = "after_exit_and_quiet_nobody_has_it clean_up_reaches_everybody"
BACK = f"released_is_for_good {STAYS}"
# fmt: off
ASKED = (
    Asked(Contexts, TORCH, f"{TWO} {WAITS}", 20),
    Asked(Contexts, TORCH, TWO, 193, BACK),
    Asked(Contexts, TORCH, f"{TWO} {WAITS}", 55, STAYS, ("creator_crash",)),
    Asked(Contexts, TORCH, f"{THREE} {WAITS}", 333, "", ("lose", "duplicate")),
    Asked(Contexts, TORCH, f"{THREE} {WAITS}", 766, STAYS, ("crash",)),
    Asked(Contexts, TORCH, f"{TWO} {WAITS}", 149, BACK, ("timeout",)),
    Asked(Contexts, TORCH, f"{TRIO} {WAITS}", 418,
          "what_is_released_is_not_in_use no_callback_touches_what_is_gone", ("error",)),
    Asked(Contexts, TRYSTATE, PAIR, 223),
    Asked(Contexts, TRYSTATE, THREE, 663),
    Asked(Contexts, TRYSTATE, PAIR, 12320, "", (*LOSSES, "error")),
    Asked(Contexts, TRYSTATE, f"{THREE} {WAITS}", 58359, "", LOSSES),
    Asked(Tombstones, TORCH, "", 8421, "released_is_for_good after_exit_and_quiet_nobody_has_it"),
    Asked(Tombstones, TRYSTATE, "context=2", 472),
    Asked(Tombstones, TRYSTATE, "", 16538),
    Asked(Tombstones, TRYSTATE, "context=2 peer=3", 3076),
    Asked(Tombstones, TRYSTATE, "context=4 peer=1", 14871),
    Asked(Ids, TORCH, "", 625, "an_id_says_whose_it_is no_id_means_none every_id_is_given_out"),
    Asked(Ids, TRYSTATE, "", 1296),
)
# fmt: on


(
    test_an_edition_violates_exactly_what_is_known,
    test_every_step_is_taken_and_every_claimed_move_is_made,
    test_the_engines_agree,
) = pinned_tests(ASKED, [a for a in ASKED if a.states < 250])


def test_our_editions_have_no_findings() -> None:
    assert not any(run.findings for run in PLAN if run.edition is not TORCH)


def test_every_finding_is_shown_but_what_is_no_matter_of_states() -> None:
    shown = {name for run in PLAN for names in run.findings.values() for name in names}
    assert {*FINDINGS} - shown == {"second-pass-asserts", "zeros-shipped", "hooks-not-called"}


# ---- ablations: our repairs, undone one by one


class RemembersNothing(contexts.Ours):
    """A request has the context here again (G11)."""

    def creates(self, s: S, worker: Expr) -> Any:
        return not_(False)


class AnswersRecreate(contexts.Ours):
    """An answer has the context here again (G11)."""

    def recreates(self, s: S, worker: Expr) -> Any:
        return not_(False)


class RemembersWhatItHad(contexts.Ours):
    """CLEAN that overtakes the request is not remembered (G11)."""

    def is_news(self, s: S, worker: Expr) -> Any:
        return s.has[worker]


class PassesNothingOn(contexts.Ours):
    """Only the creator tells anybody."""

    def passes_on(self, s: S, worker: Expr, when: Any, told_by: Expr | None) -> None:
        super().passes_on(s, worker, when & (ord_(worker) == 0), told_by)


class AnswersAtOnce(contexts.Ours):
    """CLEAN is answered before those that it is passed on to have answered (G14)."""

    def taken(self, state: Any, first: Any) -> Any:
        return CleanUp.NONE


class AnswersEverybodyLast(contexts.Ours):
    """CLEAN from whomever is answered when those that it was passed on to have answered."""

    def taken(self, state: Any, first: Any) -> Any:
        return CleanUp.PASSING_ON


class TellsWhomItKnows(contexts.Ours):
    """When one that it knows is lost, nobody else is told (G14)."""

    def tells_the_rest(self, worker: Expr, other: Expr, missing: Any) -> Any:
        return not_(True)


class TellsNotTheCreator(contexts.Ours):
    """When one that it knows is lost, only the creator tells the rest (G14)."""

    def tells_the_rest(self, worker: Expr, other: Expr, missing: Any) -> Any:
        return missing & (ord_(worker) == 0)


class KeepsContextsOfTheLost(contexts.Ours):
    """The loss of a creator changes nothing (G13)."""

    def loses_creator(self, s: S, worker: Expr, when: Any) -> None:
        pass


class ForgetsTheLost(contexts.Ours):
    """The contexts of a creator that is lost are over only where they are: a call may yet bring one."""

    def loses_creator(self, s: S, worker: Expr, when: Any) -> None:
        self.releases(s, worker, when & s.has[worker])


class NeverRepeats(contexts.Ours):
    """CLEAN is sent once."""

    repeat = None  # type: ignore[assignment]


class LeavesItsThread(contexts.Ours):
    """The thread that has served a call stays in its context."""

    def ends_request(self, s: S, worker: Expr) -> None:
        pass


class WritesToTheContext(contexts.Ours):
    """A callback has a pointer to the context (G12)."""

    def calls_back(self, s: S, failed: Any) -> None:
        self.writes_to_the_context(s, failed)


class UsesItOn(contexts.Ours):
    """A part of a pass goes on in a context that is released (G4)."""

    def stops_using(self, s: S, worker: Expr, when: Any) -> None:
        s.running = s.running & not_(when & (ord_(worker) == 0))


class ForgetsNothing(tombstones.Ours):
    """CLEAN carries no mark."""

    def read_mark(self, s: S, carried: Any) -> Any:
        return ite(carried > 0, 0, 0)


class TellsNobodyWhoLags(tombstones.Ours):
    """The mark is told only to those that know the context that was left."""

    def tells_who_lags(self, peer: Expr, lags: Any) -> Any:
        return not_(True)


class TellsOnlyWhomItCalls(tombstones.Ours):
    """The mark is told only to those that the creator calls: who is reached through another never has it."""

    def tells_who_lags(self, peer: Expr, lags: Any) -> Any:
        return lags & self.is_first(peer)


class SendsNoKept(tombstones.Ours):
    """The creator is not told that somebody remembers what another has told of."""

    def tells_the_creator(self, more: Any) -> Any:
        return not_(True)


class MarksTheNext(tombstones.Ours):
    """The mark is the next context, whatever is open."""

    def low(self, s: S) -> Any:
        return s.opened + 0


class MarksOnly(tombstones.Ours):
    """A context that is over above the mark is not remembered (G11)."""

    def is_over(self, s: S, peer: Expr, context: Expr) -> Any:
        return ord_(context) < s.mark[peer]


class HearsNothing(tombstones.Ours):
    """CLEAN is not taken in."""

    take_clean_up = None  # type: ignore[assignment]


class KeepsSigned(ids.Ours):
    """The worker's number is signed (G9)."""

    def kept_number(self, worker: Expr) -> Any:
        return ord_(worker) - ite(ord_(worker) < 2, 0, 4)


class KeepsTheLast(ids.Ours):
    """The last id is not given out (G10)."""

    def available(self) -> int:
        return super().available() - 1


class LosesABit(ids.Ours):
    """The worker's number has a bit less than there are workers."""

    def kept_number(self, worker: Expr) -> Any:
        return ord_(worker) - ite(ord_(worker) < 2, 0, 2)


class SaysNothing(ids.Ours):
    """A worker without further ids does not say so."""

    refuse = None  # type: ignore[assignment]


# fmt: off
ABLATIONS: tuple[tuple[type[System], str, tuple[str, ...], str], ...] = (
    (RemembersNothing, THREE, (), BACK),
    (AnswersRecreate, TWO, (), BACK),
    (RemembersWhatItHad, TWO, (), STAYS),
    (PassesNothingOn, f"{THREE} {WAITS}", (), STAYS),
    (AnswersAtOnce, f"{THREE} {WAITS}", ("crash",), STAYS),
    (AnswersEverybodyLast, f"{THREE} calls=4", (), "deadlock_freedom"),
    (TellsWhomItKnows, f"{THREE} {WAITS}", ("crash",), STAYS),
    (TellsNotTheCreator, f"worker=4 passes=0 calls=3 {WAITS}", ("crash",), STAYS),
    (KeepsContextsOfTheLost, f"{TWO} {WAITS}", ("creator_crash",), STAYS),
    (ForgetsTheLost, THREE, ("creator_crash", "crash"), STAYS),
    (NeverRepeats, f"{TWO} {WAITS}", ("lose",), "deadlock_freedom clean_up_reaches_everybody"),
    (LeavesItsThread, TWO, (), "no_thread_stays_in_a_context"),
    (WritesToTheContext, PAIR, ("error",), "no_callback_touches_what_is_gone"),
    (UsesItOn, PAIR, (), "what_is_released_is_not_in_use"),
    (ForgetsNothing, "context=2", (), "nothing_is_remembered_for_ever"),
    (TellsNobodyWhoLags, "context=2", (), "nothing_is_remembered_for_ever"),
    (TellsOnlyWhomItCalls, "context=2", (), "nothing_is_remembered_for_ever"),
    (SendsNoKept, "context=2", (), "nothing_is_remembered_for_ever"),
    (MarksTheNext, "context=2", (), "what_is_open_is_not_over"),
    (MarksOnly, "context=2", (),
     "released_is_for_good after_exit_and_quiet_nobody_has_it nothing_is_remembered_for_ever"),
    (HearsNothing, "context=2", (), "deadlock_freedom"),
    (KeepsSigned, "", (), "an_id_says_whose_it_is no_id_means_none"),
    (KeepsTheLast, "", (), "every_id_is_given_out"),
    (LosesABit, "", (), "an_id_says_whose_it_is ids_are_unique"),
    (SaysNothing, "", (), "deadlock_freedom"),
)
# fmt: on


@pytest.mark.parametrize(("cls", "sizes", "faults", "broken"), ABLATIONS, ids=lambda x: getattr(x, "__name__", None))
def test_an_ablation_breaks_what_the_repair_is_there_for(
    cls: type[System], sizes: str, faults: tuple[str, ...], broken: str
) -> None:
    whole = next(system for system in (Contexts, Tombstones, Ids) if issubclass(cls, system))
    right, wrong = (Asked(system, TRYSTATE, sizes, 0, "", faults) for system in (whole, bare(cls)))
    assert not violated(report(right))
    assert violated(report(wrong)) == set(broken.split())


@pytest.mark.parametrize("system", [Contexts, Tombstones, Ids])
def test_every_property_is_broken_by_an_ablation(system: type[System]) -> None:
    broken = {name for cls, *_, names in ABLATIONS if issubclass(cls, system) for name in names.split()}
    assert broken == claims(system(edition=TRYSTATE))
