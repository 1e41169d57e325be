"""The watches of a vectorised search, evaluated on whole frontiers until each is found once.

A condition is made ground and compiled when the first states must be checked: a step that is never taken costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from ...language.expressions import FALSE, TRUE, Expr
from ..kernel import Kernel, Watch, WatchKey
from .packing import CHUNK, Columns, Layout, Mask, Rows
from .vectorise import Step, Taken, conditions

WASTED_MAX = 1 << 15  # rows on which to evaluate found conditions costs about as much as to compile the others


@dataclass(frozen=True, slots=True)
class Find:
    """Where a watch was first seen: the level and words of the state, and the number of the step taken from it."""

    level: int
    words: tuple[int, ...]
    step: int | None


@dataclass(slots=True)
class _Finds:
    """The finds of a search so far, and the level that is being evaluated.

    A chunk may have several parts of `chunk` states. If a key has several finds in a chunk, the find in the first part
    counts, and within a part the find of the first step. So the finds do not depend on the size of the chunks.
    """

    found: dict[WatchKey, Find]
    chunk: int
    level: int = 0
    parts: dict[WatchKey, int] = field(default_factory=dict)  # the number of the part of each find in this chunk

    def done(self, key: WatchKey) -> bool:
        """Whether the watch was found in an earlier chunk: then no further find counts."""
        return key in self.found and key not in self.parts

    def note(self, key: WatchKey, row: int, find: Callable[[], Find]) -> None:
        """Record that the watch occurs at this row of the chunk."""
        part = row // self.chunk
        if key not in self.found or part < self.parts.get(key, 0):
            self.found[key], self.parts[key] = find(), part


class _Group:
    """Conditions that are evaluated on the same rows. Found ones are dropped, and the others compiled again if it pays.

    A find of a condition that was found in an earlier chunk does not count, so to evaluate it again is harmless.
    """

    def __init__(
        self, layout: Layout, watches: Sequence[Watch], ground: Callable[[Watch], Expr],
        step: int | None = None,
    ) -> None:  # fmt: skip
        self._layout = layout
        self._asked = watches
        self._ground = ground
        self._wanted: list[tuple[WatchKey, Expr]] = []
        self._step = step
        self._evaluate: Callable[..., tuple[Mask, ...]] | None = None
        self._compiled: list[WatchKey] = []
        self._wasted = 0  # rows on which a condition that is found already was evaluated

    def open(self, finds: _Finds) -> Sequence[tuple[WatchKey, Expr]]:
        """The conditions that are not found yet, as ground trees."""
        if self._asked:
            ground = [(watch.key, self._ground(watch)) for watch in self._asked if not finds.done(watch.key)]
            self._wanted = [(key, expr) for key, expr in ground if expr is not FALSE]
            self._asked = ()
        if any(finds.done(key) for key, _ in self._wanted):
            self._wanted = [(key, expr) for key, expr in self._wanted if not finds.done(key)]
            self._wasted = max(self._wasted, 1)
        return self._wanted

    def look(self, columns: Columns, finds: _Finds, rows: Rows | None = None) -> None:
        """Evaluate states of a chunk: the states at `rows`, or by default the first ones."""
        if not len(columns[0]):
            return
        self.open(finds)
        if not self._wanted:
            return
        for key, expr in self._wanted:
            if expr is TRUE:
                self._note(key, columns, 0, finds, rows)
        self._wasted += self._wasted and len(columns[0])
        if self._evaluate is None or self._wasted > WASTED_MAX:
            self._evaluate = self._compiled_wanted()
        firsts = self._layout.first(self._evaluate(*columns))
        for key, row in zip(self._compiled, firsts, strict=True):
            if row is not None:
                self._note(key, columns, row, finds, rows)

    def _note(self, key: WatchKey, columns: Columns, row: int, finds: _Finds, rows: Rows | None) -> None:
        at = row if rows is None else int(rows[row])
        finds.note(key, at, lambda: Find(finds.level, tuple(int(c[row]) for c in columns), self._step))

    def _compiled_wanted(self) -> Callable[..., tuple[Mask, ...]]:
        open_ = [(key, expr) for key, expr in self._wanted if expr is not TRUE]
        self._compiled, self._wasted = [key for key, _ in open_], 0
        return conditions(self._layout, [expr for _, expr in open_]) if open_ else lambda *_: ()


class _Idle:
    """Conditions on the states where none of the given steps is taken."""

    def __init__(self, numbers: frozenset[int], group: _Group) -> None:
        self.numbers = numbers
        self.group = group
        self.busy: Mask  # the states of the chunk where one of the steps is taken


class Watching:
    """All watches of one search. For each chunk, call `begin`, `step` for each step taken, and `end`.

    Each find goes into `found`, which is kept if the search is interrupted.
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

        def ground(watch: Watch) -> Expr:
            return kernel.ground(watch.expr, watch.binding)

        def known(watch: Watch) -> Expr:
            assert watch.instance is not None
            return steps[watch.instance.number].known(ground(watch))

        self._everywhere = _Group(layout, by_idle.pop(frozenset(), []), ground)
        self._idle = [_Idle(numbers, _Group(layout, wanted, ground)) for numbers, wanted in by_idle.items()]
        self._by_instance = {n: _Group(layout, wanted, known, n) for n, wanted in by_instance.items()}

    def part(self, size: int) -> None:
        """The states of a part of a chunk, from now on."""
        self._finds.chunk = size

    def begin(self, columns: Columns, level: int) -> None:
        """Begin a chunk of new states."""
        self._finds.level = level
        self._finds.parts.clear()
        self._columns = columns
        self._everywhere.look(columns, self._finds)
        for idle in self._idle:
            idle.busy = self._arrays.falses(columns[0])

    def apart(self, number: int) -> bool:
        """Whether `step` needs this step by its number."""
        if any(number not in idle.numbers for idle in self._idle):
            return True
        return number in self._by_instance and bool(self.open_of(number))

    def step(self, number: int, taken: Taken) -> None:
        """Evaluate the states of the chunk where an instance takes a step."""
        group = self._by_instance.get(number)
        if group is not None:
            group.look(taken.before, self._finds, taken.rows)
        for idle in self._idle:
            if number in idle.numbers:
                idle.busy[taken.rows] = True

    def steps(self, rows: Rows, count: int) -> None:
        """Note the states, by their rows modulo `count`, where some steps are taken that need not be `apart`."""
        for idle in self._idle:
            idle.busy[rows % count] = True

    def open_of(self, number: int) -> Sequence[tuple[WatchKey, Expr]]:
        """The conditions not found yet on states where an instance takes a step. The step is activated."""
        group = self._by_instance.get(number)
        return () if group is None else group.open(self._finds)

    @property
    def idle_of(self) -> tuple[frozenset[int], ...]:
        """The groups of steps with a watch for states where none of them is taken."""
        return tuple(idle.numbers for idle in self._idle)

    def busy(self, masks: Iterable[Mask]) -> None:
        """Set, for each group of `idle_of`, the states of the chunk where a step of the group is taken."""
        for idle, mask in zip(self._idle, masks, strict=True):
            idle.busy = mask

    def end(self) -> None:
        """End the chunk, after every step from it."""
        for idle in self._idle:
            rows = self._arrays.flatnonzero(~idle.busy)
            idle.group.look(tuple(self._arrays.take(c, rows) for c in self._columns), self._finds, rows)
