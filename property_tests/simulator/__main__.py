"""`python -m trystate.property_tests.simulator`: run seeds, or one seed with everything that happens in it."""

from __future__ import annotations

import argparse
import math
import sys
import time

from . import handlers, swarm
from .schedule import draw

SHOWN_MAX = 200  # events of a run that failed
SEEDS_SHOWN = 8
Run = swarm.Run | handlers.Run


def main() -> int:
    """Exit code 1: a property does not hold."""
    parser = argparse.ArgumentParser(prog="python -m trystate.property_tests.simulator", description=__doc__)
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
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.seeds)
    if options.crowd is not None:
        return crowd(options.crowd)
    if options.handlers is not None:
        return of_handlers(options, seeds)
    if options.seed is not None:
        return report(swarm.run(draw(options.seed, options.nodes)), options)
    began = time.perf_counter()
    failed = swarm.sweep(seeds, options.nodes)
    if failed is not None:
        return report(failed, options)
    print(f"{options.seeds:,} seeds, every property held, {time.perf_counter() - began:.1f} s")
    return 0


def of_handlers(options: argparse.Namespace, seeds: range) -> int:
    """All seeds, and for each property those that violate it."""
    side, on = handlers.SIDES[options.handlers], options.on is not None
    if options.seed is not None:
        return report(handlers.run(handlers.usual(options.seed, options.nodes), side, on=on), options)
    began = time.perf_counter()
    found = handlers.found(handlers.sweep(seeds, side, options.nodes))
    for name, failed in found.items():
        more = ", ..." if len(failed) > SEEDS_SHOWN else ""
        print(f"{name}: {len(failed):,} seeds: {', '.join(map(str, failed[:SEEDS_SHOWN]))}{more}")
    print(f"{options.seeds:,} seeds, {side.name}: {len(found) or 'no'} properties violated, "
          f"{time.perf_counter() - began:.1f} s")  # fmt: skip
    if found:
        print(again(min(min(failed) for failed in found.values()), options.nodes, side.name))
    return 1 if found else 0


def crowd(size: int) -> int:
    """What it takes so many nodes to form a round."""
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
    size, whose = (f" --nodes {nodes}" if nodes is not None else ""), f" --handlers {side}" if side is not None else ""
    return f"again: python -m trystate.property_tests.simulator --seed {seed}{size}{whose}"


if __name__ == "__main__":
    sys.exit(main())
