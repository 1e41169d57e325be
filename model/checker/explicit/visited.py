"""The set of states seen, as a few sorted runs: no table, no hash, eight bytes a word.

Successors and runs are cut into ranges of keys before they are sorted, merged or looked up (`workers`). Equal keys are
in one range, so no range needs another, and the results of all ranges stand one after the other in order.

With a `storage`, memory has a share of the set and of the level that is gathered; the rest is in runs of the storage.
New states are compared with these runs only once for a level, if the level fits in memory. Of the memory, `Visited`
takes up to a fifth, and half while it merges; `NextLevel` up to a tenth, and a third while it sorts.
"""

from __future__ import annotations

import sys
from itertools import accumulate
from typing import Any

import numpy as np

from .packing import Columns, Keys, Layout, Rows
from .storage import Level, Run, Storage, cut, union
from .workers import Workers

RUN_RATIO = 6  # a run at least this much longer than the next: few runs to search, each state merged few times
CODED_MIN = 1 << 16  # states of a search that gets codes (`codes`): below, the tables cost more than they save
PENDING_MIN = 1 << 20  # successors to gather before they are compared with the set


class Visited:
    """Sorted runs without repetitions or overlaps."""

    def __init__(self, layout: Layout, workers: Workers, storage: Storage | None = None) -> None:
        self._layout = layout
        self._workers = workers
        self._runs: list[Keys] = []
        self.storage = storage
        self.stored: list[Run] = []  # of the first states that were added
        self.keys_max = storage.memory_bytes // layout.state_bytes // 5 if storage is not None else 0
        self.count = 0
        self.codes: Any = None
        self.codes_min = CODED_MIN if layout.words > 2 and storage is None else sys.maxsize

    @property
    def pays(self) -> bool:
        """Is the set to be held as it is, and not in another way?"""
        return self.count < self.codes_min

    @property
    def bytes(self) -> int:
        """Taken by the states."""
        # The levels stay; merging runs holds the set twice for a moment, and its sort half of it once more. A storage
        # keeps the levels to their share of the memory.
        return (self.count * 7 // 2 if self.storage is None else self.held * 5 // 2) * self._layout.state_bytes

    def next_level(self, room: int) -> NextLevel:
        """For the successors of a level, of which so many may be new."""
        return NextLevel(self._layout, self, room, self._workers)

    @property
    def held(self) -> int:
        """Keys in memory."""
        return sum(map(len, self._runs))

    def unseen(self, keys: Keys) -> Keys:
        """Those of the sorted keys that are not in the set, as far as that is in memory."""
        for run in reversed(self._runs):  # the latest run first: most repetitions are near
            if not len(keys):
                break
            keys = keys[~self._layout.seen(keys, run)]
        return keys

    def not_stored(self, keys: Keys) -> Keys:
        """Those of the sorted keys that are not in the part of the set that is not in memory."""
        for run in reversed(self.stored):
            if len(keys):
                keys = keys[~run.has(keys)]
        return keys

    def add(self, fresh: Level) -> None:
        """Add sorted keys, at least one, and none of them in the set."""
        self.count += len(fresh)
        if isinstance(fresh, Run):
            self._store([fresh])
            return
        self._runs.append(fresh)
        while len(self._runs) > 1 and self._is_worth_merging(*map(len, self._runs[-2:])):
            self._merge_last()
        if self.storage is not None and self.held > self.keys_max:
            self._store([])

    def _store(self, further: list[Run]) -> None:
        """Take everything out of memory, and put it, and `further` runs, into the storage."""
        assert self.storage is not None
        merged = self.storage.write([union(self._layout, self._runs)]) if self._runs else []
        self.stored = _few(self._layout, self.storage, [*self.stored, *merged, *further])
        self._runs = []

    def _is_worth_merging(self, older: int, newer: int) -> bool:
        return older < RUN_RATIO * newer and older + newer <= self._layout.run_max

    def release(self) -> None:
        """Let go of the states, and keep their count: nothing can be looked up any more."""
        self._runs.clear()

    @property
    def released(self) -> bool:
        """Has it let go of its states?"""
        return self.count > 0 and not self._runs and not self.stored

    def merged(self) -> Keys:
        """Every state, sorted; all of them in memory."""
        if self.stored:
            merged, start = np.empty(self.count, self._layout.dtype), 0
            for part in union(self._layout, [*self.stored, *self._runs]):
                merged[start : start + len(part)] = part
                start += len(part)
            self.stored, self._runs = [], [merged]
        while len(self._runs) > 1:
            self._merge_last()
        return self._runs[0]

    def _merge_last(self) -> None:
        pair = self._runs[-2:]
        del self._runs[-2:]
        if self._workers.ranges < 2:
            together = self._layout.concatenated(pair)
            del pair
            self._runs.append(self._layout.sort(together))
            return
        merged = np.empty(sum(map(len, pair)), self._layout.dtype)
        ranges = self._workers.cut(pair)
        ends = list(accumulate(sum(map(len, runs)) for runs in ranges))

        def merge(part: int) -> None:
            place = merged[ends[part - 1] if part else 0 : ends[part]]
            np.concatenate(ranges[part], out=place)
            place.sort(kind="stable")

        self._workers.each(merge, range(len(ranges)))
        self._runs.append(merged)


def _few(layout: Layout, storage: Storage, runs: list[Run]) -> list[Run]:
    """The same keys in few runs, of which each is a good deal longer than the next."""
    while len(runs) > 1 and len(runs[-2]) < RUN_RATIO * len(runs[-1]):
        runs[-2:] = storage.write([union(layout, runs[-2:])])
    return runs


class Successors:
    """Gathers the states after the steps that are taken from the states of one chunk."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._after: list[Columns] = []

    def add(self, after: Columns, rows: Rows | None = None, before: Columns = ()) -> None:
        """Add the states after a step. With the rows of the chunk and the states there, a word that stays is one array.

        Args:
            after: the words after the step.
            rows: from which states of the chunk.
            before: their words.
        """
        self._after.append(after)

    def finish(self) -> tuple[Keys, Keys, int]:
        """All of them, sorted; beside codes, those that have none, sorted; and how many bytes were in memory."""
        joined = self._layout.joined(self._after)
        held = 2 * joined.nbytes
        return self._layout.sort_unique(joined), self._layout.concatenated([]), held


class NextLevel:
    """Gathers the successors of one level, and keeps only those that are new."""

    def __init__(self, layout: Layout, visited: Visited, room: int, workers: Workers) -> None:
        self._layout = layout
        self._visited = visited
        self._workers = workers
        self._room = room  # new states that the limit still allows
        self._new: list[Keys] = []  # sorted, without repetitions: one after the other in order
        self._batches: list[Run] = []  # new states that had no room in memory
        self._keys_max = visited.keys_max // 2
        self._sifted = True  # the new states have been compared with those that are not in memory
        self._pending: list[Keys] = []
        self._waiting = 0

    @property
    def waiting(self) -> int:
        """Successors that have not been compared with the set yet."""
        return self._waiting

    @property
    def bytes(self) -> int:
        """Taken by the successors: they are held in batches, joined, and in the workspace of the sort."""
        return 3 * self.held * self._layout.state_bytes

    @property
    def count(self) -> int:
        """New states so far; with a storage, while there is room, some of them may not be new."""
        return sum(map(len, self._new)) + sum(map(len, self._batches))

    @property
    def held(self) -> int:
        """Keys in memory, repetitions included."""
        return sum(map(len, self._new)) + self._waiting

    def add(self, keys: Keys) -> None:
        """Add sorted keys."""
        self._pending.append(keys)
        self._waiting += len(keys)
        # Comparing in large batches saves searches; near the limit every batch counts.
        if self._waiting > PENDING_MIN or self.count + self.waiting > self._room:
            self._settle()
        if self._visited.storage is not None:
            self._keep_within(self._visited.storage)

    def add_novel(self, keys: Keys) -> None:
        """Add sorted keys that no code has."""
        raise NotImplementedError

    def finish(self) -> Level:
        """The new states, sorted."""
        self._settle()
        self._sift()
        if self._batches and self._visited.storage is not None:
            return self._batch(self._visited.storage)
        if len(self._new) == 1:
            return self._new[0]
        return self._layout.concatenated(self._new)

    def _keep_within(self, storage: Storage) -> None:
        """With a storage: know the count exactly where that exceeds the limit, and keep to the memory."""
        if self.count > self._room:
            self._sift()
            if self._batches and self.count > self._room:
                self._batches, self._new = [self._batch(storage)], []
        if self.held > self._keys_max:
            self._settle()
            self._sift()
            if self.held > self._keys_max // 2:
                batch = storage.write([(part for keys in self._new for part in cut(keys))])
                self._batches, self._new = _few(self._layout, storage, [*self._batches, *batch]), []

    def _batch(self, storage: Storage) -> Run:
        """Everything that is new, in one run."""
        (run,) = storage.write([union(self._layout, [*self._batches, *self._new])])
        return run

    def _sift(self) -> None:
        """Keep only those that are not in the part of the set that is not in memory."""
        if not self._sifted and self._visited.stored:
            self._new = self._workers.each(self._visited.not_stored, self._new)
        self._sifted = True

    def _settle(self) -> None:
        if not self._pending:
            return
        pending, new = self._pending, self._new
        self._pending, self._waiting, self._new = [], 0, []

        def settled(runs: list[Keys]) -> Keys:
            keys = self._visited.unseen(self._united(runs[: len(pending)]))
            return self._united([keys, *runs[len(pending) :]])

        self._new = self._workers.each(settled, self._workers.cut([*pending, *new]))
        self._sifted = False

    def _united(self, runs: list[Keys]) -> Keys:
        """Sorted arrays, each without repetitions, as one."""
        runs = [run for run in runs if len(run)] or runs[:1]
        return runs[0] if len(runs) == 1 else self._layout.sort_unique(self._layout.concatenated(runs))
