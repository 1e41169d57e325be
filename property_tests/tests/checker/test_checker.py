"""The parts of a report, in every engine: named steps, unreached moves, refused declarations and chosen properties."""

from __future__ import annotations

import pytest

from trystate.model.checker.check import check
from trystate.model.checker.export.promela import promela
from trystate.model.checker.export.tla import tla
from trystate.model.checker.story import sequence_text
from trystate.model.checker.verdicts import Status
from trystate.model.errors import DeclarationError, UsageError
from trystate.model.language import *
from trystate.property_tests.support.runs import AVAILABLE
from trystate.property_tests.support.systems.declarations import FILE, WAVE, declared
from trystate.property_tests.support.systems.two_phase_commit import TwoPhaseCommit

every_engine = pytest.mark.parametrize("engine", AVAILABLE)


Crossing = declared(
    """
green, careful, asleep = flag(), flag(), flag()
@transition()
def change(self, s): 'The light changes.'; s.green = ~s.green
@transition()
def cross_carefully(self, s): 'Cross while it is green.'; s.when(s.green); s.careful = True
@environment()
def cross_asleep(self, s): 'Cross, perhaps.'; s.asleep = True
@leads_to()
def the_careful_cross(self, s): 'Not so: the step is disabled again and again.'; return ~s.careful, s.careful
@leads_to()
def the_sleeper_crosses(self, s): 'Not so: the step is not fair.'; return ~s.asleep, s.asleep
""",
    System,
)


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
