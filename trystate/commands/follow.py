"""`trystate follow`: the log of a user's program, one JSON value on each line, followed on the program's system."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from typing import Any, TextIO

from trystate.model.errors import UsageError
from trystate.property_tests.harness.subjects import Disagreement

from .. import registry
from ..choosing import SYSTEM_HELP, add_system_options, build
from ..exits import Exit
from ..following import Following
from ..progress import Reporter
from ..report.results import plural
from .explore import repeated

LINE_MAX = 1 << 20  # characters of a line
LABELS_SHOWN = 40  # steps of the run that is printed: the last ones


def follow_options(p: argparse.ArgumentParser) -> None:
    p.add_argument("system", metavar="SYSTEM", help=SYSTEM_HELP)
    p.add_argument("log", metavar="LOG", help="the file with one JSON value on each line, or - for standard input")
    p.add_argument(
        "--hidden", action="extend", nargs="+", default=[], metavar="STEP",
        help="steps that the log does not have; each may happen before any event",
    )  # fmt: skip
    p.add_argument(
        "--map", metavar="MODULE:FUNCTION",
        help="a function from the value of a line to an event, a list of events, or None",
    )  # fmt: skip
    add_system_options(p)


def follow(args: argparse.Namespace) -> int:
    """Carry out the command; returns the exit code."""
    following = Following(build(registry.system_class(args.system), args), args.hidden)
    to_events = _mapping(args.map) if args.map is not None else lambda value: value
    if args.log == "-":
        return _follow(args, following, sys.stdin, to_events)
    try:
        with open(args.log, encoding="utf-8") as log:
            return _follow(args, following, log, to_events)
    except OSError as error:
        raise UsageError(f"{args.log} cannot be read: {error.strerror}; give the file of the log") from error


def _mapping(name: str) -> Any:
    function = registry.imported(name, "function", "module:function")
    if not callable(function):
        raise UsageError(f"--map {name} is not a function: give one that takes the value of a line")
    return function


def _follow(args: argparse.Namespace, following: Following, log: TextIO, to_events: Any) -> int:
    name = "standard input" if args.log == "-" else args.log
    failed = ""
    with Reporter().doing(f"following {name}"):
        for number, value in _values(name, log):
            events = to_events(value)
            try:
                for event in events if isinstance(events, list) else [] if events is None else [events]:
                    following.see(event)
            except UsageError as error:
                raise UsageError(f"{name}:{number}: {error}") from error
            except Disagreement as error:
                failed = f"{name}:{number}: {error}"
                break
    labels = following.labels
    many = plural(len(following.states), "possible state")
    print(failed or f"{following.system.label}: {plural(following.events, 'event')} followed, {many}")
    print(f"{'the events before' if failed else 'one run'}: {_shown(labels)}")
    if failed and labels:
        print(f"the state there: {repeated(args, following)}")
    return Exit.FAILED if failed else Exit.OK


def _shown(labels: tuple[str, ...]) -> str:
    more = f"… {len(labels) - LABELS_SHOWN} steps … " if len(labels) > LABELS_SHOWN else ""
    return more + (" ".join(labels[-LABELS_SHOWN:]) or "no step")


def _values(name: str, log: TextIO) -> Iterator[tuple[int, Any]]:
    """The number and the value of each line that is not blank.

    Raises:
        UsageError: a line is too long, or is not a JSON value in UTF-8.
    """
    number = 0
    try:
        while line := log.readline(LINE_MAX + 1):
            number += 1
            if len(line) > LINE_MAX:
                raise UsageError(f"{name}:{number}: the line has more than {LINE_MAX:,} characters: split its events")
            if line.strip():
                yield number, json.loads(line)
    except ValueError as error:
        raise UsageError(f"{name}:{number}: not a JSON value: {error}; --map only gets values of JSON") from error
