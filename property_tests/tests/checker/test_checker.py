"""Every kind of verdict, in every engine, on systems so small that the answer is obvious."""

from __future__ import annotations

import pytest

from trystate.model.checker.check import check
from trystate.model.checker.export.promela import promela
from trystate.model.checker.export.tla import tla
from trystate.model.checker.kernel import Kernel
from trystate.model.checker.story import sequence_text
from trystate.model.checker.verdicts import Status, Verdict
from trystate.model.errors import DeclarationError, UsageError
from trystate.model.language import *
from trystate.property_tests.support.runs import AVAILABLE, assert_is_a_fair_lasso, assert_is_a_run, refutes
from trystate.property_tests.support.systems.declarations import FILE, WAVE, declared
from trystate.property_tests.support.systems.two_phase_commit import TwoPhaseCommit

every_engine = pytest.mark.parametrize("engine", AVAILABLE)


def names(system: System, verdict: Verdict) -> list[str]:
    """The steps of a verdict's run, by name."""
    assert verdict.run is not None
    instances = Kernel(system).instances
    return [instances[k].label for k in verdict.run.path.steps]


Stairs = declared(
    """
stair = integer(0, 5)
@transition()
def climb(self, s): 'One stair up.'; s.when(s.stair < 5); s.stair += 1
@transition()
def leap(self, s): 'Three stairs up, from the bottom.'; s.when(s.stair == 0); s.stair = 3
@transition()
def fall(self, s): 'Never happens: there is no seventh stair.'; s.when(s.stair + s.stair == 11); s.stair = 0
@sometimes()
def at_the_top(self, s): 'The top is reached.'; return s.stair == 5
@sometimes()
def between_stairs(self, s): 'Never.'; return s.stair + s.stair == 7
@always(witness="at_the_top")
def low(self, s): 'Not so: two steps lead higher.'; return s.stair < 4
@always(witness="at_the_top")
def never_at_two(self, s): 'Not so either.'; return s.stair != 2
@always(witness="at_the_top")
def on_the_stairs(self, s): 'True.'; return s.stair + s.stair <= 10
@step(witness="at_the_top")
def one_at_a_time(self, before, after): 'Not so: one can leap.'; return after.stair <= before.stair + 1
@step(witness="at_the_top", on=("climb",))
def climbing_is_slow(self, before, after): 'True of climbing.'; return after.stair == before.stair + 1
""",
    System,
)
SHOWN = {  # the steps of each verdict's run, for verdicts with a run
    "at_the_top": ["leap", "climb", "climb"], "low": ["leap", "climb"], "never_at_two": ["climb", "climb"],
    "one_at_a_time": ["leap"], "deadlock_freedom": ["leap", "climb", "climb"],
}  # fmt: skip


@every_engine
def test_each_kind_of_verdict_has_a_shortest_run_or_none(engine: str) -> None:
    system = Stairs()
    report = check(system, engine=engine)
    assert {v.property.name: names(system, v) for v in report.verdicts if v.run is not None} == SHOWN
    assert [v.property.name for v in report.violated] == ["between_stairs", *list(SHOWN)[1:]]
    assert (report.exploration.distinct, report.undecided, report.never_fired) == (6, [], ["fall"])
    low = report.verdict("low").run
    assert low is not None and low.path.states == ((0,), (3,), (4,))
    assert_is_a_run(system, low.path)
    ended = type("Ended", (Stairs,), {"rest": terminal(lambda self, s: s.stair == 5)})
    assert check(ended(), engine=engine).verdict("deadlock_freedom").status is Status.HOLDS


Crossing = declared(
    """
green, careful, hasty, asleep = flag(), flag(), flag(), flag()
@transition()
def change(self, s): 'The light changes.'; s.green = ~s.green
@transition()
def cross_carefully(self, s): 'Cross while it is green.'; s.when(s.green); s.careful = True
@transition()
def cross_anyhow(self, s): 'Cross whatever it shows.'; s.hasty = True
@environment()
def cross_asleep(self, s): 'Cross, perhaps.'; s.asleep = True
@leads_to()
def the_hasty_cross(self, s): 'True: the step is enabled for ever, so fairness takes it.'; return ~s.hasty, s.hasty
@leads_to()
def the_careful_cross(self, s): 'Not so: the step is disabled again and again.'; return ~s.careful, s.careful
@leads_to()
def the_sleeper_crosses(self, s): 'Not so: the step is not fair.'; return ~s.asleep, s.asleep
@leads_to()
def it_changes(self, s): 'True.'; return ~s.green, s.green
@leads_to()
def what_never_is_leads_anywhere(self, s): 'True of nothing.'; return s.hasty & ~s.hasty, s.careful & ~s.careful
""",
    System,
)


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
    assert names(system, verdict)[verdict.run.loop :].count("change") >= 2, "the light cannot but change"


def test_a_counterexample_names_the_steps_that_need_not_happen() -> None:
    report, told = check(Crossing(), engine="interpret"), []
    for name in ("the_sleeper_crosses", "the_careful_cross"):
        run = report.verdict(name).run
        assert run is not None
        told.append(sequence_text(report.system, run).partition("never taken, since fair=False: ")[2])
    assert told[0].startswith("cross_asleep") and "cross_carefully" not in told[1]


# The largest number of lamps that a count over all of them can take, switched by one step.
Crowd = declared(
    """
lamp = index(400)
lit = flag(per="lamp")
@transition()
def light_all(self, s):
    'All lamps are lit.'
    s.when(count(s.lit) < 1)
    for j in s.lamp: s.lit[j] = True
@sometimes()
def all_are_lit(self, s): 'All lamps are lit.'; return count(s.lit) == self.sizes["lamp"]
""",
    System,
)


@every_engine
def test_a_large_tree_is_walked_by_every_engine_and_exported(engine: str) -> None:
    report = check(Crowd(), engine=engine)
    assert (report.exploration.distinct, report.verdict("all_are_lit").status) == (2, Status.HOLDS)
    assert promela(Crowd()).count("d_step") == 3 and "light_all" in tla(Crowd())[0]


# A sum that Python nests, each term around the previous one.
DEEP = "@sometimes()\ndef sum_(self, s): 'Some.'; return sum(as_int(s.lit[k]) for k in range(380)) == 380"


def test_a_tree_that_is_too_deep_is_refused_with_the_remedy() -> None:
    with pytest.raises(UsageError, match=r"nested more deeply .* a loop over an index for many assignments"):
        check(declared(DEEP, Crowd)(), engine="interpret")


SWITCH = """
@machine(Mood)
def lamp(self, s): 'The lamp.'; return s.mood
@transition(moves={})
def switch(self, s): 'On.'; s.when(s.mood == Mood.CALM); s.mood = Mood.CROSS
"""
ARC, OTHERS = "arc(Mood.CALM, Mood.CROSS)", "arc(Mood.CALM, Mood.CROSS, of='others')"
MOVES: dict[str, list[tuple[str, str]]] = {  # a system with claimed moves -> the moves that no step makes
    SWITCH.format(f"[{ARC}, arc(Mood.CROSS, Mood.CALM)]"): [("switch", "lamp: CROSS -> CALM (self)")],
    SWITCH.format(f"[{ARC}, may(Mood.CROSS, Mood.CALM)]"): [],
    WAVE.format(f"[{OTHERS}]"): [],
    WAVE.format(f"[{OTHERS}, {ARC}]"): [("wave", "lamp: CALM -> CROSS (self)")],
}
BROKEN = {  # each step contradicts its declaration
    SWITCH.format("[]"): r"4: switch moves the machine lamp in a way that it does not claim \(mood: CALM -> CROSS\); "
    "add the arc to moves=",
    WAVE.format(f"[{ARC}]"): r"5: wave\(0\) moves the machine lamp in a way that it does not claim",
    "@transition()\ndef rise(self, s): 'Up.'; s.level += 1": "2: rise leaves the field's range after 4 steps",
}


@every_engine
@pytest.mark.parametrize("text", MOVES)
def test_a_claimed_move_that_no_step_makes_is_reported(text: str, engine: str) -> None:
    assert check(declared(text)(), engine=engine).unreached == MOVES[text]


@every_engine
@pytest.mark.parametrize("text", BROKEN)
def test_a_step_that_contradicts_its_declaration_is_an_error_at_its_line(text: str, engine: str) -> None:
    with pytest.raises(DeclarationError, match=f"^{FILE}:{BROKEN[text]}"):
        check(declared(text)(), engine=engine)


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
