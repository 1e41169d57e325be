"""Properties of liveness, in every engine: their forms, those that hold at once, and published ones.

TLC decides the published ones as we do; by day only one specification.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from trystate.model.checker.check import check
from trystate.model.checker.explicit.graph import _restricted
from trystate.model.checker.export.tla import tla
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
)
from trystate.property_tests.support.runs import AVAILABLE, assert_runs_show_what_they_claim
from trystate.property_tests.support.systems.declarations import declared

every_engine = pytest.mark.parametrize("engine", AVAILABLE)

# A lamp blinks.
Lamp = declared(
    """
lit, blown = flag(), flag()
@transition()
def blink(self, s): 'The lamp goes on or off.'; s.lit = ~s.lit
@leads_to()
def it_blinks(self, s): 'It is lit again and again.'; return ~s.lit, s.lit
@leads_to()
def a_blown_lamp_is_lit(self, s): 'True of no lamp.'; return s.blown, s.lit
@eventually()
def it_is_off(self, s): 'It is off once.'; return ~s.lit
@eventually(within=1)
def it_is_soon_lit(self, s): 'It is lit after one step.'; return s.lit
""",
    System,
)
VACUOUS = {"a_blown_lamp_is_lit": "its premise is never true", "it_is_off": "it is true in each initial state"}


@every_engine
def test_a_property_that_holds_though_no_step_has_to_happen_is_reported(engine: str) -> None:
    report = check(Lamp(), engine=engine)
    assert {v.property.name: v.reason for v in report.verdicts if v.reason} == VACUOUS
    assert {report.verdict(name).status for name in VACUOUS} == {Status.HOLDS}
    assert "holds: its premise is never true" in str(report)


def test_a_property_with_a_bound_is_not_exported() -> None:
    with pytest.raises(UsageError, match="it_is_soon_lit has a bound within=, which is not exported"):
        tla(Lamp(), ["it_is_soon_lit"])
    assert "Properties with a bound are not exported: it_is_soon_lit" in tla(Lamp())[0]


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
}
CASES = [
    pytest.param(of(), violated, id=f"{number} {of.__name__}")
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
        reached = f"never_{p.name}" if p.form is Form.SOMETIMES else ""
        assert seen.violated == ("temporal" if p.name in violated else reached), p.name


# ---- planted mistakes

MUTANTS = {
    "explicit: a strong group is weak": ("explicit", rewritten(_restricted, "if group.strong else", "if False else")),
    "explicit: a weak group is strong": ("explicit", rewritten(_restricted, "if group.strong else", "if True else")),
    "symbolic: a strong group is weak": ("symbolic", rewritten(
        Region.satisfied, "staying if group.strong else", "staying if False else")),
    "symbolic: a weak group is strong": ("symbolic", rewritten(
        Region.satisfied, "staying if group.strong else", "staying if True else")),
    "interpret: a strong group is weak": ("interpret", rewritten(fair_parts, "if g.strong)", "if False)")),
    "interpret: a weak group is strong": ("interpret", rewritten(fair_parts, "if not g.strong]", "if False]")),
}  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mistake_in_the_fairness_of_an_engine_is_noticed(mutant: str) -> None:
    engine, plant = MUTANTS[mutant]

    def judge() -> None:
        for of, violated in PUBLISHED.items():
            report = check(of(), engine=engine)
            assert [v.property.name for v in report.violated if v.property.form.live] == violated

    assert survivors({mutant: plant}, judge) == []
