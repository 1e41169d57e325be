"""Which contexts are over, in little room: ids of a worker rise, so that most of what is over lies below a mark."""

from __future__ import annotations

from bisect import bisect_right

from .errors import AutogradError
from .ids import COUNTER_BITS, count_of, worker_of

MAX_RANGES = 65_536  # of one creator: as many contexts that a later one outlived, and are open still


class Tombstones:
    """The contexts that were released, as ranges of their creators' counters.

    A context stays dead: later messages about it must not bring it back to life. Each range is closed; the first one
    of a creator begins at 0 as soon as its low-water mark is known.
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
        """How many ranges are kept."""
        return sum(map(len, self._begins.values()))

    def ranges_of(self, worker: int) -> int:
        """How many ranges of this creator are kept."""
        return len(self._ends.get(worker, ()))

    def last_of(self, worker: int) -> int:
        """The last context of this creator that is over; only after one of them was buried."""
        return worker << COUNTER_BITS | self._ends[worker][-1]

    def bury(self, context: int) -> None:
        """A context is over.

        Raises:
            AutogradError: its creator has too many open ones among those that are over.
        """
        self._add(worker_of(context), count_of(context), count_of(context))

    def below(self, context: int) -> None:
        """All contexts of the creator of `context` that are older than it are over: its low-water mark."""
        if count_of(context):
            self._add(worker_of(context), 0, count_of(context) - 1)

    def _add(self, worker: int, begin: int, end: int) -> None:
        begins, ends = self._begins.setdefault(worker, []), self._ends.setdefault(worker, [])
        first = bisect_right(begins, begin) - 1
        if first < 0 or ends[first] < begin - 1:
            first += 1
        after = bisect_right(begins, end + 1)  # those that touch or overlap are first..after - 1
        if first < after:
            begin, end = min(begin, begins[first]), max(end, ends[after - 1])
        elif len(begins) >= self._limit:
            raise AutogradError(
                f"worker {worker} has more than {self._limit} contexts open between others that are over: leave them"
            )
        begins[first:after], ends[first:after] = [begin], [end]
