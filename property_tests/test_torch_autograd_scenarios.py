"""Every finding about torch.distributed.autograd is replayed on the installed torch; every control is not one."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the workers are torch's")

from trystate.model.autograd.findings import FINDINGS
from trystate.property_tests.torch_autograd.scenarios import CONTROLS, SCENARIOS


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_installed_torch_violates_the_property(name: str) -> None:
    observation = SCENARIOS[name].run(print)
    assert observation.reproduced, observation
    assert observation.verdict.startswith("violated: ")


@pytest.mark.parametrize("name", CONTROLS)
def test_a_benign_schedule_violates_nothing(name: str) -> None:
    observation = CONTROLS[name](print)
    assert not observation.reproduced, observation


def test_every_finding_of_distributed_autograd_is_replayed() -> None:
    assert {name: scenario.finding for name, scenario in SCENARIOS.items()} == {
        finding.name: finding.number for finding in FINDINGS.values()
    }
