"""The set of states seen, as a few sorted runs: eight bytes per word.

Most successors are states that the search had a moment before, often in the same chunk. `Recent` drops these before
anything is sorted. The others are sorted and compared with the runs.

Successors and runs are cut into ranges of keys before they are sorted, merged or looked up (`workers`). Equal keys are
in one range, so no range needs another, and the results of all ranges in sequence are in order.

With a `storage`, a part of the set and of the next level is in memory; the rest is in runs of the storage.
New states are compared with these runs only once per level, if the level fits in memory. `Visited` takes up to a fifth
of the memory, and half while it merges; `NextLevel` takes up to a tenth, and a third while it sorts.
"""

from __future__ import annotations

import sys
from itertools import accumulate
from typing import Any

import numpy as np

from .packing import Columns, Keys, Layout, Rows, descents, hashed
from .storage import Level, Run, Storage, cut, union
from .workers import Workers

RUN_RATIO = 6  # a run is at least this factor longer than the next: few runs to search, and few merges of each state
CODED_MIN = 1 << 16  # states from which a search uses codes (`codes`): below, the tables cost more than they save
PENDING_MIN = 1 << 20  # successors to gather before they are compared with the set
PIECE = 1 << 13  # successors that are looked up at once: of those that are equal, in one piece, all are kept
RECENT_MIN, RECENT_MAX = 1 << 12, 1 << 18  # slots for recent states: two megabytes for each word
RECENT_RUN = 64  # the average length of runs, in keys, at which sorting all is as fast as dropping recent states


class Visited:
    """Sorted runs without repetitions or overlaps."""

    def __init__(self, layout: Layout, workers: Workers, storage: Storage | None = None) -> None:
        self._layout = layout
        self._workers = workers
        self._runs: list[Keys] = []
        self.storage = storage
        self.stored: list[Run] = []  # the states that were added first
        self.keys_max = storage.memory_bytes // layout.state_bytes // 5 if storage is not None else 0
        self.count = 0
        self.codes: Any = None
        self.recent: list[Recent] = []  # the tables that no chunk has now
        self.codes_min = CODED_MIN if layout.words > 2 and storage is None else sys.maxsize

    def table(self) -> Recent | None:
        """A table for one chunk, which then returns it to `recent`; none on a GPU, which sorts faster."""
        if self._layout.home is not self._layout:
            return None
        try:
            return self.recent.pop()  # one thread gets it
        except IndexError:
            return Recent()

    @property
    def pays(self) -> bool:
        """Whether the present form of the set pays: with codes or without."""
        return self.count < self.codes_min

    @property
    def bytes(self) -> int:
        """The memory of the states."""
        # The levels stay. A merge of runs holds the set twice for a moment, and its sort half of the set again. A
        # storage limits the levels to their share of the memory.
        return (self.count * 7 // 2 if self.storage is None else self.held * 5 // 2) * self._layout.state_bytes

    def next_level(self, room: int) -> NextLevel:
        """A new object to gather the successors of a level; at most `room` of them may be new."""
        return NextLevel(self._layout, self, room, self._workers)

    @property
    def held(self) -> int:
        """The number of keys in memory."""
        return sum(map(len, self._runs))

    def unseen(self, keys: Keys) -> Keys:
        """The sorted keys that are not in the part of the set that is in memory."""
        for run in reversed(self._runs):  # the latest run first: most repetitions are of recent states
            if not len(keys):
                break
            keys = keys[~self._layout.seen(keys, run)]
        return keys

    def not_stored(self, keys: Keys) -> Keys:
        """The sorted keys that are not in the stored part of the set."""
        for run in reversed(self.stored):
            if len(keys):
                keys = keys[~run.has(keys)]
        return keys

    def add(self, fresh: Level) -> None:
        """Add sorted keys: at least one, and only keys that are not in the set."""
        self.append(fresh)
        self.merge()

    def append(self, fresh: Level) -> None:
        """Like `add`, but look-ups take longer until `merge`."""
        self.count += len(fresh)
        if isinstance(fresh, Run):
            self._store([fresh])
            return
        self._runs.append(fresh)
        if self.storage is not None and self.held > self.keys_max:
            self._store([])

    def merge(self) -> None:
        """Merge the last runs, as long as two are of about the same length."""
        while len(self._runs) > 1 and self._is_worth_merging(*map(len, self._runs[-2:])):
            self._merge_last()

    def _store(self, further: list[Run]) -> None:
        """Move everything in memory to the storage, and add `further` runs."""
        assert self.storage is not None
        merged = self.storage.write([union(self._layout, self._runs)]) if self._runs else []
        self.stored = _few(self._layout, self.storage, [*self.stored, *merged, *further])
        self._runs = []

    def _is_worth_merging(self, older: int, newer: int) -> bool:
        return older < RUN_RATIO * newer and older + newer <= self._layout.run_max

    def release(self) -> None:
        """Free the states but keep their count. Afterwards nothing can be looked up."""
        self._runs.clear()

    @property
    def released(self) -> bool:
        """Whether the states have been freed."""
        return self.count > 0 and not self._runs and not self.stored

    def merged(self) -> Keys:
        """Every state, sorted, in memory."""
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
    """The same keys in few runs, each at least `RUN_RATIO` times as long as the next."""
    while len(runs) > 1 and len(runs[-2]) < RUN_RATIO * len(runs[-1]):
        runs[-2:] = storage.write([union(layout, runs[-2:])])
    return runs


class Recent:
    """States that are in the set, or among the successors that were gathered for it: a table with a state per slot.

    A hash of a state selects its slot, and the whole state is compared. A later state replaces the state of its slot.
    So a state may be missing, but each state in the table was gathered: it need not be gathered again. One chunk
    has a table at a time: between the writes of two words, another thread would find a state that was never gathered.
    """

    def __init__(self) -> None:
        self._slots: Columns = ()
        self._added = 0

    @property
    def bytes(self) -> int:
        return sum(column.nbytes for column in self._slots)

    def unknown(self, columns: Columns) -> Columns:
        """The states that are not in the table, in order; they are then added. All states, if they are in long runs."""
        if descents(columns[0]) * RECENT_RUN < len(columns[0]):
            return columns
        kept: list[Columns] = []
        for start in range(0, len(columns[0]), PIECE):
            part = tuple(column[start : start + PIECE] for column in columns)
            self._grow(len(part))
            at = self._at(part)
            differs = self._slots[0].take(at) != part[0]
            for slots, column in zip(self._slots[1:], part[1:], strict=True):
                differs |= slots.take(at) != column
            rows = differs.nonzero()[0]
            part = tuple(column.take(rows) for column in part)
            self._put(at.take(rows), part)
            kept.append(part)
        return tuple(map(np.concatenate, zip(*kept, strict=True))) if kept else columns

    def _at(self, columns: Columns) -> Rows:
        return hashed(columns, len(self._slots[0]).bit_length() - 1)

    def _put(self, at: Rows, columns: Columns) -> None:
        self._added += len(at)
        for slots, column in zip(self._slots, columns, strict=True):
            slots[at] = column

    def _grow(self, words: int) -> None:
        """Double the table, if the states added since it had this size would fill half of it."""
        size = len(self._slots[0]) if self._slots else 0
        if size and (size == RECENT_MAX or 2 * self._added < size):
            return
        held = tuple(slots[self._slots[0] >= 0] for slots in self._slots)
        self._slots = tuple(np.full(max(RECENT_MIN, 2 * size), -1, np.int64) for _ in range(words))
        self._added = 0
        if held:
            self._put(self._at(held), held)


class Successors:
    """Gathers the successors of the states of one chunk, without `recent` states if they are given."""

    def __init__(self, layout: Layout, recent: Recent | None) -> None:
        self._layout = layout
        self._recent = recent
        self._after: list[Columns] = []

    def add(self, after: Columns, rows: Rows | None = None, before: Columns = ()) -> None:
        """Add the states after a step. With `rows` and `before`, a word that stays is the same array before and after.

        Args:
            after: the words after the step.
            rows: the states of the chunk that take the step.
            before: the words of these states.
        """
        self._after.append(after)

    def finish(self) -> tuple[Keys, Keys, int]:
        """All successors, sorted; with codes, the successors without a code, sorted; and the bytes in memory."""
        if self._recent is not None and self._after:
            columns = [np.concatenate(c, dtype=np.int64, casting="unsafe") for c in zip(*self._after, strict=True)]
            joined = self._layout.keys(self._recent.unknown(tuple(columns)))
        else:
            joined = self._layout.joined(self._after)
        held = 2 * joined.nbytes + (self._recent.bytes if self._recent is not None else 0)
        return self._layout.sort_unique(joined), self._layout.concatenated([]), held


class NextLevel:
    """Gathers the successors of one level and keeps only the new ones."""

    def __init__(self, layout: Layout, visited: Visited, room: int, workers: Workers) -> None:
        self._layout = layout
        self._visited = visited
        self._workers = workers
        self._room = room  # new states that the limit still allows
        self._new: list[Keys] = []  # sorted ranges without repetitions, in order
        self._batches: list[Run] = []  # new states that had no room in memory
        self._keys_max = visited.keys_max // 2
        self._sifted = True  # the new states have been compared with the stored states
        self._pending: list[Keys] = []
        self._waiting = 0

    @property
    def waiting(self) -> int:
        """Successors that have not been compared with the set yet."""
        return self._waiting

    @property
    def bytes(self) -> int:
        """The memory of the successors: in batches, joined, and in the workspace of the sort."""
        return 3 * self.held * self._layout.state_bytes

    @property
    def count(self) -> int:
        """The number of new states so far; with a storage, some may not be new unless the limit is reached."""
        return sum(map(len, self._new)) + sum(map(len, self._batches))

    @property
    def held(self) -> int:
        """The number of keys in memory, repetitions included."""
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
        """Make `count` exact if it exceeds the limit, and free memory if it is full. Called only with a storage.

        The count is exact when the states that are already stored are dropped. To free memory, states are written to
        the storage.
        """
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
        """All new states, in one run."""
        (run,) = storage.write([union(self._layout, [*self._batches, *self._new])])
        return run

    def _sift(self) -> None:
        """Keep only new states that are not in the stored part of the set."""
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
        """Sorted arrays, each without repetitions, merged into one."""
        runs = [run for run in runs if len(run)] or runs[:1]
        return runs[0] if len(runs) == 1 else self._layout.sort_unique(self._layout.concatenated(runs))
