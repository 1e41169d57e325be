"""NVRx's barrier: the violations of each edition, and each edge of small systems compared with the shipped file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trystate import registry
from trystate.model.errors import UnavailableError, UsageError
from trystate.model.nvrx import barrier
from trystate.model.nvrx.barrier import NvrxBarrier
from trystate.model.nvrx.findings import FINDINGS, PLAN
from trystate.model.nvrx.vocabulary import LENIENT, At, Edition
from trystate.property_tests.adapters.nvrx import shipped
from trystate.property_tests.harness.paths import Replayed, replay_every_edge
from trystate.property_tests.support.mutants import altered, wrong
from trystate.property_tests.support.pinned import Asked, assert_in_table, model_tests, of_plan

MENDED = barrier.Mended
SMALL = "node=2 slot=2 world=1 most=2"
ASKED = (
    Asked(
        NvrxBarrier, Edition.NVRX, SMALL, 598, "no_failure_shuts_down a_failure_is_no_success conflicts_are_excluded"
    ),
    Asked(NvrxBarrier, Edition.NVRX_0_6, SMALL, 462),
    *of_plan(NvrxBarrier),
)

# A node whose slot has changed ends.
Ends = wrong("Ends", MENDED, of_conflict=At.BROKEN)
# A surplus node shuts the rendezvous down.
Counts = wrong("Counts", MENDED, caps=True)
# A slot is set without a look.
Sets = altered("Sets", MENDED, "write_slot", "s.written[s.mine[node]] == s.read[node]", "True")
# One spare trains too.
TakesSpares = altered("TakesSpares", MENDED, "is_active", "<= self.world", "<= self.world + 1")
# Slots of marked tasks count.
TakesTheDead = wrong("TakesTheDead", MENDED, is_candidate=NvrxBarrier.is_candidate)
# Spares do not wait.
DoesNotCall = wrong("DoesNotCall", MENDED, is_calling=lambda self, s: s.shut != s.shut)
# The host waits for each slot that is counted.
WaitsForAll = wrong("WaitsForAll", MENDED, has_gap=barrier.Capped.has_gap)
# No launcher opens a round again.
OpensNothing = wrong("OpensNothing", MENDED, open_again=None)
MUTANTS = (
    ("conflicts_are_excluded", Ends, "world=1", ()),
    ("no_failure_shuts_down", Counts, "most=2", ()),
    ("a_failure_is_no_success", Counts, "most=2", ()),
    ("slots_do_not_go_back", Sets, "world=1", ()),
    ("at_most_world_train", TakesSpares, "most=3", ()),
    ("the_dead_have_no_rank", TakesTheDead, "most=3", ("kill",)),
    ("survivors_come_first", DoesNotCall, "most=3", ()),
    ("an_open_round_closes", WaitsForAll, "most=3", ("crash",)),
    ("deadlock_freedom", WaitsForAll, "most=3", ("crash",)),
    ("a_round_is_opened_again", OpensNothing, f"{SMALL} outside=1", ("restart",)),
)

TestModel = model_tests(ASKED, MUTANTS, [asked for asked in ASKED if asked.states < 200])


def test_the_plan_shows_each_finding_and_the_mended_edition_has_none() -> None:
    assert {name for run in PLAN for names in run.findings.values() for name in names} == {*FINDINGS}
    assert all(not run.findings for run in PLAN if run.edition is Edition.MENDED)
    assert not {*FINDINGS} & {*registry.torch_findings()}


# ---- where the file is


def test_the_variable_names_the_file_or_a_folder_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "src" / shipped.PACKAGE / shipped.FILE
    file.parent.mkdir(parents=True)
    file.write_text("def get_shutdown_reason(): ...", encoding="utf-8")
    for given in (file, tmp_path, file.parents[1], file.parents[2]):
        monkeypatch.setenv(shipped.VARIABLE, str(given))
        assert shipped.barrier_file() == file and shipped.problem() is None
    assert shipped.edition(file) is Edition.REASONED
    monkeypatch.setenv(shipped.VARIABLE, str(file.parent))
    with pytest.raises(UsageError, match=r"TRYSTATE_NVRX=.*fault_tolerance: no file ft_rendezvous_barrier.py"):
        shipped.barrier_file()


def test_a_comparison_without_the_file_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("greenlet", reason="launchers are greenlets")
    from trystate.property_tests.adapters.nvrx.conformance import CHECKS

    monkeypatch.delenv(shipped.VARIABLE, raising=False)
    monkeypatch.setattr(shipped, "PACKAGE", "nvrx_that_is_not_installed")
    with pytest.raises(UnavailableError, match="set TRYSTATE_NVRX to the file"):
        CHECKS[0].whole(print)


def test_a_finding_is_absent_from_a_file_of_another_edition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / shipped.FILE.name
    file.write_text("def _present_slot_keys(): ...", encoding="utf-8")
    monkeypatch.setenv(shipped.VARIABLE, str(file))
    assert shipped.absence(FINDINGS["conflict-ends-owner"]) == ""
    assert shipped.absence(FINDINGS["records-remain"]) == ""  # searched in the newest edition only
    assert shipped.absence(FINDINGS["slot-written-late"]).startswith(f"B1 is not in {file}: it is NVRx since f59cfc6")


# ---- the shipped file

needs_file = pytest.mark.skipif(shipped.problem() is not None, reason=str(shipped.problem()))


def replayed(system: NvrxBarrier, change: Any = None, **options: Any) -> Replayed:
    """Replay the edges of a system on the file; `change` changes the class of the barrier before."""
    pytest.importorskip("greenlet", reason="launchers are greenlets")
    from trystate.property_tests.adapters.nvrx.nodes import Job

    job = Job(system)
    if change is not None:
        change(job.module._RendezvousBarrierState)
    return replay_every_edge(system, job, repeats=False, **options)


def systems() -> list[NvrxBarrier]:
    from trystate.property_tests.adapters.nvrx.conformance import systems

    return systems()


@needs_file
@pytest.mark.parametrize("slice", range(4))
def test_every_edge_is_one_of_the_shipped_barrier(slice: int) -> None:
    system = systems()[slice]
    seen = replayed(system)
    assert seen.disagreements == ()
    assert seen.edges == seen.edges_of_all < seen.refusals
    if system.edition is Edition.NVRX:
        assert_in_table("nvrx.md", seen)


@needs_file
@pytest.mark.parametrize("outside", [0, 1])
def test_a_sample_of_the_edges_of_three_nodes_is_of_the_shipped_barrier(outside: int) -> None:
    edition = systems()[0].edition
    if outside and edition is Edition.SET:
        pytest.skip("a control plane outside came with 0.6.0")
    assert replayed(NvrxBarrier(edition=edition, outside=outside), edges_max=500).disagreements == ()


@needs_file
def test_another_edition_disagrees_with_the_file() -> None:
    of = systems()[1].edition
    other = Edition.NVRX_0_6 if of in LENIENT else Edition.NVRX
    sizes: dict[str, Any] = {"node": 2, "slot": 3, "world": 1, "most": 1}
    assert replayed(NvrxBarrier(edition=other, **sizes), stop_after=1).disagreements
    assert not replayed(NvrxBarrier(edition=of, **sizes), edges_max=300).disagreements


def never_shut(cls: Any) -> None:
    cls.is_shutdown = lambda self: False


def starts_at_slot_2(cls: Any) -> None:
    cls.join_count_key = property(lambda self: f"{self.prefix}:join_count_0")


def opens_nothing(cls: Any) -> None:
    cls.open_rendezvous = lambda self: None


def stays_behind(cls: Any) -> None:
    cls._sync_from_per_round_state = lambda self: False


def reads_one_slot(cls: Any) -> None:
    inner = cls.get_all_participants
    cls.get_all_participants = lambda self, total_participants, **given: inner(self, 1, **given)


@needs_file
@pytest.mark.parametrize("change", [never_shut, starts_at_slot_2, opens_nothing, stays_behind, reads_one_slot])
def test_a_mutant_of_the_barrier_disagrees_with_the_model(change: Any) -> None:
    assert replayed(systems()[0], change, stop_after=1).disagreements


@needs_file
def test_a_launcher_that_ends_runs_no_further() -> None:
    from trystate.property_tests.adapters.nvrx.nodes import Job
    from trystate.property_tests.harness.subjects import Refused

    job = Job(systems()[0])
    job.reset()
    job.perform("look_for_round", (1,))
    job.perform("take_slot", (1,))
    before = dict(job.observe())
    job.perform("crash", (1,))
    with pytest.raises(Refused, match="another place"):
        job.perform("write_slot", (1,))
    assert {**job.observe(), "at[1]": before["at[1]"]} == before
