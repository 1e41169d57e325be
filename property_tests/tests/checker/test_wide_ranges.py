"""Numbers near the ends of a machine word: every engine computes them exactly or refuses them by name.

The interpreter computes with Python's integers, so the other engines are compared with it.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import Phase, event, given, seed, settings

from trystate.model.checker.check import check
from trystate.model.checker.explicit import vectorise
from trystate.model.checker.explicit.packing import WORD_BITS
from trystate.model.checker.kernel import Kernel, Limits
from trystate.model.checker.symbolic import trees as bdd_trees
from trystate.model.checker.verdicts import Status
from trystate.model.errors import DeclarationError, UsageError
from trystate.property_tests.support.mutants import replaced, rewritten, survives
from trystate.property_tests.support.nightly import examples
from trystate.property_tests.support.runs import AVAILABLE, assert_runs_show_what_they_claim, facts
from trystate.property_tests.support.systems.declarations import declared
from trystate.property_tests.support.systems.random_systems import Declaration, system
from trystate.property_tests.support.systems.wide_systems import Starts, TooWide, wide_declarations

SMALL = Limits(states=1_000, memory_bytes=1 << 27, seconds=30.0)


def test_a_field_larger_than_a_word_is_refused_and_auto_goes_elsewhere() -> None:
    refusal = "far takes 62 bits, and the engine explicit holds at most 61 together: narrow the range, or use another"
    with pytest.raises(UsageError, match=refusal):
        check(TooWide(), engine="explicit")
    report = check(TooWide())
    assert report.choice.startswith(f"interpret: 2 states; {refusal}")
    assert {v.property.name: v.status for v in report.verdicts} == {
        "there": Status.HOLDS,
        "jumps": Status.HOLDS,
        "deadlock_freedom": Status.VIOLATED,
    }


# Too many states are reached to list them one by one.
Counting = declared(
    "@transition()\ndef count_on(self, s): 'All values are counted.'; s.when(s.far < 1 << 61); s.far += 1", TooWide
)


def test_auto_takes_diagrams_for_a_field_larger_than_a_word() -> None:
    pytest.importorskip("dd")
    report = check(Counting(), limits=Limits(states=50, seconds=1.0))
    assert report.choice.startswith("symbolic: more than 51 states; far takes 62 bits")
    assert report.verdict("there").status is Status.HOLDS
    assert report.verdict("jumps").status is Status.NOT_DECIDED


def test_without_diagrams_it_says_that_they_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    report = check(Counting(), limits=Limits(states=50))
    assert report.choice.startswith("interpret: the extra 'symbolic' is not installed; far takes 62 bits")
    assert report.verdict("jumps").status is Status.NOT_DECIDED


@pytest.mark.parametrize("engine", ["interpret", "explicit"])
def test_initial_states_beyond_the_limit_are_not_listed(engine: str) -> None:
    report = check(Starts(), engine=engine, limits=Limits(states=20_000))
    assert "states (limit 20,000" in report.exploration.stopped
    assert report.verdict("begins").status is Status.NOT_DECIDED


@pytest.mark.parametrize("engine", ["symbolic", "auto"])
def test_initial_states_are_a_set_for_diagrams(engine: str) -> None:
    pytest.importorskip("dd.cudd")
    report = check(Starts(), engine=engine)
    seen = report.exploration
    assert (seen.distinct, seen.edges, seen.depth) == (1 << 96, 96 << 95, 0)
    assert (report.verdict("nobody").status, report.verdict("begins").status) == (Status.HOLDS, Status.HOLDS)


# ---- random systems


def decided(declared: Declaration, engine: str) -> Any:
    """The whole result of an engine for a system, or only "refused" or "out of range"."""
    try:
        report = check(system(declared), engine=engine, limits=SMALL)
    except UsageError as refused:
        assert f"at most {WORD_BITS} together" in str(refused)
        return "refused"
    except DeclarationError as left:
        return str(left).rpartition(" after ")[2]  # any of several first steps out of range may be reported
    assert_runs_show_what_they_claim(report)
    return facts(report) if report.exploration.complete else report.exploration.stopped


def assert_all_agree(declared: Declaration, engines: Sequence[str] = (*AVAILABLE[1:], "auto")) -> None:
    """Every engine agrees with the interpreter. Only explicit may refuse, and only values that no word holds."""
    try:
        kernel = Kernel(system(declared))
    except DeclarationError:
        event("refused while it is built")
        return
    expected = decided(declared, "interpret")
    if isinstance(expected, str) and expected.startswith("stopped"):
        event("too many states")
        return
    event(expected if isinstance(expected, str) else f"{min(expected['graph'][0], 16)} states")
    written = [cell for k, cell in enumerate(kernel.cells) if k not in kernel.constant_cells]
    too_wide = any((cell.sort.size - 1).bit_length() > WORD_BITS for cell in written)
    for engine in engines:
        found = decided(declared, engine)
        if engine != "explicit" and isinstance(found, str) and found.startswith("stopped"):
            event("too large a diagram")
            continue
        assert found == ("refused" if too_wide and engine == "explicit" else expected), engine


@given(wide_declarations())
@settings(max_examples=examples(30))
def test_all_engines_agree_on_wide_ranges_or_refuse(declared: Declaration) -> None:
    assert_all_agree(declared)


# ---- mutants


MUTANTS = {
    "no interval is looked at": ("explicit", replaced(vectorise, "fits_int64", lambda low, high: True)),
    "a carry is lost": (
        "symbolic",
        rewritten(bdd_trees.Trees._add, "max(len(a), len(b)) + 1", "max(len(a), len(b))"),
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_random_systems_on_wide_ranges_find_a_mutant(name: str) -> None:
    engine, mutant = MUTANTS[name]

    @seed(8)  # finds each mutant within 80 draws; most other seeds need more than 300 for the rarest
    @given(wide_declarations())
    @settings(max_examples=1_000, phases=[Phase.generate], database=None)
    def agree(declared: Declaration) -> None:
        assert_all_agree(declared, [engine])

    assert not survives(mutant, agree)
