"""The system of journals: what it allows, that each property can be violated, that a real journal takes its steps.

Every property is asked of a server that is wrong in one place: a property that nothing violates says nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from trystate.impl.store.durable import journal as journals
from trystate.impl.store.durable.journal import Journal
from trystate.model.language import SymbolicState, ite
from trystate.model.store.journals import Journals, Ours
from trystate.model.store.vocabulary import Edition
from trystate.property_tests.adapters.our_store.journals import JournalsSubject
from trystate.property_tests.harness.paths import replay_every_edge
from trystate.property_tests.harness.stateful import state_machine
from trystate.property_tests.support.mutants import Mutant, replaced, survivors
from trystate.property_tests.support.nightly import examples
from trystate.property_tests.support.pinned import Asked, model_tests

S = SymbolicState
TRYSTATE = Edition.TRYSTATE
ASKED = (
    Asked(Journals, TRYSTATE, "change=2", 135),
    Asked(Journals, TRYSTATE, "change=2", 549, "", ("crash",)),
    Asked(Journals, TRYSTATE, "change=5", 16522, "", ("crash",)),
)


class AnswersBeforeTheSync(Ours):
    """A reply leaves when its change is written."""

    def may_be_told(self, s: S) -> Any:
        return s.written


class AnswersAtOnce(Ours):
    """A reply leaves when its change is made."""

    def may_be_told(self, s: S) -> Any:
        return s.made


class TakesTornRecords(Ours):
    """A start takes a torn record for a change."""

    def found(self, s: S) -> Any:
        return ite(s.torn, s.whole + 1, s.whole)


class LosesWhatCameMeanwhile(Ours):
    """The new file has the snapshot, and not the changes since it."""

    def added(self, s: S) -> Any:
        return s.frozen


class NeverSyncs(Ours):
    """A batch may stay under way for ever."""

    end_batch = replace(Ours.end_batch, fair=False)


class LosesTheThread(Ours):
    """Nobody hears that a sync is done."""

    end_batch = None  # type: ignore[assignment]


MUTANTS = (
    ("nothing_told_is_lost", AnswersBeforeTheSync, "change=2", ("crash",)),
    ("nothing_told_is_lost", AnswersAtOnce, "change=2", ("crash",)),
    ("nothing_told_is_lost", LosesWhatCameMeanwhile, "change=2", ("crash",)),
    ("a_torn_record_is_no_change", TakesTornRecords, "change=2", ("crash",)),
    ("changes_are_told", NeverSyncs, "change=2", ()),
    ("deadlock_freedom", LosesTheThread, "change=2", ()),
)

(
    test_an_edition_violates_what_is_known_of_it_and_no_more,
    test_every_step_is_taken_and_every_claimed_move_is_made,
    test_the_engines_agree,
    test_a_mutant_is_caught_by_the_property_that_is_about_it,
    test_every_property_is_violated_by_a_mutant,
) = model_tests(ASKED, MUTANTS, [a for a in ASKED if a.states < 1000])


@pytest.fixture(autouse=True)
def little_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journals, "PIECE_BYTES", 256)


def agree() -> int:
    """Every edge of a small system; how many there are."""
    system = Journals(edition=TRYSTATE, faults=("crash",), change=2)
    replayed = replay_every_edge(system, JournalsSubject(system))
    assert not replayed.disagreements, "\n".join(replayed.disagreements)
    return replayed.edges


def test_every_edge_is_taken_on_a_real_journal() -> None:
    assert agree() == 1106


def test_a_journal_and_a_larger_model_agree_on_random_runs() -> None:
    system = Journals(edition=TRYSTATE, faults=("crash",), change=6)
    machine = state_machine(system, lambda: JournalsSubject(system), refusals=False)
    run_state_machine_as_test(machine, settings=settings(max_examples=examples(20), stateful_step_count=40))


SWITCHED = Journal._switched
WRONG: dict[str, Mutant] = {
    "a sync is none": replaced(Journal, "sync", lambda self: setattr(self.file, "synced", self.file.end)),
    "the new file lacks what came meanwhile": replaced(Journal, "_switched", lambda self, since: SWITCHED(self, b"")),
}


def test_a_journal_that_is_wrong_disagrees() -> None:
    assert survivors(WRONG, agree) == []
