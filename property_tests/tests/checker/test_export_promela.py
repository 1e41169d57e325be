"""Spin counts the states of exported systems as our engines do, and comes to the same verdicts after as many steps."""

from __future__ import annotations

from pathlib import Path

import pytest
from trystate.model.checker.check import check
from trystate.model.checker.expectations import Run
from trystate.model.checker.export.promela import promela
from trystate.property_tests.support.export.spin import differences, require_spin, verify
from trystate.property_tests.support.nightly import NIGHTLY

from trystate import plans, registry

STATES_MAX = 300_000  # of a run that is exported by night
BY_DAY = ("Rendezvous(node=2, min_nodes=2, max_nodes=2, rounds=1) TORCH with stall",)


def exported() -> list[Run]:
    """The runs of the small plan that Spin judges: by night all that are small enough."""
    runs = plans.small(registry.plan())
    return [run for run in runs if (plans.states()[run.label] <= STATES_MAX if NIGHTLY else run.label in BY_DAY)]


@pytest.mark.parametrize("run", exported(), ids=lambda run: run.label)
def test_spin_agrees_on_states_verdicts_and_depths(run: Run, tmp_path: Path) -> None:
    require_spin()
    system = run.build()
    assert differences(check(system), verify(promela(system), tmp_path)) == []
