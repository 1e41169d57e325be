"""Every finding about torch's rendezvous is replayed on the installed torch; every control is not one."""

import threading

from torch._C._distributed_c10d import TCPStore
from torch.distributed.elastic.rendezvous import RendezvousParameters
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler
from torch.distributed.elastic.rendezvous.registry import _create_c10d_handler
from trystate.model.rendezvous.findings import FINDINGS
from trystate.property_tests.adapters.torch_rendezvous.scenarios import CONTROLS, SCENARIOS
from trystate.property_tests.support.torch_scenarios import scenario_tests

test_the_installed_torch_has_the_findings_of_its_release, test_a_benign_schedule_violates_nothing = scenario_tests(
    SCENARIOS, CONTROLS, FINDINGS
)


def test_a_scenario_leaves_nothing_behind() -> None:
    before = set(threading.enumerate())
    SCENARIOS["fast-exit"].run(lambda step: None)
    assert set(threading.enumerate()) == before


def test_torchs_c10d_handler_and_its_backend_have_one_client() -> None:
    """The assumption of R15: the scenarios give each node a handler and a backend of one client, as torch does."""
    server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    made = _create_c10d_handler(RendezvousParameters("c10d", f"127.0.0.1:{server.port}", "job", 1, 2, is_host="0"))
    assert isinstance(made, DynamicRendezvousHandler)
    assert made._store is made._state_holder._backend._store  # type: ignore[attr-defined]


def test_the_scenarios_are_the_findings_in_order() -> None:
    assert [(s.name, s.finding) for s in SCENARIOS.values()] == [(f.name, f.number) for f in FINDINGS.values()]
    assert all(name == scenario.name for name, scenario in SCENARIOS.items())
