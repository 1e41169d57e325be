"""A search of the explicit engine on the processor, with one core and with all, and on a GPU.

    python benchmarks/device.py [--rounds N] [--device NAME] [--cores N] [--only PART ...] [--quick] [--profile]

Each run is a process of its own, and the sides take turns. The comparison is of wall-clock time of the search alone: a
process on the device has searched a small system before, so that torch has loaded its kernels. The counts of all sides
must agree, or the exit code is 1. Bytes are the peak of the device's own account, for each state. `--profile` shows
where the time of one search on the device goes, operation by operation.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any, NamedTuple

from checker import about, spread

from trystate.model.checker.explicit import packing
from trystate.model.checker.explicit.engine import ExplicitEngine
from trystate.model.checker.kernel import Exploration, Kernel, Limits, Watch, WatchKey, WatchKind
from trystate.model.language import Form, System, not_
from trystate.property_tests.support.systems.small_rendezvous import small_rendezvous
from trystate.property_tests.support.systems.two_phase_commit import TwoPhaseCommit
from trystate.search import device as devices
from trystate.search.machine import SearchOptions

STATES_MAX = 1 << 33
SYSTEMS = {"two phase commit": lambda n: TwoPhaseCommit(rm=n), "rendezvous": small_rendezvous}


class Side(NamedTuple):
    """Where a run searches: the device, and with NumPy how many cores."""

    device: str
    cores: int

    @property
    def title(self) -> str:
        return f"{self.cores} core{'s' if self.cores > 1 else ''}" if self.device == "cpu" else self.device


@dataclass(frozen=True)
class Case:
    """A model of one size, in words of so many bits.

    `one` and `all`: is it searched with one core, and with all, as well as on the device?
    """

    model: str
    size: int
    bits: int = packing.WORD_BITS
    one: bool = True
    all: bool = True


FULL = {
    "small": (Case("two phase commit", 9), Case("rendezvous", 4), Case("rendezvous", 4, bits=20)),
    "large": (Case("two phase commit", 10), Case("two phase commit", 11, one=False), Case("rendezvous", 5, one=False)),
    "largest": (Case("two phase commit", 12, one=False, all=False),),
}
QUICK = {"small": (Case("two phase commit", 3), Case("rendezvous", 2, bits=12))}


class Run(NamedTuple):
    """The counts of a search and the words of its states, its wall-clock seconds, and its peak bytes for each state."""

    counts: tuple[int, int, int]
    words: int
    seconds: float
    bytes: float


def engine_of(system: System, side: Side) -> tuple[ExplicitEngine, list[Watch]]:
    asked = [p for p in system.properties if p.form is Form.ALWAYS]
    watches = [Watch(WatchKey(WatchKind.ALWAYS, p.name), not_(p.exprs[0]), {}) for p in asked]
    workers, bounds = SearchOptions("explicit", device=side.device, cores=side.cores).workers()
    return ExplicitEngine(Kernel(system), Limits(STATES_MAX, bounds.memory_bytes), workers=workers), watches


def explored(system: System, side: Side) -> tuple[Exploration, int]:
    engine, watches = engine_of(system, side)
    seen = engine.explore(watches)
    assert watches and seen.complete and not seen.found, seen
    return seen, engine.layout.words


def search(case: Case, side: Side, profile: bool = False) -> None:
    """Search, in a process of its own, and print the counts and the seconds."""
    packing.WORD_BITS = case.bits
    if side.device != "cpu":
        least, devices.LEVEL_MIN = devices.LEVEL_MIN, 1
        explored(SYSTEMS[case.model](3), side)
        devices.LEVEL_MIN = least
    system = SYSTEMS[case.model](case.size)
    if profile:
        profiled(system, side)
        return
    begun = time.perf_counter()
    seen, words = explored(system, side)
    print(
        json.dumps([[seen.distinct, seen.edges, seen.depth], words, time.perf_counter() - begun, seen.bytes_per_state])
    )


def profiled(system: System, side: Side) -> None:
    """Print the operations of a search that took the most time, on the device and on the processor."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        explored(system, side)
    told: Any = seen.key_averages()
    for by in ("self_cuda_time_total", "self_cpu_time_total"):
        print(told.table(sort_by=by, row_limit=14, max_name_column_width=60))


def run(case: Case, side: Side) -> Run:
    argv = [sys.executable, __file__, "--search", json.dumps([case.model, case.size, case.bits, *side])]
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True)
    counts, *others = json.loads(done.stdout)
    return Run(tuple(counts), *others)


def show(case: Case, sides: list[Side], rounds: int) -> bool:
    """Measure and print a row; returns whether the counts agree. The last side is the device."""
    runs: dict[Side, list[Run]] = {side: [] for side in sides}
    for _ in range(rounds):
        for side in sides:
            runs[side].append(run(case, side))
    *others, there = sides
    counts = runs[there][0].counts
    words = runs[there][0].words
    told = [f"{case.model}, {case.size}: {counts[0]:,} states of {words} word{'s' if words > 1 else ''}"]
    for side in sides:
        told.append(f"{side.title}: {counts[0] / statistics.median(r.seconds for r in runs[side]) / 1e6:.2f} M/s")
    for side in others:
        ratios = [a.seconds / b.seconds for a, b in zip(runs[side], runs[there], strict=True)]
        told.append(f"{there.title} to {side.title}: {spread(ratios, 1)}")
    told.append(f"{max(r.bytes for r in runs[there]):.0f} bytes a state")
    print("| " + " | ".join(told) + " |", flush=True)
    return all(r.counts == counts for found in runs.values() for r in found)


def name_of(device: str) -> str:
    import torch

    found = devices.named(device)
    return device if found.type == "cpu" else f"{torch.cuda.get_device_name(found)}, torch {torch.__version__}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3, help="runs of each side (default 3)")
    parser.add_argument("--device", default="cuda", help="the other side (default cuda)")
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1, help="of the side with all cores")
    parser.add_argument("--only", nargs="+", choices=tuple(FULL), default=tuple(FULL), help="these sizes")
    parser.add_argument("--quick", action="store_true", help="one round of the smallest sizes")
    parser.add_argument("--profile", action="store_true", help="profile the first size instead")
    parser.add_argument("--search", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.search:
        model, size, bits, *side = json.loads(args.search)
        search(Case(model, size, bits), Side(*side))
        return 0
    sizes = QUICK if args.quick else FULL
    cases = [case for part in args.only for case in sizes.get(part, ())]
    there = Side(args.device, 1)
    if args.profile:
        search(cases[0], there, profile=True)
        return 0
    print(about(), name_of(args.device), sep="; ")
    agree = True
    for case in cases:
        sides = [*([Side("cpu", 1)] if case.one else []), *([Side("cpu", args.cores)] if case.all else []), there]
        agree &= show(case, sides, 1 if args.quick else max(1, args.rounds))
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
