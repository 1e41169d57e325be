"""Every kind of verdict, in every engine, on systems so small that the answer is plain to see."""

from __future__ import annotations

import enum
import importlib.util
from typing import Any

import pytest

from trystate.model.checker.check import ENGINES, check
from trystate.model.checker.engine import Progress
from trystate.model.checker.kernel import Kernel, Limits
from trystate.model.checker.verdicts import Report, Status, Verdict
from trystate.model.errors import DeclarationError, UsageError
from trystate.model.language import (
    System, all_, always, any_, arc, choice, environment, fault, flag, index, integer, ite, leads_to, machine, may, sometimes,
    step, terminal, transition,
)  # fmt: skip

from .lines import blamed
from .runs import assert_is_a_fair_lasso, assert_is_a_run, refutes

AVAILABLE = [e for e in ENGINES if e != "symbolic" or importlib.util.find_spec("dd") is not None]
every_engine = pytest.mark.parametrize("engine", AVAILABLE)


def names(system: System, verdict: Verdict) -> list[str]:
    """The steps of a verdict's run, by name."""
    assert verdict.run is not None
    instances = Kernel(system).instances
    return [instances[k].label for k in verdict.run.path.steps]


class Stairs(System):
    """Six stairs, climbed one by one, or three at once from the bottom."""

    stair = integer(0, 5)

    @transition()
    def climb(self, s: Any) -> None:
        """One stair up."""
        s.when(s.stair < 5)
        s.stair += 1

    @transition()
    def leap(self, s: Any) -> None:
        """Three stairs up."""
        s.when(s.stair == 0)
        s.stair = 3

    @transition()
    def fall(self, s: Any) -> None:
        """Never happens: there is no seventh stair."""
        s.when(s.stair + s.stair == 11)
        s.stair = 0

    @sometimes()
    def at_the_top(self, s: Any) -> Any:
        """The top is reached."""
        return s.stair == 5

    @sometimes()
    def between_stairs(self, s: Any) -> Any:
        """Nobody stands there."""
        return s.stair + s.stair == 7

    @always(witness="at_the_top")
    def low(self, s: Any) -> Any:
        """Not so: two steps lead higher."""
        return s.stair < 4

    @always(witness="at_the_top")
    def never_at_two(self, s: Any) -> Any:
        """Not so either."""
        return s.stair != 2

    @always(witness="at_the_top")
    def on_the_stairs(self, s: Any) -> Any:
        """True."""
        return s.stair + s.stair <= 10

    @step(witness="at_the_top")
    def one_at_a_time(self, before: Any, after: Any) -> Any:
        """Not so: one can leap."""
        return after.stair <= before.stair + 1

    @step(witness="at_the_top", on=("climb",))
    def climbing_is_slow(self, before: Any, after: Any) -> Any:
        """True of climbing."""
        return after.stair == before.stair + 1


@every_engine
def test_a_violated_invariant_comes_with_a_shortest_path(engine: str) -> None:
    system = Stairs()
    verdict = check(system, engine=engine).verdict("low")
    assert verdict.status is Status.VIOLATED
    assert names(system, verdict) == ["leap", "climb"]
    assert verdict.run is not None
    assert_is_a_run(system, verdict.run.path)
    assert verdict.run.path.states == ((0,), (3,), (4,))


@every_engine
def test_the_search_goes_on_after_a_violation_and_finds_the_others(engine: str) -> None:
    report = check(Stairs(), engine=engine)
    assert report.exploration.distinct == 6
    assert [v.property.name for v in report.violated] == [
        "between_stairs", "low", "never_at_two", "one_at_a_time", "deadlock_freedom",
    ]  # fmt: skip
    assert report.undecided == []


@every_engine
def test_an_invariant_that_holds_has_no_run(engine: str) -> None:
    verdict = check(Stairs(), engine=engine).verdict("on_the_stairs")
    assert (verdict.status, verdict.run) == (Status.HOLDS, None)


@every_engine
def test_what_can_be_reached_comes_with_a_witness_and_what_cannot_is_violated(engine: str) -> None:
    system = Stairs()
    report = check(system, engine=engine)
    assert report.verdict("at_the_top").status is Status.HOLDS
    assert names(system, report.verdict("at_the_top")) == ["leap", "climb", "climb"]
    assert report.verdict("between_stairs").status is Status.VIOLATED
    assert report.verdict("between_stairs").run is None


@every_engine
def test_a_violated_step_property_ends_with_the_step(engine: str) -> None:
    system = Stairs()
    report = check(system, engine=engine)
    assert names(system, report.verdict("one_at_a_time")) == ["leap"]
    assert report.verdict("climbing_is_slow").status is Status.HOLDS


@every_engine
def test_a_transition_that_is_never_enabled_is_reported(engine: str) -> None:
    assert check(Stairs(), engine=engine).never_fired == ["fall"]


@every_engine
def test_a_rest_that_is_not_declared_terminal_is_a_deadlock_with_its_path(engine: str) -> None:
    system = Stairs()
    verdict = check(system, engine=engine).verdict("deadlock_freedom")
    assert names(system, verdict) == ["leap", "climb", "climb"]


@every_engine
def test_a_rest_that_is_declared_terminal_is_none(engine: str) -> None:
    ended = type("Ended", (Stairs,), {"rest": terminal(lambda self, s: s.stair == 5)})
    assert check(ended(), engine=engine).verdict("deadlock_freedom").status is Status.HOLDS


class Fragile(System):
    """Rests at once, but for a fault."""

    broken = flag()
    mended = flag()

    @fault("drop")
    def drop(self, s: Any) -> None:
        """Somebody drops it."""
        s.broken = True

    @transition()
    def mend(self, s: Any) -> None:
        """It is mended."""
        s.when(s.broken)
        s.mended = True

    @leads_to()
    def breaks(self, s: Any) -> Any:
        """Not so: no fault has to happen."""
        return ~s.broken, s.broken

    @leads_to()
    def is_mended(self, s: Any) -> Any:
        """True: mending is fair."""
        return s.broken, s.mended


@every_engine
def test_a_state_in_which_only_a_fault_can_happen_is_a_deadlock(engine: str) -> None:
    report = check(Fragile(faults=["drop"]), engine=engine)
    run = report.verdict("deadlock_freedom").run
    assert run is not None
    assert run.path.steps == ()


@every_engine
def test_a_fault_never_has_to_happen(engine: str) -> None:
    system = Fragile(faults=["drop"])
    report = check(system, engine=engine)
    verdict = report.verdict("breaks")
    assert verdict.status is Status.VIOLATED
    assert verdict.run is not None
    assert (verdict.run.loop, verdict.run.path.steps) == (0, ())
    assert report.verdict("is_mended").status is Status.HOLDS


class Light(enum.Enum):
    RED = "stop"
    GREEN = "go"


class Crossing(System):
    """A light that changes for ever, somebody who crosses while it is green, and somebody who crosses anyhow."""

    light = choice(Light)
    careful = flag(doc="has crossed")
    hasty = flag(doc="has crossed")
    asleep = flag(doc="has crossed")

    @transition()
    def change(self, s: Any) -> None:
        """The light changes."""
        s.light = ite(s.light == Light.RED, Light.GREEN, Light.RED)

    @transition()
    def cross_carefully(self, s: Any) -> None:
        """Cross while it is green."""
        s.when(s.light == Light.GREEN)
        s.careful = True

    @transition()
    def cross_anyhow(self, s: Any) -> None:
        """Cross whatever it shows."""
        s.hasty = True

    @environment()
    def cross_asleep(self, s: Any) -> None:
        """Cross, perhaps."""
        s.asleep = True

    @leads_to()
    def the_hasty_cross(self, s: Any) -> Any:
        """True: the step is enabled for ever, so fairness takes it."""
        return ~s.hasty, s.hasty

    @leads_to()
    def the_careful_cross(self, s: Any) -> Any:
        """Not so under weak fairness: the step is disabled again and again."""
        return ~s.careful, s.careful

    @leads_to()
    def the_sleeper_crosses(self, s: Any) -> Any:
        """Not so: the step is not fair."""
        return ~s.asleep, s.asleep

    @leads_to()
    def it_changes(self, s: Any) -> Any:
        """True."""
        return s.light == Light.RED, s.light == Light.GREEN

    @leads_to()
    def what_never_is_leads_anywhere(self, s: Any) -> Any:
        """True of nothing."""
        return s.hasty & ~s.hasty, s.careful & ~s.careful


@every_engine
def test_a_step_that_is_enabled_for_ever_is_taken_in_the_end(engine: str) -> None:
    report = check(Crossing(), engine=engine)
    for name in ("the_hasty_cross", "it_changes", "what_never_is_leads_anywhere"):
        verdict = report.verdict(name)
        assert (verdict.status, verdict.run) == (Status.HOLDS, None), name


@every_engine
@pytest.mark.parametrize("name", ["the_careful_cross", "the_sleeper_crosses"])
def test_a_violated_leads_to_comes_with_a_fair_lasso_that_goes_round(engine: str, name: str) -> None:
    system = Crossing()
    verdict = check(system, engine=engine).verdict(name)
    assert verdict.status is Status.VIOLATED
    assert verdict.run is not None
    assert_is_a_fair_lasso(system, verdict.run)
    assert refutes(system, verdict.run, verdict.property)
    assert verdict.run.loop is not None
    around = names(system, verdict)[verdict.run.loop :]
    assert around.count("change") >= 2, "the light cannot but change"


class Walker(System):
    """A machine whose steps can be claimed wrongly."""

    light = choice(Light)
    steps = integer(0, 2)

    @machine(Light)
    def lamp(self, s: Any) -> Any:
        """The lamp."""
        return s.light


def walker(moves: Any, **body: Any) -> System:
    def switch(self: Any, s: Any) -> None:  # blamed: switch
        """The light turns green."""
        s.when(s.light == Light.RED)
        s.light = Light.GREEN

    made: type[System] = type("Switched", (Walker,), {"switch": transition(moves=moves)(switch), **body})
    return made()


@every_engine
def test_a_claimed_move_that_no_step_makes_is_reported(engine: str) -> None:
    report = check(walker([arc(Light.RED, Light.GREEN), arc(Light.GREEN, Light.RED)]), engine=engine)
    assert report.unreached == [("switch", "lamp: GREEN -> RED (self)")]


@every_engine
def test_a_move_that_only_may_be_made_is_not_missed(engine: str) -> None:
    report = check(walker([arc(Light.RED, Light.GREEN), may(Light.GREEN, Light.RED)]), engine=engine)
    assert report.unreached == []


@every_engine
def test_a_move_that_is_not_claimed_is_an_error_that_names_the_step_and_the_change(engine: str) -> None:
    with pytest.raises(DeclarationError) as error:
        check(walker([]), engine=engine)
    message = str(error.value)
    assert message.startswith(blamed("switch") + "switch moves the machine lamp in a way that it does not claim")
    assert "(light: RED -> GREEN)" in message
    assert "add the arc to moves=" in message


class Overflow(System):
    """Counts beyond its range, after three steps."""

    count = integer(0, 2)

    @transition()
    def rise(self, s: Any) -> None:
        """One more."""
        s.count += 1  # blamed: overflow


@every_engine
def test_an_effect_that_leaves_its_range_is_an_error_at_the_assignment(engine: str) -> None:
    with pytest.raises(DeclarationError) as error:
        check(Overflow(), engine=engine)
    assert str(error.value) == blamed("overflow") + "rise leaves the field's range after 3 steps"


@every_engine
def test_a_guard_that_keeps_the_range_is_enough(engine: str) -> None:
    class Guarded(Overflow):
        """Stops in time."""

        @transition()
        def rise(self, s: Any) -> None:
            """One more."""
            s.when(s.count < 2)
            s.count += 1

    assert check(Guarded(), engine=engine).exploration.distinct == 3


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


@every_engine
@pytest.mark.parametrize(("limits", "words"), LIMITS)
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


@every_engine
def test_a_violation_found_before_the_limit_counts(engine: str) -> None:
    report = check(Odometer(), engine=engine, limits=Limits(states=500))
    assert not report.exploration.complete
    verdict = report.verdict("small")
    assert verdict.status is Status.VIOLATED
    assert verdict.run is not None
    assert len(verdict.run.path.steps) == 3


@every_engine
def test_without_a_limit_everything_is_decided(engine: str) -> None:
    report = check(Odometer(), engine=engine)
    assert report.undecided == []
    assert (report.exploration.distinct, report.exploration.depth) == (10_000, 36)
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
        check(Stairs(), engine=engine, symmetry=True)


def test_an_unknown_engine_is_a_usage_error_that_lists_them() -> None:
    with pytest.raises(UsageError, match="no engine 'tlc': choose one of auto, interpret, explicit, symbolic"):
        check(Stairs(), engine="tlc")


def test_the_choice_of_an_engine_is_explained() -> None:
    assert check(Stairs()).choice == "explicit: about 6 states"
    assert check(Odometer()).choice.startswith("explicit: 16 bits a state and more than 2,0")
    assert check(Odometer(), symmetry=True).choice == "explicit: symmetry was asked for"
    assert check(Stairs(), engine="interpret").choice == "interpret, as asked"


@pytest.mark.parametrize("engine", [e for e in AVAILABLE if e != "explicit"])  # which is done before it reports
def test_progress_never_goes_back(engine: str) -> None:
    seen: list[Progress] = []
    check(Odometer(), engine=engine, report=seen.append)
    exploring = [(p.distinct, p.depth, p.seconds) for p in seen if p.phase == "exploring"]
    assert len(exploring) > 1
    assert exploring == sorted(exploring)


def test_a_report_finds_a_verdict_by_its_name() -> None:
    report: Report = check(Stairs(), engine="interpret")
    assert report.verdict("low").property.doc == "Not so: two steps lead higher."
