"""A choice of a step is any of its values in a proof: what a search finds for some value is not proved."""

from __future__ import annotations

from typing import Any

import pytest

from trystate.model.checker.check import check
from trystate.model.errors import DeclarationError
from trystate.model.language import *
from trystate.model.prover.formulas import Formulas
from trystate.model.prover.induction import Status, possible
from trystate.model.prover.sizes import any_size
from trystate.property_tests.support.pinned import violated
from trystate.property_tests.support.proofs import proved
from trystate.property_tests.support.systems.declarations import declared
from trystate.property_tests.support.systems.random_systems import Hue

S = SymbolicState


class Painters(System):
    """Each node is painted once, by a step that chooses how."""

    node = index(2)
    colour = choice(Hue, per="node")
    wet = flag(per="node")
    amount = integer(0, 7, per="node")
    last = integer(0, 7)

    @transition()
    def paint(self, s: S, node: Expr) -> None:
        """A node gets one of two colours and an amount, and the other node of the choice dries."""
        amount, colour, other = s.choose(range(4)), s.choose((Hue.RED, Hue.BLUE)), s.choose(s.node)
        s.when(s.amount[node] == 0, amount > 0, other != node)
        s.colour[node], s.amount[node], s.last = colour, amount, amount
        s.wet[node], s.wet[other] = s.choose(bool), False

    @transition()
    def mix(self, s: S, node: Expr) -> None:
        """A pair of a colour and an amount is chosen."""
        colour, amount = s.choose(((Hue.RED, 5), (Hue.BLUE, 2)))
        s.when(s.amount[node] > 0, s.colour[node] != Hue.GREEN)
        s.colour[node], s.last = colour, amount

    @transition()
    def add(self, s: S, node: Expr) -> None:
        """A chosen amount is added to an amount."""
        s.last = s.amount[node] + s.choose(range(3))

    @always()
    def nothing_is_green(self, s: S) -> Any:
        """No node is green."""
        return s.colour.count(Hue.GREEN) == 0

    @always()
    def amounts_are_small(self, s: S) -> Any:
        """No amount is above three, and the last one is not above five."""
        return all_(x <= 3 for x in s.amount) & (s.last <= 5)

    @always()
    def the_wet_are_painted(self, s: S) -> Any:
        """A wet node has an amount."""
        return all_(implies(s.wet[j], s.amount[j] > 0) for j in s.node)

    @always()
    def nothing_is_blue(self, s: S) -> Any:
        """False: no node is blue."""
        return ~s.colour.any(Hue.BLUE)

    @always()
    def amounts_are_tiny(self, s: S) -> Any:
        """False: no amount is above two."""
        return all_(x <= 2 for x in s.amount)

    @always()
    def the_last_is_not_five(self, s: S) -> Any:
        """False: the last amount is not five."""
        return s.last != 5

    @step(on=("paint",))
    def the_wet_stay(self, before: S, after: S) -> Any:
        """False: no node dries."""
        return count(x for x in after.wet) >= count(x for x in before.wet)


TRUE = {"nothing_is_green", "amounts_are_small", "the_wet_are_painted"}
FALSE = {"nothing_is_blue", "amounts_are_tiny", "the_last_is_not_five", "the_wet_stay"}


def test_a_choice_may_be_any_of_its_values_and_no_other() -> None:
    proof = proved(any_size(Painters))
    assert proof.status == dict.fromkeys(TRUE, Status.PROVED) | dict.fromkeys(FALSE, Status.NOT_PROVED)
    assert not proof.ranges
    assert {answer.value for _, answer in possible(proof.claims)} == {"sat"}


@pytest.mark.parametrize("nodes", [2, 3])
def test_a_search_agrees_with_the_proof_of_choices(nodes: int) -> None:
    assert (TRUE | FALSE) & violated(check(Painters(node=nodes))) == FALSE


def test_a_chosen_number_without_its_range_proves_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Formulas, "chosen", lambda self, params: [])
    proof = proved(any_size(Painters))
    assert proof.ranges == ["range of last"]


AT_ONE_OF_TWO = """
@transition()
def copy(self, s, node):
    'One of two nodes is wet.'
    other = s.choose(s.node); one = s.choose((node, other))
    s.when(s.amount[other] > 0, s.wet[one]); s.wet[other] = True
@transition()
def gain(self, s, node):
    'An amount of the state is chosen.'
    s.last = s.choose((s.amount[node], 2, s.last))
@always()
def all_are_dry(self, s): 'False: no node is wet.'; return ~s.wet.any()
"""


def test_a_chosen_member_may_be_one_of_two_and_a_chosen_number_may_be_read() -> None:
    more = declared(AT_ONE_OF_TWO, Painters)
    proof = proved(any_size(more))
    assert {name for name, status in proof.status.items() if status is Status.PROVED} == TRUE
    assert "all_are_dry" in violated(check(more()))


NAMED = """
load = integer(0, 2, per='{0}')
@transition(each='{0}')
def give(self, s, one): 'A member gets a chosen number.'; s.load[one] = s.choose(range(3))
@always()
def light(self, s): 'False.'; return sum_(s.load[j] for j in s.{0}) < 3
@step()
def two_more(self, s, t): 'True.'; return sum_(t.load[j] for j in t.{0}) <= sum_(s.load[j] for j in s.{0}) + 2
"""


def test_a_chosen_number_is_not_a_member_of_an_index_that_is_called_int() -> None:
    text = declared("int = index(2)" + NAMED.format("int"), System)
    proof = proved(any_size(text))
    assert (proof.status["light"], proof.status["two_more"]) == (Status.NOT_PROVED, Status.PROVED)
    assert violated(check(text())) == {"light"}


def test_an_index_with_the_name_of_a_choice_is_refused() -> None:
    with pytest.raises(DeclarationError, match="give: chosen is the name of a choice: give the index another name"):
        declared("chosen = index(2)" + NAMED.format("chosen"), System)()
