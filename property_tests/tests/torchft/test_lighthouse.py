"""torchft's lighthouse and manager: the violations of each edition, and edges of small systems on shipped servers."""

from __future__ import annotations

import time
from typing import Any

import pytest

from trystate import registry
from trystate.model.errors import UnavailableError
from trystate.model.language import System
from trystate.model.torchft import lighthouse, manager
from trystate.model.torchft.findings import FINDINGS, PLAN
from trystate.model.torchft.lighthouse import Lighthouse
from trystate.model.torchft.manager import Managers
from trystate.model.torchft.vocabulary import At, Edition, Rank
from trystate.property_tests.adapters.torchft import conformance, shipped
from trystate.property_tests.adapters.torchft.conformance import LIGHTHOUSES, MANAGERS, THREE, TWO
from trystate.property_tests.adapters.torchft.ranks import Ranks
from trystate.property_tests.adapters.torchft.replicas import Replicas
from trystate.property_tests.harness.paths import Replayed, replay_every_edge
from trystate.property_tests.support.mutants import altered, wrong
from trystate.property_tests.support.nightly import by_night
from trystate.property_tests.support.pinned import Asked, assert_in_table, model_tests, of_plan

MENDED, RANKS = lighthouse.Mended, manager.Mended
ASKED = of_plan(Lighthouse, Managers)
PAIR, ONE = "node=3 least=2", "node=3 least=1"

# A quorum needs no member of the previous one.
Disjoint = wrong("Disjoint", MENDED, is_met=Lighthouse.is_met)
# A quorum needs a member of the previous one, even if all of them are dead.
Stubborn = wrong(
    "Stubborn",
    MENDED,
    candidate=lambda self, s, n: self.healthy(s, n) & (s.last.absent | self.is_fast(s) | self.was(s, n)),
)
# The tests count replicas that shrink_only removes.
CountsRemoved = wrong("CountsRemoved", MENDED, shrinking=Lighthouse.shrinking, tested=Lighthouse.tested)
# The lighthouse counts from 0 after a restart.
Forgets = altered("Forgets", MENDED, "forget", "s.settled = False", "s.settled, s.number = False, 0")
# Replicas of all jobs are admitted.
Admits = wrong("Admits", MENDED, is_admitted=Lighthouse.is_admitted)
# The participation and the vote of a rank that has left remain.
Remembers = wrong("Remembers", RANKS, forget=Managers.forget)
# Ranks have no answer after a failure.
Silent = wrong("Silent", RANKS, lose=Managers.lose)
MUTANTS = (
    ("a_step_is_of_one_group", Disjoint, ONE, ("crash",)),
    ("who_waits_is_answered", Stubborn, PAIR, ("crash",)),
    ("deadlock_freedom", Stubborn, PAIR, ("crash",)),
    ("a_quorum_has_enough_members", CountsRemoved, PAIR, ("shrink",)),
    ("a_group_has_the_members_of_its_quorum", Forgets, PAIR, ("restart",)),
    ("a_quorum_is_of_one_job", Admits, "node=3 jobs=2", ()),
    ("a_quorum_is_of_all_ranks", Remembers, "rank=2", ("timeout",)),
    ("ranks_commit_together", Remembers, "rank=2", ("timeout",)),
    ("who_waits_is_answered", Silent, "rank=2", ("failure",)),
    ("deadlock_freedom", Silent, "rank=2", ("failure",)),
)

TINY = Asked(Lighthouse, Edition.TORCHFT, "node=2 quorum=2 steps=1", 58)
TestModel = model_tests(ASKED, MUTANTS, [TINY, *(asked for asked in of_plan(Managers) if asked.states < 400)])


def test_the_plan_shows_each_finding_and_the_mended_edition_has_none() -> None:
    assert {name for run in PLAN for names in run.findings.values() for name in names} == {*FINDINGS}
    assert all(not run.findings for run in PLAN if run.edition is Edition.MENDED)
    assert not {*FINDINGS} & {*registry.torch_findings()}


def test_a_comparison_without_the_package_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipped, "PACKAGE", "torchft_that_is_not_installed")
    assert shipped.extension_file() is None
    with pytest.raises(UnavailableError, match=r"torchft is not installed: pip install 'trystate\[torchft\]'"):
        conformance.CHECKS[0].whole(print)
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert "on x86-64 only" in str(shipped.problem())


# ---- the shipped servers

needs_package = pytest.mark.skipif(shipped.problem() is not None, reason=str(shipped.problem()))


def replayed(system: System, **options: Any) -> Replayed:
    subject_of: Any = Ranks if isinstance(system, Managers) else Replicas
    with subject_of(system) as subject:
        return replay_every_edge(system, subject, repeats=False, **options)


@needs_package
@pytest.mark.parametrize("system", [*LIGHTHOUSES, *MANAGERS], ids=lambda system: system.label)
def test_edges_are_steps_of_the_shipped_servers(system: System) -> None:
    most = by_night("edges on torchft's servers", 80)
    seen = replayed(system, edges_max=most)
    assert seen.disagreements == () and seen.refusals
    assert seen.edges >= min(most, seen.edges_of_all)
    if seen.edges == seen.edges_of_all:
        assert_in_table("torchft.md", seen)


WRONG: tuple[tuple[type[System], dict[str, int], tuple[str, ...]], ...] = (
    (altered("HalfSuffices", Lighthouse, "is_met", "size + size > beating", "size + size >= beating"), TWO, ()),
    (altered("NeverLate", Lighthouse, "is_met", "(size == beating) | late", "size == beating"), THREE, ()),
    (wrong("NeverFast", Lighthouse, is_fast=lambda self, s: s.last.absent & ~s.last.absent), {**TWO, "steps": 2}, ()),
    (altered("SameNumber", Lighthouse, "is_changed", " | any_(self.candidate(s, n) & s.failed[n] for n in s.node)", ""),
     {**TWO, "steps": 2}, ("restart",)),
    (wrong("NeverShrinks", Lighthouse, shrinking=lambda self, s: s.last.absent & ~s.last.absent), TWO, ("shrink",)),
    (wrong("NumberKept", Lighthouse, forget=lambda self, s: None), TWO, ("restart",)),
    (altered("NoVetoes", Managers, "cast", "s.denied[rank] | denied", "s.denied[rank]"), {}, ("veto",)),
    (wrong("Removes", Managers, forget=manager.Mended.forget), {}, ("timeout",)),
    (wrong("Answers", Managers, lose=manager.Mended.lose), {}, ("failure",)),
)  # fmt: skip


@needs_package
@pytest.mark.parametrize(("cls", "sizes", "faults"), WRONG, ids=lambda value: getattr(value, "__name__", ""))
def test_a_mutant_of_the_model_disagrees_with_the_shipped_servers(
    cls: Any, sizes: dict[str, int], faults: tuple[str, ...]
) -> None:
    assert replayed(cls(faults=faults, **sizes), stop_after=1).disagreements


@needs_package
def test_time_passes_only_when_the_clock_is_advanced() -> None:
    """A request with a timeout of a day ends when the day has passed, and not before."""
    with Replicas(LIGHTHOUSES[0]) as subject:
        subject.reset()
        for step, node in (("start", 0), ("start", 1), ("ask", 0)):
            subject.perform(step, (node,))
        before = dict(subject.observe())
        end = time.monotonic() + 0.05
        while time.monotonic() < end:
            assert dict(subject.observe()) == before
        subject.perform("join_timeout_passes", ())
        assert subject.observe()["at[0]"] is At.WAITING
        subject.perform("ask", (1,))
        assert subject.observe()["at[0]"] is subject.observe()["at[1]"] is At.TRAINING


@needs_package
def test_a_rank_that_times_out_is_not_answered() -> None:
    with Ranks(MANAGERS[0]) as subject:
        subject.reset()
        for step, given in (("ask", (0,)), ("time_out", (0,)), ("ask", (1,)), ("answer", ())):
            subject.perform(step, given)
        seen = subject.observe()
    assert (seen["at[0]"], seen["at[1]"], seen["sent"]) == (Rank.IDLE, Rank.TRAINING, False)
