"""Deadlines of requests: one thread, which sleeps until the earliest deadline of a request that is still open."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable
from functools import partial
from time import monotonic

from .pool import guarded

SPARE = 1024  # the heap is swept at twice its length after the last sweep, plus this number


class DeadlineTimer:
    """Calls a function at the deadline of each request that is still open then.

    Nearly all requests are answered in time. Their entries stay in the heap until they are swept, which costs little.
    """

    def __init__(self, name: str, over: Callable[[int], bool], expired: Callable[[int], None]) -> None:
        """`over(number)` returns whether a request has ended; if not, `expired(number)` is called at its deadline."""
        self.name, self._over, self._expired = name, over, expired
        self._heap: list[tuple[float, int]] = []
        self._changed = threading.Condition()
        self._next = 0.0  # when the thread wakes up; 0: it is not asleep with a deadline
        self._tidy_at = SPARE
        self._thread: threading.Thread | None = None
        self._ended = False

    def add(self, number: int, deadline: float) -> None:
        with self._changed:
            heapq.heappush(self._heap, (deadline, number))
            if len(self._heap) >= self._tidy_at:
                self._heap = [entry for entry in self._heap if not self._over(entry[1])]
                heapq.heapify(self._heap)
                self._tidy_at = 2 * len(self._heap) + SPARE
            if self._thread is None and not self._ended:
                self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
                self._thread.start()
            elif deadline < self._next:
                self._changed.notify()

    def close(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while self._heap and self._over(self._heap[0][1]):
                    heapq.heappop(self._heap)
                self._next = self._heap[0][0] if self._heap else float("inf")
                left = self._next - monotonic()
                if self._ended:
                    return
                if left > 0:
                    self._changed.wait(min(left, threading.TIMEOUT_MAX))
                    continue
                due = heapq.heappop(self._heap)[1]
            guarded(partial(self._expired, due))
