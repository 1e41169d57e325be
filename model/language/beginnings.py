"""The initial states: each cell begins with one of its values, where the conditions of `@initial` hold.

*Theory of operation.* The conditions are one closed tree. Values are given to one cell after the other, and each is
substituted in the tree, whose constructors fold it. Where it becomes false, no state follows. Equal trees are one
object, so each (cell, tree, value) is substituted once, however many states pass through it: the cells that the
conditions do not connect cost nothing. The states come in the order of the product of the values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

from . import bodies
from .expressions import FALSE, TRUE, Expr, const, substitute
from .fields import Cell
from .quantifiers import expand


class Beginning(bodies.Decorated):
    """The record of `@initial`: a condition on the initial states."""


@bodies.without_parentheses
def initial(body: Callable[..., Any]) -> Beginning:
    """Declare a condition on the initial states; they are the states that `initial=` allows and where it holds."""
    bodies.check_plain(body)
    return Beginning(body)


def beginnings(cells: Sequence[Cell], where: Expr) -> Iterator[tuple[int, ...]]:
    """The initial states of these cells for which the tree `where` holds."""
    if where is TRUE:
        return product(*(cell.initial for cell in cells))
    one = {cell.read: const(cell.initial[0], cell.sort) for cell in cells if len(cell.initial) == 1}
    several = [k for k, cell in enumerate(cells) if len(cell.initial) > 1]
    return _chosen(cells, several, substitute(expand(where), one))


def _chosen(cells: Sequence[Cell], several: Sequence[int], where: Expr) -> Iterator[tuple[int, ...]]:
    state = [cell.initial[0] for cell in cells]
    known: dict[tuple[int, Expr], list[tuple[int, Expr]]] = {}

    def follow(place: int, tree: Expr) -> list[tuple[int, Expr]]:
        """The values of a cell after which the tree may still hold, each with the tree that is left."""
        found = known.get((place, tree))
        if found is None:
            cell = cells[several[place]]
            left = ((v, substitute(tree, {cell.read: const(v, cell.sort)})) for v in cell.initial)
            found = known[place, tree] = [(v, after) for v, after in left if after is not FALSE]
        return found

    if where is FALSE:
        return
    open_: list[Iterator[tuple[int, Expr]]] = [iter(((0, where),))]  # not by recursion: there may be thousands of cells
    while open_:
        found = next(open_[-1], None)
        if found is None:
            open_.pop()
            continue
        if len(open_) > 1:
            state[several[len(open_) - 2]] = found[0]
        if len(open_) > len(several):
            yield tuple(state)
        else:
            open_.append(iter(follow(len(open_) - 1, found[1])))
