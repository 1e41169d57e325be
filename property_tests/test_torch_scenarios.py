"""Every finding about torch's rendezvous is replayed on the installed torch; every control is not one."""

import threading

from trystate.property_tests.torch_rendezvous.scenarios import CONTROLS, SCENARIOS
from trystate.property_tests.torch_scenarios import scenario_tests

test_the_installed_torch_violates_the_property, test_a_benign_schedule_violates_nothing = scenario_tests(
    SCENARIOS, CONTROLS
)


def test_a_scenario_leaves_nothing_behind() -> None:
    before = set(threading.enumerate())
    SCENARIOS["fast-exit"].run(lambda step: None)
    assert set(threading.enumerate()) == before


def test_the_scenarios_are_the_fourteen_findings_in_order() -> None:
    assert [scenario.finding for scenario in SCENARIOS.values()] == [f"R{n}" for n in range(1, 15)]
    assert all(name == scenario.name for name, scenario in SCENARIOS.items())
