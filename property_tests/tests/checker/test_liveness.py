"""Properties of liveness, in every engine: their forms, and those that ask nothing of any run."""

from __future__ import annotations

import pytest

from trystate.model.checker.check import check
from trystate.model.checker.verdicts import Status
from trystate.model.language import *
from trystate.property_tests.support.runs import AVAILABLE, assert_runs_show_what_they_claim
from trystate.property_tests.support.systems.declarations import declared

every_engine = pytest.mark.parametrize("engine", AVAILABLE)

# A lamp is lit, and then blinks until its battery is empty, if that happens.
Lamp = declared(
    """
lit, empty, blown = flag(), flag(), flag()
@transition()
def blink(self, s): 'The lamp goes on or off.'; s.when(~s.empty); s.lit = ~s.lit
@environment()
def drain(self, s): 'The battery is empty.'; s.when(s.lit); s.empty = True
@leads_to()
def it_blinks(self, s): 'It is lit again and again.'; return ~s.lit, s.lit
@leads_to()
def a_blown_lamp_is_lit(self, s): 'True of no lamp.'; return s.blown, s.lit
@eventually()
def it_is_lit(self, s): 'It is lit once.'; return s.lit
@eventually()
def it_is_off(self, s): 'It is off once.'; return ~s.lit
@eventually()
def it_drains(self, s): 'Not so: it may blink for ever.'; return s.empty
@stable()
def it_stays_whole(self, s): 'It never blows.'; return ~s.blown
@stable()
def it_stays_lit(self, s): 'Not so: it may blink for ever.'; return s.lit
@stable()
def it_stays_lit_when_empty(self, s): 'It cannot go off then.'; return s.lit | ~s.empty
""",
    System,
)
VIOLATED = ["it_drains", "it_stays_lit", "deadlock_freedom"]
VACUOUS = {"a_blown_lamp_is_lit": "its premise is never true", "it_is_off": "it is true in each initial state"}


@every_engine
def test_each_form_of_liveness_is_decided(engine: str) -> None:
    report = check(Lamp(), engine=engine)
    assert [v.property.name for v in report.violated] == VIOLATED
    assert_runs_show_what_they_claim(report)


@every_engine
def test_a_property_that_asks_nothing_of_any_run_is_reported(engine: str) -> None:
    report = check(Lamp(), engine=engine)
    assert {v.property.name: v.reason for v in report.verdicts if v.reason} == VACUOUS
    assert {report.verdict(name).status for name in VACUOUS} == {Status.HOLDS}
    assert "holds: its premise is never true" in str(report)
