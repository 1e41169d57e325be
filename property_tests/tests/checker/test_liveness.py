"""Properties of liveness, in every engine: their forms, those that hold at once, and published ones.

TLC decides the published ones as we do; by day only one specification.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from trystate.model.checker.check import check
from trystate.model.checker.explicit.graph import _restricted, fair_region
from trystate.model.checker.export.tla import tla
from trystate.model.checker.kernel import Kernel
from trystate.model.checker.reference.engine import fair_parts
from trystate.model.checker.symbolic.fairness import Region
from trystate.model.checker.verdicts import Status
from trystate.model.errors import UsageError
from trystate.model.language import *
from trystate.model.language.transitions import Fairness
from trystate.property_tests.support.export.tlc import explore, tlc_jar
from trystate.property_tests.support.mutants import rewritten, survivors
from trystate.property_tests.support.nightly import NIGHTLY
from trystate.property_tests.support.published import (
    AlternatingBit,
    ChangRoberts,
    SchedulingAllocator,
    SimpleAllocator,
    TokenRing,
)
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
VACUOUS = {"a_blown_lamp_is_lit": "its premise is never true", "it_is_off": "it is true in each initial state"}


@every_engine
def test_each_form_of_liveness_is_decided(engine: str) -> None:
    report = check(Lamp(), engine=engine)
    assert [v.property.name for v in report.violated] == ["it_drains", "it_stays_lit", "deadlock_freedom"]
    assert_runs_show_what_they_claim(report)


@every_engine
def test_a_property_that_holds_though_no_step_has_to_happen_is_reported(engine: str) -> None:
    report = check(Lamp(), engine=engine)
    assert {v.property.name: v.reason for v in report.verdicts if v.reason} == VACUOUS
    assert {report.verdict(name).status for name in VACUOUS} == {Status.HOLDS}
    assert "holds: its premise is never true" in str(report)


# A pedestrian pushes a button; the light turns green after two ticks of its clock, and birds fly by meanwhile.
Light = declared(
    """
waits, green, ticks, birds = flag(), flag(), integer(0, 2), integer(0, 3)
@environment()
def push(self, s): 'The button is pushed.'; s.when(~s.waits, ~s.green); s.waits = True
@environment()
def fly(self, s): 'A bird flies by.'; s.when(s.birds < 3); s.birds += 1
@transition()
def tick(self, s): 'The clock ticks.'; s.when(s.waits, s.ticks < 2); s.ticks += 1; s.green = s.ticks == 2
@terminal
def at_last(self, s): return s.green
@leads_to(within=(2, "tick"))
def green_after_two_ticks(self, s): 'After two ticks it is green.'; return s.waits, s.green
@leads_to(within=(1, "tick"))
def green_after_one_tick(self, s): 'Not so.'; return s.waits, s.green
@leads_to(within=5)
def green_after_five_steps(self, s): 'There are three birds and two ticks.'; return s.waits, s.green
@leads_to(within=4)
def green_after_four_steps(self, s): 'Not so.'; return s.waits, s.green
@leads_to(within=9)
def pushed_soon(self, s): 'Not so: nobody need push.'; return ~s.waits, s.waits
@eventually(within=(1, "push"))
def green_after_a_push(self, s): 'Not so: nobody need push.'; return s.green
@eventually(within=1)
def nothing_happens_first(self, s): 'True at the start.'; return ~s.waits
""",
    System,
)
LATE = {"green_after_one_tick": ["tick"], "green_after_four_steps": ["fly", "fly", "fly", "tick"]}


@every_engine
def test_a_bound_counts_steps_or_the_steps_of_a_name(engine: str) -> None:
    of = Light()
    report = check(of, engine=engine)
    violated = {v.property.name: v.run for v in report.violated}
    assert [*violated] == [*LATE, "pushed_soon", "green_after_a_push"]
    for name, last in LATE.items():
        run = violated[name]
        assert run is not None and run.loop is None
        labels = [Kernel(of).instances[number].label for number in run.path.steps]
        assert labels[0] == "push" and sorted(labels[1:]) == sorted(last)
    assert all(run is None or run.loop is not None for name, run in violated.items() if name == "pushed_soon")
    assert_runs_show_what_they_claim(report)
    with pytest.raises(UsageError, match="green_after_one_tick has a bound within=, which is not exported"):
        tla(of, ["green_after_one_tick"])
    assert "Properties with a bound are not exported: green_after_two_ticks" in tla(of)[0]


def fairly(system: type[System], step: str, fair: Fairness | None) -> type[System]:
    """The system with another fairness of a step."""
    return type(system.__name__, (system,), {step: replace(vars(system)[step], fair=fair)})


WEAK = Fairness()
OBTAIN = ["clients_will_obtain", "again_and_again_satisfied"]
Violated = dict[type[System], list[str]]
PUBLISHED: Violated = {  # a specification, or one with less fairness -> its violated properties of liveness
    AlternatingBit: [],
    fairly(AlternatingBit, "receive", WEAK): ["sent_leads_to_received"],
    fairly(AlternatingBit, "receive_answer", WEAK): [],
    SimpleAllocator: [],
    fairly(SimpleAllocator, "allocate", WEAK): OBTAIN,
    fairly(SimpleAllocator, "allocate", Fairness(True, "allocate")): OBTAIN,
    fairly(SimpleAllocator, "give_all", None): OBTAIN,
    SchedulingAllocator: [],
    fairly(SchedulingAllocator, "extend", None): OBTAIN,
    fairly(SchedulingAllocator, "give_all", None): [*OBTAIN, "clients_will_return"],
    ChangRoberts: [],
    fairly(ChangRoberts, "begin", None): ["liveness"],
    TokenRing: [],
    fairly(TokenRing, "pass_on", None): ["one_token"],
}
CASES = [
    pytest.param(of(node=3) if issubclass(of, TokenRing) else of(), violated, id=f"{number} {of.__name__}")
    for number, (of, violated) in enumerate(PUBLISHED.items())
]


@pytest.mark.parametrize(("of", "violated"), CASES)
@every_engine
def test_published_liveness_is_decided_as_published(engine: str, of: System, violated: list[str]) -> None:
    report = check(of, engine=engine)
    assert [v.property.name for v in report.violated if v.property.form.live] == violated
    assert_runs_show_what_they_claim(report)


@pytest.mark.parametrize(("of", "violated"), CASES[: None if NIGHTLY else 2])
def test_tlc_decides_published_liveness_as_we_do(of: System, violated: list[str], tmp_path: Path) -> None:
    jar = tlc_jar()
    for p in of.properties:
        seen = explore(tla(of, [p.name], "Exported"), tmp_path, jar)
        assert seen.violated == ("temporal" if p.name in violated else ""), p.name


# ---- planted mistakes

MUTANTS = {
    "explicit: a strong group is weak": ("explicit", rewritten(_restricted, "if group.strong else", "if False else")),
    "explicit: a weak group is strong": ("explicit", rewritten(_restricted, "if group.strong else", "if True else")),
    "explicit: disabled states are lost": ("explicit", rewritten(_restricted, "core & ~enabled", "~core & enabled")),
    "explicit: one round is enough": ("explicit", rewritten(fair_region, "while size != (", "while size < 0 <= (")),
    "symbolic: a strong group is weak": ("symbolic", rewritten(
        Region.satisfied, "staying if group.strong else", "staying if False else")),
    "symbolic: a weak group is strong": ("symbolic", rewritten(
        Region.satisfied, "staying if group.strong else", "staying if True else")),
    "symbolic: the disabled part is lost": ("symbolic", rewritten(
        Region.satisfied, "staying | ~self._enabled", "staying | self._enabled")),
    "interpret: a strong group is weak": ("interpret", rewritten(fair_parts, "if g.strong)", "if False)")),
    "interpret: a weak group is strong": ("interpret", rewritten(fair_parts, "if not g.strong]", "if False]")),
}  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mistake_in_the_fairness_of_an_engine_is_noticed(mutant: str) -> None:
    engine, plant = MUTANTS[mutant]

    def judge() -> None:
        for of, violated in PUBLISHED.items():
            report = check(of(node=3) if issubclass(of, TokenRing) else of(), engine=engine)
            assert [v.property.name for v in report.violated if v.property.form.live] == violated

    assert survivors({mutant: plant}, judge) == []
