"""`trystate search`: check one system on several ranks, which a launcher has started.

Theory of operation. Every rank carries out the whole command: it builds the system and searches together with the
others (`model/checker/explicit/partitioned.py`). Only the first rank prints and writes the report. A rank that finds
an argument wrong, or has lost another rank, prints that itself. An error that all ranks find is printed by the first.
"""

from __future__ import annotations

import argparse
import resource
import time
from pathlib import Path

from trystate.model.checker.explicit.ranks import RankLost
from trystate.model.errors import TrystateError
from trystate.search import ranks as joining
from trystate.search.machine import SearchOptions

from ..choosing import SYSTEM_HELP, add_system_options, positive
from ..exits import Exit
from ..progress import Reporter
from ..report.files import Places
from ..report.results import Results, plural
from ..report.summary import print_results
from .searching import add_expectations, add_limits, add_places, add_symmetry, symmetry_of
from .verify import asked_for


def search_options(p: argparse.ArgumentParser) -> None:
    p.add_argument("system", metavar="SYSTEM", help=SYSTEM_HELP)
    add_expectations(p)
    add_system_options(p)
    group = p.add_argument_group("how to search")
    group.add_argument(
        "--timeout", type=positive, default=300.0, metavar="S",
        help="a rank that waits longer for the others treats one as lost and ends (default: %(default)g)",
    )  # fmt: skip
    group.add_argument(
        "--checkpoint", type=Path, dest="spill", metavar="DIR",
        help="keep the search, and states that do not fit in --max-memory, in this directory, which all hosts share; "
        "the same command, on any number of ranks, resumes a search that was stopped (default: in memory only)",
    )  # fmt: skip
    add_symmetry(group)
    add_limits(group, "of each rank: three quarters of what its process can still get, shared by the ranks of its host")
    add_places(p)


def search(args: argparse.Namespace) -> int:
    """Carry out the command; returns the exit code."""
    options = SearchOptions(
        "explicit", symmetry_of(args), states=args.max_states, seconds=args.max_seconds, memory_bytes=args.max_memory,
        searches=joining.ranks_of_this_host(),  # they share its memory
        cores=1, spill=args.spill,
    )  # fmt: skip
    with joining.joined(args.timeout) as ranks:
        try:
            return _search(args, options, ranks) if ranks.rank == 0 else _help(args, options, ranks)
        except RankLost as lost:
            if ranks.stopped_by:  # the launcher ends all ranks when one of them has ended
                lost.args = (f"{lost.args[0]}; {ranks.stopped_by} has come as well",)
            raise


def _search(args: argparse.Namespace, options: SearchOptions, ranks: joining.TorchRanks) -> int:
    started = time.perf_counter()
    places, reporter = Places(args.report, args.json, args.junit), Reporter()
    (task,) = asked_for([args.system], args, options, args.report, reporter, ranks)
    places.prepare()
    with reporter.doing(f"{task.name} on {plural(ranks.count, 'rank')}"):
        done = task()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10  # Linux reports KiB
    reporter.done(f"rank 0 of {ranks.count} has sent {ranks.sent_bytes >> 20:,} MiB of states, and had {peak:,} MiB")
    results = Results(checked=[done], interrupted=ranks.stopped_by, left=[task.name] * bool(ranks.stopped_by))
    results.seconds = time.perf_counter() - started
    print_results(results, args.report, asked=True, torch="")
    places.write(results)
    return results.exit


def _help(args: argparse.Namespace, options: SearchOptions, ranks: joining.TorchRanks) -> int:
    (task,) = asked_for([args.system], args, options, None, Reporter(), ranks)
    try:
        task()
    except RankLost:
        raise
    except TrystateError:  # the first rank has the same error and prints it
        pass
    return Exit.OK
