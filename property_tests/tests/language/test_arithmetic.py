"""Operators and folds of numbers mean what they mean in Python, and print as their author wrote them."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from trystate.model.checker.interpret import Env, Interpreter
from trystate.model.language import *
from trystate.model.language.quantifiers import expand


class Numbers(System):
    """Numbers of a small and of a large range."""

    node = index(2)
    small = integer(-5, 6)
    large = integer(-40, 60)
    load = integer(-1, 2, per=node)
    mass = integer(0, 30, per=node)


OPERATORS: list[tuple[str, Callable[[Any, Any], Any]]] = [
    ("small * large", lambda s, of: s.small * s.large),
    ("3 * large", lambda s, of: 3 * s.large),
    ("small % 4", lambda s, of: s.small % 4),
    ("large % 7", lambda s, of: s.large % 7),
    ("small // 3", lambda s, of: s.small // 3),
    ("large // 9", lambda s, of: s.large // 9),
    ("−small", lambda s, of: -s.small),
    ("abs(small)", lambda s, of: abs(s.small)),
    ("abs(large)", lambda s, of: abs(s.large)),
    ("sum(j: load[j])", lambda s, of: of("sum", s.load)),
    ("max(j: load[j])", lambda s, of: of("max", s.load)),
    ("min(min(j: load[j]), small)", lambda s, of: of("min", [of("min", s.load), s.small])),
    ("sum(j: mass[j])", lambda s, of: of("sum", s.mass)),
    ("max(j: mass[j] + load[j])", lambda s, of: of("max", (s.mass[j] + s.load[j] for j in s.node))),
    ("(2, 0, 1)[small % 3]", lambda s, of: of("pick", s.small % 3)),
    ("((small + 1) * 2) − (large // 9)", lambda s, of: (s.small + 1) * 2 - s.large // 9),
]
FOLDS: dict[str, tuple[Any, Any]] = {
    "sum": (sum_, sum), "max": (max_, max), "min": (min_, min),
    "pick": (lambda at: pick((2, 0, 1), at), lambda at: (2, 0, 1)[at]),
}  # fmt: skip


@pytest.mark.parametrize(("text", "apply"), OPERATORS)
def test_an_operator_means_and_prints_what_it_is_in_python(text: str, apply: Callable[[Any, Any], Any]) -> None:
    system, chance = Numbers(), random.Random(3)
    tree = apply(SymbolicState(system), lambda what, values: FOLDS[what][0](values))
    assert str(tree) == text
    for ground in (tree, expand(tree)):
        found = Interpreter(system).evaluator(ground)
        for _ in range(200):
            state = tuple(chance.randint(cell.sort.low, cell.sort.high) for cell in system.cells)
            s = SimpleNamespace(small=state[0], large=state[1], load=state[2:4], mass=state[4:], node=range(2))
            assert found(state, Env()) == apply(s, lambda what, values: FOLDS[what][1](values)), state


def test_bounds_of_arithmetic_are_tight_where_the_range_is_small() -> None:
    s = SymbolicState(Numbers())
    trees = [s.small % 4, abs(s.small), s.small // 3, sum_(s.load), max_(s.load), s.small * s.small]
    bounds = [(tree.sort.low, tree.sort.high) for tree in trees]
    assert bounds == [(0, 3), (0, 6), (-2, 2), (-2, 4), (-1, 2), (-30, 36)]
