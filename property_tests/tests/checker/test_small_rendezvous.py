"""The small rendezvous has the graph that other tools count, in every engine, and is safe."""

from __future__ import annotations

import importlib.util

import pytest

from trystate.model.checker.check import ENGINES, check
from trystate.property_tests.support.nightly import NIGHTLY
from trystate.property_tests.support.systems.small_rendezvous import STATES, small_rendezvous

AVAILABLE = [e for e in ENGINES if e != "symbolic" or importlib.util.find_spec("dd") is not None]
EXPLORED = {"interpret": (2,), "explicit": (2, 3), "symbolic": (2, 3) if NIGHTLY else (2,)}  # sizes that take seconds


@pytest.mark.parametrize(("engine", "nodes"), [(e, n) for e in AVAILABLE for n in EXPLORED[e]])
def test_every_engine_counts_the_states_that_other_tools_count(engine: str, nodes: int) -> None:
    report = check(small_rendezvous(nodes), engine=engine)
    assert report.exploration.distinct == STATES[nodes]
    assert (report.violated, report.undecided) == ([], [])
    # Up to 3 nodes min equals max: a round is full as soon as there are enough, and needs no last call.
    assert sorted(report.never_fired) == (["complete_round", "pass_deadline"] if nodes < 4 else [])
