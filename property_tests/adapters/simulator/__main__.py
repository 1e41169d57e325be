"""`python -m trystate.property_tests.adapters.simulator`: run seeds, or one seed with everything that happens in it."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import sys
import time
from collections import defaultdict

from trystate.model.errors import UnavailableError, UsageError
from trystate.search.cluster import WorkerLost

from . import handlers, spread, swarm
from .progress import Progress
from .schedule import draw
from .spread import Run

SHOWN_MAX = 200  # events of a run that failed
SEEDS_SHOWN = 8  # of each property
INTERRUPTED = 130  # as a shell reports a process ended by SIGINT


def main() -> int:
    """Exit code 1: a property does not hold; 130: interrupted before one was violated."""
    parser = argparse.ArgumentParser(prog="python -m trystate.property_tests.adapters.simulator", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this one seed")
    parser.add_argument("--seeds", type=int, default=2_000, help="run so many seeds (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="the first of them (default: %(default)s)")
    parser.add_argument("--nodes", type=int, help="so many nodes in each run (default: 3 to 9, by the seed)")
    parser.add_argument("--handlers", choices=handlers.SIDES, help="real handlers in torch's agents, ours or torch's")
    parser.add_argument("--on", metavar="PROPERTY", help="with --handlers and --seed: go on until all is seen; the "
                                                         "smallest run that violates this one")  # fmt: skip
    parser.add_argument("--crowd", metavar="N", type=int, help="so many of our handlers form one round")
    parser.add_argument("--whole", action="store_true", help="of a run that failed: as it was drawn, not the smallest")
    parser.add_argument("--log", action="store_true", help="with --seed: print every event")
    parser.add_argument("--ray", metavar="ADDRESS", help="run the seeds on a Ray cluster: local, auto, HOST:PORT or "
                                                         "ray://HOST:PORT (default: in this process)")  # fmt: skip
    options = parser.parse_args()
    if options.crowd is not None:
        return crowd(options.crowd)
    if options.seed is None:
        try:
            return sweep(options)
        except (UsageError, UnavailableError, WorkerLost) as error:
            if options.ray is None:
                raise
            parser.error(str(error))
    if options.handlers is None:
        return report(swarm.run(draw(options.seed, options.nodes)), options)
    side, on = handlers.SIDES[options.handlers], options.on is not None
    return report(handlers.run(handlers.usual(options.seed, options.nodes), side, on=on), options)


def sweep(options: argparse.Namespace) -> int:
    """All seeds, and for each property those that violate it; a seed that fails is printed at once."""
    seeds, side = range(options.first, options.first + options.seeds), handlers.SIDES.get(options.handlers or "")
    runs = spread.runs(seeds, options.nodes, options.handlers)
    if options.ray is not None:
        runs = spread.sweep(options.ray, os.cpu_count() or 1, seeds, options.nodes, options.handlers)
    progress, found, first = Progress(len(seeds), "seeds"), defaultdict[str, list[int]](list), None
    with contextlib.closing(progress.watch(runs, lambda one: one.fails)) as watched, contextlib.closing(runs):
        for done in watched:
            if not done.fails:
                continue
            first, failed = first or done, found[done.fails]
            failed.append(done.schedule.seed)
            if len(failed) <= SEEDS_SHOWN:
                print(f"{done.fails}: {again(failed[-1], options.nodes, options.handlers)}", flush=True)
    for name, failed in found.items():
        more = ", ..." if len(failed) > SEEDS_SHOWN else ""
        print(f"{name}: {len(failed):,} seeds: {', '.join(map(str, failed[:SEEDS_SHOWN]))}{more}")
    how = f"interrupted after {progress.done:,} of " if progress.interrupted else ""
    print(f"{how}{len(seeds):,} seeds{f', {side.name}' if side else ''}: {len(found) or 'no'} properties violated, "
          f"{progress.seconds:.1f} s")  # fmt: skip
    last = options.first + progress.done
    if last < seeds.stop:
        print(f"go on: python -m trystate.property_tests.adapters.simulator --first {last} --seeds {seeds.stop - last}"
              f"{chosen(options.nodes, options.handlers)}")  # fmt: skip
    elif first is not None and side is None:
        report(first, options)
    return 1 if found else INTERRUPTED if progress.interrupted else 0


def crowd(size: int) -> int:
    """The requests and seconds for so many nodes to form a round."""
    began = time.perf_counter()
    done = handlers.crowd(size)
    everything = sum(done.asked.values())
    print(f"{size:,} nodes run after {done.seconds:.2f} s of virtual time, {time.perf_counter() - began:.1f} s of real")
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(done.asked.items()) if count)
    print(f"{everything:,} requests, {everything / max(1.0, size * math.log2(size)):.2f} N log N: {kinds}")
    print(f"violated: {done.violation}" if done.fails else "every property held")
    return 1 if done.fails else 0


def report(done: Run, options: argparse.Namespace) -> int:
    """Print what came of a run; of one that failed, the smallest that fails in the same way."""
    if not done.fails or options.whole:
        small = done
    elif isinstance(done, handlers.Run):
        small = handlers.shrink(done, options.on or "")
    else:
        small = swarm.shrink(done)
    print("\n".join(told(small, options.nodes, log=options.log)))
    return 1 if done.fails else 0


def told(done: Run, nodes: int | None, *, log: bool = True) -> list[str]:
    """A run in words: its schedule, what happened, and how to see it again."""
    lines = [f"seed {done.schedule.seed}: {len(done.schedule.hosts)} nodes, {len(done.schedule.faults)} faults"]
    lines += done.schedule.lines()
    if log or done.fails:
        lines += ["", *map(str, done.log[-SHOWN_MAX:] if done.fails else done.log)]
    lines.append(f"violated: {done.violation}" if done.fails else f"every property held for {done.seconds:.1f} s")
    if done.fails:
        lines.append(again(done.schedule.seed, nodes, done.side.name if isinstance(done, handlers.Run) else None))
    return lines


def again(seed: int, nodes: int | None, side: str | None) -> str:
    return f"again: python -m trystate.property_tests.adapters.simulator --seed {seed}{chosen(nodes, side)}"


def chosen(nodes: int | None, side: str | None) -> str:
    """The options that a run depends on, beside its seed."""
    return (f" --nodes {nodes}" if nodes is not None else "") + (f" --handlers {side}" if side is not None else "")


if __name__ == "__main__":
    sys.exit(main())
