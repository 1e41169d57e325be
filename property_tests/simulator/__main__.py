"""`python -m trystate.property_tests.simulator`: run seeds, or one seed with everything that happens in it."""

from __future__ import annotations

import argparse
import sys
import time

from .schedule import draw
from .swarm import Run, run, shrink, sweep

SHOWN_MAX = 200  # events of a run that failed


def main() -> int:
    """Exit code 1: a property does not hold."""
    parser = argparse.ArgumentParser(prog="python -m trystate.property_tests.simulator", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this one seed")
    parser.add_argument("--seeds", type=int, default=2_000, help="run so many seeds (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="the first of them (default: %(default)s)")
    parser.add_argument("--nodes", type=int, help="so many nodes in each run (default: 3 to 9, by the seed)")
    parser.add_argument("--log", action="store_true", help="with --seed: print every event")
    options = parser.parse_args()
    if options.seed is not None:
        return report(run(draw(options.seed, options.nodes)), options.nodes, log=options.log)
    began = time.perf_counter()
    failed = sweep(range(options.first, options.first + options.seeds), options.nodes)
    if failed is not None:
        return report(failed, options.nodes)
    print(f"{options.seeds:,} seeds, every property held, {time.perf_counter() - began:.1f} s")
    return 0


def report(done: Run, nodes: int | None, *, log: bool = False) -> int:
    """Print what came of a run; of one that failed, the smallest that fails in the same way."""
    small = shrink(done) if done.fails else done
    print("\n".join(told(small, nodes, log=log)))
    return 1 if done.fails else 0


def told(done: Run, nodes: int | None, *, log: bool = True) -> list[str]:
    """A run in words: its schedule, what happened, and how to see it again."""
    size = f" --nodes {nodes}" if nodes is not None else ""
    lines = [f"seed {done.schedule.seed}: {len(done.schedule.hosts)} nodes, {len(done.schedule.faults)} faults"]
    lines += done.schedule.lines()
    if log or done.fails:
        lines += ["", *map(str, done.log[-SHOWN_MAX:] if done.fails else done.log)]
    lines.append(f"violated: {done.violation}" if done.fails else f"every property held for {done.seconds:.1f} s")
    if done.fails:
        lines.append(f"again: python -m trystate.property_tests.simulator --seed {done.schedule.seed}{size}")
    return lines


if __name__ == "__main__":
    sys.exit(main())
