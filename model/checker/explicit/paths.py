"""Shortest paths without parent pointers: from a state back through the levels of the search.

A predecessor of `y` under a step agrees with `y` on every cell that the step does not write, and with the
guard on the cells that it fixes. Few cells are left to guess. So instead of expanding the level before again, the
candidates are generated, stepped and looked up in it. All wanted states are traced back together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from ..interpret import Interpreter
from ..kernel import Kernel, Path, WatchKey
from .packing import CHUNK, Columns, Keys, Layout, Mask, Masked, Place, masks
from .storage import Level, are_in
from .vectorise import Step

if TYPE_CHECKING:
    from .symmetry import Symmetry
    from .watch_evaluation import Find

CANDIDATES_MAX = 1 << 17  # with more guesses, the level before is expanded after all

Words = tuple[int, ...]
Origins = dict[Words, tuple[Words, int]]  # state -> a state of the level before, and the number of the step from it
Plan = tuple[list[Masked], list[Masked], list[Place], list[Masked]]  # cells that a step writes, keeps, frees, clears
Trail = tuple[list[Words], list[int]]  # states from an initial one, and the number of the step between each two


class Trails:
    """Walks back through `levels` (sorted keys, by distance from the initial states)."""

    def __init__(
        self, kernel: Kernel, layout: Layout, steps: Sequence[Step], levels: Sequence[Level],
        symmetry: Symmetry | None = None,
    ) -> None:  # fmt: skip
        self.kernel = kernel
        self._layout = layout
        self._steps = [step for step in steps if step.activated]
        self._levels = levels
        self._plans: dict[int, Plan] = {}
        self._symmetry = symmetry
        self._canonical = None if symmetry is None else symmetry.canonical

    def paths(self, found: dict[WatchKey, Find]) -> dict[WatchKey, Path]:
        """A shortest path for every find; if the find has a step, the path ends with it."""
        trails = self.trails((find.level, find.words) for find in found.values())
        interpreter = Interpreter(self.kernel.system)
        paths = {end: self._concrete(trail) for end, trail in trails.items()}
        out = {}
        for key, find in found.items():
            path = paths[find.level, find.words]
            if find.step is not None:
                after = interpreter.apply(self.kernel.instances[find.step], path.states[-1])
                path = Path((*path.states, after), (*path.steps, find.step))
            out[key] = path
        return out

    def path(self, level: int, words: Words) -> Path:
        """A shortest path to one state."""
        return self._concrete(self.trails([(level, words)])[level, words])

    def _concrete(self, trail: Trail) -> Path:
        if self._symmetry is not None:
            return self._symmetry.concrete(trail)
        states, numbers = trail
        return Path(tuple(map(self._layout.unpack, states)), tuple(numbers))

    def trails(self, ends: Iterable[tuple[int, Words]]) -> dict[tuple[int, Words], Trail]:
        """For each (level, state) a shortest path to it."""
        wanted = set(ends)
        origin: dict[tuple[int, Words], tuple[Words, int]] = {}
        todo: set[Words] = set()
        for level in range(max((level for level, _ in wanted), default=0), 0, -1):
            todo |= {words for at, words in wanted if at == level}
            found = self._predecessors(sorted(todo), self._levels[level - 1])
            origin.update({(level, words): before for words, before in found.items()})
            todo = {words for words, _ in found.values()}
        return {end: _follow(origin, *end) for end in wanted}

    def _predecessors(self, wanted: Sequence[Words], level: Level) -> Origins:
        """For each state, a state of the level before and the number of the step that leads from it."""
        found: Origins = {}
        open_ = list(wanted)
        for step in self._steps:
            if not open_:
                break
            targets = tuple(np.array(column, np.int64) for column in zip(*open_, strict=True))
            found.update(self._back(step, targets, level))
            open_ = [words for words in open_ if words not in found]
        assert not open_, "every state of a level has a predecessor in the level before"
        return found

    def _back(self, step: Step, targets: Columns, level: Level) -> Origins:
        if self._canonical is None:
            guesses = self._guesses(step, targets)
            if guesses is not None:
                return self._match(step, self._plausible(guesses, level), targets, level)
        found: Origins = {}
        for start in range(0, len(level), CHUNK):
            columns = self._layout.columns(level[start : start + CHUNK])
            found = self._match(step, columns, targets, None) | found
            if len(found) == len(targets[0]):
                break
        return self._first(found)

    def _first(self, found: Origins) -> Origins:
        """The first origin of each state in the whole level, from the origins in this process, which has all of it."""
        return found

    def _within(self, keys: Keys, level: Level) -> Mask:
        """Which of the keys are in the level."""
        return are_in(self._layout, keys, level)

    def _plausible(self, guesses: Columns, level: Level) -> Columns:
        """The guesses that are in the level: a look-up takes less time than a step."""
        if not len(guesses[0]):
            return guesses
        inside = are_in(self._layout, self._layout.keys(guesses), level)
        return tuple(column[inside] for column in guesses)

    def _guesses(self, step: Step, targets: Columns) -> Columns | None:
        """Every state that could step to a target, judged by the cells that the step writes or its guard fixes."""
        written, kept, free, cleared = self._plan(step)
        targets = _with(targets, written)
        if not len(targets[0]):
            return targets  # the step writes another value: nothing is guessed, however wide the other fields are
        if len(targets[0]) * prod(1 + p.high - p.low for p in free) > CANDIDATES_MAX:
            return None
        columns = list(_with(targets, kept))
        for word, mask, pattern in cleared:
            columns[word] = columns[word] & ~mask | pattern
        for p in free:
            values = np.arange(1 + p.high - p.low, dtype=np.int64) << p.shift
            columns = [np.repeat(c, len(values)) for c in columns]
            columns[p.word] |= np.tile(values, len(columns[0]) // len(values))
        return tuple(columns)

    def _plan(self, step: Step) -> Plan:
        plan = self._plans.get(step.instance.number)
        if plan is None:
            layout = self._layout
            fixed = {layout.place(read): value.value for read, value in step.facts.items()}
            places = {layout.places[k]: value for k, value in step.effects.items()}
            written = masks([(p, value.value) for p, value in places.items() if value.op == "const"])
            kept = masks([(p, value) for p, value in fixed.items() if p not in places])
            cleared = masks([(p, fixed.get(p, p.low)) for p in places])
            plan = written, kept, [p for p in places if p not in fixed], cleared
            self._plans[step.instance.number] = plan
        return plan

    def _match(
        self, step: Step, columns: Columns, targets: Columns, level: Level | None
    ) -> Origins:  # fmt: skip
        """The given states (only states in `level`, if given) that step to a target, with the target."""
        taken = step.run(columns) if len(columns[0]) else None
        if taken is None:
            return {}
        layout = self._layout
        before = taken.before
        after = taken.after if self._canonical is None else self._canonical(taken.after)
        _, good = layout.find(layout.keys(after), layout.sort_unique(layout.keys(targets).copy()))
        if taken.inside is not None:
            good &= taken.inside
        rows = np.flatnonzero(good)
        if level is not None and len(rows):
            rows = rows[self._within(layout.keys(tuple(c[rows] for c in before)), level)]
        number = step.instance.number
        ends = zip(*(c[rows].tolist() for c in after), strict=True)
        starts = zip(*(c[rows].tolist() for c in before), strict=True)
        out: Origins = {}
        for end, start in zip(ends, starts, strict=True):
            out.setdefault(end, (start, number))
        return out


def _with(columns: Columns, wanted: Iterable[Masked]) -> Columns:
    """The states that have these bits."""
    for word, mask, pattern in wanted:
        same = (columns[word] & mask) == pattern
        columns = tuple(column[same] for column in columns)
    return columns


def _follow(origin: dict[tuple[int, Words], tuple[Words, int]], level: int, words: Words) -> Trail:
    states, numbers = [words], []
    for at in range(level, 0, -1):
        words, number = origin[at, words]
        states.append(words)
        numbers.append(number)
    return states[::-1], numbers[::-1]
