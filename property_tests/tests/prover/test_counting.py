"""The laws of counting and the translation, on finite states: what the solver is told is true there."""

from collections.abc import Callable
from itertools import product
from random import Random
from types import MappingProxyType

import pytest

from trystate.model.agent import Agents
from trystate.model.agent.lemmas import Lemmas as LemmasOfAgents
from trystate.model.language import System
from trystate.model.language.expressions import Expr
from trystate.model.prover.abbreviations import Abbreviations
from trystate.model.prover.conditions import Claims, Condition
from trystate.model.prover.counting import counted
from trystate.model.prover.formulas import Formulas
from trystate.model.prover.sizes import any_size, constants
from trystate.model.rendezvous import Rendezvous
from trystate.model.rendezvous.lemmas import Lemmas
from trystate.model.store.waits import Waits
from trystate.model.store.waits.lemmas import Lemmas as LemmasOfWaits
from trystate.property_tests.support.finite_sets import Finite, Values, random_state, value
from trystate.property_tests.support.nightly import NIGHTLY

STEPS = ("expel", "replace_round", "drain", "withdraw", "finish", "mark_complete", "add_to_participants")
PROPERTIES = ("seats_are_kept", "ranks_are_dense", "the_first_is_master", "agree_on_world", "ranks_are_ordered")
STEPS_OF_WAITS = ("set_key", "answer_get", "take_wait", "take_get_in_one", "time_out", "expires", "forget_connection")
STEPS_OF_AGENTS = ("expel", "exit_round", "withdraw")
STATES, LAWS = (300, 40) if NIGHTLY else (12, 8)  # states, and the laws of each that are looked at

Case = tuple[Claims, list[Condition]]


def rendezvous() -> Case:
    claims = Claims(any_size(Rendezvous, Lemmas, edition="TRYSTATE"))
    return claims, [c for c in claims.conditions() if c.where in STEPS and c.what in PROPERTIES and not c.trivial]


def waits() -> Case:
    """A system that counts with ranks alone."""
    claims = Claims(any_size(Waits, LemmasOfWaits, edition="TRYSTATE"))
    return claims, [c for c in claims.conditions() if c.where in STEPS_OF_WAITS and not c.trivial]


class TwoValues(LemmasOfWaits):
    """An index of a fixed size."""

    sizes_in_proofs = MappingProxyType({"value": 2})


def waits_with_two_values() -> Case:
    claims = Claims(any_size(Waits, TwoValues, edition="TRYSTATE"))
    return claims, [c for c in claims.conditions() if c.where in STEPS_OF_WAITS and not c.trivial]


def agents() -> Case:
    """Ranks among members of which the step's own is one by itself."""
    claims = Claims(any_size(Agents, LemmasOfAgents, edition="TRYSTATE"))
    return claims, [c for c in claims.conditions() if c.where in STEPS_OF_AGENTS and not c.trivial]


@pytest.fixture(scope="module", params=[rendezvous, waits, waits_with_two_values, agents])
def case(request: pytest.FixtureRequest) -> Case:
    claims, conditions = request.param()
    assert len(conditions) >= 20
    return claims, conditions


def formulas_of(claims: Claims, condition: Condition) -> Formulas:
    return Formulas(condition.params, counted(claims.invariant.values()))


def some_state(system: System, size: int, random: Random) -> Values:
    """A state with sizes; every other one is of a kind that random values seldom have."""
    state = random_state(system, size, random) | {name: {(): random.randint(0, 2)} for name in constants(system)}
    if "complete" in state:
        low = random.randint(1, size)
        state |= {"min_nodes": {(): low}, "max_nodes": {(): random.randint(low, size)}, "rounds": {(): 2}}
        if random.random() < 0.5:
            state["complete"][()] = 1
    return state


def params(condition: Condition, size: int, random: Random) -> dict[Expr, int]:
    return {p: random.randrange(size) for p in condition.params}


def test_a_law_is_true_of_each_finite_state_and_a_formula_says_what_its_tree_says(case: Case) -> None:
    claims, conditions = case
    random = Random(0)
    laws = 0
    for _ in range(STATES):
        condition, size = random.choice(conditions), random.choice((1, 2, 3))
        formulas = formulas_of(claims, condition)
        formula = formulas(condition.goal)
        guard = formulas(condition.guard)
        state, env = some_state(claims.system, size, random), params(condition, size, random)
        finite = Finite(formulas, state, env, size)
        assert finite(formula) == bool(value(condition.goal, state, env, size))
        assert finite(guard) == bool(value(condition.guard, state, env, size))
        for name, law in random.sample(formulas.laws, min(LAWS, len(formulas.laws))):
            laws += 1
            assert finite(law), (name, law)
    assert laws > STATES


def test_a_goal_is_its_property_in_the_state_after_the_step(case: Case) -> None:
    claims, conditions = case
    conditions = [c for c in conditions if c.what in claims.invariant]
    random = Random(1)
    steps = {t.name: t for t in claims.system.transitions}
    for _ in range(STATES):
        condition, size = random.choice(conditions), random.choice((1, 2, 3))
        state, env = some_state(claims.system, size, random), params(condition, size, random)
        after = dict(state)
        for name, body in steps[condition.where].effects.items():
            places = claims.system.slots[name].placeholders()
            after[name] = {
                at: value(body, state, {**env, **dict(zip(places, at, strict=True))}, size) for at in state[name]
            }
        said = value(claims.invariant[condition.what], after, env, size)
        assert value(condition.goal, state, env, size) == said


def test_a_flag_stands_for_its_condition_and_its_meaning_says_so() -> None:
    """Of all values of the flags one has its meaning, and with it the goal is the same."""
    claims, conditions = agents()
    conditions = [c for c in conditions if c.what in ("seats_are_kept", "a_complete_round_expects_nobody")]
    random = Random(3)
    meant = differ = 0
    for _ in range(STATES):
        condition, size = random.choice(conditions), random.choice((1, 2, 3))
        short = Abbreviations()
        goal = short(condition.goal)
        ((name, meaning),) = short.meanings().items()
        formulas = formulas_of(claims, condition)
        formula = formulas(goal)
        state, env = some_state(claims.system, size, random), params(condition, size, random)
        said = value(condition.goal, state, env, size)
        for flags in product((0, 1), repeat=size):
            state[name] = {(k,): flag for k, flag in enumerate(flags)}
            short_says = value(goal, state, env, size)
            differ += short_says != said
            if value(meaning, state, env, size):
                meant += 1
                assert short_says == said
                finite = Finite(formulas, state, env, size)
                assert finite(formula) == bool(said)
                for law_name, law in random.sample(formulas.laws, min(LAWS, len(formulas.laws))):
                    assert finite(law), (law_name, law)
    assert meant == STATES
    assert differ


@pytest.mark.parametrize(
    ("case", "step", "what", "symbols", "law"),
    [
        (rendezvous, "withdraw", "seats_are_kept", "cell", "cells"),
        (waits, "answer_get", "a_value_on_its_way_was_held", "count", "below"),
        (waits, "answer_get", "a_value_on_its_way_was_held", "value!member", "members"),
    ],
)
def test_a_count_of_one_too_many_breaks_a_law(
    case: Callable[[], Case], step: str, what: str, symbols: str, law: str
) -> None:
    claims, conditions = case()
    random = Random(2)
    condition = next(c for c in conditions if c.where == step and c.what == what)
    formulas = formulas_of(claims, condition)
    formulas(condition.goal)
    finite = Finite(formulas, some_state(claims.system, 2, random), params(condition, 2, random), 2)
    wrong = [name for name in (*finite.symbols, "value!member") if name.startswith(symbols)]
    noticed = 0
    for name in wrong:
        finite.wrong = {name: 1}
        finite.forget()
        noticed += not all(finite(formula) for name, formula in formulas.laws if name == law)
    assert noticed > len(wrong) / 2 > 0  # a law about a cell may be idle in one state
