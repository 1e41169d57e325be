"""Ranks of one process: threads that meet in memory, in place of processes that meet over torch.distributed.

One thread runs at a time, and lets another run where it waits for the others: what processes do not share is not
shared here by accident, for no two ranks change it at once.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

from trystate.model.checker.check import watches
from trystate.model.checker.explicit.engine import ExplicitEngine
from trystate.model.checker.explicit.packing import Keys
from trystate.model.checker.explicit.ranks import RankLost, Ranks
from trystate.model.checker.kernel import Kernel, Limits
from trystate.model.language import System

from .runs import MANY

MEET_SECONDS = 20.0  # a rank that waits longer has lost another
PIECE = 7  # keys of a piece: small systems have several

Value = TypeVar("Value")


class InMemory(Ranks):
    """One of the ranks that `together` runs."""

    def __init__(
        self, rank: int, count: int, table: list[Any], barrier: threading.Barrier, turn: threading.Lock
    ) -> None:  # fmt: skip
        self.rank, self.count = rank, count
        self.signal = ""
        self._table, self._barrier, self._turn = table, barrier, turn

    def _met(self, mine: Any) -> list[Any]:
        self._table[self.rank] = mine
        self._wait()
        others = list(self._table)
        self._wait()
        return others

    def _wait(self) -> None:
        self._turn.release()
        try:
            self._barrier.wait(MEET_SECONDS)
        except threading.BrokenBarrierError:
            raise RankLost(f"rank {self.rank} has lost another rank") from None
        finally:
            self._turn.acquire()

    def told(self, note: Any) -> list[Any]:
        return [json.loads(text) for text in self._met(json.dumps(note))]

    def swapped(self, parts: Sequence[Keys]) -> Iterator[Keys]:
        assert len(parts) == self.count
        for whole in [given[self.rank] for given in self._met(parts)]:
            yield from (whole[start : start + PIECE].copy() for start in range(0, len(whole), PIECE))

    def stop_reason(self) -> str:
        return self.signal


def together(count: int, do: Callable[[InMemory], Value]) -> list[Value]:
    """The result of each rank.

    Raises:
        Exception: of the first rank that raised.
    """
    barrier, turn, table = threading.Barrier(count), threading.Lock(), [None] * count

    def run(rank: int) -> Value:
        with turn:
            try:
                return do(InMemory(rank, count, table, barrier, turn))
            except BaseException:
                barrier.abort()
                raise

    with ThreadPoolExecutor(count) as pool:
        futures = [pool.submit(run, rank) for rank in range(count)]
    errors = [error for future in futures if (error := future.exception()) is not None]
    for error in sorted(errors, key=lambda one: isinstance(one, RankLost)):
        raise error
    return [future.result() for future in futures]


def answers(engine: ExplicitEngine) -> dict[str, Any]:
    """All results of a search except times and bytes."""
    seen = engine.explore([replace(watch, path=True) for watch in watches(engine.kernel)])
    return {"graph": (seen.distinct, seen.edges, seen.depth, seen.stopped), "found": seen.found}


def alone(of: System, limits: Limits = MANY, **options: Any) -> dict[str, Any]:
    return answers(ExplicitEngine(Kernel(of), limits, **options))
