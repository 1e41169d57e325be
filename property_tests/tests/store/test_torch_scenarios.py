"""Every finding about torch's TCPStore is replayed on the installed torch, and is none of ours; a control is none."""

from __future__ import annotations

import threading

import pytest
from trystate.model.store.findings import FINDINGS
from trystate.property_tests.adapters.seed_store.scenarios import SCENARIOS as ON_ITS_PROGRAM
from trystate.property_tests.adapters.torch_store.scenarios import CONTROLS, SCENARIOS, SCHEDULES
from trystate.property_tests.adapters.torch_store.server import OurServer, OurServerAndClients, Server
from trystate.property_tests.support.torch_scenarios import scenario_tests

OF_THE_CLIENT = {"frozen-server", "init-overwritten", "released-yet-raises", "write-lost-silently"}
OF_BOTH = {"barrier-counts-retries", "barrier-stays-open"}  # our clients ask with requests of their own
ON_OURS = [(name, OurServer) for name in SCHEDULES if name not in OF_THE_CLIENT]
ON_OURS += [(name, OurServerAndClients) for name in SCHEDULES if name in OF_THE_CLIENT | OF_BOTH]


@pytest.mark.parametrize(("name", "serve"), ON_OURS, ids=lambda each: each if isinstance(each, str) else each.__name__)
def test_our_server_holds_what_torchs_violates(name: str, serve: type[Server]) -> None:
    observation = SCHEDULES[name](print, serve=serve)
    assert not observation.reproduced, observation
    assert observation.verdict.startswith("held in this run: ")


test_the_installed_torch_has_the_findings_of_its_release, test_a_benign_schedule_violates_nothing = scenario_tests(
    SCENARIOS, CONTROLS, FINDINGS
)


def test_every_finding_is_replayed_but_those_of_torch_1() -> None:
    assert {*SCENARIOS} == {*FINDINGS} - {*ON_ITS_PROGRAM}
    assert all(FINDINGS[name].number == scenario.finding for name, scenario in SCENARIOS.items())


def test_a_scenario_leaves_no_thread_behind() -> None:
    before = set(threading.enumerate())
    SCENARIOS["barrier-stays-open"].run(lambda step: None)
    assert set(threading.enumerate()) == before
