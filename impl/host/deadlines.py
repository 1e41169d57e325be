"""Deadlines in order of time; the caller passes the clock's reading.

Rule: discarded entries use memory only until they outnumber the valid entries.
"""

from __future__ import annotations

import heapq
from typing import Generic, TypeVar

T = TypeVar("T")


class Deadlines(Generic[T]):
    """A set of items, each due at a time in seconds."""

    __slots__ = ("_count", "_heap", "due")

    def __init__(self) -> None:
        self.due: dict[T, int] = {}  # the number of each item's valid entry
        self._heap: list[tuple[float, int, T]] = []
        self._count = 0  # numbers the entries, and orders what is due at the same time

    def add(self, item: T, when: float) -> None:
        self._count += 1
        self.due[item] = self._count
        heapq.heappush(self._heap, (when, self._count, item))
        if len(self._heap) > 64 + 2 * len(self.due):
            self._heap = [entry for entry in self._heap if self.due.get(entry[2]) == entry[1]]
            heapq.heapify(self._heap)

    def discard(self, item: T) -> None:
        self.due.pop(item, None)

    def pop(self, now: float) -> T | None:
        """Take one item that is due."""
        first = self.first()
        if first is None or first > now:
            return None
        item = heapq.heappop(self._heap)[2]
        del self.due[item]
        return item

    def first(self) -> float | None:
        """The time at which the next item is due."""
        heap = self._heap
        while heap and self.due.get(heap[0][2]) != heap[0][1]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None


def rounded(seconds: float) -> str:
    """Seconds for the text of an error, to the millisecond."""
    return f"{round(seconds, 3):.12g}"
