"""The model of the start-up and real constructors agree, on our server and on torch's, and each mutant is found.

Every edge of small systems, random runs of larger systems, and mutants. A constructor's timeout is a second of real
time, which can pass by itself on a busy machine. So these tests are nightly, and `trystate verify` does not run them.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from trystate.impl.store.client import startup as starting
from trystate.impl.store.tcp import TCPStore
from trystate.model.store.startup import StartUps
from trystate.model.store.vocabulary import Edition
from trystate.property_tests.adapters.our_store.conformance import (
    OUR_START_UPS,
    TORCHS_START_UPS,
    Case,
    brought_along,
    replay,
)
from trystate.property_tests.adapters.our_store.startups import StartUpsSubject
from trystate.property_tests.harness.paths import replay_every_edge
from trystate.property_tests.harness.stateful import state_machine
from trystate.property_tests.support.mutants import planted, rewritten
from trystate.property_tests.support.nightly import NIGHTLY, examples

TORCH, TRYSTATE = Edition.TORCH, Edition.TRYSTATE
pytestmark = pytest.mark.skipif(not NIGHTLY, reason="timeouts of real time: under HYPOTHESIS_PROFILE=nightly")


@pytest.mark.parametrize(
    ("cases", "edges"), [(OUR_START_UPS, 191), (TORCHS_START_UPS, 152)], ids=["our server", "torch's server"]
)
def test_every_edge_of_small_systems_is_taken_on_real_constructors(cases: tuple[Case, ...], edges: int) -> None:
    outcome = replay(cases, lambda _: None, server=brought_along)
    assert not outcome.disagreements
    assert outcome.compared == edges


@pytest.mark.parametrize(
    "case",
    [
        Case(StartUps, TORCH, {"client": 3}, ("again", "crash", "overwrite")),
        Case(StartUps, TRYSTATE, {"client": 4}, ("again", "crash", "overwrite", "stop")),
    ],
    ids=str,
)
def test_constructors_and_a_larger_model_agree_on_random_runs(case: Case) -> None:
    system: Any = case.build()
    with ExitStack() as stack:
        machine = state_machine(system, lambda: StartUpsSubject(system, stack), refusals=False)
        run_state_machine_as_test(machine, settings=settings(max_examples=examples(4), stateful_step_count=20))


def disagree(system: StartUps) -> bool:
    with ExitStack() as stack:
        return bool(replay_every_edge(system, StartUpsSubject(system, stack), stop_after=1).disagreements)


# ---- mutants of our client

CHECK = ":\n            _check_time(client, here, world_size, deadline if"
ADDED = "_add(client, %d, deadline, seconds)\n        return"
CLIENT_MUTANTS: dict[str, tuple[Any, str, str]] = {
    "the master waits for one less": (starting.count_in, f"here < world_size{CHECK}", f"here < world_size - 1{CHECK}"),
    "a start counts twice": (starting.count_in, ADDED % 1, ADDED % 2),
    "a constructor that raises leaves its server": (TCPStore._close, "self._master.close()", "pass"),
}


@pytest.mark.parametrize("name", CLIENT_MUTANTS)
def test_a_mutant_of_our_constructor_is_found_out(name: str) -> None:
    function, right, wrong = CLIENT_MUTANTS[name]
    with planted(rewritten(function, right, wrong)):
        assert disagree(StartUps(edition=TRYSTATE, client=2))
