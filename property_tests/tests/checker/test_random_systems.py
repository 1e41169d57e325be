"""Every engine sees the same graph of any declared system, and decides alike."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, event, given, note, settings

from trystate.model.checker.check import check
from trystate.model.checker.kernel import Instance
from trystate.model.checker.verdicts import Status
from trystate.model.errors import UsageError
from trystate.model.language import Kind
from trystate.property_tests.support.nightly import examples
from trystate.property_tests.support.runs import (
    AVAILABLE,
    assert_runs_show_what_they_claim,
    facts,
    orbits,
    reachable,
)
from trystate.property_tests.support.systems.random_meaning import (
    LIVE,
    assert_trees_mean_what_their_plans_say,
    lively_holds,
)
from trystate.property_tests.support.systems.random_systems import (
    MEMBERS,
    Declaration,
    Step,
    Variable,
    declarations,
    system,
)


@given(declarations())
def test_all_engines_see_one_graph_and_decide_alike(declared: Declaration) -> None:
    reports = {engine: check(system(declared), engine=engine) for engine in AVAILABLE}
    expected = facts(reports["interpret"])
    for name, status in expected["verdicts"].items():
        event(f"{name} {status.value}")
    size = expected["graph"][0]
    event(f"{10 ** (len(str(size)) - 1):,} states or more")
    for engine, report in reports.items():
        note(engine)
        assert facts(report) == expected
        assert_runs_show_what_they_claim(report)


def decided(declared: Declaration, name: str = "response") -> bool:
    """Does the reference find that the property of liveness holds?"""
    return check(system(declared), engine="interpret").verdict(name).status is Status.HOLDS


@given(declarations())
def test_liveness_is_decided_as_the_plans_say(declared: Declaration) -> None:
    for name in LIVE:
        assert decided(declared, name) is lively_holds(declared, MEMBERS, name)


FLAG, SET = ("flag", ("up",)), ("set", 0, (("up",), ("flag", ("==", ("const", 0), ("const", 0)))))
RISES = Declaration(
    variables=(Variable("up", "flag", 0, 0, 1, (0,)),),
    steps=(Step("environment", 0, True, ("not", FLAG), (SET,)),),
    invariant=FLAG, witness=FLAG, change=FLAG, premise=("not", FLAG), goal=FLAG, rest=FLAG,
)  # fmt: skip


def test_a_fair_step_of_the_environment_happens_and_an_unfair_one_need_not(monkeypatch: pytest.MonkeyPatch) -> None:
    unfair = replace(RISES, steps=(replace(RISES.steps[0], fair=False),))
    assert (decided(RISES), decided(unfair)) == (True, False)
    assert (lively_holds(RISES, MEMBERS), lively_holds(unfair, MEMBERS)) == (True, False)
    monkeypatch.setattr(Instance, "fair", property(lambda self: self.transition.kind is Kind.PROTOCOL))  # the mutant
    assert decided(RISES) is not lively_holds(RISES, MEMBERS)


@given(declarations(symmetric=True))
def test_symmetry_keeps_the_orbits_and_every_safety_verdict(declared: Declaration) -> None:
    full = system(declared, members=3)
    assume(any(cell.indices for cell in full.cells))
    plain, reduced = facts(check(full, engine="explicit")), check(full, engine="explicit", symmetry=True)
    less = facts(reduced)
    assert less["graph"][0] == len(orbits(full, reachable(full), ("node",)))
    assert less["graph"][2] == plain["graph"][2]
    assert less["lengths"] == plain["lengths"]
    assert less["never fired"] == plain["never fired"]
    assert {less["verdicts"].pop(name) for name in LIVE} == {Status.NOT_DECIDED}
    assert less["verdicts"] == {k: v for k, v in plain["verdicts"].items() if k not in LIVE}
    assert_runs_show_what_they_claim(reduced)
    named = check(full, engine="explicit", symmetry=("node",))
    assert facts(named)["graph"] == less["graph"] and facts(named)["lengths"] == less["lengths"]
    assert_runs_show_what_they_claim(named)


@given(declarations())
@settings(max_examples=examples(30))
def test_symmetry_is_refused_or_right(declared: Declaration) -> None:
    declared_system = system(declared)
    try:
        reduced = facts(check(declared_system, engine="explicit", symmetry=True))
    except UsageError as refused:
        assert "without symmetry" in str(refused)
        return
    assert reduced["graph"][0] == len(orbits(declared_system, reachable(declared_system), ("node",)))
    plain = facts(check(declared_system, engine="interpret"))
    assert reduced["lengths"] == plain["lengths"]


@given(declarations())
@settings(max_examples=examples(30))
def test_trees_mean_what_their_plans_say(declared: Declaration) -> None:
    assert_trees_mean_what_their_plans_say(declared)
