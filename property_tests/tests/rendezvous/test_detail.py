"""The steps that our edition leaves out keep every property, in every planned size; each of them happens."""

from __future__ import annotations

from typing import Any

import pytest

from trystate.model.checker.expectations import Run, covered_with
from trystate.model.rendezvous import Edition, Ours
from trystate.model.rendezvous.detail import OursInDetail
from trystate.model.rendezvous.findings import PLAN
from trystate.property_tests.support.pinned import Asked, assert_as_pinned, report, violated

DETAILS = {*OursInDetail.declarations()} - {*Ours.declarations()}
PLANNED = [run for run in PLAN if run.system is OursInDetail]
STATES = (28_850, 9_755, 64_479, 34_428, 33_442, 8_970, 7_430)


def asked(run: Run, states: int = 0) -> Asked:
    """The exploration of a planned run."""
    sizes = " ".join(f"{name}={size}" for name, size in run.sizes.items())
    return Asked(OursInDetail, Edition.TRYSTATE, sizes, states, "", run.faults, run.max_faults)


@pytest.mark.parametrize("one", [asked(*one) for one in zip(PLANNED, STATES, strict=True)], ids=str)
def test_every_property_holds_and_the_counts_are_pinned(one: Asked) -> None:
    assert_as_pinned(one)


def test_each_detail_happens_and_makes_every_move_that_it_claims() -> None:
    """The steps that it inherits are covered by the runs of the edition, with which it counts."""
    found = report(asked(max(PLANNED, key=lambda run: run.sizes["node"]), max(STATES)))
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
