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
from typing import Any

from common import cells, in_turns, options, run, show
from passes import Work, measure, on_one_core, prepare

from trystate.property_tests.adapters.worlds import World
from trystate.property_tests.support.autograd.running import join

WORKERS = 2
LATE_SECONDS = 300.0  # limit for a burst, on a busy machine
ROW_BYTES = 64  # a row of a tensor: 16 float32 numbers
SMALL, MEGABYTE, SIXTEEN = 16, (1 << 20) // ROW_BYTES, (16 << 20) // ROW_BYTES  # rows
SIDES = ("torch, ms", "ours, ms", "ours / torch")


@contextlib.contextmanager
def started(side: str, one_core: bool) -> Iterator[World]:
    """The workers of a library, which are stopped."""
    with tempfile.TemporaryDirectory() as folder, World(WORKERS) as world:
        if one_core:
            world.do(on_one_core, seconds=LATE_SECONDS)
        world.do(join, WORKERS, (side,), folder, seconds=LATE_SECONDS)
        world.pause()
        yield world


def tell(world: World, task: Callable[..., object], *arguments: object) -> Any:
    """The answer of worker 0, while no other library's workers run."""
    world.resume()
    found = world.do(task, *arguments, seconds=LATE_SECONDS)
    world.pause()
    return found[0]


def line(worlds: dict[str, World], title: str, work: Work, rounds: int, iterations: int) -> list[str]:
    """A line of a table: the measurements of a work on both libraries, and their ratio."""
    for side, world in worlds.items():
        tell(world, prepare, side, work)

    def milliseconds(side: str, _: object) -> float:
        found: float = tell(worlds[side], measure, side, work, iterations)
        return found * 1e3

    return [title, *cells(in_turns(rounds, {side: side for side in worlds}, milliseconds), over_first=True)]


Case = tuple[str, Work, int]  # a title, the work, and how often in a burst


def linear(quick: bool) -> Iterator[Case]:
    cases = [("16 × 16", SMALL, 5), ("1 MB", MEGABYTE, 2)]
    for name, rows, n in cases if quick else [("16 × 16", SMALL, 30), ("1 MB", MEGABYTE, 8), ("16 MB", SIXTEEN, 2)]:
        yield name, Work(rows), n


def contexts(quick: bool) -> Iterator[Case]:
    for n in (10,) if quick else (10, 100):
        yield f"{n}", Work(SMALL, threads=n), 1


# Each with its title, and the head of its first column.
PARTS: dict[str, tuple[Callable[[bool], Iterator[Case]], str, str]] = {
    "linear": (linear, "A linear layer on the other worker; the size is that of each of the four tensors sent",
               "an iteration"),
    "contexts": (contexts, "So many contexts at once, each on a thread", "contexts"),
}  # fmt: skip


def table(name: str, one_core: bool, quick: bool, rounds: int) -> None:
    """Measure a part with new workers, and print it."""
    cases, title, head = PARTS[name]
    with contextlib.ExitStack() as stack:
        worlds = {side: stack.enter_context(started(side, one_core)) for side in ("torch", "ours")}
        lines = [line(worlds, each, work, rounds, iterations) for each, work, iterations in cases(quick)]
    show(title, [head, *SIDES], lines)


def main() -> int:
    parser = options(__doc__, PARTS, 9)
    parser.add_argument("--one-core", action="store_true", help="each worker's threads share one core")
    args = parser.parse_args()
    run(args, {name: partial(table, name, args.one_core) for name in PARTS}, 2)
    return 0


if __name__ == "__main__":
    sys.exit(main())
