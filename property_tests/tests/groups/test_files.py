"""The system of a store in a file: what each edition violates; ours has none of torch's findings, on real files too."""

from __future__ import annotations

import pytest

from trystate.model.groups import files
from trystate.model.groups.files import Files
from trystate.model.groups.vocabulary import Edition, User
from trystate.model.language import Expr, SymbolicState, transition
from trystate.property_tests.adapters.our_store.files import FilesSubject
from trystate.property_tests.harness.paths import replay_every_edge
from trystate.property_tests.support.nightly import NIGHTLY
from trystate.property_tests.support.pinned import Asked, model_tests

S = SymbolicState
TORCH, TRYSTATE = Edition.TORCH, Edition.TRYSTATE
TORN, OLD = (
    "half_a_record_stops_nobody operations_end deadlock_freedom",
    "addresses_are_of_this_job the_last_one_deletes",
)
ALL = ("another_job", "die", "full", "stop")
# fmt: off
ASKED = (
    Asked(Files, TORCH, "process=2", 46, "", ("another_job",)),
    Asked(Files, TORCH, "process=2", 39, TORN, ("full",)),
    Asked(Files, TORCH, "process=2", 29, "operations_end deadlock_freedom", ("stop",)),
    Asked(Files, TORCH, "process=2", 230, f"{OLD} {TORN}", ("another_job", "die")),
    Asked(Files, TORCH, "process=2", 445, f"{OLD} {TORN}", ALL),
    Asked(Files, TORCH, "process=3", 3825, f"{OLD} {TORN}", ALL),
    Asked(Files, TRYSTATE, "process=2", 23),
    Asked(Files, TRYSTATE, "process=2", 576, "", ALL),
    Asked(Files, TRYSTATE, "process=3", 4486, "", ALL),
)
# fmt: on


class TakesAnyLock(files.Ours):
    """The lock keeps nobody out."""

    def is_free(self, s: S) -> files.Condition:
        return True


class KeepsTheFile(files.Ours):
    """A process that opens the file does not look who has left it."""

    def left_over(self, s: S) -> files.Condition:
        return False


class NeverDeletes(files.Ours):
    """The last one leaves the file."""

    def is_last(self, s: S) -> files.Condition:
        return False


class ReadsHalves(files.Ours):
    """A reader takes part of a record."""

    may_not_read = Files.may_not_read


class WaitsForTheLock(files.Ours):
    """The lock is waited for without a limit."""

    lock_times_out = None  # type: ignore[assignment]


class ForgetsItsRecord(files.Ours):
    """The record of a writer is not in the file when it says so."""

    @transition(each="process")
    def write(self, s: S, process: Expr) -> None:
        """Says so at once."""
        self.acts(s, process, User.WRITING)
        s.locked[process] = False
        s.phase[process] = User.WROTE


# fmt: off
MUTANTS = (
    ("one_writes_at_a_time", TakesAnyLock, "process=2", ()),
    ("addresses_are_of_this_job", KeepsTheFile, "process=2", ("another_job", "die")),
    ("the_last_one_deletes", NeverDeletes, "process=2", ()),
    ("half_a_record_stops_nobody", ReadsHalves, "process=2", ("die",)),
    ("operations_end", WaitsForTheLock, "process=2", ("stop",)),
    ("operations_end", ForgetsItsRecord, "process=2", ()),
    ("deadlock_freedom", WaitsForTheLock, "process=2", ("stop",)),
)
# fmt: on

(
    test_an_edition_violates_what_is_known_of_it_and_no_more,
    test_every_step_is_taken_and_every_claimed_move_is_made,
    test_the_engines_agree,
    test_a_mutant_is_caught_by_the_property_that_is_about_it,
    test_every_property_is_violated_by_a_mutant,
) = model_tests(ASKED, MUTANTS, [a for a in ASKED if a.states < 300])


@pytest.mark.parametrize("benign", [False, True])
@pytest.mark.parametrize("name", ["left-over-file", "torn-record", "lock-kept"])
def test_our_file_store_holds_what_torchs_violates(name: str, benign: bool) -> None:
    pytest.importorskip("torch", reason="the processes are forked from one that has loaded torch's store")
    from trystate.property_tests.adapters.torch_groups.files import SCHEDULES

    observation = SCHEDULES[name](print, benign=benign, library="trystate.store")
    assert not observation.reproduced, observation
    assert observation.verdict.startswith("held in this run: ")


# ---- every edge on our FileStore: the processes are real ones, and by night all of them are taken

EDGES = {("another_job",): 61, ("full",): 50, ("another_job", "die"): 239, ("stop",): 42}
SAMPLE = {("another_job",): 25, ("full",): 15, ("another_job", "die"): 30}  # by day


@pytest.mark.parametrize("faults", EDGES if NIGHTLY else SAMPLE, ids=" ".join)
def test_our_file_store_takes_the_edges_of_the_model(faults: tuple[str, ...]) -> None:
    system = Files(edition=TRYSTATE, faults=faults)
    with FilesSubject(system) as subject:
        seen = replay_every_edge(system, subject, repeats=False, edges_max=None if NIGHTLY else SAMPLE[faults])
    assert seen.disagreements == ()
    assert seen.edges_of_all == EDGES[faults]
    assert seen.edges == (EDGES if NIGHTLY else SAMPLE)[faults]


@pytest.mark.skipif(not NIGHTLY, reason="a second of real time for each lock that is not free")
def test_our_file_store_takes_edges_of_all_faults_together() -> None:
    system = Files(edition=TRYSTATE, faults=ALL)
    with FilesSubject(system) as subject:
        seen = replay_every_edge(system, subject, repeats=False, edges_max=250)
    assert seen.disagreements == ()
    assert (seen.edges, seen.edges_of_all) == (250, 827)


class KeepsTheRest(files.Ours):
    """A process that opens the file leaves the part of a record that is at its end."""

    def mend_first(self, s: S) -> None:
        pass


TOLD: dict[type[Files], tuple[int, tuple[str, ...]]] = {  # processes, faults
    NeverDeletes: (2, ()),
    KeepsTheFile: (2, ("another_job", "die")),
    KeepsTheRest: (3, ("die",)),  # one dies, one lives, and so the file is not begun anew when the third opens it
}


@pytest.mark.parametrize("mutant", TOLD if NIGHTLY else (NeverDeletes,))
def test_a_mutant_of_the_model_is_told_from_our_file_store(mutant: type[Files]) -> None:
    processes, faults = TOLD[mutant]
    system = mutant(edition=TRYSTATE, process=processes, faults=faults)
    with FilesSubject(system) as subject:
        assert replay_every_edge(system, subject, repeats=False, stop_after=1).disagreements


def test_torchs_file_store_is_not_taken_for_ours() -> None:
    """A disk that is full: torch's keeps the part of the record."""
    system = Files(edition=TORCH, faults=("full",))
    with FilesSubject(system) as subject:
        assert replay_every_edge(system, subject, repeats=False, stop_after=1).disagreements
