"""Every finding about the creation of groups is replayed on the installed torch; every control is not one."""

from __future__ import annotations

from importlib.metadata import version
from multiprocessing.connection import Connection

import pytest

pytest.importorskip("torch", reason="the groups are torch's")

from trystate.model.groups.findings import FINDINGS
from trystate.property_tests.adapters.torch_groups.scenarios import CONTROLS, SCENARIOS, _join
from trystate.property_tests.adapters.torch_store.isolated import Child
from trystate.property_tests.adapters.torch_store.server import TorchServer
from trystate.property_tests.support.torch_scenarios import scenario_tests

test_the_installed_torch_has_the_findings_of_its_release, test_a_benign_schedule_violates_nothing = scenario_tests(
    SCENARIOS, CONTROLS, FINDINGS
)


def test_every_finding_of_the_groups_is_replayed_but_that_of_torch_1() -> None:
    assert {name: scenario.finding for name, scenario in SCENARIOS.items()} == {
        finding.name: finding.number for finding in FINDINGS.values() if finding.name != "world-waits"
    }


def _member(line: Connection, port: int, rank: int) -> None:
    store = _join(port, rank, 2)
    line.send("joined")
    line.recv()
    line.send(sorted(store.list_keys()))


@pytest.mark.skipif(not version("torch").startswith("2.13"), reason="the model is of 2.13")
def test_a_group_leaves_an_address_of_each_member_and_no_sequence_number() -> None:
    """torch 1.9 writes one (the edition SEED); the names of the default group and of its keys are the model's."""
    with TorchServer() as server, Child(_member, server.port, 0) as one, Child(_member, server.port, 1) as other:
        assert [child.hear(60) for child in (one, other)] == ["joined"] * 2
        one.tell("list")
        keys = one.hear(60)
    assert keys == ["0//cpu//0/0", "0//cpu//0/1"]
