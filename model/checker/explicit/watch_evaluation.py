"""The watches of a vectorised search, evaluated on whole frontiers until each is found once.

A condition is closed and compiled when there are first states to look at: a step that is never taken costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from ...language.expressions import FALSE, TRUE, Expr
from ..kernel import Kernel, Watch, WatchKey
from .packing import CHUNK, Columns, Layout, Mask, Rows
from .vectorise import Step, Taken, conditions


@dataclass(frozen=True, slots=True)
class Find:
    """Where a watch was first seen: the level and words of the state, and the number of the step taken from it."""

    level: int
    words: tuple[int, ...]
    step: int | None


@dataclass(slots=True)
class _Finds:
    """The finds of a search so far, and the level that is looked at.

    A chunk may be as large as several of `CHUNK` states. Of the finds of one key in it that in the first of these
    counts, and there that of the first step: so the finds do not depend on how large the chunks are.
    """

    found: dict[WatchKey, Find]
    chunk: int
    level: int = 0
    parts: dict[WatchKey, int] = field(default_factory=dict)  # of the finds in this chunk: in which of its parts

    def done(self, key: WatchKey) -> bool:
        """Is the watch found, and no find of it counts any more?"""
        return key in self.found and key not in self.parts

    def note(self, key: WatchKey, row: int, find: Callable[[], Find]) -> None:
        """The watch occurs at this row of the chunk."""
        part = row // self.chunk
        if key not in self.found or part < self.parts.get(key, 0):
            self.found[key], self.parts[key] = find(), part


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

    def open(self, finds: _Finds) -> Sequence[tuple[WatchKey, Expr]]:
        """The conditions that are not found, closed."""
        if self._unclosed:
            closed = [(watch.key, self._close(watch)) for watch in self._unclosed if not finds.done(watch.key)]
            self._wanted = [(key, expr) for key, expr in closed if expr is not FALSE]
            self._unclosed = ()
        if any(finds.done(key) for key, _ in self._wanted):
            self._wanted = [(key, expr) for key, expr in self._wanted if not finds.done(key)]
            self._evaluate = None
        return self._wanted

    def look(self, columns: Columns, finds: _Finds, rows: Rows | None = None) -> None:
        """Look at states of a chunk: those at `rows`, without it the first ones."""
        if not len(columns[0]):
            return
        self.open(finds)
        if not self._wanted:
            return
        for key, expr in self._wanted:
            if expr is TRUE:
                self._note(key, columns, 0, finds, rows)
        if self._evaluate is None:
            self._compile()
        assert self._evaluate is not None
        firsts = self._layout.first(self._evaluate(*columns))
        for key, row in zip(self._compiled, firsts, strict=True):
            if row is not None:
                self._note(key, columns, row, finds, rows)

    def _note(self, key: WatchKey, columns: Columns, row: int, finds: _Finds, rows: Rows | None) -> None:
        at = row if rows is None else int(rows[row])
        finds.note(key, at, lambda: Find(finds.level, tuple(int(c[row]) for c in columns), self._step))

    def _compile(self) -> None:
        open_ = [(key, expr) for key, expr in self._wanted if expr is not TRUE]
        self._compiled = [key for key, _ in open_]
        self._evaluate = conditions(self._layout, [expr for _, expr in open_]) if open_ else lambda *_: ()


class _Idle:
    """Conditions on the states where none of the given steps is taken."""

    def __init__(self, numbers: frozenset[int], group: _Group) -> None:
        self.numbers = numbers
        self.group = group
        self.busy: Mask  # of the chunk


class Watching:
    """All watches of one search. Call `begin`, `step` for each step taken, and `end`, chunk by chunk.

    Each find goes into `found`, which outlives a search that is cut off.
    """

    def __init__(
        self, kernel: Kernel, layout: Layout, watches: Iterable[Watch], steps: Sequence[Step],
        found: dict[WatchKey, Find], chunk: int = CHUNK,
    ) -> None:  # fmt: skip
        self.found = found
        self._finds = _Finds(found, chunk)
        self._arrays = layout.arrays
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
        self._finds.level = level
        self._finds.parts.clear()
        self._columns = columns
        self._everywhere.look(columns, self._finds)
        for idle in self._idle:
            idle.busy = self._arrays.falses(columns[0])

    def step(self, number: int, taken: Taken) -> None:
        """An instance takes a step from some states of the chunk."""
        group = self._by_instance.get(number)
        if group is not None:
            group.look(taken.before, self._finds, taken.rows)
        for idle in self._idle:
            if number in idle.numbers:
                idle.busy[taken.rows] = True

    def open_of(self, number: int) -> Sequence[tuple[WatchKey, Expr]]:
        """The conditions on the states where an instance takes a step that are not found; the step is met."""
        group = self._by_instance.get(number)
        return () if group is None else group.open(self._finds)

    @property
    def idle_of(self) -> tuple[frozenset[int], ...]:
        """The groups of steps whose rest is watched."""
        return tuple(idle.numbers for idle in self._idle)

    def busy(self, masks: Iterable[Mask]) -> None:
        """In which states of the chunk a step of each group of `idle_of` is taken."""
        for idle, mask in zip(self._idle, masks, strict=True):
            idle.busy = mask

    def end(self) -> None:
        """Every step of the chunk has been seen."""
        for idle in self._idle:
            rows = self._arrays.flatnonzero(~idle.busy)
            idle.group.look(tuple(self._arrays.take(c, rows) for c in self._columns), self._finds, rows)
