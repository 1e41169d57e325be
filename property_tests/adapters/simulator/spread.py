"""Sweeps on a Ray cluster: pieces of the seeds are its tasks, and their runs come in the order of the seeds.

So a sweep prints what it prints without a cluster, and an interrupted one knows where to go on.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from functools import partial

from trystate.search.cluster import Cluster

from . import handlers, swarm

SEEDS_MIN, PIECES_MAX = 25, 10_000  # of a piece, about a second; of a sweep, each a few hundred bytes
Run = swarm.Run | handlers.Run


@dataclass(frozen=True, slots=True)
class Piece:
    """Some seeds of a sweep, as a task."""

    seeds: range
    nodes: int | None
    side: str | None

    @property
    def name(self) -> str:
        return f"seeds {self.seeds.start} to {self.seeds.stop - 1}"

    def __call__(self) -> list[Run]:
        """Their runs; events are told of those that fail alone."""
        return [run if run.fails else replace(run, log=[]) for run in runs(self.seeds, self.nodes, self.side)]


def runs(seeds: range, nodes: int | None, side: str | None) -> Generator[Run, None, None]:
    """The runs of these seeds, of nodes or of the handlers of a side."""
    yield from swarm.sweep(seeds, nodes) if side is None else handlers.sweep(seeds, handlers.SIDES[side], nodes)


def pieces(seeds: range, nodes: int | None, side: str | None) -> list[Piece]:
    size = max(SEEDS_MIN, -(-len(seeds) // PIECES_MAX))
    return [Piece(seeds[first : first + size], nodes, side) for first in range(0, len(seeds), size)]


def sweep(address: str, jobs: int, seeds: range, nodes: int | None, side: str | None) -> Generator[Run, None, None]:
    """The runs of these seeds, in their order.

    Args:
        address, jobs: of the cluster, as `Cluster` has them.

    Raises:
        UsageError, UnavailableError, WorkerLost: as `Cluster` says.
    """
    tasks = pieces(seeds, nodes, side)
    early: dict[int, list[Run]] = {}
    come = 0
    with Cluster(address, tasks, partial(pieces, seeds, nodes, side), jobs=jobs) as cluster:
        for number, found in cluster.results(range(len(tasks))):
            early[number] = found
            while come in early:
                yield from early.pop(come)
                come += 1
