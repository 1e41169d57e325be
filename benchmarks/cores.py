"""A search of the explicit engine on one core and on several, and of states in one word and in several.

    python benchmarks/cores.py [--rounds N] [--cores N] [--quick]

Each run is a process of its own, and the two sides take turns. The comparison is of wall-clock time, so other programs
disturb it: the time that they took meanwhile stands beside each row, and a pair of runs in which they took more than a
twentieth of a core is made again, a few times. Words of fewer bits hold the same states of the same graph in more
words. The counts of both sides must agree, or the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import NamedTuple

from checker import about, spread

from trystate.model.checker.explicit import packing
from trystate.model.checker.explicit.engine import ExplicitEngine
from trystate.model.checker.kernel import Kernel, Limits, Watch, WatchKey, WatchKind
from trystate.model.language import Form, System, not_
from trystate.property_tests.support.systems.small_rendezvous import small_rendezvous
from trystate.property_tests.support.systems.two_phase_commit import TwoPhaseCommit
from trystate.search.cores import Cores

TRIES = 8  # of a pair of runs that others disturb
DISTURBED_CORES = 0.05


class Side(NamedTuple):
    """The settings of one run: how many cores, and how many bits a word holds."""

    cores: int
    bits: int


@dataclass(frozen=True)
class Case:
    """A model of one size, searched on one core and on several; `bits`: also with words of so many bits."""

    model: str
    size: int
    bits: tuple[int, ...] = (packing.WORD_BITS,)


FULL = (
    Case("two phase commit", 9), Case("rendezvous", 4),
    Case("two phase commit", 8, bits=(30, 16, 12)), Case("rendezvous", 3, bits=(20, 12, 8)),
)  # fmt: skip
QUICK = (Case("two phase commit", 3), Case("rendezvous", 2, bits=(12,)))


class Run(NamedTuple):
    """The counts of a search and the words of its states, its wall-clock seconds, and the cores that others took."""

    counts: tuple[int, int, int]
    words: int
    seconds: float
    others: float


def search(case: Case, side: Side) -> None:
    """Search, in a process of its own, and print the counts and the seconds."""
    packing.WORD_BITS = side.bits
    system: System = TwoPhaseCommit(rm=case.size) if case.model == "two phase commit" else small_rendezvous(case.size)
    asked = [p for p in system.properties if p.form is Form.ALWAYS]
    watches = [Watch(WatchKey(WatchKind.ALWAYS, p.name), not_(p.exprs[0]), {}) for p in asked]
    engine = ExplicitEngine(Kernel(system), Limits(), workers=Cores(side.cores))
    begun = time.perf_counter()
    seen = engine.explore(watches)
    assert watches and seen.complete and not seen.found, seen
    print(json.dumps([[seen.distinct, seen.edges, seen.depth], engine.layout.words, time.perf_counter() - begun]))


def busy_seconds() -> float:
    """Of all cores and all programs, since the machine started."""
    with open("/proc/stat") as file:
        ticks = [int(text) for text in file.readline().split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


def run(case: Case, side: Side) -> Run:
    argv = [sys.executable, __file__, "--search", json.dumps([case.model, case.size, *side])]
    own, busy, begun = resource.getrusage(resource.RUSAGE_CHILDREN), busy_seconds(), time.perf_counter()
    text = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    took, busy, after = time.perf_counter() - begun, busy_seconds() - busy, resource.getrusage(resource.RUSAGE_CHILDREN)
    ours = after.ru_utime + after.ru_stime - own.ru_utime - own.ru_stime
    counts, words, seconds = json.loads(text)
    return Run(tuple(counts), words, seconds, max(0.0, busy - ours) / took)


def pair(case: Case, one: Side, other: Side, tries: int) -> tuple[Run, Run]:
    """A run of each side, one after the other; the least disturbed of a few pairs."""
    best: tuple[Run, Run] | None = None
    for _ in range(tries):
        found = run(case, one), run(case, other)
        if best is None or max(r.others for r in found) < max(r.others for r in best):
            best = found
        if max(r.others for r in best) <= DISTURBED_CORES:
            break
    assert best is not None
    return best


def show(case: Case, one: Side, other: Side, rounds: int, tries: int) -> bool:
    """Measure and print a row; returns whether the counts agree."""
    pairs = [pair(case, one, other, tries) for _ in range(rounds)]
    first, second = pairs[0]
    told = [f"{case.model}, {case.size}: {first.counts[0]:,} states"]
    for side, runs in ((one, [p[0] for p in pairs]), (other, [p[1] for p in pairs])):
        rate = runs[0].counts[0] / statistics.median(r.seconds for r in runs) / 1e6
        words = f"{runs[0].words} word{'s' if runs[0].words > 1 else ''}"
        told.append(f"{side.cores} core{'s' if side.cores > 1 else ''}, {words}: {rate:.2f} M/s")
    told.append(f"ratio {spread([a.seconds / b.seconds for a, b in pairs], 2)}")
    told.append(f"others {max(max(a.others, b.others) for a, b in pairs):.2f}")
    print("| " + " | ".join(told) + " |", flush=True)
    return first.counts == second.counts


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="pairs of runs (default 5)")
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1, help="of the second side (default: all)")
    parser.add_argument("--quick", action="store_true", help="one round of the smallest sizes")
    parser.add_argument("--search", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.search:
        model, size, cores, bits = json.loads(args.search)
        search(Case(model, size), Side(cores, bits))
        return 0
    print(about())
    agree = True
    rounds, tries = (1, 1) if args.quick else (max(1, args.rounds), TRIES)
    for case in QUICK if args.quick else FULL:
        for bits in case.bits:
            sides = [Side(1, packing.WORD_BITS), Side(args.cores if len(case.bits) == 1 else 1, bits)]
            agree &= show(case, *sides, rounds, tries)
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
