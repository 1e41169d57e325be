"""Expression trees are built by Python's operators, folded and shared; they have the meaning of the same Python."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import pytest

from trystate.model.checker.interpret import Interpreter
from trystate.model.errors import DeclarationError
from trystate.model.language import *
from trystate.model.language.expressions import (
    FALSE,
    TRUE,
    const,
    differing,
    lift,
    placeholder,
    read,
    variable,
)
from trystate.model.language.sorts import index_sort
from trystate.property_tests.support.systems.declarations import assert_refused


class Hue(enum.Enum):
    RED = "red"
    GREEN = "green"
    BLUE = "blue"


class Cells(System):
    """A cell of each kind."""

    node = index(2)
    edge = index(2)

    lamp = flag()
    hue = choice(Hue)
    level = integer(-1, 2)
    seen = flag(per="node")
    load = integer(0, 2, per="node")
    knows = flag(per=("node", "node"))


SYSTEM = Cells()
S: Any = SymbolicState(SYSTEM)
INTERPRETER = Interpreter(SYSTEM)
NODE = SYSTEM.index_sorts["node"]


def holds(expr: Expr, **cells: int) -> bool:
    """Does the condition hold in the state with these cells and 0 for the others?"""
    return INTERPRETER.holds(expr, tuple(cells.get(c.name.replace("[", "_").replace("]", ""), 0) for c in SYSTEM.cells))


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


@pytest.mark.parametrize(
    ("folded", "expected"),
    [
        (S.lamp & True, S.lamp),
        (S.lamp & False, FALSE),
        (S.lamp | True, TRUE),
        (S.lamp | False, S.lamp),
        (S.lamp & S.lamp, S.lamp),
        (S.lamp & ~S.lamp, FALSE),
        (S.lamp | ~S.lamp, TRUE),
        (~~S.lamp, S.lamp),
        (S.lamp == True, S.lamp),  # noqa: E712
        (S.lamp == False, ~S.lamp),  # noqa: E712
        (S.lamp == S.lamp, TRUE),
        (S.level == 3, FALSE),
        (S.level < 3, TRUE),
        (S.level >= -1, TRUE),
        (S.level < S.level, FALSE),
        (S.level + 0, S.level),
        (0 + S.level, S.level),
        (S.level - 0, S.level),
        (ite(S.lamp, S.level, S.level), S.level),
        (ite(True, S.level, 7), S.level),
        (ite(~S.lamp, 1, 2), ite(S.lamp, 2, 1)),
        (ite(S.lamp, 1, 2) == 1, S.lamp),
        (ite(S.lamp, Hue.RED, Hue.BLUE) == Hue.GREEN, FALSE),
        (lift(2) + 3, lift(5)),
        (2 - lift(3), lift(-1)),
        (as_int(True), lift(1)),
        (ord_(const(1, NODE)), lift(1)),
        (named("three", 3), lift(3)),
        (and_(), TRUE),
        (or_(), FALSE),
        (implies(False, S.lamp), TRUE),
        (any_([]), FALSE),
        (all_([]), TRUE),
        (count([]), lift(0)),
        (count([True, S.lamp]), lift(1) + as_int(S.lamp)),
        (any_(j == j for j in S.node), TRUE),
        (any_(S.lamp for _ in S.node), S.lamp),
        (count(j == j for j in S.node), lift(2)),
        (S.hue.isin(()), FALSE),
    ],
)
def test_constants_are_folded(folded: Expr, expected: Expr) -> None:
    assert folded is expected


@pytest.mark.parametrize(
    ("expr", "low", "high"),
    [
        (S.level + S.load[0], -1, 4),
        (S.level - S.load[0], -3, 2),
        (5 - S.level, 3, 6),
        (ite(S.lamp, S.level, 9), -1, 9),
        (S.seen.count(), 0, 2),
        (as_int(S.lamp), 0, 1),
    ],
)
def test_a_number_knows_its_bounds(expr: Expr, low: int, high: int) -> None:
    assert (expr.sort.low, expr.sort.high) == (low, high)


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        ((S.hue == Hue.RED) & ~S.lamp, "hue = RED ∧ ¬lamp"),
        (S.lamp | (S.level >= 1), "lamp ∨ level ≥ 1"),
        (S.hue != Hue.BLUE, "hue ≠ BLUE"),
        (any_(S.seen[j] for j in S.node), "∃ j: seen[j]"),
        (all_(S.load[j] < 2 for j in S.node), "∀ j: (load[j] < 2)"),
        (S.seen.count() + 1, "#{j: seen[j]} + 1"),
        (ite(S.lamp, S.level, 0), "lamp ? level : 0"),
        (named("late", S.level > 1), "late"),
        (S.level - S.load[1] == 0, "(level − load[1]) = 0"),
        (any_(S.knows[j, k] for j in S.node for k in S.node), "∃ k: (∃ j: knows[k, j])"),
    ],
)
def test_a_tree_prints_as_people_write_it(expr: Expr, text: str) -> None:
    assert str(expr) == text


# ---- refusals


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: S.hue == 1, "cannot compare hue"),
        (lambda: S.hue == S.level, "cannot compare hue"),
        (lambda: S.lamp < 1, "cannot order lamp (bool) and 1 (int)"),
        (lambda: S.lamp + 1, "cannot add lamp: it is of sort bool, not a number"),
        (lambda: 1 - S.hue, "cannot subtract hue: it is of sort"),
        (lambda: S.level & S.lamp, "& needs a condition, but level is of sort int"),
        (lambda: S.lamp | 1, "| needs a condition, but 1 is of sort int"),
        (lambda: ~S.level, "~ needs a condition, but level"),
        (lambda: ite(S.level, 1, 2), "ite needs a condition, but level"),
        (lambda: ite(S.lamp, 1, Hue.RED), "cannot choose between 1 (int) and RED"),
        (lambda: as_int(S.level), "as_int needs a condition, but level"),
        (lambda: S.level == "high", "'high' is not a value of the language"),
        (
            lambda: variable("e", index_sort("edge", 2)) == variable("n", NODE),
            "cannot compare e (edge) and n (node)",
        ),
        (lambda: count(S.load[j] for j in S.node), "count needs conditions, but load["),
        (lambda: any_(S.load[j] for j in S.node), "any needs conditions, but load["),
        (lambda: any_([S.level]), "any needs conditions, but level"),
        (lambda: lift(None), "None is not a value of the language"),
    ],
)
def test_operands_of_the_wrong_sort_are_refused_by_name(build: Callable[[], Any], words: str) -> None:
    with pytest.raises(DeclarationError) as error:
        build()
    assert words in str(error.value)
    assert str(error.value).startswith(__file__ + ":")


def test_a_chained_comparison_is_refused_as_a_python_bool() -> None:
    assert_refused("0 < S.level < 2", "the symbolic value 0 < level was used as a Python bool", S=S)


def test_membership_by_in_is_refused_and_isin_is_the_remedy() -> None:
    assert_refused(
        "S.hue in (Hue.RED, Hue.BLUE)", "the symbolic value hue = RED was used as a Python bool", S=S, Hue=Hue
    )
    assert holds(S.hue.isin((Hue.RED, Hue.BLUE)), hue=2)
    assert not holds(S.hue.isin((Hue.RED, Hue.BLUE)), hue=1)


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
