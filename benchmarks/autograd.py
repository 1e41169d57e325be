"""Compares our distributed autograd with torch's: forward and backward passes on equal worker processes, in turns.

    python benchmarks/autograd.py [--rounds N] [--quick] [--one-core] [--only PART]

A figure is the time of one iteration of worker 0: a context, calls, a backward pass, and leaving the context. The
fastest of several short bursts counts. Both libraries are measured within a moment, in alternating order. A ratio is
our time over torch's in the same round: 0.5 is twice as fast as torch. It is shown as its median and its range.
Gradients are compared with the gradients of plain autograd before anything is measured.

Each library has its own worker processes, children of this one, which are stopped while the other is measured: torch's
agents poll for messages without a pause, which takes a core from the other processes.

Operations use one core in each process: the sums are small, and the path between workers is compared. With `--one-core`
all threads of a worker share one core. Threads that hold Python's interpreter lock in turn then switch without waking
another core.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any

from common import cells, in_turns, options, run, show
from passes import Work, measure, on_one_core, prepare

from trystate.property_tests.adapters.worlds import World
from trystate.property_tests.support.autograd.running import join

BOTH = ("torch", "ours")
LATE_SECONDS = 300.0  # limit for a burst, on a busy machine
ROW_BYTES = 64  # a row of a tensor: 16 float32 numbers
SMALL, MEGABYTE, SIXTEEN = 16, (1 << 20) // ROW_BYTES, (16 << 20) // ROW_BYTES  # rows
SIDES = ("torch, ms", "ours, ms", "ours / torch")


class Bench:
    """The workers of both libraries: a world for each."""

    def __init__(self, stack: contextlib.ExitStack, size: int, one_core: bool) -> None:
        self._size = size
        self._stack = stack
        self._one_core = one_core
        self._worlds: dict[str, World] = {}

    def _world(self, side: str) -> World:
        """The workers of a library, which start when they are first needed."""
        if side not in self._worlds:
            folder = self._stack.enter_context(tempfile.TemporaryDirectory())
            world = self._stack.enter_context(World(self._size))
            if self._one_core:
                world.do(on_one_core, seconds=LATE_SECONDS)
            world.do(join, self._size, (side,), folder, seconds=LATE_SECONDS)
            self._worlds[side] = world
        return self._worlds[side]

    def _tell(self, side: str, task: Callable[..., object], *arguments: object) -> Any:
        """The answer of worker 0, while no other library's workers run."""
        world = self._world(side)
        world.resume()
        found = world.do(task, self._size, side, *arguments, seconds=LATE_SECONDS)
        world.pause()
        return found[0]

    def line(self, title: str, work: Work, rounds: int, iterations: int) -> list[str]:
        """A line of a table: the measurements of a work on both libraries, and their ratio."""
        for side in BOTH:
            self._tell(side, prepare, work)

        def milliseconds(side: str, _: object) -> float:
            found: float = self._tell(side, measure, work, iterations)
            return found * 1e3

        return [title, *cells(in_turns(rounds, dict(zip(BOTH, BOTH, strict=True)), milliseconds), over_first=True)]


Case = tuple[int, str, Work, int]  # the number of workers, a title, and how often in a burst


def linear(quick: bool) -> Iterator[Case]:
    cases = [("16 × 16", SMALL, 5), ("1 MB", MEGABYTE, 2)]
    for name, rows, n in cases if quick else [("16 × 16", SMALL, 30), ("1 MB", MEGABYTE, 8), ("16 MB", SIXTEEN, 2)]:
        yield 2, name, Work("trips", 1, rows), n


def chains(quick: bool) -> Iterator[Case]:
    for size in (3,) if quick else (3, 4):
        for name, rows, n in [("16 × 16", SMALL, 5)] if quick else [("16 × 16", SMALL, 15), ("1 MB", MEGABYTE, 4)]:
            yield size, f"{size} workers, {name}", Work("chain", size - 1, rows), n


def contexts(quick: bool) -> Iterator[Case]:
    for n in (10,) if quick else (10, 100):
        yield 2, f"{n}", Work("trips", 1, SMALL, threads=n), 1


# Each with its title, and the head of its first column.
PARTS: dict[str, tuple[Callable[[bool], Iterator[Case]], str, str]] = {
    "linear": (linear, "A linear layer on the other worker; the size is that of each of the four tensors sent",
               "an iteration"),
    "chains": (chains, "A chain: each worker has a layer, and calls the next", "an iteration"),
    "contexts": (contexts, "So many contexts at once, each on a thread", "contexts"),
}  # fmt: skip


def table(name: str, one_core: bool, quick: bool, rounds: int) -> None:
    """Measure a part, with new workers for each number of workers, and print it."""
    cases, title, head = PARTS[name]
    lines = []
    for size, of_size in groupby(cases(quick), key=itemgetter(0)):
        with contextlib.ExitStack() as stack:
            bench = Bench(stack, size, one_core)
            for _, each, work, iterations in of_size:
                lines.append(bench.line(each, work, rounds, iterations))
    show(title, [head, *SIDES], lines)


def main() -> int:
    parser = options(__doc__, PARTS, 9)
    parser.add_argument("--one-core", action="store_true", help="each worker's threads share one core")
    args = parser.parse_args()
    run(args, {name: partial(table, name, args.one_core) for name in PARTS}, 2)
    return 0


if __name__ == "__main__":
    sys.exit(main())
