"""The laws of counting and the translation of trees: the assertions for the solver are true of finite states."""

from random import Random
from types import MappingProxyType

import pytest

from trystate.model.agent import Agents
from trystate.model.agent.lemmas import Lemmas as LemmasOfAgents
from trystate.model.checker.check import check
from trystate.model.language import *
from trystate.model.language.expressions import Expr
from trystate.model.prover.conditions import Claims
from trystate.model.prover.conditions import Condition as Question
from trystate.model.prover.counting import counted
from trystate.model.prover.formulas import Formulas
from trystate.model.prover.induction import Status
from trystate.model.prover.sizes import any_size, constants
from trystate.model.rendezvous import Rendezvous
from trystate.model.rendezvous.lemmas import Lemmas
from trystate.model.store.waits import Waits
from trystate.model.store.waits.lemmas import Lemmas as LemmasOfWaits
from trystate.property_tests.support.finite_sets import Finite, Values, random_state, value
from trystate.property_tests.support.nightly import NIGHTLY
from trystate.property_tests.support.pinned import violated
from trystate.property_tests.support.proofs import proved
from trystate.property_tests.support.systems.random_systems import Hue

STEPS = ("expel", "replace_round", "drain", "withdraw", "finish", "mark_complete", "add_to_participants")
PROPERTIES = ("seats_are_kept", "ranks_are_dense", "the_first_is_master", "agree_on_world", "ranks_are_ordered")
STEPS_OF_WAITS = ("set_key", "answer_get", "take_wait", "take_get_in_one", "time_out", "expires", "forget_connection")
STEPS_OF_AGENTS = ("expel", "exit_round", "withdraw")
S = SymbolicState
STATES, LAWS = (300, 40) if NIGHTLY else (12, 8)  # states, and checked laws of each


class Loads(System):
    """Nodes take loads and give them away."""

    node, most = index(2), constant(3)
    load = integer(0, "most", per="node")
    room = integer(0, "most", per="node", initial="most")
    debt = integer(0 - most, most, initial=0, per="node")
    total = integer(0, "most")
    up = flag(per="node")
    kind = choice(Hue, per="node")

    @transition()
    def take(self, s: S, node: Expr) -> None:
        """A node takes a load."""
        s.when(s.load[node] < s.room[node], s.total < self.most)
        s.load[node], s.total = s.load[node] + 1, s.total + 1

    @transition(each=("node", "node"))
    def give(self, s: S, one: Expr, other: Expr) -> None:
        """A node gives a load to another, or to itself."""
        s.when(s.load[one] > 0, s.load[other] < s.room[other], s.debt[other] < self.most, s.debt[one] > 0 - self.most)
        for field, by in ((s.load, 1), (s.debt, -1)):
            field[one] = field[one] - by
            field[other] = field[other] + by

    @transition()
    def turn(self, s: S, node: Expr) -> None:
        """A node changes."""
        s.up[node] = ~s.up[node]
        s.kind[node] = ite(s.kind[node] == Hue.BLUE, Hue.RED, Hue.BLUE)

    @sometimes()
    def it_is_full(self, s: S) -> Condition:
        """Both have a load."""
        return s.total == self.most

    @always(witness="it_is_full")
    def a_step_changes_a_sum_by_the_difference(self, s: S) -> Condition:
        """True."""
        return (sum_(s.load) == s.total) & (sum_(s.debt) == 0)

    @always(witness="it_is_full")
    def a_sum_is_zero_if_all_are(self, s: S) -> Condition:
        """True."""
        return ((s.total == 0) == all_(s.load[j] == 0 for j in s.node)) & all_(s.load[j] <= s.total for j in s.node)

    @always(witness="it_is_full")
    def a_sum_grows_with_its_numbers(self, s: S) -> Condition:
        """True."""
        return (sum_(s.load) <= sum_(s.room)) & all_(s.load[j] <= s.room[j] for j in s.node)

    @always(witness="it_is_full")
    def a_sum_of_constants_is_a_count(self, s: S) -> Condition:
        """True."""
        threes = sum_(ite(s.up[j], 2, 3) for j in s.node) + sum_(as_int(s.up[j]) for j in s.node)
        return threes == 3 * self.size_of("node")

    @always(witness="it_is_full")
    def a_sum_is_that_over_each_kind(self, s: S) -> Condition:
        """True."""
        return sum_([self.of(s, kind) for kind in Hue]) == s.total

    @always(witness="it_is_full")
    def the_others_have_the_rest(self, s: S) -> Condition:
        """True."""
        return all_(sum_(ite(j == k, 0, s.load[j]) for j in s.node) + s.load[k] == s.total for k in s.node)

    @always(witness="it_is_full")
    def not_of_one_kind(self, s: S) -> Condition:
        """False."""
        return self.of(s, Hue.BLUE) < self.most

    @always(witness="it_is_full")
    def not_of_those_that_are_down(self, s: S) -> Condition:
        """False."""
        return sum_(ite(~s.up[j] & (s.kind[j] == Hue.RED), s.debt[j], 0) for j in s.node) == 0

    def of(self, s: S, kind: Hue) -> Condition:
        return sum_(ite(s.kind[j] == kind, s.load[j], 0) for j in s.node)


Case = tuple[Claims, list[Question]]


class TwoValues(LemmasOfWaits):
    """An index of a fixed size."""

    sizes_in_proofs = MappingProxyType({"value": 2})


CASES: dict[str, tuple[type[System], type[System], tuple[str, ...]]] = {
    "rendezvous": (Rendezvous, Lemmas, STEPS),
    "waits": (Waits, LemmasOfWaits, STEPS_OF_WAITS),  # counts only by ranks
    "waits with two values": (Waits, TwoValues, STEPS_OF_WAITS),
    "agents": (Agents, LemmasOfAgents, STEPS_OF_AGENTS),  # the step's own node is alone among the ranks
    "loads": (Loads, Loads, ("take", "give", "turn")),  # sums
}


def case_of(name: str) -> Case:
    system, lemmas, steps = CASES[name]
    claims = Claims(any_size(system, lemmas, edition=None if system is Loads else "TRYSTATE"))
    asked = [c for c in claims.conditions() if c.where in steps and not c.trivial]
    return claims, [c for c in asked if name != "rendezvous" or c.what in PROPERTIES]


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    claims, conditions = case_of(request.param)
    assert len(conditions) >= 16
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


FALSE_OF_LOADS = {"not_of_one_kind", "not_of_those_that_are_down"}


def test_a_sum_is_proved_for_any_size_and_a_false_one_is_not() -> None:
    """A search of two nodes finds the false ones violated."""
    proof = proved(any_size(Loads), effort=500_000)
    assert {name for name, status in proof.status.items() if status is not Status.PROVED} == FALSE_OF_LOADS
    assert not proof.ranges
    assert violated(check(Loads(node=2))) == FALSE_OF_LOADS
