"""Every engine sees the same graph of any declared system, and decides alike."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest
from hypothesis import assume, event, given, note, settings

from trystate.model.checker.check import ENGINES, check
from trystate.model.checker.interpret import Interpreter
from trystate.model.checker.kernel import Instance
from trystate.model.checker.verdicts import Report, Status
from trystate.model.errors import UsageError
from trystate.model.language import Form, Kind, State, System, any_, flag, index, sometimes, transition
from trystate.model.language.machines import apply_effects
from trystate.property_tests.support.nightly import examples
from trystate.property_tests.support.runs import assert_is_a_fair_lasso, assert_is_a_run, refutes
from trystate.property_tests.support.systems.random_meaning import after, cells_of, meaning, response_holds
from trystate.property_tests.support.systems.random_systems import (
    MEMBERS,
    Declaration,
    Step,
    Variable,
    declarations,
    system,
)

AVAILABLE = [e for e in ENGINES if e != "symbolic" or importlib.util.find_spec("dd") is not None]


def facts(report: Report) -> dict[str, Any]:
    """All that does not depend on which of several shortest paths an engine happened to find."""
    seen = report.exploration
    return {
        "graph": (seen.distinct, seen.edges, seen.depth),
        "verdicts": {v.property.name: v.status for v in report.verdicts},
        "lengths": {
            v.property.name: len(v.run.path.steps)
            for v in report.verdicts
            if v.run is not None and v.property.form is not Form.LEADS_TO
        },
        "found": sorted(seen.found),
        "never fired": report.never_fired,
    }


def assert_runs_show_what_they_claim(report: Report) -> None:
    interpreter = Interpreter(report.system)
    for verdict in report.verdicts:
        if verdict.run is None:
            continue
        if verdict.property.form is Form.LEADS_TO:
            assert_is_a_fair_lasso(report.system, verdict.run)
            assert refutes(report.system, verdict.run, verdict.property)
            continue
        path = verdict.run.path
        assert_is_a_run(report.system, path)
        if verdict.property.form in (Form.ALWAYS, Form.SOMETIMES):
            wanted = verdict.property.form is Form.SOMETIMES
            assert interpreter.holds(verdict.property.exprs[0], path.states[-1]) is wanted
        elif verdict.property.form is Form.DEADLOCK:
            moves = [i for i, _ in interpreter.successors(path.states[-1]) if not i.transition.fault]
            assert not moves and not interpreter.holds(report.system.terminal, path.states[-1])


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


def decided(declared: Declaration) -> bool:
    """Whether the reference finds that the response holds."""
    return check(system(declared), engine="interpret").verdict("response").status is Status.HOLDS


@given(declarations())
def test_liveness_is_decided_as_the_plans_say(declared: Declaration) -> None:
    assert decided(declared) is response_holds(declared, MEMBERS)


FLAG, SET = ("flag", ("up",)), ("set", 0, (("up",), ("flag", ("==", ("const", 0), ("const", 0)))))
RISES = Declaration(
    variables=(Variable("up", "flag", 0, 0, 1, (0,)),),
    steps=(Step("environment", 0, True, ("not", FLAG), (SET,)),),
    invariant=FLAG, witness=FLAG, change=FLAG, premise=("not", FLAG), goal=FLAG, rest=FLAG,
)  # fmt: skip


def test_a_fair_step_of_the_environment_happens_and_an_unfair_one_need_not(monkeypatch: pytest.MonkeyPatch) -> None:
    unfair = replace(RISES, steps=(replace(RISES.steps[0], fair=False),))
    assert (decided(RISES), decided(unfair)) == (True, False)
    assert (response_holds(RISES, MEMBERS), response_holds(unfair, MEMBERS)) == (True, False)
    monkeypatch.setattr(Instance, "fair", property(lambda self: self.transition.kind is Kind.PROTOCOL))  # the mutant
    assert decided(RISES) is not response_holds(RISES, MEMBERS)


def orbits(of: System, states: set[State]) -> int:
    """How many sets of states there are that renaming the members makes of each other."""
    cells = {cell.key: k for k, cell in enumerate(of.cells)}
    renamings = [
        [cells[cell.slot.name, tuple(names[i] for i in cell.indices)] for cell in of.cells]
        for names in permutations(range(of.sizes["node"]))
    ]
    return len({min(tuple(state[k] for k in renaming) for renaming in renamings) for state in states})


def reachable(of: System) -> set[State]:
    interpreter = Interpreter(of)
    seen = set(of.initial_states)
    queue = list(seen)
    while queue:
        new = {after for _, after in interpreter.successors(queue.pop())} - seen
        seen |= new
        queue += new
    return seen


@given(declarations(symmetric=True))
def test_symmetry_keeps_the_orbits_and_every_safety_verdict(declared: Declaration) -> None:
    full = system(declared, members=3)
    assume(any(cell.indices for cell in full.cells))
    plain, reduced = facts(check(full, engine="explicit")), check(full, engine="explicit", symmetry=True)
    less = facts(reduced)
    assert less["graph"][0] == orbits(full, reachable(full))
    assert less["graph"][2] == plain["graph"][2]
    assert less["lengths"] == plain["lengths"]
    assert less["never fired"] == plain["never fired"]
    assert less["verdicts"].pop("response") is Status.NOT_DECIDED
    assert less["verdicts"] == {k: v for k, v in plain["verdicts"].items() if k != "response"}
    assert_runs_show_what_they_claim(reduced)


@given(declarations())
@settings(max_examples=examples(30))
def test_symmetry_is_refused_or_right(declared: Declaration) -> None:
    declared_system = system(declared)
    try:
        reduced = facts(check(declared_system, engine="explicit", symmetry=True))
    except UsageError as refused:
        assert "without symmetry" in str(refused)
        return
    assert reduced["graph"][0] == orbits(declared_system, reachable(declared_system))
    plain = facts(check(declared_system, engine="interpret"))
    assert reduced["lengths"] == plain["lengths"]


def assert_steps_do_what_their_plans_say(declared: Declaration, interpreter: Interpreter, states: list[State]) -> None:
    members = interpreter.system.sizes["node"]
    for state in states:
        cells = cells_of(interpreter.system, state)
        for name in ("invariant", "witness"):
            expected = bool(meaning(getattr(declared, name), cells, (), members))
            assert interpreter.holds(interpreter.system.claim(name).exprs[0], state) is expected
        for instance in interpreter.kernel.instances:
            number = int(instance.transition.name.removeprefix("step"))
            expected_cells = after(declared.steps[number], number, cells, instance.indices, members)
            found = interpreter.step(instance, state)
            assert (None if found is None else cells_of(interpreter.system, found)) == expected_cells


@given(declarations())
def test_a_traced_step_does_what_its_plan_says(declared: Declaration) -> None:
    interpreter = Interpreter(system(declared))
    assert_steps_do_what_their_plans_say(declared, interpreter, sorted(reachable(interpreter.system))[:20])


@given(declarations())
@settings(max_examples=examples(30))
def test_unrolled_trees_mean_what_the_traced_ones_mean(declared: Declaration) -> None:
    interpreter = Interpreter(system(declared))
    kernel = interpreter.kernel
    for state in sorted(reachable(kernel.system))[:20]:
        for instance in kernel.instances:
            assert interpreter.holds(kernel.guard(instance), state) == interpreter.allowed(instance, state)
            result = list(state)
            for position, tree in kernel.effects(instance).items():
                result[position] = interpreter.value(tree, state)
            assert tuple(result) == interpreter.apply(instance, state)
            assert interpreter.holds(kernel.changes(instance), state) == (tuple(result) != state)


@given(declarations())
def test_a_condition_after_a_step_is_foretold_from_the_state_before_it(declared: Declaration) -> None:
    interpreter = Interpreter(system(declared))
    conditions = [interpreter.system.claim(name).exprs[0] for name in ("invariant", "witness")]
    states = sorted(reachable(interpreter.system))[:10]
    for instance in interpreter.kernel.instances:
        for condition in conditions:
            foretold = apply_effects(condition, instance.transition, {})
            for state in states:
                expected = interpreter.holds(condition, interpreter.apply(instance, state))
                assert interpreter.holds(foretold, state, instance.binding) is expected


class Spreading(System):
    """A rumour reaches everybody whom anybody has told: a quantifier in a condition and in an effect."""

    node = index(2)
    knows = flag(per="node")
    told = flag(per=("node", "node"), initial=(False, True))

    @transition()
    def spread(self, s: Any) -> None:
        """Everybody learns what anybody has told them."""
        for k in s.node:
            s.knows[k] = any_(s.told[k, j] for j in s.node)

    @sometimes()
    def known(self, s: Any) -> Any:
        """Somebody knows."""
        return any_(s.knows[j] for j in s.node)


def test_a_quantifier_of_an_effect_does_not_capture_that_of_a_condition() -> None:
    interpreter = Interpreter(Spreading())
    (instance,) = interpreter.kernel.instances
    condition = interpreter.system.claim("known").exprs[0]
    foretold = apply_effects(condition, instance.transition, {})
    for state in interpreter.system.initial_states:
        assert interpreter.holds(foretold, state) is interpreter.holds(condition, interpreter.apply(instance, state))
