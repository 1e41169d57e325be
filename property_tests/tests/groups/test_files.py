"""The system of a store in a file: the violations of each edition. Our store has no finding of torch, on real files."""

from __future__ import annotations

import pytest

from trystate.model.groups import files
from trystate.model.groups.files import Files
from trystate.model.groups.vocabulary import Edition
from trystate.property_tests.adapters.our_store.files import FilesSubject
from trystate.property_tests.harness.paths import replay_every_edge
from trystate.property_tests.support.mutants import altered, wrong
from trystate.property_tests.support.nightly import NIGHTLY
from trystate.property_tests.support.pinned import model_tests, of_plan

TORCH, TRYSTATE = Edition.TORCH, Edition.TRYSTATE


# A process that opens the file does not check whether its users still live.
KeepsTheFile = wrong("KeepsTheFile", files.Ours, left_over=lambda self, s: False)


# The last process does not delete the file.
NeverDeletes = wrong("NeverDeletes", files.Ours, is_last=lambda self, s: False)


# The wait for the lock has no limit.
WaitsForTheLock = wrong("WaitsForTheLock", files.Ours, lock_times_out=None)


# A writer reports success before its record is in the file.
ForgetsItsRecord = altered(
    "ForgetsItsRecord", files.Ours, "write", "ite(s.torn, s.address[process], Address.NEW)", "s.address[process]"
)


# fmt: off
MUTANTS = (
    ("one_writes_at_a_time", wrong("TakesAnyLock", files.Ours, is_free=lambda self, s: True), "process=2", ()),
    ("addresses_are_of_this_job", KeepsTheFile, "process=2", ("another_job", "die")),
    ("the_last_one_deletes", NeverDeletes, "process=2", ()),
    ("half_a_record_stops_nobody", wrong("ReadsHalves", files.Ours, may_not_read=Files.may_not_read), "process=2",
     ("die",)),
    ("operations_end", WaitsForTheLock, "process=2", ("stop",)),
    ("operations_end", ForgetsItsRecord, "process=2", ()),
    ("deadlock_freedom", WaitsForTheLock, "process=2", ("stop",)),
)
# fmt: on

TestModel = model_tests(of_plan(Files), MUTANTS, [asked for asked in of_plan(Files) if asked.states < 300])


# ---- every edge on our FileStore, with real processes; by night all edges are taken

EDGES = {("another_job",): 61, ("full",): 50, ("another_job", "die"): 239, ("stop",): 42}
SAMPLE = {("another_job",): 25, ("full",): 15, ("another_job", "die"): 30}  # the day profile


@pytest.mark.parametrize("faults", EDGES if NIGHTLY else SAMPLE, ids=" ".join)
def test_our_file_store_takes_the_edges_of_the_model(faults: tuple[str, ...]) -> None:
    system = Files(edition=TRYSTATE, faults=faults)
    with FilesSubject(system) as subject:
        seen = replay_every_edge(system, subject, repeats=False, edges_max=None if NIGHTLY else SAMPLE[faults])
    assert seen.disagreements == ()
    assert seen.edges_of_all == EDGES[faults]
    assert seen.edges == (EDGES if NIGHTLY else SAMPLE)[faults]


TOLD = (
    Files(edition=TORCH, faults=("full",)),  # the disk is full: torch's store keeps the partial record
    NeverDeletes(edition=TRYSTATE),
)


@pytest.mark.parametrize("system", TOLD, ids=lambda system: type(system).__name__)
def test_torchs_file_store_and_a_mutant_of_the_model_are_told_from_ours(system: Files) -> None:
    with FilesSubject(system) as subject:
        assert replay_every_edge(system, subject, repeats=False, stop_after=1).disagreements
