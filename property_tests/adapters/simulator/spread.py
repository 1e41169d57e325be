"""Sweeps on a Ray cluster: pieces of the seeds are its tasks, and their runs come in the order of the seeds.

So a sweep prints the same as without a cluster, and an interrupted one can continue where it ended.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from functools import partial

from trystate.search.cluster import Cluster

from . import swarm
from .swarm import Run, Subject

SEEDS_MIN, PIECES_MAX = 25, 10_000  # seeds of a piece, about a second; pieces of a sweep, a few hundred bytes each


@dataclass(frozen=True, slots=True)
class Piece:
    """Some seeds of a sweep, as a task."""

    seeds: range
    subject: Subject
    nodes: int | None

    @property
    def name(self) -> str:
        return f"seeds {self.seeds.start} to {self.seeds.stop - 1}"

    def __call__(self) -> list[Run]:
        """Their runs; only a run that fails keeps its events."""
        runs = swarm.sweep(self.seeds, self.subject, self.nodes)
        return [run if run.fails else replace(run, log=[]) for run in runs]


def pieces(seeds: range, subject: Subject, nodes: int | None) -> list[Piece]:
    size = max(SEEDS_MIN, -(-len(seeds) // PIECES_MAX))
    return [Piece(seeds[first : first + size], subject, nodes) for first in range(0, len(seeds), size)]


def sweep(address: str, jobs: int, seeds: range, subject: Subject, nodes: int | None) -> Generator[Run, None, None]:
    """The runs of these seeds, in their order.

    Args:
        address, jobs: as for `Cluster`.

    Raises:
        UsageError, UnavailableError, WorkerLost: as for `Cluster`.
    """
    tasks = pieces(seeds, subject, nodes)
    early: dict[int, list[Run]] = {}
    come = 0
    with Cluster(address, tasks, partial(pieces, seeds, subject, nodes), jobs=jobs) as cluster:
        for number, found in cluster.results(range(len(tasks))):
            early[number] = found
            while come in early:
                yield from early.pop(come)
                come += 1
