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
from trystate.model.language import *
from trystate.model.language.expressions import bound, substitute, variable
from trystate.model.language.quantifiers import expand
from trystate.property_tests.support.nightly import examples
from trystate.property_tests.support.runs import AVAILABLE
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


def test_a_loop_that_ends_while_another_is_bound_does_not_disturb_it(monkeypatch: pytest.MonkeyPatch) -> None:
    abandoned = S.node._once()
    next(abandoned)
    variables = vars(Expr)["free"]

    def free(expr: Expr) -> Any:
        abandoned.close()  # like garbage collection after an error in a loop
        return variables.__get__(expr)

    monkeypatch.setattr(Expr, "free", property(free, variables.__set__))
    assert str(any_(S.saw[j, k] for j in S.node for k in S.node)) == "∃ k: (∃ j: saw[k, j])"


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
