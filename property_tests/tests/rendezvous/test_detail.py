"""The steps that our edition leaves out keep every property, in every planned size; each of them happens."""

from __future__ import annotations

from typing import Any

import pytest

from trystate.model.checker.expectations import Run, covered_with
from trystate.model.rendezvous import Edition, Ours
from trystate.model.rendezvous.detail import OursInDetail
from trystate.model.rendezvous.findings import EVERY_FAULT, EVERY_FAULT_BUT_OTHER_MIN, PLAN
from trystate.property_tests.support.pinned import Asked, assert_as_pinned, report, violated

DETAILS = {*OursInDetail.declarations()} - {*Ours.declarations()}


def run(
    nodes: int,
    low: int,
    high: int,
    faults: tuple[str, ...],
    states: int,
    *,
    rounds: int = 2,
    together: int | None = None,
) -> Asked:
    """One exploration: its size and faults, its states, and how many faults happen at most."""
    sizes = f"node={nodes} min_nodes={low} max_nodes={high} rounds={rounds}"
    return Asked(OursInDetail, Edition.TRYSTATE, sizes, states, "", faults, together)


LARGEST = run(3, 1, 2, (), 64_479, rounds=1)
PLANNED = (
    run(2, 1, 2, (*EVERY_FAULT, "drain", "comes_again"), 28_850, rounds=1, together=1),
    run(2, 1, 1, (*EVERY_FAULT_BUT_OTHER_MIN, "drain", "comes_again"), 9_755, rounds=1, together=1),
    LARGEST,
    run(2, 1, 2, ("crash", "worker_failure", "job_end"), 34_428),
    run(2, 2, 2, ("stall", "join_timeout"), 33_442),
    run(2, 1, 2, ("drain",), 8_970),
    run(2, 1, 2, ("comes_again",), 7_430),
)


@pytest.mark.parametrize("asked", PLANNED, ids=str)
def test_every_property_holds_and_the_counts_are_pinned(asked: Asked) -> None:
    assert_as_pinned(asked)


def test_what_is_pinned_is_what_is_planned() -> None:
    pinned = (
        Run(OursInDetail, asked.numbers, asked.edition, asked.faults, max_faults=asked.together) for asked in PLANNED
    )
    assert {one.label for one in PLAN if one.system is OursInDetail} == {one.label for one in pinned}


def test_each_detail_happens_and_makes_every_move_that_it_claims() -> None:
    """The steps that it inherits are covered by the runs of the edition, with which it counts."""
    found = report(LARGEST)
    assert covered_with(found.system) == "Rendezvous"
    assert not DETAILS & {*found.never_fired}
    assert not DETAILS & {step for step, _ in found.unreached}


class Forgetful(OursInDetail):
    """A mutant: a member that leaves a complete round leaves it as it is."""

    def begin_new_round(self, s: Any, replaced: Any) -> None:
        """No round is ever replaced."""


def test_a_change_that_leaves_a_complete_round_as_it_is_is_found() -> None:
    sizes = "node=2 min_nodes=1 max_nodes=2 rounds=2"
    found = violated(report(Asked(Forgetful, Edition.TRYSTATE, sizes, 0)))
    assert {"what_returned_stays_written", "ranks_are_dense"} & found
