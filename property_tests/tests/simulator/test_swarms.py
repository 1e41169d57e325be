"""Swarms of simulated nodes: every property on every run, the same run for the same seed, mutants are caught.

400 seeds; more under HYPOTHESIS_PROFILE=nightly. A failure prints the smallest run that fails in the same way,
and the command that shows it again.
"""

from __future__ import annotations

from functools import cache

import pytest

from trystate.property_tests.adapters.campaigns.simulated import told
from trystate.property_tests.adapters.simulator.schedule import KINDS, SHORT_SECONDS, STOPS, draw
from trystate.property_tests.adapters.simulator.swarm import run, shrink, sweep
from trystate.property_tests.support.mutants import planted
from trystate.property_tests.support.nightly import seeds
from trystate.property_tests.support.simulator.engine_mutants import MUTANTS, caught

SAMPLE = range(40)


def test_every_property_holds_on_every_seed() -> None:
    for one in sweep(seeds(400)):
        assert not one.fails, "\n".join(told(shrink(one), None))


def test_the_seeds_do_what_they_are_for() -> None:
    """They contain rounds of many sizes, every fault, and every event of a node."""
    schedules = [draw(seed) for seed in range(200)]
    assert {len(s.hosts) for s in schedules} == set(range(3, 10))
    assert {f.kind for s in schedules for f in s.faults} == {*KINDS, *STOPS}
    said = [str(event) for seed in SAMPLE for event in run(draw(seed)).log]
    for words in ("returns: round 3", "complete", "waiting", "spare", "expected", "died", "left", "has succeeded",
                  "ends with success", "ends with a failure", "SettingsError", "TimeoutError", "ClosedError",
                  "KEEP_ALIVE was lost", "has a watchdog that kills its workers"):  # fmt: skip
        assert any(words in line for line in said), words


@cache
def broken(name: str) -> str:
    """The first property that a mutant violates."""
    found = caught(name)
    return found.fails if found is not None else ""


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_engine_or_agent_is_caught(name: str) -> None:
    assert broken(name)


def test_every_property_of_the_agent_is_violated_by_something_broken() -> None:
    properties = (
        "restarts_are_limited", "losses_spend", "coming_spends_nothing", "restarts_left_are_used", "one_verdict",
        "success_is_everybodys", "closing_says_why", "the_verdict_is_final", "a_restart_is_a_new_round",
        "the_waiting_are_answered", "signals_are_obeyed", "outages_are_survived", "everybody_ends",
    )  # fmt: skip
    assert set(properties) <= {broken(name) for name in MUTANTS}
    assert caught("goes on without a lease", on="one_group_in_the_job")
    assert caught("closes when it is late", on="closing_is_earned")
    assert caught("does not hear the verdict", on="the_verdict_reaches_everybody")


def test_a_failing_run_is_made_small_and_says_how_to_see_it_again() -> None:
    with planted(MUTANTS["expels without replacing the round"]):
        failed = run(draw(4))
        small = shrink(failed)
        assert small.fails == failed.fails
        quorum = small.schedule.hosts[0].settings.min_nodes
        assert len(small.schedule.hosts) == quorum and len(small.schedule.faults) == 1
        assert small.schedule.calm < SHORT_SECONDS < failed.schedule.calm
        assert all(run(s).fails != failed.fails for s in small.schedule.smaller())
    lines = told(small, 9)
    assert lines[-1] == f"again: trystate simulate engine --seed {failed.schedule.seed} --nodes 9"
    assert lines[-2].startswith("violated: what_returned_stays_written")
    assert any("crash" in line for line in lines)
