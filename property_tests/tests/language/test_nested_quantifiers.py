"""Quantifiers inside of quantifiers mean what they say, however much of them folds away.

A loop writes pairs; the diagonal of what it wrote loses the quantifiers that folding took out of it. The trees are
compared with plain Python over concrete indices, which knows neither trees nor binders. More under
HYPOTHESIS_PROFILE=nightly.
"""

from __future__ import annotations

from itertools import islice, pairwise, product
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from trystate.model.checker.check import check
from trystate.model.checker.interpret import Interpreter
from trystate.model.checker.verdicts import Status
from trystate.model.errors import DeclarationError
from trystate.model.language import *
from trystate.model.language.expressions import bound, substitute, variable
from trystate.model.language.machines import apply_effects
from trystate.model.language.quantifiers import expand
from trystate.model.language.text import assignment
from trystate.property_tests.support.lines import blamed
from trystate.property_tests.support.mutants import survives
from trystate.property_tests.support.nightly import examples
from trystate.property_tests.support.runs import AVAILABLE
from trystate.property_tests.support.systems.named_binders import plant
from trystate.property_tests.support.systems.random_meaning import after, cells_of, meaning, size
from trystate.property_tests.support.systems.random_systems import MEMBERS, Declaration, declarations, system

NESTED = declarations(nested=True)


class Tiny(System):
    """Some of each, over one index."""

    node = index(2)
    hot = flag(per="node", initial=True)
    cut = flag(per="node")
    saw = flag(per=("node", "node"))
    on = flag()


S: Any = SymbolicState(Tiny())
NODE = Tiny().index_sorts["node"]


# ---- what folding leaves


class Folded(Tiny):
    """The smallest system in which folding takes a quantifier away between two others."""

    @transition()
    def look(self, s: Any) -> None:
        """Some hot node comes before another: true where two are hot."""
        for j in s.node:
            for k in s.node:
                s.saw[j, k] = any_(
                    s.hot[m] & (ord_(m) < ord_(j)) & ((j == k) | any_(s.cut[p] & (ord_(p) < ord_(m)) for p in s.node))
                    for m in s.node
                )
        s.on = any_(s.saw[i, i] for i in s.node)


def test_the_diagonal_of_pairs_that_a_loop_wrote_is_the_condition_written_directly() -> None:
    expected = any_(any_(S.hot[m] & (ord_(m) < ord_(i)) for m in S.node) for i in S.node)
    assert Folded().transition("look").effects["on"] is expected
    assert expand(expected) is S.hot[0]


def test_a_value_with_a_quantifier_is_put_below_another_without_capture() -> None:
    tree = all_(S.cut[j] | S.on for j in S.node)
    for value in (any_(S.hot[j] for j in S.node), any_(any_(S.saw[j, k] for k in S.node) for j in S.node)):
        expected = (S.cut[0] | expand(value)) & (S.cut[1] | expand(value))
        assert expand(substitute(tree, {S.on: value})) is expected


def test_a_value_with_an_open_loop_is_put_below_a_quantifier_without_capture() -> None:
    node = variable("node", NODE)
    tree = any_(S.saw[node, k] & S.hot[k] for k in S.node)
    outer = all_(substitute(tree, {node: j}) for j in S.node)
    assert outer is all_(any_(S.saw[j, k] & S.hot[k] for k in S.node) for j in S.node)


def test_a_part_taken_out_of_a_quantifier_cannot_be_put_elsewhere() -> None:
    with pytest.raises(AssertionError, match="#0 was taken out of a quantifier: open it first"):
        substitute(S.hot[variable("node", NODE)], {variable("node", NODE): bound(0, NODE)})


@pytest.mark.parametrize("depth", [8, 9, 12])
def test_quantifiers_nest_as_deep_as_one_likes(depth: int) -> None:
    def nest(left: int, above: tuple[Expr, ...]) -> Any:
        if left == 0:
            return or_(*(S.saw[a, b] for a, b in pairwise(above)))
        return any_(nest(left - 1, (*above, j)) for j in S.node)

    tree = nest(depth, ())
    letters = [show.split(":")[0] for show in str(tree).split("∃ ")[1:]]
    assert len(set(letters)) == depth
    assert letters[-9:] == ["j2", "q", "p", "o", "n", "m", "l", "k", "j"][-depth:]
    assert expand(nest(3, ())) is expand(any_(S.saw[j, k] for j in S.node for k in S.node))


def test_an_index_is_printed_by_a_name_unlike_those_around_it() -> None:
    class Ranks(Tiny):
        """Each node sees what comes before it."""

        @transition()
        def rank(self, s: Any) -> None:
            """Everything that is before a node is seen."""
            for j in s.node:
                s.cut[j] = any_(s.hot[k] & (ord_(k) < ord_(j)) for k in s.node)

    (write,) = Ranks().transition("rank").writes
    assert assignment(write.field, write.indices, write.value) == "∀ j: cut[j] := ∃ k: (hot[k] ∧ k < j)"


def test_a_loop_that_ends_while_another_is_bound_does_not_disturb_it(monkeypatch: pytest.MonkeyPatch) -> None:
    abandoned = iter(S.node)
    next(abandoned)
    variables = Expr.free.fget  # type: ignore[attr-defined]

    def free(expr: Expr) -> Any:
        abandoned.close()  # as garbage collection may, where an error has left a loop
        return variables(expr)

    monkeypatch.setattr(Expr, "free", property(free))
    assert str(any_(S.saw[j, k] for j in S.node for k in S.node)) == "∃ k: (∃ j: saw[k, j])"


# ---- indices


@pytest.mark.parametrize("engine", AVAILABLE)
def test_an_index_may_be_chosen_by_the_state(engine: str) -> None:
    class Chosen(Tiny):
        """One node is looked at, by a lamp."""

        @transition(each=("node", "node"))
        def look(self, s: Any, one: Any, other: Any) -> None:
            """The lamp shows which."""
            s.cut[ite(s.on, one, other)] = s.hot[ite(s.on, other, one)]
            s.hot[one] = False

        @transition()
        def turn(self, s: Any) -> None:
            """The lamp turns."""
            s.on = ~s.on

    assert check(Chosen(), engine=engine).exploration.distinct == 26


def test_a_loop_index_does_not_escape_in_the_choice_of_an_index() -> None:
    class Escaping(Tiny):
        """A choice of two, one of which is in a loop."""

        @transition(each="node")
        def look(self, s: Any, node: Any) -> None:
            """All or one."""
            for j in s.node:
                s.cut[ite(s.on, j, node)] = True  # blamed: escapes

    with pytest.raises(DeclarationError) as error:
        Escaping()
    assert str(error.value).startswith(blamed("escapes") + "the loop index escapes into cut")


@pytest.mark.parametrize("engine", AVAILABLE)
def test_a_property_of_pairs_is_asked_of_every_pair(engine: str) -> None:
    class Pairs(Tiny):
        """Nobody ever sees anybody else."""

        @transition(each="node")
        def look(self, s: Any, node: Any) -> None:
            """A node sees itself."""
            s.saw[node, node] = True

        @leads_to(each=("node", "node"))
        def seen(self, s: Any, one: Any, other: Any) -> Any:
            """Everybody is seen by everybody."""
            return s.hot[one], s.saw[one, other]

    system = Pairs()
    assert [str(p) for p in system.claim("seen").params] == ["node0", "node1"]
    assert check(system, engine=engine).verdict("seen").status is Status.VIOLATED


# ---- random systems


def assert_trees_mean_what_their_plans_say(declared: Declaration) -> None:
    """Conditions, and what each step leads to, in a dozen of all states: as traced, unrolled, and foretold."""
    interpreter = Interpreter(system(declared))
    kernel = interpreter.kernel
    conditions = {
        name: (interpreter.system.claim(name).exprs[0], getattr(declared, name)) for name in ("invariant", "witness")
    }
    foretold = {
        (instance.number, name): apply_effects(tree, instance.transition, instance.transition.after)
        for instance in kernel.instances
        for name, (tree, _) in conditions.items()
    }
    all_states = product(*(range(c.sort.low, c.sort.high + 1) for c in interpreter.system.cells))
    for state in islice(all_states, 0, None, 11):
        cells = cells_of(interpreter.system, state)
        for tree, plan in conditions.values():
            assert interpreter.holds(tree, state) is bool(meaning(plan, cells, (), MEMBERS))
        for instance in kernel.instances:
            number = int(instance.transition.name.removeprefix("step"))
            expected = after(declared.steps[number], number, cells, instance.indices, MEMBERS)
            found = interpreter.step(instance, state)
            assert (None if found is None else cells_of(interpreter.system, found)) == expected
            taken = interpreter.holds(kernel.guard(instance), state) and interpreter.holds(
                kernel.changes(instance), state
            )
            assert taken is (expected is not None)
            if expected is not None:
                unrolled = {k: interpreter.value(tree, state) for k, tree in kernel.effects(instance).items()}
                assert {kernel.cells[k].key: v for k, v in unrolled.items()}.items() <= expected.items()
                for name, (_, plan) in conditions.items():
                    holds = bool(meaning(plan, expected, (), MEMBERS))
                    assert interpreter.holds(foretold[instance.number, name], state, instance.binding) is holds


@given(NESTED)
def test_trees_mean_what_their_plans_say(declared: Declaration) -> None:
    assert_trees_mean_what_their_plans_say(declared)


@given(NESTED)
@settings(max_examples=examples(12))
def test_every_engine_finds_the_states_and_steps_that_the_plans_say(declared: Declaration) -> None:
    expected = size(declared, MEMBERS)
    for engine in AVAILABLE:
        seen = check(system(declared), engine=engine).exploration
        assert (engine, seen.distinct, seen.edges) == (engine, *expected)


def test_binders_with_names_would_be_noticed() -> None:
    asked = settings(
        max_examples=200, phases=[Phase.generate], suppress_health_check=[*HealthCheck], report_multiple_bugs=False
    )
    assert not survives(plant, asked(given(NESTED)(assert_trees_mean_what_their_plans_say)))
