"""Every kind of verdict, in every engine, on systems so small that the answer is plain to see."""

from __future__ import annotations

import enum
from typing import Any

import pytest

from trystate.model.checker.check import check, watches
from trystate.model.checker.export.promela import promela
from trystate.model.checker.export.tla import tla
from trystate.model.checker.kernel import Kernel
from trystate.model.checker.story import sequence_text
from trystate.model.checker.verdicts import Report, Status, Verdict
from trystate.model.errors import DeclarationError, UsageError
from trystate.model.language import *
from trystate.property_tests.support.lines import blamed
from trystate.property_tests.support.runs import AVAILABLE, assert_is_a_fair_lasso, assert_is_a_run, refutes
from trystate.property_tests.support.systems.two_phase_commit import TwoPhaseCommit

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
    """A light that changes for ever, and three who want to cross."""

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


def test_a_counterexample_names_the_steps_that_need_not_happen() -> None:
    report, told = check(Crossing(), engine="interpret"), {}
    for name in ("the_sleeper_crosses", "the_careful_cross"):
        run = report.verdict(name).run
        assert run is not None
        told[name] = sequence_text(report.system, run)
    named = "possible from here on for ever, and never taken, since fair=False: cross_asleep"
    assert named in told["the_sleeper_crosses"]
    assert "cross_carefully" not in told["the_careful_cross"].partition("never taken")[2]


class Crowd(System):
    """As many lamps as a count over all of them can take, switched by one step."""

    lamp = index(400)
    lit = flag(per="lamp")

    @transition()
    def light_all(self, s: Any) -> None:
        """All of them."""
        s.when(count(s.lit) < 1)
        for j in s.lamp:
            s.lit[j] = True

    @sometimes()
    def all_are_lit(self, s: Any) -> Any:
        """All of them."""
        return count(s.lit) == self.sizes["lamp"]


class Lines(System):
    """A step of a hundred assignments to one field, some of which later ones replace."""

    lamp = index(60)
    level = integer(0, 9, per="lamp")

    @transition()
    def set_each(self, s: Any) -> None:
        """One line for each, and for some another."""
        for k in range(100):
            s.level[k % 60] = k % 10

    @sometimes()
    def are_set(self, s: Any) -> Any:
        """As the last line for each says."""
        return and_(*(s.level[k % 60] == k % 10 for k in range(40, 100)))


@every_engine
@pytest.mark.parametrize("system", [Crowd, Lines])
def test_a_large_tree_is_walked_by_every_engine(engine: str, system: type[System]) -> None:
    (asked,) = system().properties
    report = check(system(), engine=engine)
    assert (report.exploration.distinct, report.verdict(asked.name).status) == (2, Status.HOLDS)


@pytest.mark.parametrize("system", [Crowd, Lines])
def test_a_large_tree_is_exported(system: type[System]) -> None:
    assert promela(system()).count("d_step") == 3
    assert "set_each" in tla(system())[0] or "light_all" in tla(system())[0]


class Deep(Crowd):
    """A sum that Python makes, each term around the one before it."""

    @sometimes()
    def all_are_lit(self, s: Any) -> Any:
        """Nearly all of them."""
        return sum(as_int(s.lit[k]) for k in range(380)) == 380


def test_a_tree_that_is_too_deep_is_refused_with_the_remedy() -> None:
    with pytest.raises(UsageError, match=r"nested more deeply .* a loop over an index for many assignments"):
        check(Deep(), engine="interpret")


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


class Lamps(System):
    """A lamp per node, and a node that switches on all others."""

    node = index(2)
    light = choice(Light, per="node")

    @machine(Light, each="node")
    def lamp(self, s: Any, node: Any) -> Any:
        """The lamp of a node."""
        return s.light[node]


def lamps(moves: Any) -> System:
    def wave(self: Any, s: Any, node: Any) -> None:
        """Everybody else may go."""
        for j in s.node:
            s.light[j] = ite(j == node, s.light[j], Light.GREEN)

    made: type[System] = type("Waving", (Lamps,), {"wave": transition(each="node", moves=moves)(wave)})
    return made()


@every_engine
def test_a_move_claimed_for_oneself_is_not_claimed_for_others(engine: str) -> None:
    with pytest.raises(DeclarationError, match=r"wave\(0\) moves the machine lamp in a way that it does not claim"):
        check(lamps([arc(Light.RED, Light.GREEN)]), engine=engine)


@every_engine
def test_a_move_of_others_is_claimed_and_missed_as_such(engine: str) -> None:
    others = arc(Light.RED, Light.GREEN, of="others")
    assert check(lamps([others]), engine=engine).unreached == []
    both = check(lamps([others, arc(Light.RED, Light.GREEN)]), engine=engine)
    assert both.unreached == [("wave", "lamp: RED -> GREEN (self)")]


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


def test_a_report_finds_a_verdict_by_its_name() -> None:
    report: Report = check(Stairs(), engine="interpret")
    assert report.verdict("low").property.doc == "Not so: two steps lead higher."


def test_each_further_member_adds_the_same_number_of_watches_and_effects() -> None:
    def size(members: int) -> int:
        kernel = Kernel(TwoPhaseCommit(rm=members))
        return len(list(watches(kernel))) + sum(len(kernel.effects(i)) for i in kernel.instances)

    assert size(41) - size(40) == size(5) - size(4)


def test_only_the_properties_that_are_named_are_decided() -> None:
    everything = check(TwoPhaseCommit(rm=3), engine="explicit")
    asked = ["they_agree", "deadlock_freedom"]
    report = check(TwoPhaseCommit(rm=3), engine="explicit", properties=asked)
    assert [v.property.name for v in report.verdicts] == asked
    assert [v.status for v in report.verdicts] == [everything.verdict(name).status for name in asked]
    assert report.exploration.distinct == everything.exploration.distinct
    assert report.never_fired == everything.never_fired
    with pytest.raises(UsageError, match="properties has no property 'they_agre': TwoPhaseCommit has"):
        check(TwoPhaseCommit(rm=3), properties=["they_agre"])
