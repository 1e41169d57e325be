"""Every finding about torch's agent is replayed on the installed torch; every control is not one."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the agent is torch's")

from trystate.model.agent.findings import FINDINGS
from trystate.property_tests.adapters.seed_store.scenarios import SCENARIOS as ON_ITS_PROGRAM
from trystate.property_tests.adapters.torch_agent.scenarios import CONTROLS, SCENARIOS
from trystate.property_tests.support.torch_scenarios import scenario_tests

test_the_installed_torch_has_the_findings_of_its_release, test_a_benign_schedule_violates_nothing = scenario_tests(
    SCENARIOS, CONTROLS, FINDINGS
)


def test_every_finding_of_the_agent_is_replayed() -> None:
    assert {name: scenario.finding for name, scenario in SCENARIOS.items()} == {
        finding.name: finding.number for finding in FINDINGS.values() if finding.name not in ON_ITS_PROGRAM
    }
