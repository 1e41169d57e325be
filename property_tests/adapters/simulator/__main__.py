"""`python -m trystate.property_tests.adapters.simulator`: run seeds, or one seed with everything that happens in it."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from types import FrameType

from trystate.model.errors import UnavailableError, UsageError
from trystate.search.cluster import WorkerLost

from ..rooms.worlds import ROOMS
from . import handlers, spread, swarm
from .swarm import Run, Subject

SHOWN_MAX = 200  # number of events shown of a run that failed
SEEDS_SHOWN = 8  # number of seeds shown of each property
LINE_SECONDS = 5.0  # time between two lines on stderr with the progress of a sweep
SUBJECTS = {**handlers.SUBJECTS, ROOMS.name: ROOMS}
INTERRUPTED = 130  # the exit code by which a shell reports a process ended by SIGINT


def main() -> int:
    """Exit code 1: a property does not hold; 130: interrupted before one was violated."""
    parser = argparse.ArgumentParser(prog="python -m trystate.property_tests.adapters.simulator", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this one seed")
    parser.add_argument("--seeds", type=int, default=2_000, help="the number of seeds to run (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="the first of them (default: %(default)s)")
    parser.add_argument("--nodes", type=int, help="the number of nodes in each run (default: 3 to 9, by the seed)")
    parser.add_argument(
        "--handlers", choices=[*SUBJECTS], help="real handlers: ours, ours in a room, or torch's; or members of a room"
    )
    parser.add_argument("--on", metavar="PROPERTY", help="with --handlers and --seed: continue until all is seen; the "
                                                         "smallest run that violates this one")  # fmt: skip
    parser.add_argument("--crowd", metavar="N", type=int, help="the number of our handlers that form one round")
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
    subject = SUBJECTS.get(options.handlers, swarm.CORES)
    return report(swarm.run(subject.draw(options.seed, options.nodes), subject, on=options.on is not None), options)


def sweep(options: argparse.Namespace) -> int:
    """Run all seeds, and print the seeds that violate each property; a seed that fails is printed at once."""
    seeds, subject = range(options.first, options.first + options.seeds), SUBJECTS.get(options.handlers, swarm.CORES)
    runs = swarm.sweep(seeds, subject, options.nodes)
    if options.ray is not None:
        runs = spread.sweep(options.ray, os.cpu_count() or 1, seeds, subject, options.nodes)
    found, first, last, began = defaultdict[str, list[int]](list), None, options.first, time.monotonic()
    with interruptible() as interrupted, contextlib.closing(runs):
        said = began
        for done in runs:
            last += 1
            if (now := time.monotonic()) - said > LINE_SECONDS:
                said, left = now, (now - began) * (seeds.stop - last) / (last - seeds.start)
                print(f"{last - seeds.start:,} of {len(seeds):,} seeds, {left / 60:.1f} min left", file=sys.stderr)
            if done.fails:
                first, failed = first or done, found[done.fails]
                failed.append(done.schedule.seed)
                if len(failed) <= SEEDS_SHOWN:
                    print(f"{done.fails}: {again(failed[-1], options.nodes, subject)}", flush=True)
            if interrupted.is_set():
                break
    for name, failed in found.items():
        more = ", ..." if len(failed) > SEEDS_SHOWN else ""
        print(f"{name}: {len(failed):,} seeds: {', '.join(map(str, failed[:SEEDS_SHOWN]))}{more}")
    how = f"interrupted after {last - options.first:,} of " if interrupted.is_set() else ""
    of = f", {subject.name}" if subject.name else ""
    print(f"{how}{len(seeds):,} seeds{of}: {len(found) or 'no'} properties violated, "
          f"{time.monotonic() - began:.1f} s")  # fmt: skip
    if last < seeds.stop:
        left = seeds.stop - last
        print(f"continue: python -m trystate.property_tests.adapters.simulator --first {last} --seeds {left}"
              f"{chosen(options.nodes, subject)}")  # fmt: skip
    elif first is not None and not subject.name:
        report(first, options)
    return 1 if found else INTERRUPTED if interrupted.is_set() else 0


@contextlib.contextmanager
def interruptible() -> Iterator[threading.Event]:
    """Ctrl-C in this block sets the event, so a sweep ends between two runs. A second Ctrl-C ends the sweep at once."""
    noted, before = threading.Event(), signal.getsignal(signal.SIGINT)

    def hear(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, before)
        noted.set()

    signal.signal(signal.SIGINT, hear)
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, before)


def crowd(size: int) -> int:
    """Print the requests and seconds that `size` nodes need to form a round."""
    began = time.perf_counter()
    done = handlers.crowd(size)
    everything = sum(done.asked.values())
    print(f"{size:,} nodes run after {done.seconds:.2f} s of virtual time, {time.perf_counter() - began:.1f} s of real")
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(done.asked.items()) if count)
    print(f"{everything:,} requests, {everything / max(1.0, size * math.log2(size)):.2f} N log N: {kinds}")
    print(f"violated: {done.violation}" if done.fails else "every property held")
    return 1 if done.fails else 0


def report(done: Run, options: argparse.Namespace) -> int:
    """Print the result of a run; of a failed run, the smallest run that fails in the same way."""
    small = swarm.shrink(done, options.on or "") if done.fails and not options.whole else done
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
        lines.append(again(done.schedule.seed, nodes, done.subject))
    return lines


def again(seed: int, nodes: int | None, subject: Subject) -> str:
    return f"again: python -m trystate.property_tests.adapters.simulator --seed {seed}{chosen(nodes, subject)}"


def chosen(nodes: int | None, subject: Subject) -> str:
    """The options that determine a run in addition to its seed."""
    return (f" --nodes {nodes}" if nodes is not None else "") + (f" --handlers {subject.name}" if subject.name else "")


if __name__ == "__main__":
    sys.exit(main())
