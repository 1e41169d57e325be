"""Systems that others have published, or that everybody knows, have the pinned graphs in every engine."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest

from trystate.model.checker.check import ENGINES, check
from trystate.model.checker.kernel import Kernel
from trystate.model.checker.verdicts import Report, Status
from trystate.model.language import System
from trystate.property_tests.support.runs import assert_is_a_fair_lasso, assert_is_a_run, refutes
from trystate.property_tests.support.systems import jugs, peterson, philosophers, two_phase_commit
from trystate.property_tests.support.systems.jugs import Jugs
from trystate.property_tests.support.systems.peterson import Lock, Peterson
from trystate.property_tests.support.systems.philosophers import Habit, Philosophers
from trystate.property_tests.support.systems.two_phase_commit import TwoPhaseCommit

AVAILABLE = [e for e in ENGINES if e != "symbolic" or importlib.util.find_spec("dd") is not None]
INTERPRETED_MAX = 4  # resource managers: the reference engine takes seconds beyond
COUNTED_MAX = 7  # each engine counts eight in its own tests


def pinned() -> Iterator[tuple[str, System, tuple[int, int, int]]]:
    for n, expected in two_phase_commit.PINNED.items():
        for engine in AVAILABLE:
            if n <= (INTERPRETED_MAX if engine == "interpret" else COUNTED_MAX):
                yield engine, TwoPhaseCommit(rm=n), expected
    small: list[tuple[System, tuple[int, int, int]]] = [(Jugs(), jugs.PINNED)]
    small += [(Philosophers(seat=n, edition=h), x) for (h, n), x in philosophers.PINNED.items()]
    small += [(Peterson(edition=lock), x) for lock, x in peterson.PINNED.items()]
    for system, expected in small:
        yield from ((engine, system, expected) for engine in AVAILABLE)


CASES = [pytest.param(*case, id=f"{case[1].label}-{case[0]}") for case in pinned()]


def explored(system: System, engine: str, *, symmetry: bool = False) -> Report:
    return check(system, engine=engine, symmetry=symmetry)


def violated(report: Report) -> set[str]:
    assert not report.undecided
    return {v.property.name for v in report.violated}


@pytest.mark.parametrize(("engine", "system", "expected"), CASES)
def test_every_engine_counts_what_is_pinned(engine: str, system: System, expected: tuple[int, int, int]) -> None:
    report = explored(system, engine)
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


@pytest.mark.parametrize(("rms", "published"), [(3, 288), (5, 8_832), (6, 50_816)])
def test_the_formula_for_two_phase_commit_gives_the_published_counts(rms: int, published: int) -> None:
    assert two_phase_commit.states(rms) == published


def test_the_pins_for_two_phase_commit_follow_the_formula() -> None:
    assert {n: x[0] for n, x in two_phase_commit.PINNED.items()} == {n: two_phase_commit.states(n) for n in range(3, 9)}


@pytest.mark.parametrize("rms", range(2, 8))
def test_symmetry_leaves_the_orbits_of_two_phase_commit(rms: int) -> None:
    report = explored(TwoPhaseCommit(rm=rms), "explicit", symmetry=True)
    assert report.exploration.distinct == two_phase_commit.orbits(rms)


@pytest.mark.parametrize("engine", AVAILABLE)
def test_two_phase_commit_is_safe_and_answers_every_promise(engine: str) -> None:
    assert violated(explored(TwoPhaseCommit(rm=3), engine)) == {"transactions_commit"}


@pytest.mark.parametrize("engine", AVAILABLE)
def test_two_phase_commit_blocks_when_its_coordinator_crashes(engine: str) -> None:
    system = TwoPhaseCommit(rm=3, faults=["coordinator_crash"])
    report = explored(system, engine)
    assert violated(report) == {"transactions_commit", "promises_are_answered", "deadlock_freedom"}
    blocked = report.verdict("deadlock_freedom").run
    assert blocked is not None
    instances = Kernel(system).instances
    assert "crash" in [instances[k].label for k in blocked.path.steps]


@pytest.mark.parametrize("engine", AVAILABLE)
def test_four_litres_are_measured_in_six_steps(engine: str) -> None:
    system = Jugs()
    run = explored(system, engine).verdict("measured").run
    assert run is not None
    instances = Kernel(system).instances
    assert tuple(instances[k].label for k in run.path.steps) == jugs.SOLUTION


def test_jugs_that_share_a_measure_cannot_give_what_is_not_a_multiple() -> None:
    report = explored(Jugs(small_litres=2, big_litres=6, goal_litres=3), "interpret")
    assert report.verdict("measured").status is Status.VIOLATED


@pytest.mark.parametrize("engine", AVAILABLE)
@pytest.mark.parametrize("seats", [2, 3, 5])
def test_philosophers_with_one_habit_can_all_wait_for_ever(engine: str, seats: int) -> None:
    system = Philosophers(seat=seats, edition=Habit.ALIKE)
    report = explored(system, engine)
    assert violated(report) == {"the_hungry_eat", "hunger_is_met_somewhere", "deadlock_freedom"}
    run = report.verdict("deadlock_freedom").run
    assert run is not None
    assert len(run.path.steps) == 2 * seats
    assert {v for k, v in system.decode(run.path.states[-1]).items() if "philosopher" in k} == {"HOLDING"}


@pytest.mark.parametrize("engine", AVAILABLE)
@pytest.mark.parametrize("seats", [2, 3, 5])
def test_one_turned_philosopher_prevents_the_deadlock_but_not_starvation(engine: str, seats: int) -> None:
    system = Philosophers(seat=seats, edition=Habit.ONE_TURNED)
    report = explored(system, engine)
    assert violated(report) == {"the_hungry_eat"}
    verdict = report.verdict("the_hungry_eat")
    assert verdict.run is not None
    assert_is_a_fair_lasso(system, verdict.run)
    assert refutes(system, verdict.run, verdict.property)


@pytest.mark.parametrize("engine", AVAILABLE)
@pytest.mark.parametrize(
    ("lock", "broken"),
    [
        (Lock.PETERSON, set()),
        (Lock.WITHOUT_TURN, {"nobody_starves", "deadlock_freedom"}),
        (Lock.TURN_FIRST, {"mutual_exclusion"}),
    ],
)
def test_each_half_of_petersons_entry_is_needed(engine: str, lock: Lock, broken: set[str]) -> None:
    assert violated(explored(Peterson(edition=lock), engine)) == broken
