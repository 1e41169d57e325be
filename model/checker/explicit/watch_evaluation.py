"""The watches of a vectorised search, evaluated on whole frontiers until each is found once.

A condition is closed and compiled when there are first states to look at: a step that is never taken costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ...language.expressions import FALSE, TRUE, Expr
from ..kernel import Kernel, Watch, WatchKey
from .packing import Columns, Layout, Mask
from .vectorise import Step, Taken, conditions


@dataclass(frozen=True, slots=True)
class Find:
    """Where a watch was first seen: the level and words of the state, and the number of the step taken from it."""

    level: int
    words: tuple[int, ...]
    step: int | None


class _Group:
    """Conditions that are evaluated on the same rows. Found ones are dropped and no longer compiled."""

    def __init__(
        self, layout: Layout, watches: Sequence[Watch], close: Callable[[Watch], Expr],
        step: int | None = None,
    ) -> None:  # fmt: skip
        self._layout = layout
        self._unclosed = watches
        self._close = close
        self._wanted: list[tuple[WatchKey, Expr]] = []
        self._step = step
        self._evaluate: Callable[..., tuple[Mask, ...]] | None = None
        self._compiled: list[WatchKey] = []

    def look(self, columns: Columns, level: int, found: dict[WatchKey, Find]) -> None:
        if not len(columns[0]):
            return
        if self._unclosed:
            closed = [(watch.key, self._close(watch)) for watch in self._unclosed if watch.key not in found]
            self._wanted = [(key, expr) for key, expr in closed if expr is not FALSE]
            self._unclosed = ()
        if not self._wanted:
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
            found[key] = Find(level, tuple(int(c[row]) for c in columns), self._step)

    def _forget(self, found: dict[WatchKey, Find]) -> None:
        self._wanted = [(key, expr) for key, expr in self._wanted if key not in found]
        self._evaluate = None

    def _compile(self) -> None:
        open_ = [(key, expr) for key, expr in self._wanted if expr is not TRUE]
        self._compiled = [key for key, _ in open_]
        self._evaluate = conditions(self._layout, [expr for _, expr in open_]) if open_ else lambda *_: ()


class _Idle:
    """Conditions on the states where none of the given steps is taken."""

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
        by_instance: dict[int, list[Watch]] = {}
        by_idle: dict[frozenset[int], list[Watch]] = {}
        for watch in watches:
            if watch.instance is not None:
                by_instance.setdefault(watch.instance.number, []).append(watch)
            else:
                by_idle.setdefault(frozenset(i.number for i in watch.idle), []).append(watch)

        def closed(watch: Watch) -> Expr:
            return kernel.closed(watch.expr, watch.binding)

        def known(watch: Watch) -> Expr:
            assert watch.instance is not None
            return steps[watch.instance.number].known(closed(watch))

        self._everywhere = _Group(layout, by_idle.pop(frozenset(), []), closed)
        self._idle = [_Idle(numbers, _Group(layout, wanted, closed)) for numbers, wanted in by_idle.items()]
        self._by_instance = {n: _Group(layout, wanted, known, n) for n, wanted in by_instance.items()}

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
