"""`trystate explain`: what a record shows, or what a message means; each kind has its own module.

Rule: a module that needs torch is loaded only for a record of a rendezvous.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from trystate.model.errors import UsageError
from trystate.monitor import agents, passes

from ..choosing import positive, whole
from ..outputs import try_file
from .agents import explain_agents
from .messages import message
from .passes import explain_passes


def _nnodes(text: str) -> tuple[int, int]:
    low, _, high = text.partition(":")
    high = high or low
    if not (low.isascii() and low.isdigit() and high.isascii() and high.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of nodes: give MIN:MAX, as for torchrun")
    if not 1 <= int(low) <= int(high) <= 10_000:
        raise argparse.ArgumentTypeError(f"{text!r}: give MIN:MAX with 1 <= MIN <= MAX <= 10000")
    return int(low), int(high)


def explain_options(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "files",
        nargs="*",
        type=Path,
        metavar="FILE",
        help="a record of `trystate store serve --record FILE`, or records of backward passes",
    )
    p.add_argument(
        "--message",
        metavar="TEXT",
        help="explain a message that a job on torch printed: its text, the path of a log, or - for standard input",
    )
    p.add_argument("--rdzv-id", metavar="ID", help="explain only this rendezvous (default: each one in the record)")
    p.add_argument(
        "--steps", action="store_true", help="show each step of the model, and properties that fail for a moment"
    )
    p.add_argument("--json", action="store_true", help="print everything as JSON")
    p.add_argument("--diagram", type=Path, metavar="SVG", help="draw the run as a sequence into this file")
    p.add_argument("--html", type=Path, metavar="FILE", help="write the run as a page that plays it step by step")
    group = p.add_argument_group("settings of torch's rendezvous, where they are not the defaults; ours are recorded")
    group.add_argument("--nnodes", type=_nnodes, metavar="MIN:MAX", help="as for torchrun (default: from the record)")
    group.add_argument(
        "--edition", choices=("TORCH", "TORCH_2_12"), help="torch 2.13 and later, or 2.5 to 2.12 (default: TORCH)"
    )
    group.add_argument(
        "--keep-alive-interval",
        type=positive,
        metavar="S",
        help="seconds between two heartbeats, as in --rdzv-conf (default: from the record)",
    )
    group.add_argument(
        "--keep-alive-max-attempt",
        type=whole,
        metavar="N",
        help="missed heartbeats until a node is dropped, as in --rdzv-conf (default: from the record)",
    )


def explain(args: argparse.Namespace) -> int:
    """Carry out the command; returns the exit code."""
    if args.message is not None:
        return message(args)
    if not args.files:
        raise UsageError("nothing to explain: name the FILE of a record, or give --message TEXT")
    try_file(args.html, "--html")
    try_file(args.diagram, "--diagram")
    of_passes = [path for path in args.files if passes.is_record(path)]
    if of_passes and args.html is not None:
        raise UsageError(f"--html shows a rendezvous, but {of_passes[0]} is a record of passes: use --diagram")
    if of_passes:
        return explain_passes(args, of_passes)
    of_agents = [path for path in args.files if agents.is_record(path)]
    if of_agents:
        return explain_agents(args, of_agents)
    from .rendezvous import explain_rendezvous  # it loads torch

    return explain_rendezvous(args)
