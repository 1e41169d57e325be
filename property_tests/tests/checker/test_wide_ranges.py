"""Numbers near the ends of a machine word: every engine computes them exactly, or refuses them by name.

The interpreter computes with Python's integers: it is what the others are held to.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, event, given, seed, settings

from trystate.model.checker.check import ENGINES, check
from trystate.model.checker.estimate import project
from trystate.model.checker.explicit import arrays, vectorise
from trystate.model.checker.explicit.packing import WORD_BITS
from trystate.model.checker.interpret import Interpreter
from trystate.model.checker.kernel import Kernel, Limits
from trystate.model.checker.reference.engine import ReferenceEngine
from trystate.model.checker.symbolic import trees as bdd_trees
from trystate.model.checker.verdicts import Status
from trystate.model.errors import DeclarationError, UsageError
from trystate.model.language import System, always, integer, ite, sometimes, transition
from trystate.property_tests.support.mutants import replaced, rewritten, survives
from trystate.property_tests.support.nightly import examples
from trystate.property_tests.support.systems.random_systems import Declaration, system
from trystate.property_tests.support.systems.wide_systems import Leap, Starts, TooWide, Totals, wide_declarations
from trystate.property_tests.tests.checker import test_random_systems as random_systems
from trystate.report.itf import itf_trace

AVAILABLE = [e for e in ENGINES if e != "symbolic" or importlib.util.find_spec("dd") is not None]
every_engine = pytest.mark.parametrize("engine", [*AVAILABLE, "auto"])
SMALL = Limits(states=1_000, memory_bytes=1 << 27, seconds=30.0)


@every_engine
def test_a_sum_beyond_int64_is_exact(engine: str) -> None:
    if engine == "symbolic":
        pytest.importorskip("dd.cudd", reason="the levels of these diagrams are more than Python has frames")
    report = check(Totals(), engine=engine)
    assert report.exploration.distinct == 2
    assert {v.property.name: v.status for v in report.verdicts if v.property.name != "deadlock_freedom"} == {
        "all_together": Status.HOLDS,
        "the_total_is_not_negative": Status.HOLDS,
        "the_difference_is_not_negative": Status.HOLDS,
    }


@every_engine
def test_a_wide_field_has_its_counterexample(engine: str) -> None:
    report = check(Leap(), engine=engine)
    verdict = report.verdict("never_twice")
    assert verdict.status is Status.VIOLATED and verdict.run is not None
    assert [state[1] for state in verdict.run.path.states] == [0, (1 << 30) + 1, (1 << 31) + 2]
    assert report.verdict("landed").status is Status.HOLDS


HALF = 1 << 59  # as low and as high as a field of 61 bits goes


class Climb(System):
    """Wide effects, some of them out of range: by a constant that a guard fixes, by a sum, below a negative end."""

    narrow = integer(0, 3)
    big = integer(-HALF, HALF)
    edge = integer((1 << 63) - 4, 1 << 63)
    low = integer(-(1 << 63) - 1, -(1 << 63) + 3)

    @transition()
    def up(self, s: Any) -> None:
        """To the upper ends."""
        s.when(s.big == -HALF)
        s.low = ite(s.edge == (1 << 63) - 4, s.low + 2, s.low)
        s.big = HALF
        s.edge = 1 << 63

    @transition()
    def swap(self, s: Any) -> None:
        """Differences that come back into the range."""
        s.when(s.big == HALF)
        s.big = s.big - s.edge + (1 << 63) - s.big
        s.narrow = s.edge - (1 << 63) + 1

    @sometimes()
    def swapped(self, s: Any) -> Any:
        """After two steps."""
        return (s.big == 0) & (s.narrow == 1) & (s.low + (1 << 63) == 1)

    @always(witness="swapped")
    def ordered(self, s: Any) -> Any:
        """Compared across the ends of int64."""
        return (s.low < s.big) & (s.big < s.edge) & (s.edge - s.low > (1 << 63) + (1 << 62))


class Over(Climb):
    """One more step, which leaves a range."""

    @transition()
    def copy(self, s: Any) -> None:
        """60 bits into 2."""
        s.when(s.big == HALF)
        s.narrow = s.big


class OverByASum(Climb):
    """One more step, which leaves a range."""

    @transition()
    def double(self, s: Any) -> None:
        """16 times as much is negative in int64, and 32 times 0."""
        s.when(s.big == HALF)
        for _ in range(5):
            s.big = s.big + s.big


@every_engine
def test_effects_and_comparisons_across_the_ends_of_int64_are_exact(engine: str) -> None:
    report = check(Climb(), engine=engine)
    assert report.exploration.distinct == 3
    assert [v.property.name for v in report.verdicts if v.status is not Status.HOLDS] == ["deadlock_freedom"]


@every_engine
@pytest.mark.parametrize("system", [Over, OverByASum])
def test_a_wide_effect_out_of_range_is_found(engine: str, system: type[System]) -> None:
    with pytest.raises(DeclarationError, match="leaves the field's range after 2 steps"):
        check(system(), engine=engine)


class TwoWaysOut(System):
    """Two steps leave a range; the one that is declared first is the farther one."""

    stage = integer(0, 1)
    count = integer(0, 1)

    @transition()
    def late(self, s: Any) -> None:
        """After two steps."""
        s.when(s.stage == 1)
        s.count += s.stage + s.stage

    @transition()
    def go_on(self, s: Any) -> None:
        """Between the two."""
        s.when(s.stage == 0)
        s.stage = 1

    @transition()
    def early(self, s: Any) -> None:
        """After one step."""
        s.when(s.stage == 0)
        s.count += 2 - s.stage - s.stage


@every_engine
def test_of_several_steps_out_of_range_the_nearest_is_told(engine: str) -> None:
    with pytest.raises(DeclarationError, match="early leaves the field's range after 1 steps"):
        check(TwoWaysOut(), engine=engine)


def test_a_field_that_no_word_holds_is_refused_by_name_and_the_automatic_choice_goes_elsewhere() -> None:
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


def test_a_trace_for_other_tools_has_wide_numbers_as_its_format_wants_them() -> None:
    verdict = check(TooWide()).verdict("there")
    assert verdict.run is not None
    first, last = itf_trace(TooWide(), verdict.run, "")["states"]
    assert first["far"] == 0 and last["far"] == {"#bigint": str(1 << 61)}


class Counting(TooWide):
    """So many of its states are reached that they are not listed one by one."""

    @transition()
    def count_on(self, s: Any) -> None:
        """All of them."""
        s.when(s.far < 1 << 61)
        s.far += 1


def test_beyond_a_look_the_automatic_choice_takes_diagrams_for_a_field_that_no_word_holds() -> None:
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
    assert report.exploration.engine == "symbolic"
    assert report.exploration.distinct == 1 << 96
    assert (report.verdict("nobody").status, report.verdict("begins").status) == (Status.HOLDS, Status.HOLDS)


def test_a_projection_has_no_number_that_a_float_has_not() -> None:
    assert project(10**6, [10] * 5_000 + [10, 1_000, 10]) == pytest.approx(10**30)
    assert project(0, []) == 2


# ---- random systems


def decided(declared: Declaration, engine: str) -> Any:
    """All that an engine says of a system; "refused" or "out of range" where that is all."""
    try:
        report = check(system(declared), engine=engine, limits=SMALL)
    except UsageError as refused:
        assert f"at most {WORD_BITS} together" in str(refused)
        return "refused"
    except DeclarationError as left:
        return str(left).rpartition(" after ")[2]  # which of several first steps out of range is as it comes
    random_systems.assert_runs_show_what_they_claim(report)
    return random_systems.facts(report) if report.exploration.complete else report.exploration.stopped


def assert_all_agree(declared: Declaration, engines: Sequence[str] = (*AVAILABLE[1:], "auto")) -> None:
    """Every engine says what the interpreter says; only explicit may refuse, and only what no word holds."""
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
    written = [cell for k, cell in enumerate(kernel.cells) if k not in kernel.frozen]
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


@given(wide_declarations())
@settings(max_examples=examples(30))
def test_a_traced_step_on_wide_ranges_does_what_its_plan_says(declared: Declaration) -> None:
    try:
        interpreter = Interpreter(system(declared))
    except DeclarationError:
        return
    engine = ReferenceEngine(interpreter.kernel, SMALL)
    engine.explore([])
    states = sorted(engine.parent)[:20]
    random_systems.assert_steps_do_what_their_plans_say(declared, interpreter, states)


# ---- what would be noticed


def narrowed(values: Any, low: int, high: int) -> Any:
    return np.array([int(v) & ((1 << 60) - 1) for v in arrays.big(values - low)], np.int64)


MUTANTS = {
    "no interval is looked at": ("explicit", replaced(vectorise, "fits_int64", lambda low, high: True)),
    "int64 is taken for unsigned": ("explicit", replaced(vectorise, "fits_int64", lambda low, high: high < 1 << 64)),
    "what is stored loses its upper bits": ("explicit", replaced(arrays, "offset", narrowed)),
    "a carry is lost": (
        "symbolic",
        rewritten(bdd_trees.Trees._add, "max(len(a), len(b)) + 1", "max(len(a), len(b))"),
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_random_systems_on_wide_ranges_find_a_mutant(name: str) -> None:
    engine, mutant = MUTANTS[name]

    @seed(21)  # draws each within twelve; of other seeds most draw the rarest within 400
    @given(wide_declarations())
    @settings(max_examples=1_000, phases=[Phase.generate], database=None)
    def agree(declared: Declaration) -> None:
        assert_all_agree(declared, [engine])

    assert not survives(mutant, agree)
