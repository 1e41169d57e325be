"""The options of the commands that search: how to search, what is known, and what to write."""

from __future__ import annotations

import argparse
from pathlib import Path

from trystate.model.checker.kernel import Limits

from ..choosing import positive, whole
from ..exits import REPORT_DIRECTORY
from trystate.search.machine import CPU, available_cores


def add_expectations(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "--expect",
        action="append",
        default=[],
        metavar="PROPERTY[=WHY]",
        help="this property of the system is known to be violated; may be repeated",
    )


def add_places(p: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    group = p.add_argument_group("what to write")
    group.add_argument(
        "--out",
        type=Path,
        dest="report",
        default=REPORT_DIRECTORY,
        metavar="DIR",
        help="report.json, report.md and the counterexamples (default: %(default)s)",
    )
    group.add_argument("--json", type=Path, metavar="FILE", help="write report.json to this file as well")
    group.add_argument(
        "--junit", type=Path, metavar="FILE", help="write JUnit XML, a test case for each run and property"
    )
    return group


def add_search_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--jobs",
        type=whole,
        default=available_cores(),
        metavar="N",
        help="how many searches at a time, each in a process (default: one for each core, %(default)s)",
    )
    group.add_argument(
        "--cores",
        type=whole,
        metavar="N",
        help="how many cores a large search with the engine explicit uses (default: those of the machine, shared by "
        "the searches that run at a time: one search alone has all)",
    )
    group.add_argument(
        "--device",
        default=CPU,
        metavar="NAME",
        help="where the engine explicit searches large levels: cpu (with numpy), cuda or cuda:N (a GPU, with torch; "
        "the searches take turns), torch-cpu (the code of cuda on the processor, for tests) (default: %(default)s)",
    )
    group.add_argument(
        "--engine",
        default="auto",
        metavar="NAME",
        help="auto (explicit while it fits, else symbolic), interpret (the slow reference), explicit "
        "(breadth-first, with numpy) or symbolic (decision diagrams) (default: %(default)s)",
    )
    add_symmetry(group)
    add_limits(
        group, "three quarters of what this process can still get, or of what is free on the device; the searches of "
        "several --jobs share that",
    )  # fmt: skip


def add_symmetry(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--symmetry",
        action="store_true",
        help="visit one of the states that differ only by which node is which; only with the engine explicit, "
        "and no `leads to` is then decided (default: off)",
    )


def add_limits(group: argparse._ArgumentGroup, memory: str) -> None:
    limits = Limits()
    group.add_argument(
        "--max-states",
        type=whole,
        default=limits.states,
        metavar="N",
        help=f"stop a search at N distinct states; symbolic holds none, and does not stop (default: {limits.states:,})",
    )
    group.add_argument(
        "--max-seconds",
        type=positive,
        default=limits.seconds,
        metavar="S",
        help=f"stop a search after S seconds (default: {limits.seconds:,.0f})",
    )
    group.add_argument(
        "--max-memory",
        type=whole,
        metavar="MIB",
        help=f"stop a search at MIB mebibytes (default: {memory})",
    )
