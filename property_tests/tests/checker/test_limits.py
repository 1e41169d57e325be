"""Reports of a check that stops early, is reduced, or reports on its way: a system of 10,000 states."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from trystate.model.checker.check import ENGINES, check
from trystate.model.checker.engine import Progress
from trystate.model.checker.kernel import Limits
from trystate.model.checker.verdicts import Status
from trystate.model.errors import UsageError
from trystate.model.language import (
    System,
    all_,
    always,
    any_,
    index,
    integer,
    leads_to,
    sometimes,
    transition,
)
from trystate.property_tests.support.systems.jugs import Jugs

AVAILABLE = [e for e in ENGINES if e != "symbolic" or importlib.util.find_spec("dd") is not None]
every_engine = pytest.mark.parametrize("engine", AVAILABLE)


class Odometer(System):
    """Digits that count up, each on its own: 10,000 states."""

    digit = index(4)
    shows = integer(0, 9, per="digit")

    @transition(each="digit")
    def turn(self, s: Any, digit: Any) -> None:
        """One digit goes up."""
        s.when(s.shows[digit] < 9)
        s.shows[digit] += 1

    @transition()
    def reset(self, s: Any) -> None:
        """All nines go back to zero."""
        s.when(all_(x == 9 for x in s.shows))
        for k in s.digit:
            s.shows[k] = 0

    @sometimes()
    def all_nines(self, s: Any) -> Any:
        """Far away."""
        return all_(x == 9 for x in s.shows)

    @always(witness="all_nines")
    def small(self, s: Any) -> Any:
        """Violated nearby."""
        return ~any_(x == 3 for x in s.shows)

    @always(witness="all_nines")
    def in_range(self, s: Any) -> Any:
        """True."""
        return all_(x <= 9 for x in s.shows) & (s.shows.count(9) <= 4)

    @leads_to(each="digit")
    def turns(self, s: Any, digit: Any) -> Any:
        """True."""
        return s.shows[digit] == 0, s.shows[digit] == 1


LIMITS = [
    pytest.param(Limits(states=200), "states (limit 200; raise it with --max-states)", id="states"),
    pytest.param(Limits(memory_bytes=1), "MiB (limit 0 MiB; raise it with --max-memory)", id="memory"),
    pytest.param(Limits(seconds=0.0), "s (limit 0 s; raise it with --max-seconds)", id="seconds"),
]


LISTED = [e for e in AVAILABLE if e != "symbolic"]  # these hold each state


@pytest.mark.parametrize(
    ("engine", "limits", "words"),
    [
        pytest.param(engine, *limit.values, id=f"{engine}-{limit.id}")
        for engine in AVAILABLE
        for limit in LIMITS
        if engine in LISTED or limit.id != "states"
    ],
)
def test_a_limit_leaves_undecided_what_it_cut_off_and_says_which_it_was(
    engine: str, limits: Limits, words: str
) -> None:
    report = check(Odometer(), engine=engine, limits=limits)
    assert not report.exploration.complete
    assert report.exploration.distinct < 10_000
    assert report.exploration.stopped.startswith("stopped a")
    assert report.exploration.stopped.endswith(words)
    undecided = {v.property.name: v for v in report.undecided}
    assert {"all_nines", "in_range", "turns", "deadlock_freedom"} <= set(undecided)
    assert {v.reason for v in undecided.values()} == {report.exploration.stopped}
    assert {v.status.value for v in undecided.values()} == {"not decided"}
    assert (report.never_fired, report.unreached) == ([], []), "what was not seen may still come"


@pytest.mark.skipif("symbolic" not in AVAILABLE, reason="needs dd")
def test_diagrams_stop_at_no_number_of_states() -> None:
    report = check(Odometer(), engine="symbolic", limits=Limits(states=200))
    assert report.exploration.complete and report.exploration.distinct == 10_000
    assert report.undecided == []


@pytest.mark.parametrize("engine", LISTED)
def test_a_violation_found_before_the_limit_counts(engine: str) -> None:
    report = check(Odometer(), engine=engine, limits=Limits(states=500))
    assert not report.exploration.complete
    verdict = report.verdict("small")
    assert verdict.status is Status.VIOLATED
    assert verdict.run is not None
    assert len(verdict.run.path.steps) == 3


@every_engine
def test_without_a_limit_everything_is_decided(engine: str) -> None:
    report = check(Odometer(digit=3), engine=engine)
    assert report.undecided == []
    assert (report.exploration.distinct, report.exploration.depth) == (1_000, 27)
    assert {v.property.name for v in report.violated} == {"small"}


def test_symmetry_never_decides_liveness_and_says_so() -> None:
    report = check(Odometer(), engine="explicit", symmetry=True)
    verdict = report.verdict("turns")
    assert verdict.status is Status.NOT_DECIDED
    assert verdict.reason == "liveness is never decided under symmetry: run without it"
    assert [v.property.name for v in report.undecided] == ["turns"]
    assert report.exploration.distinct == 715, "multisets of 4 digits out of 10"


@pytest.mark.parametrize("engine", ["interpret", "symbolic"])
def test_symmetry_is_refused_by_engines_that_cannot(engine: str) -> None:
    with pytest.raises(UsageError, match=f"the engine {engine} does not reduce by symmetry: use --engine explicit"):
        check(Odometer(), engine=engine, symmetry=True)


def test_an_unknown_engine_is_a_usage_error_that_lists_them() -> None:
    with pytest.raises(UsageError, match="no engine 'tlc': choose one of auto, interpret, explicit, symbolic"):
        check(Odometer(), engine="tlc")


def test_the_choice_of_an_engine_is_explained() -> None:
    assert check(Jugs()).choice == "explicit: 16 states"
    assert check(Odometer(), symmetry=True).choice == "explicit: symmetry was asked for"
    assert check(Jugs(), engine="interpret").choice == "interpret, as asked"


# The explicit engine reports now and then, and is done before.
@pytest.mark.parametrize("engine", [e for e in AVAILABLE if e != "explicit"])
def test_progress_never_goes_back(engine: str) -> None:
    seen: list[Progress] = []
    check(Odometer(), engine=engine, limits=Limits(states=5_000), on_progress=seen.append)
    exploring = [(p.distinct, p.depth, p.seconds) for p in seen if p.phase == "exploring"]
    assert len(exploring) > 1
    assert exploring == sorted(exploring)
