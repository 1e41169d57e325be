"""Steps of interchangeable members: the step of the first member is compiled, and taken for all members at once.

*Theory of operation.* If no tree of a transition distinguishes the members of an index, the step of member j from a
state is the step of member 0 from the state in which the cells of 0 and j are swapped, and its result is swapped back.
So one compiled function runs over the states of a chunk and their swapped copies. In a small chunk, a call of NumPy
costs more than its work. In a large chunk the copies cost more, and each step runs on its own (`SMALL`).

The judgement is the same as for the reduction by symmetry, but for each transition: no other declaration matters.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from ...language.expressions import parts
from ...language.sorts import Sort
from ...language.transitions import Transition
from ..kernel import Kernel
from .packing import Columns, Layout, Rows
from .symmetry import distinguishes
from .vectorise import Step, Taken
from .watch_evaluation import Watching

SMALL = 1 << 14  # states of a chunk
COPIES_MAX = 1 << 16  # states of a chunk and of its copies

Moves = tuple[
    tuple[int, int, int, int], ...
]  # cells are swapped: word, other word, its further shift, mask in the first


def swapped(columns: Columns, moves: Moves) -> Columns:
    """The same states with some cells swapped."""
    out = list(columns)
    for word, other, shift, mask in moves:
        moved = (out[word] ^ (out[other] >> shift)) & mask
        out[word] = out[word] ^ moved
        out[other] = out[other] ^ (moved << shift)
    return tuple(out)


@dataclass(frozen=True, slots=True)
class Alike:
    """The steps of one transition that differ only in the member of `sort`, in the order of members; or one step."""

    sort: Sort | None
    numbers: tuple[int, ...]


class _Copies:
    """The states of a chunk, swapped for each member, and the steps that are taken together."""

    def __init__(self, columns: Columns, moves: Sequence[Moves]) -> None:
        self.columns = tuple(map(np.concatenate, zip(*(swapped(columns, each) for each in moves), strict=True)))
        self.count = len(columns[0])
        self.steps: dict[tuple[int, frozenset[int]], list[tuple[Rows, Columns]]] = {}  # keys: member, written words
        self._ends = np.arange(1, len(moves)) * self.count

    def parts(self, rows: Rows) -> Iterator[tuple[int, slice]]:
        """The rows of each member that has some."""
        for member, (start, stop) in enumerate(pairwise([0, *rows.searchsorted(self._ends).tolist(), len(rows)])):
            if start < stop:
                yield member, slice(start, stop)


class Members:
    """The steps of a kernel; steps of interchangeable members are taken together."""

    def __init__(self, kernel: Kernel, layout: Layout, steps: Sequence[Step]) -> None:
        self._kernel = kernel
        self._layout = layout
        self._steps = steps
        self._moves: dict[Sort, tuple[Moves, ...]] = {}
        self._words: dict[int, frozenset[int]] = {}

    def taken(self, columns: Columns, watching: Watching) -> Iterator[tuple[int | None, Taken]]:
        """Each step that is taken from these states, by its number, in ascending order.

        If `watching` needs no step of a transition by itself, these steps are taken together, without a number. Their
        words before are the words after that they do not write; the others are empty.
        """
        copies: dict[Sort, _Copies] = {}
        for alike in self._alike:
            found: dict[int, Taken] = {}
            for steps in alike:
                sort = steps.sort
                if sort is None or sort.size * len(columns[0]) > COPIES_MAX:
                    runs = ((number, self._steps[number].run(columns)) for number in steps.numbers)
                    found.update((number, taken) for number, taken in runs if taken is not None)
                    continue
                met = [self._steps[number].meets(columns) for number in steps.numbers]
                if not any(met):
                    continue
                if sort not in copies:
                    copies[sort] = _Copies(columns, self._moves_of(sort))
                taken = self._steps[steps.numbers[0]].taken(copies[sort].columns)
                if taken is None:
                    continue
                apart = any(map(watching.apart, steps.numbers)) or not (taken.inside is None or taken.inside.all())
                if not apart:
                    watching.steps(taken.rows, len(columns[0]))
                for member, here in copies[sort].parts(taken.rows):
                    if apart:
                        found[steps.numbers[member]] = self._of_member(steps, member, taken, here, len(columns[0]))
                    else:
                        key = member, self._written(steps, member)
                        part = taken.rows[here], tuple([column[here] for column in taken.after])
                        copies[sort].steps.setdefault(key, []).append(part)
            yield from sorted(found.items())
        for sort, of in copies.items():
            for (member, written), together in of.steps.items():
                rows, parts = zip(*together, strict=True)
                after = tuple(map(np.concatenate, zip(*parts, strict=True)))
                after = swapped(after, self._moves_of(sort)[member])
                before = tuple(word[:0] if j in written else word for j, word in enumerate(after))
                yield None, Taken(np.concatenate(rows) - member * of.count, before, after, None)

    def _of_member(self, alike: Alike, member: int, taken: Taken, here: slice, count: int) -> Taken:
        """The step of a member, from its step on swapped states."""
        assert alike.sort is not None
        moves, written = self._moves_of(alike.sort)[member], self._written(alike, member)
        before, after = (swapped(tuple(c[here] for c in of), moves) for of in (taken.before, taken.after))
        after = tuple(then if j in written else now for j, (then, now) in enumerate(zip(after, before, strict=True)))
        inside = None if taken.inside is None else taken.inside[here]
        return Taken(taken.rows[here] - member * count, before, after, inside)

    def _moves_of(self, sort: Sort) -> tuple[Moves, ...]:
        """For each member, the moves that swap its cells and the cells of the first member."""
        if sort not in self._moves:
            self._moves[sort] = tuple(self._swap(sort, member) for member in range(sort.size))
        return self._moves[sort]

    def _swap(self, sort: Sort, member: int) -> Moves:
        masks: dict[tuple[int, int, int], int] = {}
        for k in {*self._cells[sort, 0], *self._cells[sort, member]}:
            other = self._other(k, sort, member)
            a, b = self._layout.places[k], self._layout.places[other]
            # A cell that is constant for some members has no bits there. The step does not read it: it stays.
            if a.bits and a.bits == b.bits and (a.shift, a.word, k) < (b.shift, b.word, other):
                key = a.word, b.word, b.shift - a.shift
                masks[key] = masks.get(key, 0) | a.mask
        return tuple((*key, mask) for key, mask in masks.items())

    @cached_property
    def _cells(self) -> dict[tuple[Sort, int], list[int]]:
        """The cells of each member of an index."""
        found: dict[tuple[Sort, int], list[int]] = defaultdict(list)
        for k, cell in enumerate(self._layout.cells):
            for member in zip(cell.slot.dims, cell.indices, strict=True):
                found[member].append(k)
        return found

    def _other(self, k: int, sort: Sort, member: int) -> int:
        """The cell that takes the place of a cell."""
        cell, names = self._layout.cells[k], {0: member, member: 0}
        pairs = zip(cell.indices, cell.slot.dims, strict=True)
        return self._layout.position[cell.slot.name, tuple(names.get(i, i) if d is sort else i for i, d in pairs)]

    def _written(self, alike: Alike, member: int) -> frozenset[int]:
        """The words that the step of a member writes."""
        assert alike.sort is not None
        number = alike.numbers[member]
        if number not in self._words:
            cells = (self._other(k, alike.sort, member) for k in self._steps[alike.numbers[0]].effects)
            self._words[number] = frozenset(self._layout.places[k].word for k in cells)
        return self._words[number]

    @cached_property
    def _alike(self) -> list[list[Alike]]:
        """The steps of each transition."""
        found: dict[Transition, dict[object, list[int]]] = {}
        sorts: dict[Transition, Sort | None] = {}
        for instance in self._kernel.instances:
            t = instance.transition
            if t not in sorts:
                sorts[t] = self._exchanged(t)
            pairs = zip(instance.indices, t.params, strict=True)
            others = tuple(-1 if p.sort is sorts[t] else i for i, p in pairs)
            found.setdefault(t, {}).setdefault(others, []).append(instance.number)
        return [[Alike(sorts[t], tuple(numbers)) for numbers in each.values()] for t, each in found.items()]

    def _exchanged(self, t: Transition) -> Sort | None:
        """The index of one parameter of the transition whose members it does not distinguish."""
        sorts = [p.sort for p in t.params]
        trees = (t.guard, *t.effects.values())
        for sort in sorts:
            alike = sort.kind == "index" and sorts.count(sort) == 1 and self._alike_cells(t, sort)
            if alike and not any(distinguishes(tree, sort) for tree in trees):
                return sort
        return None

    def _alike_cells(self, t: Transition, sort: Sort) -> bool:
        """Whether no field of the step has members as values, or cells that never change for some members only."""
        names = {part.name for tree in (t.guard, *t.effects.values()) for part in parts(tree) if part.op == "read"}
        for slot in (self._kernel.system.slots[name] for name in {*names, *t.effects}):
            if slot.sort.kind == "index" and slot.sort.name == sort.name:  # the field may also hold none
                return False
            if sort in slot.dims and slot.name in self._uneven:
                return False
        return True

    @cached_property
    def _uneven(self) -> set[str]:
        """The fields whose cells do not all have the same value for ever, or may all change."""
        values: dict[str, set[int | None]] = defaultdict(set)
        for k, cell in enumerate(self._layout.cells):
            values[cell.slot.name].add(self._kernel.constant_cells.get(k))
        return {name for name, each in values.items() if len(each) > 1}
