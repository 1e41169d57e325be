"""The interface of a storage, which holds the states that do not fit in memory, and a search to resume later.

*Theory of operation.* A search with a storage holds each level as a `Run` in it: sorted keys in blocks that are read
when they are needed, so only a few blocks of each run are in memory. `union` merges runs block by block, and `Run.has`
looks sorted keys up in the blocks that can contain them: a run is read in one direction, at most once per level.

At the end of a level, if the storage is `due`, the search saves its levels and its results (`Saved`). A search resumes
a saved search in its storage only if both have the same `fingerprint`: the states of another system, or of another
layout, would be misread.

`trystate/search/spill.py` has the storage that keeps runs in files. This module does no I/O.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ...errors import LimitReached
from ...language.expressions import TRUE, Expr, Role
from ..kernel import Kernel, Watch, WatchKey, WatchKind
from .packing import Keys, Layout, Mask
from .watch_evaluation import Find

BLOCK = 1 << 16  # the keys that a merge reads at once, and holds from each run


class StorageFailed(LimitReached):
    """States cannot be stored, or were read back damaged: the search stops, and its last checkpoint stays."""


class Run:
    """Sorted keys without repetitions, outside of memory: block k begins with `firsts[k]` and ends before `ends[k]`.

    Raises:
        StorageFailed: a block cannot be read; each method that reads a block may raise it.
    """

    def __init__(self, layout: Layout, firsts: Keys, ends: NDArray[np.int64], block: Callable[[int], Keys]) -> None:
        self._layout = layout
        self._firsts = firsts
        self._ends = ends
        self._read = block
        self._last: tuple[int, Keys] | None = None

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def __getitem__(self, rows: slice) -> Keys:
        start, stop, _ = rows.indices(len(self))
        if start >= stop:
            return np.empty(0, self._layout.dtype)
        first, last = np.searchsorted(self._ends, [start, stop - 1], side="right").tolist()
        parts = []
        for number in range(first, last + 1):
            begin = int(self._ends[number - 1]) if number else 0
            parts.append(self._block(number)[max(0, start - begin) : stop - begin])
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def blocks(self) -> Iterator[Keys]:
        """All keys, in order."""
        return map(self._read, range(len(self._ends)))

    def has(self, keys: Keys) -> Mask:
        """Which of the sorted keys are in the run."""
        found = np.zeros(len(keys), np.bool_)
        bounds = [*np.searchsorted(keys, self._firsts).tolist(), len(keys)]
        for number, (start, stop) in enumerate(pairwise(bounds)):
            if start < stop:
                found[start:stop] = self._layout.find(keys[start:stop], self._read(number))[1]
        return found

    def _block(self, number: int) -> Keys:
        """A block; the last one is kept, since the next slice may need more of it."""
        last = self._last
        if last is None or last[0] != number:
            last = self._last = number, self._read(number)
        return last[1]


Level = Keys | Run


def are_in(layout: Layout, keys: Keys, level: Level) -> Mask:
    """Which of the keys, in any order, are in a level."""
    if not isinstance(level, Run):
        return layout.find(keys, level)[1]
    order = np.argsort(keys, kind="stable")
    found = np.empty(len(keys), np.bool_)
    found[order] = level.has(keys[order])
    return found


def cut(keys: Keys) -> Iterator[Keys]:
    """Sorted keys in blocks."""
    return (keys[start : start + BLOCK] for start in range(0, len(keys), BLOCK))


def union(layout: Layout, runs: Iterable[Level]) -> Iterator[Keys]:
    """The keys of all runs, sorted and without repetitions, in blocks; a few blocks of each run are in memory."""
    held: list[Keys] = []
    for keys in _merged(layout, runs):
        held.append(keys)
        if sum(map(len, held)) >= BLOCK:
            joined = np.concatenate(held)
            whole = len(joined) // BLOCK * BLOCK
            yield from cut(joined[:whole])
            held = [joined[whole:]]
    if any(map(len, held)):
        yield np.concatenate(held)


def _merged(layout: Layout, runs: Iterable[Level]) -> Iterator[Keys]:
    readers = [run.blocks() if isinstance(run, Run) else cut(run) for run in runs]
    heads = [(head, reader) for reader in readers if (head := next(reader, None)) is not None]
    while heads:
        # All keys up to the smallest last key of the heads are here: no reader has another.
        bound = np.sort(np.concatenate([head[-1:] for head, _ in heads]), kind="stable")[:1]
        taken, left = [], []
        for head, reader in heads:
            end = int(np.searchsorted(head, bound, side="right")[0])
            taken.append(head[:end])
            rest = head[end:] if end < len(head) else next(reader, None)
            if rest is not None:
                left.append((rest, reader))
        heads = left
        yield layout.sort_unique(np.concatenate(taken))


@dataclass(frozen=True, slots=True)
class Saved:
    """A search at the end of a level: all levels, and the results of all of them except the last.

    `merged` has the states of the first levels again, in few runs, for look-ups. If the search is `over`, the last
    level was searched too and has no new successors.
    """

    levels: Sequence[Run]
    merged: Sequence[Run]
    edges: int
    finds: Mapping[WatchKey, Find]
    met: Sequence[int]
    over: bool


class Storage(ABC):
    """A place for runs, and for one `Saved`. The search calls `begin` once, first.

    Args:
        memory_bytes: the limit for all states that a search holds in memory.
    """

    def __init__(self, memory_bytes: int) -> None:
        self.memory_bytes = memory_bytes

    @abstractmethod
    def begin(self, layout: Layout, fingerprint: Mapping[str, str]) -> Saved | None:
        """Return the last `Saved`, if there is one.

        Raises:
            UsageError: it belongs to another search, or is damaged.
            StorageFailed: it cannot be read.
        """

    @property
    @abstractmethod
    def due(self) -> bool:
        """Whether it is time to save."""

    @abstractmethod
    def write(self, runs: Iterable[Iterable[Keys]]) -> list[Run]:
        """Store runs, each given in nonempty blocks of at most `BLOCK` keys.

        Raises:
            StorageFailed: there is no room.
        """

    @abstractmethod
    def save(self, saved: Saved) -> None:
        """Replace the last `Saved` atomically. Runs that it does not contain are deleted once nothing uses them.

        Raises:
            StorageFailed: there is no room.
        """


# ---- the fingerprint of a search


def fingerprint(
    kernel: Kernel, layout: Layout, symmetry: bool | tuple[str, ...], watches: Iterable[Watch]
) -> dict[str, str]:
    """Texts that identify the states of a search, their layout and the questions; they are equal in each process."""
    system, trees = kernel.system, _Trees()
    slots = [
        (s.name, trees.sort(s.sort), [*map(trees.sort, s.dims)], s.initial, *s.own.values())
        for s in system.slots.values()
    ]
    steps = [
        (
            t.name, t.kind.name, str(t.fair), t.fault,
            [(p.name, trees.sort(p.sort)) for p in t.params], trees.text(t.guard),
            sorted((name, trees.text(body)) for name, body in t.effects.items()),
            [(type(a.source).__name__, a.source.name, a.dest.name, a.of) for a in t.arcs],
        ) for t in system.transitions
    ]  # fmt: skip
    # without the subject of a range: it is a line of source
    keys = (w.key._replace(subject="") if w.key.kind is WatchKind.RANGE else w.key for w in watches)
    asked = sorted({(key.kind.value, *map(str, key[1:])) for key in keys})
    machines = [(name, trees.text(machine.control)) for name, machine in system.machines.items()]
    properties = [
        (p.name, p.form.name, [*map(trees.text, p.exprs)],
         [(name, trees.text(tree)) for name, tree in (p.conditions or {}).items()]) for p in system.properties
    ]  # fmt: skip
    places = [(p.word, p.shift, p.bits, p.low, p.high) for p in layout.places]
    conditions = [system.terminal, *([] if system.initial_condition is TRUE else [system.initial_condition])]
    return {
        "system": system.label,
        "declaration": _digest((slots, steps, *map(trees.text, conditions))),
        "reduction": " ".join(("symmetry", *(symmetry if isinstance(symmetry, tuple) else ()))) if symmetry else "none",
        "layout": f"{layout.words} words, {_digest(places)}",
        "set of properties": _digest((asked, machines, properties)),
    }


def _digest(value: object) -> str:
    return blake2b(repr(value).encode(), digest_size=8).hexdigest()


class _Trees:
    """Trees as texts that are the same in each process; the text of equal parts is computed once."""

    def __init__(self) -> None:
        self._known: dict[Expr, str] = {}

    def sort(self, sort: object) -> str:
        return repr(sort)

    def text(self, expr: Expr) -> str:
        found = self._known.get(expr)
        if found is None:
            found = self._known[expr] = _digest((expr.op, self.sort(expr.sort), self._arguments(expr)))
        return found

    def _arguments(self, expr: Expr) -> list[str]:
        if expr.op == "var":
            number = expr.number if expr.role is Role.PLACEHOLDER else 0  # others are numbered per process
            return [expr.name, str(expr.role), str(number)]
        args = [self.text(x) if isinstance(x, Expr) else repr(x) for x in expr.args]
        return sorted(args) if expr.op in ("eq", "and", "add") else args  # these are in order of creation
