"""Every finding about the creation of groups is replayed on the installed torch; every control is not one."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the groups are torch's")

from trystate.model.groups.findings import FINDINGS
from trystate.property_tests.adapters.torch_groups.scenarios import CONTROLS, SCENARIOS
from trystate.property_tests.support.torch_scenarios import scenario_tests

test_the_installed_torch_has_the_findings_of_its_release, test_a_benign_schedule_violates_nothing = scenario_tests(
    SCENARIOS, CONTROLS, FINDINGS
)


def test_every_finding_of_the_groups_is_replayed_but_that_of_torch_1() -> None:
    assert {name: scenario.finding for name, scenario in SCENARIOS.items()} == {
        finding.name: finding.number for finding in FINDINGS.values() if finding.name != "world-waits"
    }
