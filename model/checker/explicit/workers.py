"""The workers that share one search: in this module only one, the thread of the caller.

*Theory of operation.* A search has two kinds of work to share: each chunk of a level is expanded (`expanded`), and each
range of sorted arrays that `cut` makes is sorted, searched or merged (`each`). Both return their results in the
order of the pieces, and nothing else depends on the workers. So a search with any number of workers has the same
states, stops at the same place and finds the same runs. `trystate/search/cores.py` has workers on several cores.

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

RANGE_MIN = 1 << 15  # keys of a range: fewer keys cost more to hand over than to sort
SAMPLES = 1 << 10  # sampled keys of a range that determine the cuts

Piece = TypeVar("Piece")
Result = TypeVar("Result")


class WorkerLost(LimitReached):
    """A worker has ended, and its chunk is not expanded."""


@dataclass(frozen=True, slots=True)
class Expansion:
    """The result of one chunk: the number of steps, the finds of the watches, and the successors, sorted.

    `met` has the numbers of the steps that were activated by this chunk; `bytes` is the peak memory. If states have
    codes (`codes`), `after` has the codes, and `novel` has the states without a code.
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
    """One worker. Subclasses have several, inside their `with` block and after `begin`."""

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End the work, also after an exception."""

    def begin(self, expand: Expand, chunk_bytes: int, learn: Learn) -> None:
        """Share the work from now on.

        Args:
            expand: its chunks may be expanded by copies of the engine.
            chunk_bytes: the size of the largest chunk.
            learn: takes an argument of `tell` in each copy.
        """

    def tell(self, news: Any) -> None:
        """Send `news` to every copy of the engine, before its next chunk."""

    def layouts(self, states: int) -> Layouts | None:
        """The layouts for a search whose level has `states` states; None: the search keeps its own."""
        return None

    def memory(self, estimate: int) -> int:
        """The bytes that a search has taken: the estimate, unless the workers have a better value."""
        return estimate

    def afterwards(self, limits: Limits) -> Limits:
        """The limits for liveness and the whole graph, which are decided by the caller's process after the search."""
        return limits

    @property
    def chunks(self) -> int:
        """The number of chunks in memory at the same time."""
        return 1

    @property
    def ranges(self) -> int:
        """The number of ranges worth splitting into."""
        return 1

    def expanded(
        self, expand: Expand, level: int, chunks: Sequence[Keys], meanwhile: Callable[[], None]
    ) -> Iterator[Expansion]:  # fmt: skip
        """The expansion of each chunk of a level, in the order of the chunks.

        `meanwhile` is called once, when the workers have the first chunks.

        Raises:
            WorkerLost: a worker has ended.
            Exception: the exception that `expand` raised.
        """
        meanwhile()
        yield from (expand(level, chunk) for chunk in chunks)

    def each(self, do: Callable[[Piece], Result], pieces: Sequence[Piece]) -> list[Result]:
        """The results of all pieces, in their order."""
        return [do(piece) for piece in pieces]

    def cut(self, runs: Sequence[Keys]) -> list[list[Keys]]:
        """Cut sorted arrays into ranges of about the same size; equal keys are in one range."""
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
