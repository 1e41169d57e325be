"""Our distributed autograd beside torch's: forward and backward passes over the same worker processes, in turns.

    python benchmarks/autograd.py [--rounds N] [--quick] [--together] [--only PART]

A figure is the time of one iteration of worker 0: a context, calls, a backward pass, and leaving the context. It is
that of the fastest of several short bursts, measured on both within a moment, in alternating order; a ratio is our time
over torch's in the same round, so that 0.5 is twice as fast as torch, and is shown as its median and from where to
where it went. Gradients are compared with those of plain autograd before anything is measured.

Each library has worker processes of its own, children of this one, which are stopped while the other is measured:
torch's agents look for messages without a pause, which takes a core from whoever is beside them. With `--together` the
same processes join both, and torch's look on while ours is measured.

Operations use one core in each process: the sums are small, and it is the way between workers that is compared.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Callable
from typing import Any

from common import about, in_turns, ratio, show, spread
from passes import Work, measure, prepare

from trystate.property_tests.support.autograd.running import join
from trystate.property_tests.support.autograd.worlds import World

BOTH = ("torch", "ours")
LATE_SECONDS = 300.0  # for a burst, on a busy machine
ROW_BYTES = 64  # 16 of float32: what a row of a tensor takes
SMALL, MEGABYTE, SIXTEEN = 16, (1 << 20) // ROW_BYTES, (16 << 20) // ROW_BYTES  # rows
HEADS = ["an iteration", "torch, ms", "ours, ms", "ours / torch"]


class Bench:
    """The workers of both libraries: worlds of their own, or one that has joined both."""

    def __init__(self, stack: contextlib.ExitStack, size: int, together: bool) -> None:
        self._size = size
        self._stack = stack
        self._together = together
        self._worlds: dict[str, World] = {}

    def _world(self, side: str) -> World:
        """The workers of a library, which begin when they are first needed."""
        if side not in self._worlds:
            sides = BOTH if self._together else (side,)
            folder = self._stack.enter_context(tempfile.TemporaryDirectory())
            world = self._stack.enter_context(World(self._size))
            world.do(join, self._size, sides, folder, seconds=LATE_SECONDS)
            self._worlds |= dict.fromkeys(sides, world)
        return self._worlds[side]

    def _tell(self, side: str, task: Callable[..., object], *arguments: object) -> Any:
        """The answer of worker 0, while no other library's workers run."""
        world = self._world(side)
        world.resume()
        found = world.do(task, self._size, side, *arguments, seconds=LATE_SECONDS)
        world.pause()
        return found[0]

    def milliseconds(self, side: str, work: Work, iterations: int) -> float:
        found: float = self._tell(side, measure, work, iterations)
        return found * 1e3

    def compare(self, title: str, work: Work, rounds: int, iterations: int) -> list[str]:
        """A line of a table."""
        for side in BOTH:
            self._tell(side, prepare, work)
        sides = {side: side for side in BOTH}
        found = in_turns(rounds, sides, lambda side, _: self.milliseconds(side, work, iterations))
        return [title, *(precise(found[side]) for side in BOTH), ratio(found["ours"], found["torch"])]

    def modes(self, title: str, work: Work, rounds: int, iterations: int) -> list[str]:
        """A line of a table: ours in both modes."""
        works = {mode: work.in_mode(mode) for mode in ("fast", "smart")}
        for each in works.values():
            self._tell("ours", prepare, each)
        found = in_turns(rounds, works, lambda each, _: self.milliseconds("ours", each, iterations))
        return [title, *(precise(found[mode]) for mode in works), ratio(found["smart"], found["fast"])]


def precise(milliseconds: list[float]) -> str:
    """Their median and range, with enough digits."""
    if max(milliseconds) >= 10:
        return spread(milliseconds)
    low, middle, high = min(milliseconds), sorted(milliseconds)[len(milliseconds) // 2], max(milliseconds)
    return f"{middle:.2f} ({low:.2f}..{high:.2f})"


def on(size: int, together: bool, part: Callable[[Bench], list[list[str]]]) -> list[list[str]]:
    """The measurements of a part among workers of its own."""
    with contextlib.ExitStack() as stack:
        return part(Bench(stack, size, together))


def linear(quick: bool, rounds: int, together: bool) -> None:
    cases = [("16 × 16", SMALL, 30), ("1 MB", MEGABYTE, 8), ("16 MB", SIXTEEN, 2)]
    cases = [("16 × 16", SMALL, 5), ("1 MB", MEGABYTE, 2)] if quick else cases

    def part(bench: Bench) -> list[list[str]]:
        return [bench.compare(name, Work("trips", 1, rows), rounds, n) for name, rows, n in cases]

    show(
        "A linear layer on the other worker; the size is that of each of the four tensors sent",
        HEADS,
        on(2, together, part),
    )


def chains(quick: bool, rounds: int, together: bool) -> None:
    lines = []
    for size in (3,) if quick else (3, 4):
        cases = [("16 × 16", SMALL, 5)] if quick else [("16 × 16", SMALL, 15), ("1 MB", MEGABYTE, 4)]

        def part(bench: Bench, size: int = size, cases: Any = cases) -> list[list[str]]:
            work = [(f"{size} workers, {name}", Work("chain", size - 1, rows), n) for name, rows, n in cases]
            return [bench.compare(title, each, rounds, n) for title, each, n in work]

        lines += on(size, together, part)
    show("A chain: each worker has a layer, and calls the next", HEADS, lines)


def smart(quick: bool, rounds: int, together: bool) -> None:
    counts = (1,) if quick else (1, 4, 16)

    def part(bench: Bench) -> list[list[str]]:
        n = 5 if quick else 10
        lines = [bench.modes(f"{k} round trips", Work("trips", k, SMALL), rounds, n) for k in counts]
        return [*lines, bench.modes("chain of 3", Work("chain", 2, SMALL), rounds, n)]

    show("Ours in both modes", ["an iteration", "FAST, ms", "SMART, ms", "SMART / FAST"], on(3, together, part))


def calls(quick: bool, rounds: int, together: bool) -> None:
    counts = (1, 4) if quick else (1, 2, 4, 8, 16, 32, 64)

    def part(bench: Bench) -> list[list[str]]:
        return [bench.compare(f"{k}", Work("trips", k, SMALL), rounds, max(1, 16 // k)) for k in counts]

    show("How it grows with the number of calls, one after another", ["calls", *HEADS[1:]], on(2, together, part))


def workers(quick: bool, rounds: int, together: bool) -> None:
    lines = []
    for size in (3,) if quick else (2, 4, 6, 8):
        work = Work("star", size - 1, SMALL)
        n = 3 if quick else 8
        lines += on(size, together, lambda bench, work=work, n=n: [bench.compare(f"{work.many + 1}", work, rounds, n)])  # type: ignore[misc]
    show("How it grows with the number of workers, each called once", ["workers", *HEADS[1:]], lines)


def contexts(quick: bool, rounds: int, together: bool) -> None:
    counts = (10,) if quick else (10, 100)

    def part(bench: Bench) -> list[list[str]]:
        return [bench.compare(f"{n}", Work("trips", 1, SMALL, threads=n), rounds, 1) for n in counts]

    show("So many contexts at once, each on a thread", ["contexts", *HEADS[1:]], on(2, together, part))


PARTS: dict[str, Callable[[bool, int, bool], None]] = {
    "linear": linear,
    "chains": chains,
    "smart": smart,
    "calls": calls,
    "workers": workers,
    "contexts": contexts,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=9, help="measurements of each figure (default 9)")
    parser.add_argument("--quick", action="store_true", help="a few small measurements")
    parser.add_argument("--together", action="store_true", help="both libraries in the same processes")
    parser.add_argument("--only", choices=PARTS, help="one table")
    args = parser.parse_args()
    print(about())
    for name, part in PARTS.items():
        if args.only in (None, name):
            part(args.quick, 2 if args.quick else max(1, args.rounds), args.together)
    return 0


if __name__ == "__main__":
    sys.exit(main())
