"""Published and well-known systems have the pinned graphs in every engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from trystate.model.checker.check import check
from trystate.model.checker.export.promela import promela
from trystate.model.checker.export.tla import tla
from trystate.model.checker.kernel import Kernel
from trystate.model.language import Form, System
from trystate.property_tests.support.export import spin, tlc
from trystate.property_tests.support.mutants import altered
from trystate.property_tests.support.nightly import NIGHTLY
from trystate.property_tests.support.published import (
    SPECIFICATIONS,
    AbdRegister,
    Bakery,
    BakeryInvariant,
    ChangRoberts,
    LamportMutex,
    Paxos,
    Raft,
    SchedulingAllocator,
    Specification,
    TransactionCommit,
    Voting,
)
from trystate.property_tests.support.runs import AVAILABLE, assert_runs_show_what_they_claim
from trystate.property_tests.support.systems.small_rendezvous import STATES, small_rendezvous
from trystate.property_tests.support.systems.two_phase_commit import PINNED, TwoPhaseCommit

INTERPRETED_MAX = 4  # resource managers; the reference engine takes seconds for more
CASES = [(engine, n) for n in PINNED for engine in AVAILABLE if engine != "interpret" or n <= INTERPRETED_MAX]


@pytest.mark.parametrize(("engine", "rms"), CASES)
def test_every_engine_counts_what_is_pinned(engine: str, rms: int) -> None:
    report = check(TwoPhaseCommit(rm=rms), engine=engine)
    seen = report.exploration
    assert (seen.distinct, seen.edges, seen.depth) == PINNED[rms]
    assert (report.never_fired, report.unreached) == ([], [])
    assert_runs_show_what_they_claim(report)


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


# ---- published specifications

LIMITS = {"interpret": 10_000, "explicit": 2_000_000, "symbolic": 100_000}  # states; each search takes seconds
LIMITS_BY_DAY = {"interpret": 600, "explicit": 800_000, "symbolic": 50_000}


def below(states: int) -> list[object]:
    return [pytest.param(one, id=one.build().label) for one in SPECIFICATIONS if one.states <= states]


def searched() -> Iterator[object]:
    for engine in AVAILABLE:
        yield from (
            pytest.param(one, engine, id=f"{one.build().label}-{engine}")
            for one in SPECIFICATIONS
            if one.states <= (LIMITS if NIGHTLY else LIMITS_BY_DAY)[engine]
            or (one.of is BakeryInvariant and engine == "symbolic")  # its diagram is small
        )


@pytest.mark.parametrize(("one", "engine"), [*searched()])
def test_a_published_specification_has_its_states_and_its_verdicts(one: Specification, engine: str) -> None:
    report = check(one.build(), engine=engine)
    assert report.exploration.distinct == one.states
    assert (report.violated, report.undecided, report.never_fired) == ([], [], [])
    assert str(report).startswith(f"{report.system.label}: {one.states:,} states")  # also without properties


@pytest.mark.parametrize("one", below(25_000 if NIGHTLY else 30))  # most of the time is the compiler's
def test_spin_counts_the_states_of_a_published_specification(one: Specification, tmp_path: Path) -> None:
    spin.require_spin()
    assert spin.differences(check(one.build()), spin.verify(promela(one.build()), tmp_path)) == []


@pytest.mark.parametrize("one", below(100_000 if NIGHTLY else 10))  # each start takes seconds
def test_tlc_decides_a_published_specification_as_we_do(one: Specification, tmp_path: Path) -> None:
    of = one.build()
    names = [p.name for p in of.properties if p.form not in (Form.SOMETIMES, Form.REFINES)]
    assert tlc.explore(tla(of, names, "Exported"), tmp_path, tlc.tlc_jar()) == tlc.Seen(one.states, "", None)


def test_a_read_of_the_register_takes_the_published_number_of_steps() -> None:
    run = check(AbdRegister()).verdict("value_chosen").run
    assert run is not None and len(run.path.steps) == 11


# A method, a part of its text, the text instead, and a property that is violated then.
MISTAKES: dict[type[System], tuple[str, str, str, str]] = {
    Voting: ("vote_for", "self.shows_safe(s, (a, b), ballot, value)", "True", "as_consensus"),
    Paxos: ("phase_2a", "(last < 0) | ", "True | ", "as_voting"),
    TransactionCommit: ("commit", "Manager.PREPARED, Manager.COMMITTED)", "*Manager)", "is_consistent"),
    Raft: ("grant_vote", "(last > own) | ", "True | ", "leaders_are_complete"),
    AbdRegister: ("keep", "number > s.kept", "number < s.kept", "linearizable"),
    ChangRoberts: ("handle", "(number < node)", "(number > node)", "correctness"),
    SchedulingAllocator: ("allocate", " & ~or_(*wanted[:k])", "", "schedule_is_possible"),
    Bakery: ("precedes", "s.num[i] < s.num[j]", "s.num[i] <= s.num[j]", "mutual_exclusion"),
    LamportMutex: ("enter", "(mine < r)", "(mine <= r)", "mutex"),
}


@pytest.mark.parametrize("of", MISTAKES)
def test_a_mistake_in_a_published_specification_is_a_violation(of: type[System]) -> None:
    method, right, wrong, violated = MISTAKES[of]
    made = altered(of.__name__, of, method, right, wrong)
    assert violated in {v.property.name for v in check(made()).violated}
