"""The interface of a storage: it holds the states that have no room in memory, and a search that is to go on later.

*Theory of operation.* A search with a storage holds each level as a `Run` in it: sorted keys in blocks that are read
when they are needed, so that memory has a few blocks of each. `union` merges runs block by block, and `Run.has` looks
sorted keys up in the blocks that can have them: a run is read from beginning to end, at most once for each level.

At the end of a level, where the storage says that it is time, the search saves its levels and what it has found
(`Saved`). A search whose storage has a saved one with the same `fingerprint` resumes that: the states of another
system, or of another layout, would be misread.

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
from ...language.expressions import Expr, Role
from ..kernel import Kernel, Watch, WatchKey, WatchKind
from .packing import Keys, Layout, Mask
from .watch_evaluation import Find

BLOCK = 1 << 16  # keys: what a merge holds of each run, and reads at a time


class StorageFailed(LimitReached):
    """States cannot be kept, or are not as they were kept: the search stops, and its last checkpoint stays."""


class Run:
    """Sorted keys without repetitions, outside of memory: block k begins with `firsts[k]`, and ends before `ends[k]`.

    Raises:
        StorageFailed: a block cannot be read; so does each method that reads one.
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
        """A block of which the next slice has more."""
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
    """The keys of all runs, sorted and without repetitions, in blocks; in memory are a few blocks of each run."""
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
        # All keys up to the least of the last keys are here: no reader has another.
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
    """A search at the end of a level: all levels, and what was found in all of them but the last.

    The states of the first levels, as many as `merged` has, are there as well: in few runs, for look-ups. If the search
    is `over`, the last level was searched too, and has no new successors.
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
        memory_bytes: for the states that a search holds in memory, all together.
    """

    def __init__(self, memory_bytes: int) -> None:
        self.memory_bytes = memory_bytes

    @abstractmethod
    def begin(self, layout: Layout, fingerprint: Mapping[str, str]) -> Saved | None:
        """Return the last `Saved`, if there is one.

        Raises:
            UsageError: that is of another search, or damaged.
            StorageFailed: it cannot be read.
        """

    @property
    @abstractmethod
    def due(self) -> bool:
        """Whether it is time to save."""

    @abstractmethod
    def write(self, runs: Iterable[Iterable[Keys]]) -> list[Run]:
        """Keep runs, each given in blocks of at most `BLOCK` keys, none of them empty.

        Raises:
            StorageFailed: there is no room.
        """

    @abstractmethod
    def save(self, saved: Saved) -> None:
        """Put it in the place of the last one, whole or not at all. Runs that it lacks go once nothing uses them.

        Raises:
            StorageFailed: there is no room.
        """


# ---- the fingerprint of a search


def fingerprint(kernel: Kernel, layout: Layout, symmetry: bool, watches: Iterable[Watch]) -> dict[str, str]:
    """The states that a search meets, how they are packed, and the questions: part by part, alike in each process."""
    system, trees = kernel.system, _Trees()
    slots = [(s.name, trees.sort(s.sort), [*map(trees.sort, s.dims)], s.initial) for s in system.slots.values()]
    steps = [
        (
            t.name, t.kind.name, t.fair, t.fault, [(p.name, trees.sort(p.sort)) for p in t.params], trees.text(t.guard),
            sorted((name, trees.text(body)) for name, body in t.effects.items()),
            [(type(a.source).__name__, a.source.name, a.dest.name, a.of) for a in t.arcs],
        ) for t in system.transitions
    ]  # fmt: skip
    asked = sorted({(key.kind.value, *map(str, key[1:])) for key in _keys_of(watches)})
    machines = [(name, trees.text(machine.control)) for name, machine in system.machines.items()]
    properties = [
        (p.name, p.form.name, [*map(trees.text, p.exprs)],
         [(name, trees.text(tree)) for name, tree in (p.conditions or {}).items()]) for p in system.properties
    ]  # fmt: skip
    places = [(p.word, p.shift, p.bits, p.low, p.high) for p in layout.places]
    return {
        "system": system.label,
        "declaration": _digest((slots, steps, trees.text(system.terminal))),
        "reduction": "symmetry" if symmetry else "none",
        "layout": f"{layout.words} words, {_digest(places)}",
        "set of properties": _digest((asked, machines, properties)),
    }


def _keys_of(watches: Iterable[Watch]) -> Iterator[WatchKey]:
    """Of a range, whose subject is a line of source, only that it is asked."""
    for key in (watch.key for watch in watches):
        yield key._replace(subject="") if key.kind is WatchKind.RANGE else key


def _digest(value: object) -> str:
    return blake2b(repr(value).encode(), digest_size=8).hexdigest()


class _Trees:
    """Trees as texts that are the same in each process; equal parts are told once."""

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
            number = expr.number if expr.role is Role.PLACEHOLDER else 0  # of others it counts this process's variables
            return [expr.name, str(expr.role), str(number)]
        args = [self.text(x) if isinstance(x, Expr) else repr(x) for x in expr.args]
        return sorted(args) if expr.op in ("eq", "and", "add") else args  # in the order in which they were made
