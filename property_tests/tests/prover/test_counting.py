"""The laws of counting and the translation of trees: the assertions for the solver are true of finite states."""

from random import Random
from types import MappingProxyType

import pytest

from trystate.model.agent import Agents
from trystate.model.agent.lemmas import Lemmas as LemmasOfAgents
from trystate.model.autograd.gradients import Gradients
from trystate.model.autograd.lemmas import GradientLemmas
from trystate.model.language import System
from trystate.model.language.expressions import Expr
from trystate.model.prover.conditions import Claims
from trystate.model.prover.conditions import Condition as Question
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
STATES, LAWS = (300, 40) if NIGHTLY else (12, 8)  # states, and checked laws of each


Case = tuple[Claims, list[Question]]


class TwoValues(LemmasOfWaits):
    """An index of a fixed size."""

    sizes_in_proofs = MappingProxyType({"value": 2})


CASES: dict[str, tuple[type[System], type[System], tuple[str, ...]]] = {
    "rendezvous": (Rendezvous, Lemmas, STEPS),
    "waits": (Waits, LemmasOfWaits, STEPS_OF_WAITS),  # counts only by ranks
    "waits with two values": (Waits, TwoValues, STEPS_OF_WAITS),
    "agents": (Agents, LemmasOfAgents, STEPS_OF_AGENTS),  # the step's own node is alone among the ranks
    "gradients": (Gradients, GradientLemmas, ("arrive", "run")),  # sums
}


def case_of(name: str) -> Case:
    system, lemmas, steps = CASES[name]
    claims = Claims(any_size(system, lemmas, edition="TRYSTATE"))
    asked = [c for c in claims.conditions() if c.where in steps and not c.trivial]
    return claims, [c for c in asked if name != "rendezvous" or c.what in PROPERTIES]


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    claims, conditions = case_of(request.param)
    assert len(conditions) >= 14
    return claims, conditions


def formulas_of(claims: Claims, condition: Question) -> Formulas:
    return Formulas(condition.params, counted(claims.invariant.values()))


def some_state(system: System, size: int, random: Random) -> Values:
    """A state with sizes; every second one is of a kind that random values seldom have."""
    state = random_state(system, size, random) | {name: {(): random.randint(0, 2)} for name in constants(system)}
    if "complete" in state:
        low = random.randint(1, size)
        state |= {"min_nodes": {(): low}, "max_nodes": {(): random.randint(low, size)}, "rounds": {(): 2}}
        if random.random() < 0.5:
            state["complete"][()] = 1
    return state


def params(condition: Question, size: int, random: Random) -> dict[Expr, int]:
    return {p: random.randrange(size) for p in condition.params}


def test_a_law_is_true_of_each_finite_state_and_a_formula_equals_its_tree(case: Case) -> None:
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


@pytest.mark.parametrize(
    ("case", "step", "what", "symbols", "law"),
    [
        ("rendezvous", "withdraw", "seats_are_kept", "cell", "cells"),
        ("waits", "answer_get", "a_value_on_its_way_was_held", "count", "below"),
        ("waits", "answer_get", "a_value_on_its_way_was_held", "value!member", "members"),
    ],
)
def test_a_count_of_one_too_many_breaks_a_law(case: str, step: str, what: str, symbols: str, law: str) -> None:
    claims, conditions = case_of(case)
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
