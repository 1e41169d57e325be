"""The set of states seen, as a few sorted runs: no table, no hash, eight bytes a word.

Successors and runs are cut into ranges of keys before they are sorted, merged or looked up (`workers`). Equal keys are
in one range, so no range needs another, and the results of all ranges stand one after the other in order.
"""

from __future__ import annotations

from itertools import accumulate

import numpy as np

from .packing import Keys, Layout
from .workers import Workers

RUN_RATIO = 6  # a run at least this much longer than the next: few runs to search, each state merged few times
PENDING_MIN = 1 << 20  # successors to gather before they are compared with the set


class Visited:
    """Sorted runs without repetitions or overlaps."""

    def __init__(self, layout: Layout, workers: Workers) -> None:
        self._layout = layout
        self._workers = workers
        self._runs: list[Keys] = []
        self.count = 0

    def unseen(self, keys: Keys) -> Keys:
        """Those of the sorted keys that are not in the set."""
        for run in reversed(self._runs):  # the latest run first: most repetitions are near
            if not len(keys):
                break
            _, seen = self._layout.find(keys, run)
            keys = keys[~seen]
        return keys

    def add(self, fresh: Keys) -> None:
        """Add sorted keys, at least one, and none of them in the set."""
        self.count += len(fresh)
        self._runs.append(fresh)
        while len(self._runs) > 1 and self._is_worth_merging(*map(len, self._runs[-2:])):
            self._merge_last()

    def _is_worth_merging(self, older: int, newer: int) -> bool:
        return older < RUN_RATIO * newer and older + newer <= self._layout.run_max

    def release(self) -> None:
        """Let go of the states, and keep their count: nothing can be looked up any more."""
        self._runs.clear()

    @property
    def released(self) -> bool:
        """Has it let go of its states?"""
        return self.count > 0 and not self._runs

    def merged(self) -> Keys:
        """Every state, sorted."""
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


class NextLevel:
    """Gathers the successors of one level, and keeps only those that are new."""

    def __init__(self, layout: Layout, visited: Visited, room: int, workers: Workers) -> None:
        self._layout = layout
        self._visited = visited
        self._workers = workers
        self._room = room  # new states that the limit still allows
        self._new: list[Keys] = []  # sorted, without repetitions: one after the other in order
        self._pending: list[Keys] = []
        self._waiting = 0

    @property
    def count(self) -> int:
        return sum(map(len, self._new))

    @property
    def held(self) -> int:
        """Keys in memory, repetitions included."""
        return self.count + self._waiting

    def add(self, keys: Keys) -> None:
        """Add sorted keys."""
        self._pending.append(keys)
        self._waiting += len(keys)
        # Comparing in large batches saves searches; near the limit every batch counts.
        if self._waiting > PENDING_MIN or self.held > self._room:
            self._settle()

    def finish(self) -> Keys:
        """The new states, sorted."""
        self._settle()
        if len(self._new) == 1:
            return self._new[0]
        return self._layout.concatenated(self._new)

    def _settle(self) -> None:
        if not self._pending:
            return
        pending, new = self._pending, self._new
        self._pending, self._waiting, self._new = [], 0, []

        def settled(runs: list[Keys]) -> Keys:
            keys = self._visited.unseen(self._united(runs[: len(pending)]))
            return self._united([keys, *runs[len(pending) :]])

        self._new = self._workers.each(settled, self._workers.cut([*pending, *new]))

    def _united(self, runs: list[Keys]) -> Keys:
        """Sorted arrays, each without repetitions, as one."""
        runs = [run for run in runs if len(run)] or runs[:1]
        return runs[0] if len(runs) == 1 else self._layout.sort_unique(self._layout.concatenated(runs))
