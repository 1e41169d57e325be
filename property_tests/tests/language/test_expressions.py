"""Expression trees are shared and forgotten, and operands of the wrong sort are refused by name."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import pytest

from trystate.model.errors import DeclarationError
from trystate.model.language import *
from trystate.model.language.expressions import (
    TRUE,
    const,
    differing,
    placeholder,
    read,
    variable,
)


class Hue(enum.Enum):
    RED = "red"


class Cells(System):
    """A cell of each kind."""

    node = index(2)

    lamp = flag()
    hue = choice(Hue)
    level = integer(-1, 2)
    seen = flag(per="node")
    load = integer(0, 2, per="node")
    knows = flag(per=("node", "node"))


SYSTEM = Cells()
S: Any = SymbolicState(SYSTEM)
NODE = SYSTEM.index_sorts["node"]


# ---- expressions that the operators build


def test_equal_trees_are_one_object() -> None:
    assert (S.level + 1 < S.load[0]) is (S.level + 1 < S.load[0])
    assert (S.hue == Hue.RED) is (S.hue == Hue.RED)
    assert any_(S.seen[j] for j in S.node) is any_(S.seen[k] for k in S.node)


def test_a_tree_that_nobody_holds_is_forgotten() -> None:
    tree = S.level + 1 < S.load[1]
    first = tree.serial
    del tree
    assert (S.level + 1 < S.load[1]).serial > first


# ---- refusals


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: S.hue == 1, "cannot compare hue"),
        (lambda: S.lamp < 1, "cannot order lamp (bool) and 1 (int)"),
        (lambda: S.lamp + 1, "cannot add lamp: it is of sort bool, not a number"),
        (lambda: S.level & S.lamp, "& needs a condition, but level is of sort int"),
        (lambda: ite(S.level, 1, 2), "ite needs a condition, but level"),
        (lambda: ite(S.lamp, 1, Hue.RED), "cannot choose between 1 (int) and RED"),
        (lambda: as_int(S.level), "as_int needs a condition, but level"),
        (lambda: S.level == "high", "'high' is not a value of the language"),
        (lambda: count(S.load[j] for j in S.node), "count needs conditions, but load["),
        (lambda: any_(S.load[j] for j in S.node), "any needs conditions, but load["),
    ],
)
def test_operands_of_the_wrong_sort_are_refused_by_name(build: Callable[[], Any], words: str) -> None:
    with pytest.raises(DeclarationError) as error:
        build()
    assert words in str(error.value)
    assert str(error.value).startswith(__file__ + ":")


# ---- quantifiers, substitution, expansion


def test_only_the_members_that_a_tree_names_are_looked_at() -> None:
    a, b = placeholder(0, NODE), placeholder(1, NODE)
    zero, one, node = const(0, NODE), const(1, NODE), variable("node", NODE)

    def found(tree: Expr, same: Expr, *places: Expr) -> str:
        return str(list(differing(tree, same, places)))

    kept = read("seen", (a,), TRUE.sort)
    assert found(kept, kept, a) == "[]"
    assert found(or_(a == one, kept), kept, a) == "[(1,)]"
    assert found(or_(node == a, kept), kept, a) == "[(node,)]"
    assert found(not_(kept), kept, a) == "[(0,), (1,)]"
    pair = read("knows", (a, b), TRUE.sort)
    assert found(or_(and_(a == one, b == zero), pair), pair, a, b) == "[(1, 0)]"
    assert found(or_(and_(a == node, b == zero), pair), pair, a, b) == "[(node, 0)]"
    assert found(or_(b == zero, pair), pair, a, b) == "[(0, 0), (1, 0)]"
    assert found(or_(a == one, pair), pair, a, b) == "[(1, 0), (1, 1)]"
