"""Every finding about torch's agent is replayed on the installed torch; every control is not one."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the agent is torch's")

from trystate.model.agent.findings import FINDINGS
from trystate.property_tests.torch_agent.scenarios import CONTROLS, SCENARIOS


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_installed_torch_violates_the_property(name: str) -> None:
    observation = SCENARIOS[name].run(print)
    assert observation.reproduced, observation
    assert observation.verdict.startswith("violated: ")


@pytest.mark.parametrize("name", CONTROLS)
def test_a_benign_schedule_violates_nothing(name: str) -> None:
    observation = CONTROLS[name](print)
    assert not observation.reproduced, observation


def test_every_finding_of_the_agent_is_replayed() -> None:
    assert {name: scenario.finding for name, scenario in SCENARIOS.items()} == {
        finding.name: finding.number for finding in FINDINGS.values()
    }
