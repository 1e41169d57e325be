"""The system of journals: its size, that each property can be violated, and that a real journal takes its steps.

Every property is checked on servers with one mistake: a property that no mistake violates would be worthless.
"""

from __future__ import annotations

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
from trystate.property_tests.support.systems.changed import changed

S = SymbolicState
TRYSTATE = Edition.TRYSTATE
ASKED = (
    Asked(Journals, TRYSTATE, "change=2", 135),
    Asked(Journals, TRYSTATE, "change=2", 549, "", ("crash",)),
    Asked(Journals, TRYSTATE, "change=5", 16522, "", ("crash",)),
)


# fmt: off
MUTANTS = (
    ("nothing_told_is_lost", changed(Ours, "AnswersBeforeTheSync", may_be_told=lambda self, s: s.written), "change=2",
        ("crash",)),
    ("a_torn_record_is_no_change", changed(Ours, "TakesTornRecords", found=lambda self, s: ite(s.torn, s.whole + 1,
        s.whole)), "change=2", ("crash",)),
    ("changes_are_told", changed(Ours, "NeverSyncs", end_batch="unfair"), "change=2", ()),
    ("deadlock_freedom", changed(Ours, "LosesTheThread", end_batch=None), "change=2", ()),
)
# fmt: on
TestModel = model_tests(ASKED, MUTANTS, [a for a in ASKED if a.states < 1000])


@pytest.fixture(autouse=True)
def little_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journals, "PIECE_BYTES", 256)


def agree() -> int:
    """Replay every edge of a small system; returns their number."""
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
    "the new file lacks what came meanwhile": replaced(Journal, "_switched", lambda self, since: SWITCHED(self, b"")),
}


def test_a_journal_that_is_wrong_disagrees() -> None:
    assert survivors(WRONG, agree) == []
