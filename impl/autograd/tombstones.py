"""Stores in little memory which contexts are over: a worker's ids rise, so most of them are below one mark."""

from __future__ import annotations

from bisect import bisect_right

from .errors import AutogradError
from .ids import COUNTER_BITS, count_of, worker_of

MAX_RANGES = 65_536  # ranges of one creator, which are separated by contexts that are still open


class Tombstones:
    """The contexts that were released, as ranges of their creators' counters.

    A context stays dead: later messages about it must not open it again. Each range includes both ends. The first
    range of a creator begins at 0 as soon as its low-water mark has come.
    """

    def __init__(self, limit: int = MAX_RANGES) -> None:
        self._limit = limit
        self._begins: dict[int, list[int]] = {}
        self._ends: dict[int, list[int]] = {}

    def __contains__(self, context: int) -> bool:
        begins = self._begins.get(worker_of(context))
        if not begins:
            return False
        at = bisect_right(begins, count_of(context)) - 1
        return at >= 0 and count_of(context) <= self._ends[worker_of(context)][at]

    def __len__(self) -> int:
        """The number of ranges."""
        return sum(map(len, self._begins.values()))

    def ranges_of(self, worker: int) -> int:
        """The number of ranges of this creator."""
        return len(self._ends.get(worker, ()))

    def last_of(self, worker: int) -> int:
        """The last context of this creator that is over; at least one must have been buried."""
        return worker << COUNTER_BITS | self._ends[worker][-1]

    def bury(self, context: int) -> None:
        """Add a context that is over.

        Raises:
            AutogradError: its creator has too many open contexts between contexts that are over.
        """
        self._add(worker_of(context), count_of(context), count_of(context))

    def below(self, context: int) -> None:
        """Take the creator's low-water mark: all its contexts that are older than `context` are over."""
        if count_of(context):
            self._add(worker_of(context), 0, count_of(context) - 1)

    def _add(self, worker: int, begin: int, end: int) -> None:
        begins, ends = self._begins.setdefault(worker, []), self._ends.setdefault(worker, [])
        first = bisect_right(begins, begin) - 1
        if first < 0 or ends[first] < begin - 1:
            first += 1
        after = bisect_right(begins, end + 1)  # the ranges that touch or overlap are first..after - 1
        if first < after:
            begin, end = min(begin, begins[first]), max(end, ends[after - 1])
        elif len(begins) >= self._limit:
            raise AutogradError(
                f"worker {worker} has more than {self._limit} open contexts between others that are over: leave them"
            )
        begins[first:after], ends[first:after] = [begin], [end]
