"""Pieces of a campaign: some seeds of a kind, as a task of a process or of a cluster."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from .cases import Tally, again
from .kinds import kind_named

CANARY_SEEDS = 100  # seeds between two planted faults
PIECES_MAX = 100_000  # pieces of a campaign, whose names are kept
SMALL_MAX = 2  # failing cases of a piece that are made small; a fault that fails everywhere has many


@dataclass(frozen=True, slots=True)
class Piece:
    """Some seeds of a kind."""

    kind: str
    seeds: range
    nodes: int | None = None

    @property
    def name(self) -> str:
        return f"{self.kind}, seeds {self.seeds.start} to {self.seeds.stop - 1}"

    def __call__(self) -> Tally:
        """Their tally, with the canaries that are due."""
        kind, tally, began = kind_named(self.kind), Tally(), _cpu_seconds()
        for seed in (seed for seed in self.seeds if seed % CANARY_SEEDS == 0):
            tally.canaries += 1
            tally.silent += [] if kind.canary(seed) else [seed]
        for done in kind.each(self.seeds, self.nodes):
            tally.add(done)
            if done.fails:
                small = kind.small(done, self.nodes) if len(tally.found) < SMALL_MAX else [done.seen]
                what = {"property": done.fails, "seed": done.seed, "lines": small}
                tally.found.append({**what, "again": again(self.kind, done.seed, self.nodes)})
        tally.cpu_seconds = _cpu_seconds() - began
        return tally


def _cpu_seconds() -> float:
    """The time of this process, and of its children that have ended."""
    return sum(os.times()[:4])


Done = Mapping[str, Sequence[Sequence[int]]]  # kind -> the ranges of seeds that are done, in order


def pieces(
    names: Sequence[str], first: int, count: int, nodes: int | None, size: int = 1, done: Done | None = None
) -> list[Piece]:
    """The pieces of `count` seeds of each kind from the first on, in turn; `size` multiplies each batch."""
    columns = []
    for name in names:
        batch, todo = kind_named(name).batch * size, _gaps(range(first, first + count), (done or {}).get(name, ()))
        columns.append([
            Piece(name, range(at, min(gap.stop, at + batch)), nodes)
            for gap in todo for at in range(gap.start, gap.stop, batch)
        ])  # fmt: skip
    most = max(map(len, columns), default=0)
    return [column[row] for row in range(most) for column in columns if row < len(column)][:PIECES_MAX]


def _gaps(seeds: range, done: Iterable[Sequence[int]]) -> Iterator[range]:
    """The seeds that are not done."""
    at = seeds.start
    for first, stop in done:
        if at < first:
            yield range(at, min(first, seeds.stop))
        at = max(at, stop)
    if at < seeds.stop:
        yield range(at, seeds.stop)
