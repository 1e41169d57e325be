"""A search of the explicit engine on one core and on several, and of states in one word and in several.

    python benchmarks/cores.py [--rounds N] [--cores N] [--quick]

Each run is a separate process, and the sides take turns. The wall-clock times of the search alone are compared, so
other programs disturb them: each ratio is shown with its range. Words of fewer bits hold the same states of the same
graph in more words. The counts of all sides must agree, or the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

from checker import SYSTEMS, about, invariants, options, spread

from trystate.model.checker.explicit import packing
from trystate.model.checker.explicit.engine import ExplicitEngine
from trystate.model.checker.kernel import Kernel, Limits
from trystate.search.machine import SearchOptions

STATES_MAX = 1 << 33
# A model and its size, and the bits of words: one side has one core, and the other all, or words of fewer bits.
FULL = (
    ("two phase commit", 9, ()), ("rendezvous", 4, ()),
    ("two phase commit", 8, (30, 16, 12)), ("rendezvous", 3, (20, 12, 8)),
)  # fmt: skip
QUICK = (("two phase commit", 3, ()), ("rendezvous", 2, (12,)))


class Side(NamedTuple):
    """The number of cores of a search, and the number of bits in a word."""

    cores: int = 1
    bits: int = packing.WORD_BITS


class Run(NamedTuple):
    """The counts of a search, the words and bytes of a state, and the wall-clock seconds."""

    counts: list[int]
    words: int
    bytes: float
    seconds: float


def search(model: str, size: int, side: Side) -> Run:
    """A search in this process."""
    packing.WORD_BITS = side.bits
    system = SYSTEMS[model](size)
    workers, bounds = SearchOptions("explicit", cores=side.cores).workers()
    engine = ExplicitEngine(Kernel(system), Limits(STATES_MAX, bounds.memory_bytes), workers=workers)
    begun = time.perf_counter()
    seen = engine.explore(invariants(system))
    seconds = time.perf_counter() - begun
    assert seen.complete and not seen.found, seen
    counts = [seen.distinct, seen.edges, seen.depth]
    return Run(counts, engine.layout.words, seen.bytes_per_state, seconds)


def run(model: str, size: int, side: Side) -> Run:
    """A search in a separate process."""
    argv = [sys.executable, __file__, "--search", json.dumps([model, size, *side])]
    return Run(*json.loads(subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True).stdout))


def show(model: str, size: int, sides: Sequence[Side], rounds: int) -> bool:
    """Measure and print a row; returns whether the counts agree. The ratios are relative to the last side."""
    found = [[run(model, size, side) for side in sides] for _ in range(rounds)]
    *columns, last = zip(*found, strict=True)
    states = last[0].counts[0]
    shown = [f"{model}, {size}: {states:,} states"]
    names = []
    for side, runs in zip(sides, (*columns, last), strict=True):
        cores, words = f"core{'s' * (side.cores > 1)}", f"word{'s' * (runs[0].words > 1)}"
        names.append(f"{side.cores} {cores}, {runs[0].words} {words}")
        shown.append(f"{names[-1]}: {states / statistics.median(r.seconds for r in runs) / 1e6:.2f} M/s")
    for name, runs in zip(names, columns, strict=False):
        ratios = [a.seconds / b.seconds for a, b in zip(runs, last, strict=True)]
        shown.append(f"{names[-1]} over {name}: {spread(ratios, 2)}")
    shown.append(f"{max(r.bytes for r in last):.0f} bytes a state")
    print("| " + " | ".join(shown) + " |", flush=True)
    return all(one.counts == last[0].counts for runs in found for one in runs)


def main() -> int:
    parser = options(__doc__, 5)
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1, help="of the side with all (default: all)")
    parser.add_argument("--search", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.search:
        model, size, *side = args.search
        print(json.dumps(search(model, size, Side(*side))))
        return 0
    print(about())
    rounds = 1 if args.quick else max(1, args.rounds)
    agree = True
    for model, size, bits in QUICK if args.quick else FULL:
        for other in [Side(bits=n) for n in bits] or [Side(cores=args.cores)]:
            agree &= show(model, size, [Side(), other], rounds)
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
