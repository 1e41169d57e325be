"""Ids that are unique among workers: 16 bits for the worker and a counter of 48 bits.

Source: seed "distributed autograd contexts", 2.2 and 3.1. Unlike torch's signed ids, these ids are never negative for
any worker, and the last one is given out too.
"""

from __future__ import annotations

from .errors import IdsExhaustedError

COUNTER_BITS = 48
WORKER_BITS = 16
WORKERS = 1 << WORKER_BITS
LAST_COUNT = (1 << COUNTER_BITS) - 1


def worker_of(number: int) -> int:
    """The worker (0..65535) that gave out an id."""
    return number >> COUNTER_BITS


def count_of(number: int) -> int:
    """The number of ids that its worker had given out before it."""
    return number & LAST_COUNT


class Ids:
    """Gives out one worker's ids of one kind, in ascending order. Not thread-safe.

    Raises:
        ValueError: `worker` is not in 0..65535.
    """

    def __init__(self, worker: int, begin: int = 0) -> None:
        if not 0 <= worker < WORKERS:
            raise ValueError(f"worker is {worker}: give a number from 0 to {WORKERS - 1}")
        self._worker, self._next = worker, begin

    @property
    def last(self) -> int:
        """The largest id that this worker may give out."""
        return self._worker << COUNTER_BITS | LAST_COUNT

    @property
    def next(self) -> int:
        """The id that `take` would return; after the last one, the first id of the next worker."""
        return (self._worker << COUNTER_BITS) + self._next

    def take(self) -> int:
        """A new id.

        Raises:
            IdsExhaustedError: all 2**48 are given out.
        """
        count = self._next
        if count > LAST_COUNT:
            raise IdsExhaustedError(
                f"worker {self._worker} has given out all of its {LAST_COUNT + 1} ids: shut down, and start again"
            )
        self._next = count + 1
        return self._worker << COUNTER_BITS | count
