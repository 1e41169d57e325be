"""The script of each finding about TCPStore reproduces it on torch's server, and does not reproduce it on ours.

Each difference between stores has a shortest sequence, which shows it with its last operation.
"""

from __future__ import annotations

from importlib.metadata import version

import pytest

from trystate.model import releases
from trystate.model.store.findings import FINDINGS
from trystate.property_tests.adapters.stores.shortest import MEETINGS, SHORTEST, STORES, shown
from trystate.property_tests.adapters.torch_release import require
from trystate.property_tests.adapters.torch_store.server import OurServer, OurServerAndClients, Server
from trystate.property_tests.replays.schedules import SCHEDULES
from trystate.property_tests.support.nightly import a_third
from trystate.testing import Deviation

OF_THE_CLIENT = {"frozen-server", "init-overwritten", "released-yet-raises", "write-lost-silently"}
OF_BOTH = {"barrier-counts-retries", "barrier-stays-open"}  # our clients send their own requests
ON_OURS = [(name, OurServer) for name in SCHEDULES if name not in OF_THE_CLIENT]
ON_OURS += [(name, OurServerAndClients) for name in SCHEDULES if name in OF_THE_CLIENT | OF_BOTH]


@pytest.mark.parametrize(("name", "serve"), ON_OURS, ids=lambda each: each if isinstance(each, str) else each.__name__)
def test_our_server_holds_what_torchs_violates(name: str, serve: type[Server]) -> None:
    observation = SCHEDULES[name](print, serve=serve)
    assert not observation.reproduced, observation


@pytest.mark.parametrize("name", a_third(tuple(SCHEDULES)))
def test_a_schedule_shows_its_finding_on_torch_and_a_benign_one_none(name: str) -> None:
    """So a property that holds on another server is a merit of that server, since the property can fail."""
    assert SCHEDULES[name](print).reproduced is releases.has(version("torch"), FINDINGS[name])
    assert not SCHEDULES[name](print, benign=True).reproduced


# ---- the shortest sequences of deviations


def test_each_difference_of_an_operation_is_shown_by_a_sequence() -> None:
    assert set(SHORTEST) == {d for d in Deviation if d.value.table}
    assert set(MEETINGS) == {d for d in Deviation if not d.value.table}


def test_each_sequence_is_shown_on_a_store_with_that_deviation() -> None:
    assert [d.name for d, (store, _) in SHORTEST.items() if d not in STORES[store]] == []


def test_each_difference_is_of_a_store_that_is_named() -> None:
    shown_somewhere = set().union(*STORES.values())
    assert [d.name for d in Deviation if d not in shown_somewhere and not d.value.lacks] == []


def test_a_sequence_shows_its_deviation_with_its_last_operation() -> None:
    require("barrier")
    for one in shown():
        agree = [expected == said for _, expected, said in one.steps]
        assert agree == [True] * (len(agree) - 1) + [False], one
