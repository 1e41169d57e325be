"""Published and well-known systems have the pinned graphs in every engine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from trystate.model.checker.check import check
from trystate.model.checker.kernel import Kernel
from trystate.model.language import System
from trystate.property_tests.support.nightly import NIGHTLY
from trystate.property_tests.support.runs import AVAILABLE, assert_is_a_fair_lasso, assert_is_a_run, refutes
from trystate.property_tests.support.systems import two_phase_commit
from trystate.property_tests.support.systems.published_forms import (
    CoffeeCan,
    DiningPhilosophers,
    Ewd840,
    Ewd998,
    Prisoner,
    ReadersWriters,
)
from trystate.property_tests.support.systems.small_rendezvous import STATES, small_rendezvous
from trystate.property_tests.support.systems.two_phase_commit import TwoPhaseCommit

INTERPRETED_MAX = 4  # resource managers; the reference engine takes seconds for more
COUNTED_MAX = 7  # each engine counts eight in its own tests


def pinned() -> Iterator[tuple[str, System, tuple[int, int, int]]]:
    for n, expected in two_phase_commit.PINNED.items():
        for engine in AVAILABLE:
            if n <= (INTERPRETED_MAX if engine == "interpret" else COUNTED_MAX):
                yield engine, TwoPhaseCommit(rm=n), expected


CASES = [pytest.param(*case, id=f"{case[1].label}-{case[0]}") for case in pinned()]


@pytest.mark.parametrize(("engine", "system", "expected"), CASES)
def test_every_engine_counts_what_is_pinned(engine: str, system: System, expected: tuple[int, int, int]) -> None:
    report = check(system, engine=engine)
    seen = report.exploration
    assert (seen.distinct, seen.edges, seen.depth) == expected
    assert report.never_fired == []
    assert report.unreached == []
    for verdict in report.verdicts:
        if verdict.run is not None and verdict.run.loop is None:
            assert_is_a_run(system, verdict.run.path)
        elif verdict.run is not None:
            assert_is_a_fair_lasso(system, verdict.run)
            assert refutes(system, verdict.run, verdict.property)


def test_the_pins_for_two_phase_commit_follow_the_formula() -> None:
    assert [two_phase_commit.states(n) for n in (3, 5, 6)] == [288, 8_832, 50_816]
    assert {n: x[0] for n, x in two_phase_commit.PINNED.items()} == {n: two_phase_commit.states(n) for n in range(3, 9)}


@pytest.mark.parametrize("engine", AVAILABLE)
def test_two_phase_commit_blocks_when_its_coordinator_crashes(engine: str) -> None:
    system = TwoPhaseCommit(rm=3, faults=["coordinator_crash"])
    report = check(system, engine=engine)
    names = {v.property.name for v in report.violated}
    assert names == {"transactions_commit", "promises_are_answered", "deadlock_freedom"} and not report.undecided
    blocked = report.verdict("deadlock_freedom").run
    assert blocked is not None
    instances = Kernel(system).instances
    assert "crash" in [instances[k].label for k in blocked.path.steps]


SMALL = {"interpret": (2,), "explicit": (2, 3), "symbolic": (2, 3) if NIGHTLY else (2,)}  # sizes that take seconds


@pytest.mark.parametrize(("engine", "nodes"), [(e, n) for e in AVAILABLE for n in SMALL[e]])
def test_every_engine_counts_the_states_that_other_tools_count(engine: str, nodes: int) -> None:
    report = check(small_rendezvous(nodes), engine=engine)
    assert report.exploration.distinct == STATES[nodes]
    assert (report.violated, report.undecided) == ([], [])
    # Up to 3 nodes min equals max: a round is full as soon as there are enough, and needs no last call.
    assert sorted(report.never_fired) == (["complete_round", "pass_deadline"] if nodes < 4 else [])


# ---- specifications that are written with the forms of the language

SPECIFIED: list[tuple[System, int]] = [
    (CoffeeCan(), 5_150),
    (DiningPhilosophers(), 67),
    (ReadersWriters(), 21_527),
    (Prisoner(), 16),
    (Prisoner(unknown=1), 62),
    (Ewd840(), 302),
    (Ewd840(node=4), 1_566),
    *([(Ewd998(), 1_520_618)] if NIGHTLY else []),
]
FAST = AVAILABLE if NIGHTLY else [engine for engine in AVAILABLE if engine != "interpret"]


@pytest.mark.parametrize("engine", FAST)
@pytest.mark.parametrize(("system", "states"), [pytest.param(*case, id=case[0].label) for case in SPECIFIED])
def test_a_published_specification_has_its_number_of_states(system: System, states: int, engine: str) -> None:
    if states > 1_000_000 and engine != "explicit":
        pytest.skip("only the engine explicit counts a million states in seconds")
    report = check(system, engine=engine)
    assert report.exploration.distinct == states
    assert not report.violated
    assert report.never_fired == []
