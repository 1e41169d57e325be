"""A scenario holds exactly if its walks are possible, its refusals are refused and its conditions are true."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trystate.check import Status, check
from trystate.model.checker import scenarios
from trystate.model.checker.export.promela import promela
from trystate.model.checker.scenarios import played
from trystate.model.checker.verdicts import Verdict
from trystate.model.errors import DeclarationError, UsageError
from trystate.model.language import *
from trystate.model.language.scenarios import Scene
from trystate.property_tests.support.nightly import examples
from trystate.property_tests.support.systems.declarations import declared
from trystate.property_tests.support.systems.random_systems import Declaration, declarations, system
from trystate.walking import Walk


class Lease(System, deadlock=False):
    """One client at a time has a lease for one or two ticks."""

    client = index(2)
    owner = one_of("client", optional=True, initial=ANY)
    left = integer(0, 2)

    @initial
    def no_client_or_the_first(self, s: SymbolicState) -> Any:
        return s.owner.absent | (s.owner == 0)

    @transition()
    def acquire(self, s: SymbolicState, client: Expr) -> None:
        """A client takes a lease that is over."""
        s.when(s.left == 0)
        s.owner, s.left = client, s.choose((1, 2))

    @transition()
    def renew(self, s: SymbolicState, client: Expr) -> None:
        """The owner takes it again."""
        s.when(s.owner == client, s.left > 0)
        s.left = 2

    @environment()
    def tick(self, s: SymbolicState) -> None:
        """Time passes."""
        s.when(s.left > 0)
        s.left -= 1

    @fault("theft")
    def steal(self, s: SymbolicState, client: Expr) -> None:
        """A client takes a lease that is not over."""
        s.when(s.owner != client)
        s.owner = client

    @scenario
    def lapsed(self, run: Any) -> None:
        """A client whose lease is over cannot renew it."""
        run("acquire(0, 2) tick tick")
        run.refuses("renew(0)")
        run.holds(lambda s: s.owner == 0)
        run("acquire")
        run.refuses("acquire")
        run.holds(lambda s: s.left > 0)

    @scenario(needs="theft")
    def stolen(self, run: Any) -> None:
        run("steal(1)")
        run.refuses("renew(0)")


def judged(body: str, **options: Any) -> Verdict:
    """The verdict of a scenario of a lease."""
    lines = "".join(f"\n    {line}" for line in body.split("; "))
    return check(declared(f"@scenario\ndef told(self, run):{lines}", Lease)(**options), engine="interpret").verdict(
        "told"
    )


# the body of a scenario -> what contradicts it, and the steps of the run that shows it
WRONG = {
    "run('renew(0)')": (
        r"renew(0) is not possible at the beginning: in none of 2 possible states; in one of them, renew(0) is not "
        "enabled: owner = 0 (owner is none); 0 < left (left is 0)", ""),
    "run('acquire(0) tick'); run('tick tick')": (
        "tick is not possible after acquire(0) tick tick: tick is not enabled: 0 < left (left is 0)",
        "acquire(0, 2) tick tick"),
    "run('acquire(1,1)'); run.refuses('renew(0) renew')": (
        "renew(1) is possible after acquire(1, 1), and must be refused", "acquire(1, 1) renew(1)"),
    "run.holds(lambda s: s.owner == 0)": ("this does not hold at the beginning: owner = 0 (owner is none)", ""),
    "run('acquire'); run.holds(lambda s: (s.left == 2) & (s.owner == 0))": (
        "this does not hold after acquire: left = 2 (left is 1)", "acquire(0, 1)"),
}  # fmt: skip


@pytest.mark.parametrize("body", WRONG)
def test_a_contradiction_to_a_scenario_has_its_line_and_a_run(body: str) -> None:
    verdict, (reason, steps) = judged(body), WRONG[body]
    line = len(body.split("; ")) + 2
    assert verdict.status is Status.VIOLATED and verdict.run is not None
    assert verdict.reason.endswith(f":{line}: {reason}"), verdict.reason
    walk = Walk(Lease())
    walk.load(verdict.run)
    walk.run_to(len(verdict.run.path.steps))
    assert " ".join(walk.labels) == steps


@pytest.mark.parametrize("options", [{}, {"client": 3}, {"faults": ["theft"]}])
def test_a_scenario_holds_and_is_asked_only_with_its_faults(options: Any) -> None:
    report = check(Lease(**options))
    assert [v.property.name for v in report.verdicts] == ["lapsed", *["stolen"][: "faults" in options]]
    assert not report.violated and not report.undecided


def test_a_member_that_only_a_larger_system_has_leaves_a_scenario_open() -> None:
    assert judged("run('acquire(2)')", client=3).status is Status.HOLDS
    verdict = judged("run('acquire(2)')")
    assert verdict.status is Status.NOT_DECIDED
    assert verdict.reason.endswith(
        ":3: Bad(client=2) has no step acquire(2): acquire has client from 0 to 1, chosen from 1 to 2"
    )


def test_too_many_possible_states_leave_a_scenario_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scenarios, "STATES_MAX", 3)
    assert "more than 3 states are possible after acquire: name" in judged("run('acquire')").reason


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("run('acqire(0)')", r":3: told: no step 'acqire': did you mean acquire\?"),
        ("run('steal(0)')", r":3: told: .* does not have the step 'steal': declare the scenario with needs= or"),
        ("run('tick & tick')", r":3: told: the walk has '&', which is not a step"),
        ("run('')", r":3: told: no step '': known are acquire, renew, tick"),
        ("run(7)", r":3: told: expected string"),
        ("run.holds(lambda s: s.left)", r":3: told: left is not a condition"),
        ("run.holds(lambda s: None)", r":3: told returns nothing"),
        ("run.holds(lambda s: s.gone)", r":3: unknown field 'gone'"),
        ("run", r":1: told returns a value, or does not call its run: call run"),
        ("import random; run('tick ' * random.randrange(1, 9))", "told gives tick, and .* when it runs again"),
    ],
)  # fmt: skip
def test_a_wrong_scenario_is_refused_with_its_line(body: str, message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        judged(body)


def test_a_scenario_takes_its_run_alone() -> None:
    with pytest.raises(DeclarationError, match=r"told takes \(self\): a scenario takes \(self, run\)"):
        declared("@scenario\ndef told(self): pass", Lease)()


def test_a_scenario_is_not_exported() -> None:
    assert "lapsed" not in promela(Lease(), None)
    with pytest.raises(UsageError, match="lapsed is a scenario, which is not exported"):
        promela(Lease(), ["lapsed"])


def verdict_of(built: System, *scenes: Scene) -> Verdict:
    return played(built, Property("told", Form.SCENARIO, "", "", "", scenes=scenes))


@settings(max_examples=examples(10))
@given(declarations(), st.randoms(use_true_random=False))
def test_a_scenario_of_any_system_is_a_walk_through_it(declared: Declaration, random: Random) -> None:
    """A walk is possible as a scenario, and each step after it is possible or refused as in the walk."""
    built = system(declared)
    walk = Walk(built, random.randrange(len(built.initial_states)))
    walk.wander(4, random)
    taken = Scene("here", walk.labels)
    assert verdict_of(built, taken).status is Status.HOLDS
    if len(built.initial_states) > 1:
        return
    allowed = {instance.label for instance, _ in walk.enabled()}
    for label, instance in walk.instances.items():
        refused = verdict_of(built, taken, Scene("here", (label,), refused=True))
        assert (refused.status is Status.HOLDS) == (label not in allowed)
        verdict = verdict_of(built, taken, Scene("here", (label,)))
        assert (verdict.status is Status.HOLDS) == (label in allowed)
        if label not in allowed:
            assert f"{label} is not enabled: {walk.steps.why_not(instance, walk.state).why}" in verdict.reason
            assert verdict.run is not None and verdict.run.path.states == tuple(stop.state for stop in walk.stops)
