"""The workers that share one search: here there is one, the thread of the caller.

*Theory of operation.* A search has two kinds of work to share: each chunk of a level is expanded (`expanded`), and each
range into which `cut` divides sorted arrays is sorted, searched or merged (`each`). Both give their results in the
order of the pieces, and nothing else depends on the workers. So a search with any number of them has the same states,
stops at the same place, and finds the same runs. `trystate/search/cores.py` has those that use several cores.

The engine enters the workers for one search, and calls `begin` when a level has more than one chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar

import numpy as np

from ...errors import LimitReached
from ..kernel import Limits, WatchKey
from .packing import Keys, Layouts
from .watch_evaluation import Find

RANGE_MIN = 1 << 15  # keys of a range: fewer cost more to hand over than to sort
SAMPLES = 1 << 10  # keys of a range that decide where the cuts are

Piece = TypeVar("Piece")
Result = TypeVar("Result")


class WorkerLost(LimitReached):
    """A worker is gone, and its chunk is not expanded."""


@dataclass(frozen=True, slots=True)
class Expansion:
    """The result of one chunk: how many steps, the finds of the watches, and the states after, sorted.

    `met` has the numbers of the steps that were met first here; `bytes` were in memory at a time. Where states have
    codes (`codes`), `after` has these, and `novel` the states that have none yet.
    """

    edges: int
    finds: dict[WatchKey, Find]
    met: list[int]
    after: Keys
    novel: Keys
    bytes: int


Learn = Callable[[Any], None]
Expand = Callable[[int, Keys], Expansion]  # (number of the level, chunk)


class Workers:
    """One worker. Subclasses have more, while they are entered and after `begin`."""

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End the work, also where an exception is on its way."""

    def begin(self, expand: Expand, chunk_bytes: int, learn: Learn) -> None:
        """Share the work from now on.

        Args:
            expand: its chunks may be expanded by copies of the engine.
            chunk_bytes: of the largest chunk.
            learn: takes what a copy is told.
        """

    def tell(self, news: Any) -> None:
        """Let every copy of the engine know, before its next chunk."""

    def layouts(self, states: int) -> Layouts | None:
        """The layouts with which a search goes on whose level has so many states; None: those that it has."""
        return None

    def memory(self, estimate: int) -> int:
        """The bytes that a search has taken, where that is known better than by the estimate."""
        return estimate

    def afterwards(self, limits: Limits) -> Limits:
        """The limits of liveness and of the whole graph, which the caller decides when the search is over."""
        return limits

    @property
    def chunks(self) -> int:
        """How many chunks are in memory at a time."""
        return 1

    @property
    def ranges(self) -> int:
        """Into how many ranges it is worth to cut."""
        return 1

    def expanded(self, expand: Expand, level: int, chunks: Sequence[Keys]) -> Iterator[Expansion]:
        """The expansion of each chunk of a level, in the order of the chunks.

        Raises:
            WorkerLost: a worker is gone.
            Exception: what `expand` raised.
        """
        yield from (expand(level, chunk) for chunk in chunks)

    def each(self, do: Callable[[Piece], Result], pieces: Sequence[Piece]) -> list[Result]:
        """The results of all pieces, in their order."""
        return [do(piece) for piece in pieces]

    def cut(self, runs: Sequence[Keys]) -> list[list[Keys]]:
        """The sorted arrays in ranges of about the same size; equal keys are in one range."""
        total = sum(map(len, runs))
        parts = min(self.ranges, total // RANGE_MIN)
        if parts < 2:
            return [list(runs)]
        stride = max(1, total // (SAMPLES * parts))
        sample = np.concatenate([run[::stride] for run in runs])
        sample.sort(kind="stable")
        cuts = sample[[len(sample) * part // parts for part in range(1, parts)]]
        bounds = [[0, *np.searchsorted(run, cuts).tolist(), len(run)] for run in runs]
        return [
            [run[ends[part] : ends[part + 1]] for run, ends in zip(runs, bounds, strict=True)] for part in range(parts)
        ]
