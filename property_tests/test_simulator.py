"""Swarms of simulated nodes: every property on every run, the same run for the same seed, and broken engines caught.

2,000 seeds; 200,000 under HYPOTHESIS_PROFILE=nightly. A failure prints the smallest run that fails in the same way,
and the command that shows it again.
"""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from trystate.property_tests.simulator.__main__ import told
from trystate.property_tests.simulator.monitors import Event
from trystate.property_tests.simulator.mutants import MUTANTS, caught
from trystate.property_tests.simulator.schedule import KINDS, Fault, draw
from trystate.property_tests.simulator.swarm import run, shrink, sweep
from trystate.property_tests.simulator.torchs import disagree, worlds

SEEDS = 200_000 if os.environ.get("HYPOTHESIS_PROFILE") == "nightly" else 2_000
SAMPLE = range(40)


def test_every_property_holds_on_every_seed() -> None:
    failed = sweep(range(SEEDS))
    assert failed is None, "\n".join(told(shrink(failed), None))


def test_a_seed_decides_everything() -> None:
    first, second = (run(draw(7)) for _ in range(2))
    assert [*map(str, first.log)] == [*map(str, second.log)]
    assert [*map(str, first.log)] != [*map(str, run(draw(8)).log)]


def test_the_seeds_do_what_they_are_for() -> None:
    """Rounds of many sizes, every fault, and everything that a node can do in them."""
    schedules = [draw(seed) for seed in range(200)]
    assert {len(s.hosts) for s in schedules} == set(range(3, 10))
    assert {f.kind for s in schedules for f in s.faults} == set(KINDS)
    said = [str(event) for seed in SAMPLE for event in run(draw(seed)).log]
    for words in ("returns: round 3", "complete", "waiting", "spare", "expected", "died", "the job is over", "left",
                  "SettingsError", "TimeoutError", "ClosedError", "KEEP_ALIVE was lost"):  # fmt: skip
        assert any(words in line for line in said), words


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_engine_is_caught(name: str) -> None:
    assert caught(MUTANTS[name]) is not None


def test_the_engine_as_it_is_is_not_caught() -> None:
    assert sweep(SAMPLE) is None


def test_a_failing_run_is_made_small_and_says_how_to_see_it_again() -> None:
    with MUTANTS["expels without replacing the round"]():
        failed = sweep(SAMPLE)
        assert failed is not None
        small = shrink(failed)
        assert small.fails == failed.fails
        quorum = small.schedule.hosts[0].settings.min_nodes
        assert len(small.schedule.hosts) == quorum + 1 and len(small.schedule.faults) == 1
        assert all(run(s).fails != failed.fails for s in small.schedule.smaller())
    lines = told(small, 9)
    assert lines[-1] == f"again: python -m trystate.property_tests.simulator --seed {failed.schedule.seed} --nodes 9"
    assert lines[-2].startswith("violated: what_returned_stays_written")
    assert any("crash" in line for line in lines)


def test_a_fault_less_is_the_same_run_until_then() -> None:
    schedule = replace(draw(11), faults=(Fault(5.0, "crash", 0, 1.0),))
    calm = replace(schedule, faults=())

    def early(log: list[Event]) -> list[str]:
        return [str(event) for event in log if event.at < 5.0]

    assert early(run(schedule).log) == early(run(calm).log)


def test_torchs_classes_disagree_on_a_seed_that_ours_pass() -> None:
    drawn = draw(4, 3)
    schedule = replace(drawn, faults=tuple(f for f in drawn.faults if f.kind == "worker_failure"))
    assert disagree(worlds(schedule)) == [0]  # R3: a worker fails before the others have polled
    assert not disagree(worlds(replace(schedule, faults=())))
    assert not run(schedule).fails
