"""`trystate page`: models, runs and findings as one file for a browser, from a report or from a search made now."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from trystate.model.checker.expectations import judge
from trystate.model.errors import TrystateError, UsageError
from trystate.search import plans
from trystate.search.processes import Processes

from .. import registry
from ..exits import Exit
from ..outputs import try_file
from ..progress import Reporter
from ..report.files import JSON
from ..report.json import results_json
from ..report.page import contents, write_page
from .searching import Search, add_search_options, carry_out, search_options

REPORT_BYTES_MAX = 256 << 20  # the report of the whole plan has 13 MB


def page_options(p: argparse.ArgumentParser) -> None:
    p.add_argument("out", type=Path, metavar="OUT.html", help="the page to write; it needs no other file or network")
    p.add_argument(
        "--report", type=Path, metavar="DIR", dest="of",
        help="show this report of `trystate verify` (default: search the small plan now)",
    )  # fmt: skip
    add_search_options(p.add_argument_group("how to search, without --report"))
    p.set_defaults(spill=None)


def page(args: argparse.Namespace) -> int:
    """Carry out the command; returns the exit code."""
    try_file(args.out, "OUT.html")
    report, code = (_read(args.of), Exit.OK) if args.of is not None else _search(args)
    try:
        shown = contents(report)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        if args.of is None or isinstance(error, TrystateError):
            raise
        raise UsageError(f"the report in {args.of} is of another version of trystate, or damaged ({error!r}): write it "
                         "again") from None  # fmt: skip
    write_page(args.out, shown, "OUT.html")
    print(f"{args.out}: {args.out.stat().st_size / 1e6:.2f} MB; open it in a browser")
    return code


def _read(folder: Path) -> dict[str, Any]:
    path = folder / JSON
    try:
        if path.stat().st_size > REPORT_BYTES_MAX:
            raise UsageError(f"{path} is larger than {REPORT_BYTES_MAX >> 20} MiB: not a report of trystate verify")
        report: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if report["trystate"] and report["runs"] is not None:
            return report
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} cannot be read: {error}; give the folder of trystate verify --out") from None
    raise UsageError(f"{path} is not a report: give the folder of trystate verify --out")


def _search(args: argparse.Namespace) -> tuple[dict[str, Any], Exit]:
    """The runs of the small plan, without the comparisons."""
    started, reporter = time.perf_counter(), Reporter()
    runs = plans.small(registry.plan())
    options = search_options(args, len(runs))
    tasks = [Search(number, run.label, run, judge, options, reporter) for number, run in enumerate(runs, 1)]
    results = carry_out(tasks, Processes(tasks, options.searches), reporter, started)
    return results_json(results), results.exit
