"""The watches of a vectorised search, evaluated on whole frontiers until each is found once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ...language.expressions import FALSE, TRUE, Expr, and_, not_
from ..kernel import Instance, Kernel, Watch, WatchKey
from .packing import Columns, Layout, Mask
from .vectorise import Step, Taken, conditions, taken_condition


@dataclass(frozen=True, slots=True)
class Find:
    """Where a watch was first seen: the level and words of the state, and the step taken from it."""

    level: int
    words: tuple[int, ...]
    instance: Instance | None


class _Group:
    """Conditions that are evaluated on the same rows. Found ones are dropped and no longer compiled."""

    def __init__(
        self, layout: Layout, wanted: Sequence[tuple[WatchKey, Expr]], instance: Instance | None = None
    ) -> None:
        self._layout = layout
        self._wanted = [(key, expr) for key, expr in wanted if expr is not FALSE]
        self._instance = instance
        self._evaluate: Callable[..., tuple[Mask, ...]] | None = None
        self._compiled: list[WatchKey] = []

    def look(self, columns: Columns, level: int, found: dict[WatchKey, Find]) -> None:
        if not self._wanted or not len(columns[0]):
            return
        if any(key in found for key, _ in self._wanted):
            self._forget(found)
        for key, expr in self._wanted:
            if expr is TRUE:
                self._note(key, columns, 0, level, found)
        if self._evaluate is None:
            self._compile()
        assert self._evaluate is not None
        for key, mask in zip(self._compiled, self._evaluate(*columns), strict=True):
            if mask.any():
                self._note(key, columns, int(mask.argmax()), level, found)

    def _note(self, key: WatchKey, columns: Columns, row: int, level: int, found: dict[WatchKey, Find]) -> None:
        if key not in found:
            found[key] = Find(level, tuple(int(c[row]) for c in columns), self._instance)

    def _forget(self, found: dict[WatchKey, Find]) -> None:
        self._wanted = [(key, expr) for key, expr in self._wanted if key not in found]
        self._evaluate = None

    def _compile(self) -> None:
        open_ = [(key, expr) for key, expr in self._wanted if expr is not TRUE]
        self._compiled = [key for key, _ in open_]
        self._evaluate = conditions(self._layout, [expr for _, expr in open_]) if open_ else lambda *_: ()


class _Idle:
    """Conditions on the states where none of the given steps is taken.

    Read off the steps themselves: a deadlock's tree is as large as all guards together.
    """

    def __init__(self, numbers: frozenset[int], group: _Group) -> None:
        self.numbers = numbers
        self.group = group
        self.busy: Mask = np.zeros(0, np.bool_)


class Watching:
    """All watches of one search. Call `begin`, `step` for each step taken, and `end`, chunk by chunk.

    Each find goes into `found`, which outlives a search that is cut off.
    """

    def __init__(
        self, kernel: Kernel, layout: Layout, watches: Iterable[Watch], steps: Sequence[Step],
        found: dict[WatchKey, Find],
    ) -> None:  # fmt: skip
        self.found = found
        self._level = 0
        self._columns: Columns = ()
        by_instance: dict[int, list[tuple[WatchKey, Expr]]] = {}
        by_idle: dict[frozenset[int], list[tuple[WatchKey, Expr]]] = {}
        idle_conditions = {not_(taken_condition(kernel, step.instance)): step.instance.number for step in steps}
        for watch in watches:
            expr = kernel.closed(watch.expr, watch.binding)
            if watch.instance is not None:
                known = steps[watch.instance.number].known(expr)
                by_instance.setdefault(watch.instance.number, []).append((watch.key, known))
                continue
            numbers, rest = _split_idle(expr, idle_conditions)
            by_idle.setdefault(numbers, []).append((watch.key, rest))
        self._everywhere = _Group(layout, by_idle.pop(frozenset(), []))
        self._idle = [_Idle(numbers, _Group(layout, wanted)) for numbers, wanted in by_idle.items()]
        self._by_instance = {n: _Group(layout, wanted, kernel.instances[n]) for n, wanted in by_instance.items()}

    def begin(self, columns: Columns, level: int) -> None:
        """A chunk of new states."""
        self._level = level
        self._columns = columns
        self._everywhere.look(columns, level, self.found)
        for idle in self._idle:
            idle.busy = np.zeros(len(columns[0]), np.bool_)

    def step(self, number: int, taken: Taken) -> None:
        """An instance takes a step from some states of the chunk."""
        group = self._by_instance.get(number)
        if group is not None:
            group.look(taken.before, self._level, self.found)
        for idle in self._idle:
            if number in idle.numbers:
                idle.busy[taken.rows] = True

    def end(self) -> None:
        """Every step of the chunk has been seen."""
        for idle in self._idle:
            rows = np.flatnonzero(~idle.busy)
            idle.group.look(tuple(c.take(rows) for c in self._columns), self._level, self.found)


def _split_idle(expr: Expr, idle_conditions: dict[Expr, int]) -> tuple[frozenset[int], Expr]:
    """A condition as the steps that it says are not taken, and the rest."""
    parts = expr.args if expr.op == "and" else (expr,)
    numbers = frozenset(idle_conditions[p] for p in parts if p in idle_conditions)
    return numbers, and_(*(p for p in parts if p not in idle_conditions))
