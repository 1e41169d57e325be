"""The records of simulated jobs of ours: every seed is explained, a broken engine is not; large jobs cost no more."""

from __future__ import annotations

import time
import tracemalloc
from dataclasses import replace
from typing import Any, cast

import pytest

from trystate.impl.rendezvous.encoding import decode, encode
from trystate.impl.rendezvous.engine import Engine
from trystate.property_tests.adapters.simulator.schedule import draw
from trystate.property_tests.support.monitor.simulated import explained, recorded
from trystate.property_tests.support.mutants import planted
from trystate.property_tests.support.nightly import NIGHTLY, seeds
from trystate.property_tests.support.simulator.engine_mutants import MUTANTS

# Each shows on the first seed.
BROKEN = (
    "joins a complete round",
    "expels without replacing the round",
    "closes when it is late",
    "ranks in the order of arrival",
    "a round is replaced by an empty one",
)
# A member left, and no restart was left: one write of ours leaves and closes. Seven nodes that may still meet.
FOUND = (597, 619)
CROWDS = (64, 256)
LINES = 8_000
BYTES_MAX = 1 << 17  # for each node, while a record is explained, with what the interpreter has not yet collected
FACTOR_MAX = 4.0  # of the time for a line and a node


def test_every_simulated_job_is_explained() -> None:
    """By night as many as there is time for."""
    for seed in (*seeds(8), *FOUND):
        follower = explained(recorded(draw(seed)))
        assert [str(p) for p in follower.problems if p.harm] == [], f"seed {seed}"
        assert follower.undecided == [], f"seed {seed}"
        assert follower.lines > 0


def test_a_member_that_closes_as_it_leaves_had_no_restart_left() -> None:
    lines = recorded(draw(FOUND[0]))
    for line in lines:
        if "value" in line.fields:
            state = decode(line.fields["value"].encode("latin-1"))
            roomy = replace(state, settings=replace(state.settings, max_restarts=99))
            cast("dict[str, Any]", line.fields)["value"] = encode(roomy).decode("latin-1")
    assert [p.kind for p in explained(lines).problems if p.harm][:1] == ["unexplained"]


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_engine_is_caught_by_its_record(name: str) -> None:
    with planted(MUTANTS[name]) as kind:
        lines = recorded(draw(0), kind or Engine)
    assert any(problem.kind == "unexplained" for problem in explained(lines).problems)


def cost(nodes: int) -> tuple[float, int]:
    """Seconds for a line and a node, and the most bytes for a node, of a record of such a job."""
    lines = recorded(draw(1, nodes))[:LINES]
    began = time.process_time()
    follower = explained(lines)
    seconds = time.process_time() - began
    tracemalloc.start()
    explained(lines[: LINES // 4])
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(follower.roster.peers) > nodes // 2
    return seconds / len(lines) / nodes, most // nodes


@pytest.mark.skipif(not NIGHTLY, reason="a minute for each: under HYPOTHESIS_PROFILE=nightly")
@pytest.mark.parametrize("nodes", CROWDS)
def test_a_line_of_a_large_job_costs_no_more_for_each_node(nodes: int) -> None:
    small, large = cost(8), cost(nodes)
    assert large[0] <= FACTOR_MAX * small[0]
    assert large[1] <= BYTES_MAX
