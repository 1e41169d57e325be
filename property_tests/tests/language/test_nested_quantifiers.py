"""Quantifiers inside quantifiers keep their meaning, however much of them folds away.

A loop writes a field of pairs; on its diagonal, folding removes quantifiers from the written values. The trees are
compared with plain Python over concrete indices, which uses neither trees nor binders. More examples run under
HYPOTHESIS_PROFILE=nightly.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings

from trystate.model.checker.check import check
from trystate.model.checker.verdicts import Status
from trystate.model.language import *
from trystate.model.language.expressions import bound, substitute, variable
from trystate.model.language.quantifiers import expand
from trystate.model.language.text import assignment
from trystate.property_tests.support.nightly import examples
from trystate.property_tests.support.pinned import violated
from trystate.property_tests.support.runs import AVAILABLE
from trystate.property_tests.support.systems.declarations import declared
from trystate.property_tests.support.systems.random_meaning import assert_trees_mean_what_their_plans_say, size
from trystate.property_tests.support.systems.random_systems import MEMBERS, Declaration, declarations, system

NESTED = declarations(nested=True)


class Tiny(System):
    """A few flags of each shape, over one index: without an index, for each node, for each pair of nodes."""

    node = index(2)
    hot = flag(per="node", initial=True)
    cut = flag(per="node")
    saw = flag(per=("node", "node"))
    on = flag()


S: Any = SymbolicState(Tiny())
NODE = Tiny().index_sorts["node"]


# ---- the quantifiers that remain after folding


class Folded(Tiny):
    """The smallest system in which folding removes a quantifier between two others."""

    @transition()
    def look(self, s: Any) -> None:
        """Some hot node comes before another; true if two are hot."""
        for j in s.node:
            for k in s.node:
                s.saw[j, k] = any_(
                    s.hot[m] & (ord_(m) < ord_(j)) & ((j == k) | any_(s.cut[p] & (ord_(p) < ord_(m)) for p in s.node))
                    for m in s.node
                )
        s.on = any_(s.saw[i, i] for i in s.node)


def test_the_diagonal_of_pairs_of_a_loop_is_the_direct_condition() -> None:
    expected = any_(any_(S.hot[m] & (ord_(m) < ord_(i)) for m in S.node) for i in S.node)
    assert Folded().transition("look").effects["on"] is expected
    assert expand(expected) is S.hot[0]


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
    text = "@transition()\ndef rank(self, s):\n    'Ranks.'\n    for j in s.node:\n"
    ranks = declared(f"{text}        s.cut[j] = any_(s.hot[k] & (ord_(k) < ord_(j)) for k in s.node)", Tiny)
    (write,) = ranks().transition("rank").writes
    assert assignment(write.field, write.indices, write.value) == "∀ j: cut[j] := ∃ k: (hot[k] ∧ k < j)"


def test_a_loop_that_ends_while_another_is_bound_does_not_disturb_it(monkeypatch: pytest.MonkeyPatch) -> None:
    abandoned = S.node._once()
    next(abandoned)
    variables = vars(Expr)["free"]

    def free(expr: Expr) -> Any:
        abandoned.close()  # like garbage collection after an error in a loop
        return variables.__get__(expr)

    monkeypatch.setattr(Expr, "free", property(free, variables.__set__))
    assert str(any_(S.saw[j, k] for j in S.node for k in S.node)) == "∃ k: (∃ j: saw[k, j])"


# ---- indices


@pytest.mark.parametrize("engine", AVAILABLE)
def test_an_index_may_be_chosen_by_the_state(engine: str) -> None:
    chosen = declared(
        "@transition(each=('node', 'node'))\ndef look(self, s, one, other):\n    'A lamp shows which.'\n"
        "    s.cut[ite(s.on, one, other)] = s.hot[ite(s.on, other, one)]\n    s.hot[one] = False\n"
        "@transition()\ndef turn(self, s): 'The lamp turns.'; s.on = ~s.on",
        Tiny,
    )
    assert check(chosen(), engine=engine).exploration.distinct == 26


class Rooms(System, deadlock=False):
    """Two indices of different sizes; a count over each has the same body for all members but one."""

    room, node = index(2), index(3)
    alarm = flag()

    @transition()
    def ring(self, s: SymbolicState, room: Expr) -> None:
        """A room rings."""
        s.when(count((r == room) | s.alarm for r in s.room) >= 1)
        s.alarm = True

    @always()
    def not_all(self, s: SymbolicState) -> Any:
        """False: with the alarm, each node is counted."""
        return count((k == s.node[0]) | s.alarm for k in s.node) < 3


@pytest.mark.parametrize("engine", AVAILABLE)
def test_a_count_over_one_index_is_not_a_count_over_another(engine: str) -> None:
    assert violated(check(Rooms(), engine=engine)) == {"not_all"}


@pytest.mark.parametrize("engine", AVAILABLE)
def test_a_property_of_pairs_is_asked_of_every_pair(engine: str) -> None:
    system_ = declared(
        "@transition(each='node')\ndef look(self, s, node): 'A node sees itself.'; s.saw[node, node] = True\n"
        "@leads_to(each=('node', 'node'))\ndef seen(self, s, one, other): 'All.'; return s.hot[one], s.saw[one, other]",
        Tiny,
    )()
    assert [str(p) for p in system_.claim("seen").params] == ["node0", "node1"]
    assert check(system_, engine=engine).verdict("seen").status is Status.VIOLATED


# ---- random systems


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
