"""Fields that hold members, or none, and sets of members in proofs: what a search refutes is not proved."""

from __future__ import annotations

from typing import Any

import pytest

from trystate.model.checker.check import check
from trystate.model.language import *
from trystate.model.language import choices, fields
from trystate.model.language.expressions import lowest
from trystate.model.prover import conditions, sums
from trystate.model.prover.conditions import Condition
from trystate.model.prover.counting import Counting
from trystate.model.prover.formulas import Formulas
from trystate.model.prover.induction import Proof, Status
from trystate.model.prover.models import state_lines
from trystate.model.prover.sizes import any_size
from trystate.model.prover.sums import Sums
from trystate.property_tests.support.mutants import Mutant, planted, replaced, rewritten
from trystate.property_tests.support.pinned import violated
from trystate.property_tests.support.proofs import proved
from trystate.property_tests.support.systems.declarations import declared

S = SymbolicState
EFFORT = 400_000


class Holders(System):
    """One of the nodes has a lock; each node has a friend."""

    node = index(2)
    holder = one_of("node", optional=True)
    friend = one_of("node", per="node")
    last = one_of("node")
    inside = flag(per="node")
    strayed, parted, passed = flag(), flag(), flag()
    calm = flag(per=bool, initial=True)

    @transition(each="node")
    def take(self, s: S, node: Expr) -> None:
        """A node takes the lock, and befriends the last one."""
        s.when(s.holder.absent)
        s.holder, s.friend[node] = node, s.last

    @transition()
    def enter(self, s: S) -> None:
        """The holder goes in."""
        s.when(~s.holder.absent)
        s.inside[s.holder], s.calm[False] = True, False

    @transition()
    def leave(self, s: S) -> None:
        """The holder gives the lock back."""
        s.when(~s.holder.absent)
        s.inside[s.holder], s.last, s.holder = False, s.holder, None

    @transition()
    def stray(self, s: S) -> None:
        """A chosen set has the holder, although no node holds the lock."""
        chosen = s.subset(s.node)
        s.when(s.holder.absent, chosen[s.holder])
        s.strayed = True

    @transition()
    def part(self, s: S) -> None:
        """Two chosen sets differ."""
        one, other = s.subset(s.node), s.subset(s.node)
        s.when(any_(one[j] & ~other[j] for j in s.node))
        s.parted = True

    @transition(each="node")
    def pass_by(self, s: S, node: Expr) -> None:
        """A node comes after the last one."""
        s.when(s.last < node)
        s.passed = s.last != node

    @always()
    def only_the_holder_is_inside(self, s: S) -> Any:
        """A node that is inside holds the lock."""
        return all_(implies(s.inside[j], s.holder == j) for j in s.node)

    @always()
    def one_is_inside(self, s: S) -> Any:
        """At most one node is inside."""
        return count(s.inside) <= 1

    @always(witness="")
    def a_set_without_a_node_lacks_it(self, s: S) -> Any:
        """No set has the member of an empty field."""
        return ~s.strayed & s.calm[True]

    @always(witness="")
    def the_last_is_the_holder(self, s: S) -> Any:
        """False: a holder is the last one."""
        return s.holder.absent | (s.holder == s.last)

    @always(witness="")
    def the_last_passes(self, s: S) -> Any:
        """False: no other node passes the last one."""
        return ~s.passed

    @always(witness="")
    def sets_are_equal(self, s: S) -> Any:
        """False: two chosen sets are the same."""
        return ~s.parted


class Beginnings(System):
    """Fields with several initial values; the step changes none of them."""

    node = index(2)
    low = constant(1)
    at, other = (one_of("node", optional=True, initial=(None, 0)) for _ in range(2))
    kept, spare = (flag(per="node", initial=(False, True)) for _ in range(2))
    load = integer("low", 3, per="node")
    x, two = integer(0, 3, per="node", initial=(0, 2)), integer(0, 3, initial=2)
    odd = flag()

    @transition()
    def turn(self, s: S) -> None:
        """Time passes."""
        s.odd = ~s.odd

    @always(witness="")
    def none_is_before_each(self, s: S) -> Any:
        """An empty field is before each member, and no member is before it."""
        return all_((s.at < j) & ~(j < s.at) for j in s.node) | ~s.at.absent

    @always(witness="")
    def none_is_before_none(self, s: S) -> Any:
        """False: an empty field is before an empty field."""
        return implies(s.at.absent & s.other.absent, s.at < s.other)

    @always(witness="")
    def one_is_there(self, s: S) -> Any:
        """False: one node is at the place."""
        return implies(all_(s.kept), count(s.kept[j] & (s.at == j) for j in s.node) == 1)

    @always(witness="")
    def what_is_there_has_a_load(self, s: S) -> Any:
        """False: the loads there are at least one."""
        return sum_(ite(s.at == j, s.load[j] + 1, 0) for j in s.node) >= 1

    @always(witness="")
    def an_empty_field_is_any(self, s: S) -> Any:
        """False: an empty field equals each other."""
        return implies(s.at.absent, s.at == s.other)

    @always(witness="")
    def none_has_a_number(self, s: S) -> Any:
        """False: an empty field has a number from 0."""
        return ord_(s.at) >= 0

    @always(witness="")
    def no_load_is_zero(self, s: S) -> Any:
        """False: the load of no node is 0, which is below the range."""
        return implies(s.at.absent, s.load[s.at] == 0)

    @always(witness="")
    def no_node_has_two(self, s: S) -> Any:
        """False: no number is 2, compared with a constant and with a field that begins with it."""
        return sum_(ite((s.x[j] == s.two) & (s.x[j] == 2), 1, 0) for j in s.node) == 0

    @always(witness="")
    def the_kept_are_the_spare(self, s: S) -> Any:
        """False: the kept nodes have the same load as the spare ones."""
        return sum_(ite(s.kept[j], s.load[j], 0) for j in s.node) == sum_(ite(s.spare[j], s.load[j], 0) for j in s.node)


TRUE = {"only_the_holder_is_inside", "one_is_inside", "a_set_without_a_node_lacks_it", "none_is_before_each"}
STRAY = declared("@transition()\ndef stray(self, s): 'No.'; s.last = s.holder", Holders)


def holding(proof: Proof) -> set[str]:
    return {name for name, status in proof.status.items() if status is Status.PROVED}


@pytest.mark.parametrize("cls", [Holders, Beginnings])
def test_the_properties_that_a_search_refutes_are_those_without_a_proof(cls: type[System]) -> None:
    proof = proved(any_size(cls), effort=EFFORT)
    assert holding(proof) == {*proof.status} & TRUE
    assert violated(check(cls())) == {*proof.status} - TRUE


def test_a_counterexample_shows_which_fields_are_empty_and_the_chosen_sets() -> None:
    system = any_size(Holders)
    proof = proved(system, effort=EFFORT)
    shown = {name: [*state_lines(system, proof.open(name)[0])] for name in ("the_last_is_the_holder", "sets_are_equal")}
    assert "holder  none" in shown["the_last_is_the_holder"]
    assert {line.split()[0] for line in shown["sets_are_equal"]} >= {"chosen", "chosen1"}


def test_a_member_that_may_be_absent_leaves_the_range_of_a_field() -> None:
    proof = proved(any_size(STRAY), effort=EFFORT)
    assert proof.ranges == ["range of last"] and not holding(proof)


MUTANTS: dict[str, tuple[str, Mutant]] = {
    "an empty field has a member in a sum": (
        "what_is_there_has_a_load", rewritten(Sums._part, "not_(only.absent)", "TRUE")
    ),
    "an empty field has a member in a count": (
        "one_is_there", rewritten(Counting._cell, "not_(only.absent), ", "")
    ),
    "an empty field equals each other": (
        "an_empty_field_is_any", rewritten(Formulas._same_member, "both[0] == both[1], ", "")
    ),
    "an empty field is not compared": (
        "none_is_before_none", rewritten(Formulas._earlier, "self.has(b), ", "")
    ),
    "no field is empty": (
        "none_has_a_number", rewritten(Formulas.has, "tree.sort.least == 0 or tree.value >= 0", "True")
    ),
    "an empty field has a place": (
        "none_has_a_number", rewritten(Formulas._made, "place if args[0].sort.least == 0 else", "place if True else")
    ),
    "the lowest value is 0": (
        "no_load_is_zero", replaced(fields.Slot, "lowest", property(lambda slot: lowest(slot.sort)))
    ),
    "parts of a sum are equal": (
        "the_kept_are_the_spare", rewritten(Sums._alike, "Or(self.f(differs), ", "Or(")
    ),
    "a constant of another range is another constant": (
        "no_node_has_two", rewritten(sums._exclude, "x.args[1].value != y.args[1].value", "x is not y")
    ),
    "a member that is compared is the step's own": (
        "the_last_passes", rewritten(Condition.members.fget, 'c.op == "eq"', 'c.op in ("eq", "lt")')
    ),
    "all chosen sets are one": (
        "sets_are_equal", rewritten(choices.Subset.__getitem__, 'f"{variable.name}!"', '"set"')
    ),
}  # fmt: skip


@pytest.mark.parametrize(("name", "mutant"), MUTANTS.values(), ids=[*MUTANTS])
def test_a_mistake_of_the_prover_proves_what_a_search_refutes(name: str, mutant: Mutant) -> None:
    with planted(mutant):
        assert name in holding(proved(any_size(Holders if hasattr(Holders, name) else Beginnings), effort=EFFORT))


def test_a_set_that_has_no_member_for_an_empty_field_is_needed() -> None:
    with planted(rewritten(choices.Subset.__getitem__, "and_(not_(here.absent), ", "and_(")):
        assert "a_set_without_a_node_lacks_it" not in holding(proved(any_size(Holders), effort=EFFORT))


def test_a_field_that_loses_its_member_is_not_noticed_without_its_range() -> None:
    with planted(rewritten(conditions._may_leave, 'slot.sort.kind == "index"', "False")):
        assert not proved(any_size(STRAY), effort=EFFORT).ranges
