"""`trystate simulate`: campaigns of random cases, one case again, or a crowd of nodes.

Theory of operation. The pieces of a campaign (`adapters/campaigns/pieces`) are tasks of `processes.Processes`, or of a
Ray cluster. Each result is added to the notebook at once: Ctrl-C or a kill loses only the pieces under way.
The first Ctrl-C ends the campaign after the next piece, a second one at once. At the end of the time the pieces under
way have a grace period; then their seeds are not decided. On a Ray cluster they are dropped.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from trystate.model.errors import UnavailableError, UsageError
from trystate.property_tests.adapters.versions import prepare_for_torch, torch_problem
from trystate.search.checkpoint import Lock
from trystate.search.cluster import Cluster
from trystate.search.machine import available_cores
from trystate.search.processes import Processes
from trystate.search.signals import handled

from ..choosing import natural, positive, whole
from ..exits import Exit
from ..outputs import make_folder, try_file, writing
from ..progress import Reporter, shown
from ..report.results import plural

if TYPE_CHECKING:
    from trystate.property_tests.adapters.campaigns.notebook import Notebook

SECONDS = 60.0  # limit of a campaign without another limit
GRACE_SECONDS = 60.0  # pieces under way at the end may take so much longer; longer if a piece has more seeds
PIECES_EACH = 4_000  # pieces of a kind, if time is the limit: for a longer time a piece has more seeds


def simulate_options(p: argparse.ArgumentParser) -> None:
    p.add_argument("kinds", nargs="*", metavar="KIND", help="kinds of cases (default: all that run here)")
    p.add_argument("--list", action="store_true", help="list the kinds")
    group = p.add_argument_group("a campaign")
    group.add_argument("--seeds", type=whole, metavar="N", help="the number of seeds of each kind")
    group.add_argument("--first", type=natural, default=0, metavar="N", help="the first seed (default: %(default)s)")
    group.add_argument("--hours", type=positive, metavar="H", help="stop after H hours")
    group.add_argument(
        "--seconds", type=positive, metavar="S", help=f"stop after S seconds (default without --seeds: {SECONDS:g})"
    )
    group.add_argument(
        "--jobs", type=whole, default=available_cores(), metavar="N", help="processes (default: %(default)s, the cores)"
    )
    group.add_argument("--ray", metavar="ADDRESS", help="run on a Ray cluster: local, auto, HOST:PORT, ray://HOST:PORT")
    group.add_argument("--out", type=Path, metavar="DIR", help="keep the campaign here, and continue one that is here")
    group.add_argument("--ledger", type=Path, metavar="FILE", help="add the numbers to this JSON file")
    group = p.add_argument_group("one case again")
    group.add_argument("--seed", type=natural, metavar="N", help="run this seed; if it fails, the smallest such case")
    group.add_argument("--nodes", type=whole, metavar="N", help="nodes of a simulated job (default: by the seed)")
    group.add_argument("--on", metavar="PROPERTY", help="the smallest run that violates this property")
    group.add_argument("--whole", action="store_true", help="a run that fails as it was drawn, not the smallest")
    group.add_argument("--log", action="store_true", help="every event")
    group.add_argument("--crowd", type=whole, metavar="N", help="the number of our handlers that form one round")


def simulate(args: argparse.Namespace) -> int:
    """Carry out the command; returns the exit code."""
    if problem := torch_problem():
        raise UnavailableError(problem)
    prepare_for_torch()
    from trystate.property_tests.adapters.campaigns import kinds
    from trystate.property_tests.adapters.campaigns.notebook import read_ledger

    if args.crowd is not None:
        return _crowd(args.crowd)
    if args.list:
        for kind in kinds.kinds().values():
            print(f"{kind.name:16} {kind.title}{f' (not here: {why})' if (why := kind.problem()) else ''}")
        return Exit.OK
    chosen = [kinds.kind_named(name) for name in dict.fromkeys(args.kinds)]
    chosen = chosen or [kind for kind in kinds.kinds().values() if not kind.problem()]
    if args.seed is None:
        if args.on or args.whole or args.log:
            raise UsageError("--on, --whole and --log are for one case: give its --seed")
        if args.ledger is not None:
            try_file(args.ledger, "--ledger")
            read_ledger(args.ledger)
        if args.out is not None:
            make_folder(args.out, "--out")
        with contextlib.closing(Lock(str(args.out))) if args.out is not None else contextlib.nullcontext():
            return _campaign(args, [kind.name for kind in chosen])
    if len(args.kinds) != 1:
        raise UsageError(f"--seed {args.seed} is of one kind: name it, as in `trystate simulate ours --seed 17`")
    lines = chosen[0].lines(args.seed, args.nodes, on=args.on or "", whole=args.whole, log=args.log)
    print("\n".join(lines))
    return Exit.FAILED if any(line.startswith("violated: ") for line in lines) else Exit.OK


def _campaign(args: argparse.Namespace, names: list[str]) -> int:
    from trystate.property_tests.adapters.campaigns.kinds import kind_named
    from trystate.property_tests.adapters.campaigns.notebook import Notebook, commit_here, write_ledger
    from trystate.property_tests.adapters.campaigns.pieces import PIECES_MAX, pieces

    seconds = args.hours * 3600 if args.hours else args.seconds or (math.inf if args.seeds else SECONDS)
    book = Notebook(args.out, commit_here(), args.nodes)
    batches = [kind_named(name).batch for name in names]
    size = 1 + args.seeds * len(names) // (min(batches) * PIECES_MAX) if args.seeds else max(
        1, round(seconds * args.jobs / PIECES_EACH))  # fmt: skip
    past = max((stop for done in book.done.values() for _, stop in done), default=args.first) - args.first
    count = args.seeds or max(0, past) + max(batches) * size * PIECES_EACH
    make = partial(pieces, names, args.first, count, args.nodes, size, book.done)
    tasks = make()
    if book.began:
        print(f"continued: {book.began:,} seeds of commit {book.commit} are done", file=sys.stderr)
    here = Processes(tasks, args.jobs, GRACE_SECONDS * size)
    where = here if args.ray is None else Cluster(args.ray, tasks, make, jobs=args.jobs)
    progress = Progress(len(tasks), math.inf if args.seeds else seconds, args.seeds)
    ends = time.monotonic() + seconds
    with interruptible() as interrupted, where as workers, Reporter().showing(progress.line) as changed:
        for number, tally in workers.results(range(len(tasks)), ends):
            book.add(tasks[number], tally)
            progress.add(tally.seeds, sum(tally.faults.values()), len(tally.found))
            changed()
            for one in tally.found:
                print(f"{one['property']}: again: {one['again']}", flush=True)
            if interrupted.is_set():
                break
    code = _report(book, interrupted.is_set(), [tasks[number].name for number in here.under_way])
    if args.ledger is not None:
        with writing(args.ledger, "--ledger"):
            write_ledger(args.ledger, list(book.entries(f"{datetime.now(UTC):%Y-%m-%d}")))
    return code


class Progress:
    """How far a campaign is, as a line."""

    def __init__(self, pieces: int, seconds: float, counted: bool) -> None:
        self._pieces, self._seconds, self._counted = pieces, seconds, counted
        self._began = time.monotonic()
        self.done = self.cases = self.faults = self.found = 0

    def add(self, cases: int, faults: int, found: int) -> None:
        self.done, self.cases = self.done + 1, self.cases + cases
        self.faults, self.found = self.faults + faults, self.found + found

    def line(self) -> str:
        """`12,300 seeds, 31.2 a second, 15,201 faults, 2 found, about 48 min left`."""
        past = time.monotonic() - self._began
        left = self._seconds - past
        if self._counted:
            left = min(left, past * (self._pieces - self.done) / self.done if self.done else math.inf)
        text = f"{self.cases:,} seeds, {self.cases / max(past, 1e-9):.1f} a second, {self.faults:,} faults, "
        return f"{text}{self.found} found" + (f", about {shown(max(0.0, left))} left" if left < math.inf else "")


def _report(book: Notebook, interrupted: bool, late: list[str]) -> int:
    """Print the result of each kind; returns the exit code."""
    from trystate.property_tests.adapters.campaigns.kinds import kind_named

    found = silent = 0
    for name, chapter in book.chapters.items():
        tally, kind = chapter.tally, kind_named(name)
        if not tally.seeds:
            continue
        limit = f" of {kind.settle_seconds:g} s" if kind.settle_seconds else ""
        rest = f", at rest {tally.settled_seconds:.1f} s after the last fault at most{limit}" if limit else ""
        print(f"{name}: {tally.seeds:,} seeds, {tally.steps:,} steps, {sum(tally.faults.values()):,} faults, "
              f"{tally.cpu_seconds / 3600:.2f} h of a core{rest}")  # fmt: skip
        for prop, times in Counter(one["property"] for one in tally.found).items():
            seeds = ", ".join(str(one["seed"]) for one in tally.found if one["property"] == prop)
            print(f"  {prop} is violated by {plural(times, 'seed')}: {seeds[:100]}")
        if not tally.found:
            print(f"  no property is violated: with 95 % confidence, by at most one seed in {1 / tally.bound:,.0f}")
        for number, times in tally.shown.most_common():
            print(f"  torch: {number} in {times:,} seeds")
        if tally.canaries:
            reported = tally.canaries - len(tally.silent)
            print(f"  planted faults: {reported} of {tally.canaries} were reported")
        for seed in tally.silent:
            print(
                f"  CANARY: the fault planted at seed {seed} was not reported: this campaign proves nothing of {name}"
            )
        found, silent = found + len(tally.found), silent + len(tally.silent)
    if book.unkept is not None:
        print(f"the last numbers are not in {book.folder}: {book.unkept.strerror}: free some space, and run it again")
    for name in late:
        print(f"not decided: {name} were under way when the time was over")
    if interrupted:
        print("interrupted" + (f": the same command continues from {book.folder}" if book.folder else ""))
    if found or silent:
        return Exit.FAILED
    return Exit.INTERRUPTED if interrupted else Exit.INCOMPLETE if book.unkept is not None or late else Exit.OK


@contextlib.contextmanager
def interruptible() -> Iterator[threading.Event]:
    """Ctrl-C in this block sets the event, so a campaign ends between two pieces. A second Ctrl-C ends it at once."""
    noted, before = threading.Event(), signal.getsignal(signal.SIGINT)

    def note(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, before)
        noted.set()

    with handled({signal.SIGINT: note}):
        yield noted


def _crowd(size: int) -> int:
    """Print the requests and seconds that `size` nodes need to form a round."""
    from trystate.property_tests.adapters.simulator.handlers import crowd

    began = time.perf_counter()
    done = crowd(size)
    everything = sum(done.asked.values())
    print(f"{size:,} nodes run after {done.seconds:.2f} s of virtual time, {time.perf_counter() - began:.1f} s of real")
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(done.asked.items()) if count)
    print(f"{everything:,} requests, {everything / max(1.0, size * math.log2(size)):.2f} N log N: {kinds}")
    print(f"violated: {done.violation}" if done.fails else "every property held")
    return Exit.FAILED if done.fails else Exit.OK
