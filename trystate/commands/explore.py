"""`trystate explore`: walk the states of a system with lines in and out; a pipe works too.

Rule: the walk itself is in `walking.py`. The lines show it and end with the command that repeats it.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import webbrowser
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from trystate.model.errors import LimitReached, UsageError
from trystate.model.language import Form, Kind
from trystate.search.machine import decided

from .. import registry
from ..choosing import SYSTEM_HELP, add_system_options, build, given, natural
from ..exits import Exit
from ..following import Following
from ..outputs import try_file
from ..progress import Reporter
from ..report.results import plural
from ..walking import Standing, Walk, told

HELP = """\
  NUMBER      take that step; so does its label, such as join(0)
  b           back: to the state before
  f           forward: to the state that you went back from
  j NUMBER    go to the state after that many steps of the walk
  w [NUMBER]  wander: take that many random steps (default 1)
  r [NUMBER]  restart in an initial state (default 0)
  d           the steps that are not enabled, and the part of the guard that fails
  p           each property: holds, violated, or waiting for something to happen
  l           the labels of the steps so far, as --walk takes them
  c PROPERTY  check it and load its counterexample, or the witness of a `sometimes`
  n           next step of the loaded run
  i NUMBER    go to the state after that many steps of the loaded run
  s           show every cell, the ones that never change included
  h           this help
  q           quit (so does the end of the input)"""
PART_WIDTH = 160  # columns of a part of a guard: some decide over all members and fill a screen


def explore_options(p: argparse.ArgumentParser) -> None:
    p.add_argument("system", metavar="SYSTEM", help=SYSTEM_HELP)
    add_system_options(p)
    p.add_argument("--counterexample", metavar="PROPERTY", help="check this property first and load its run")
    p.add_argument("--walk", metavar="STEPS", help="take these steps first, such as 'exit_finish(0) crash(1)'")
    p.add_argument(
        "--initial", type=natural, default=0, metavar="N", help="begin in initial state N (default: %(default)s)"
    )
    p.add_argument("--lines", action="store_true", help=argparse.SUPPRESS)  # from 0.1, which also had a screen
    p.add_argument(
        "--web", nargs="?", type=Path, const=Path("trystate-explore.html"), metavar="FILE",
        help="walk in the browser: write a page and open it (default: %(const)s)",
    )  # fmt: skip


def explore(args: argparse.Namespace) -> int:
    """Carry out the command; returns the exit code."""
    if args.walk is not None and args.counterexample is not None:
        raise UsageError("--walk and --counterexample both choose where to begin: give one of them")
    walk = Walk(build(registry.system_class(args.system), args), args.initial)
    if args.walk is not None:
        walk.follow(args.walk)
    if args.web is not None:
        return _open(walk, args)
    loaded = loading(walk, args.counterexample, Reporter()) if args.counterexample is not None else ""
    if args.lines:
        print("trystate explore: --lines has no effect: leave it out; lines are the default", file=sys.stderr)
    _lines(walk, loaded)
    if walk.labels:
        print(f"this walk again: {repeated(args, walk)}")
    return Exit.OK


def _open(walk: Walk, args: argparse.Namespace) -> int:
    """Write a page of the system and open it in the browser. The options choose the state in which the page begins."""
    from ..report.page import of_system, write_page

    try_file(args.web, "--web")
    verdict = decided(walk.system, args.counterexample, Reporter().search) if args.counterexample else None
    if verdict is not None and verdict.run is None:
        raise UsageError(f"{args.counterexample} {verdict.status.value}: there is no run to show")
    write_page(args.web, of_system(walk.system, args.system, verdict, walk), "--web")
    print(f"{args.web}: {walk.system.label}")
    webbrowser.open(args.web.absolute().as_uri())
    return Exit.OK


def repeated(args: argparse.Namespace, walk: Walk | Following) -> str:
    """The command that begins where the walk is, or where a log leads."""
    initial = ["--initial", str(walk.initial)] if walk.initial else []
    return shlex.join(["trystate", "explore", args.system, *given(args), *initial, "--walk", " ".join(walk.labels)])


def loading(walk: Walk, name: str, reporter: Reporter) -> str:
    """Check a property and load the run that shows it; returns the text for the reader.

    Raises:
        UsageError: the system has no such property, or no run shows it.
        LimitReached: it is not decided.
    """
    with reporter.doing(f"checking {name} in {walk.system.label}"):
        verdict = decided(walk.system, name, reporter.search)
    if verdict.run is None:
        raise UsageError(f"{name} {verdict.status.value}: there is no run to follow. {verdict.reason}".rstrip(". "))
    walk.load(verdict.run)
    what = "witness" if verdict.property.form is Form.SOMETIMES else "counterexample"
    steps = plural(len(verdict.run.path.steps), "step")
    return f"{name} {verdict.status.value}: {verdict.property.doc}\nloaded its {what} of {steps}"


def _lines(walk: Walk, loaded: str) -> None:
    lines = Lines(walk, print, Reporter())
    if loaded:
        lines.say(f"{loaded}: n follows it, i NUMBER jumps")
        lines.show()
    print(f"{walk.system.label}, {plural(len(walk.system.initial_states), 'initial state')}; h for help, q to quit")
    lines.show()
    while True:
        try:
            line = input("> ")
        except EOFError:
            print()
            return
        if line.strip() in ("q", "quit"):
            return
        try:
            lines.obey(line)
        except (UsageError, LimitReached) as error:
            print(error)


class Lines:
    """Carries out a reader's commands on a walk and prints the result."""

    def __init__(self, walk: Walk, say: Callable[[str], None], reporter: Reporter) -> None:
        self.walk, self.say, self.reporter = walk, say, reporter

    def obey(self, line: str) -> None:
        """Carry out one command.

        Raises:
            UsageError: it is not a command, or does not fit here; nothing changed.
        """
        walk = self.walk
        word, _, rest = line.strip().partition(" ")
        rest = rest.strip()
        moves: dict[str, Callable[[], object]] = {
            "b": walk.back, "f": walk.forward, "n": walk.next, "r": lambda: walk.restart(_number(rest or "0")),
            "j": lambda: walk.jump(_number(rest)), "i": lambda: walk.run_to(_number(rest)),
            "w": lambda: walk.wander(_number(rest or "1"), Random()),
        }  # fmt: skip
        shows: dict[str, Callable[[], None]] = {
            "d": self.show_disabled, "p": self.show_properties, "s": self.show_all,
            "l": lambda: self.say(" ".join(walk.labels) or "no step was taken"),
            "h": lambda: self.say(HELP), "?": lambda: self.say(HELP), "": lambda: None,
        }  # fmt: skip
        if word in shows and not rest:
            shows[word]()
            if word:
                return
        elif word in moves and (bool(rest) or word not in "ji") and not (rest and word in "bfn"):
            moves[word]()
        elif word == "c" and rest:
            self.say(f"{loading(walk, rest, self.reporter)}: n follows it, i NUMBER jumps")
        elif word.isdecimal() and not rest:
            walk.take_number(int(word))
        elif "(" in line or word in walk.instances:
            walk.take(line)
        else:
            raise UsageError(f"no command {line.strip()!r}: give a number, a step, or one of b, f, j NUMBER, w, r, d, "
                             "p, l, c PROPERTY, n, i NUMBER, s, h and q")  # fmt: skip
        self.show()

    def show(self) -> None:
        """The state, what is wrong with it, and what can happen next."""
        walk = self.walk
        came = walk.stop.instance
        self.say(f"\n{'initially' if came is None else f'after {came.label}'}{on_run(walk)}")
        for line in self._fields():
            self.say(line)
        for light in walk.lights():
            if light.standing is Standing.VIOLATED and light.since == walk.place:
                self.say(f"  VIOLATED {light.property.name}: {light.property.doc}")
        steps = walk.enabled()
        for number, (instance, _) in enumerate(steps, 1):
            kind = "" if instance.transition.kind is Kind.PROTOCOL else f"[{instance.transition.kind.value}] "
            self.say(f"  {number:3}. {instance.label}: {kind}{instance.transition.doc}")
        if not steps:
            self.say(f"  {nothing(walk)}")

    def _fields(self) -> Iterator[str]:
        """A line per field; `*` marks what the last step changed. Fields that never change are left out."""
        walk, changed = self.walk, {change.cell for change in self.walk.changes()}
        shown: dict[str, list[str]] = {}
        for k, (cell, value) in enumerate(walk.system.shown_cells(walk.state)):
            if k not in walk.interpreter.kernel.constant_cells:
                values = shown.setdefault(cell.slot.name, [])
                values.append(cell.sort.show(value) + "*" * (cell.name in changed))
        width = max(map(len, shown), default=0)
        for name, values in shown.items():
            mark = "*" if any(value.endswith("*") for value in values) else " "
            yield f"{mark} {name:{width}}  {' '.join(values)}"

    def show_all(self) -> None:
        cells = self.walk.system.decode(self.walk.state)
        width = max(map(len, cells))
        for name, value in cells.items():
            self.say(f"  {name:{width}}  {value}")

    def show_disabled(self) -> None:
        disabled = self.walk.disabled()
        for each in disabled:
            self.say(f"  {each.instance.label}: {'; '.join(shortened(str(part)) for part in each.failing) or each.why}")
        if not disabled:
            self.say("  every step is enabled")

    def show_properties(self) -> None:
        lights = self.walk.lights()
        width = max((len(light.property.name) for light in lights), default=0)
        for light in lights:
            self.say(f"  {light.property.name:{width}}  {told(light, self.walk.place)}")


def on_run(walk: Walk) -> str:
    """Such as `, step 2 of 5`, of the loaded run; empty off it."""
    place, run = walk.stop.on_run, walk.run
    return f", step {place} of {len(run.path.steps)}" if run is not None and place is not None else ""


def shortened(text: str, width: int = PART_WIDTH) -> str:
    """The text, cut where it is wider than a line."""
    return text if len(text) <= width else text[: width - 1] + "…"


def nothing(walk: Walk) -> str:
    """The words for a state that enables no step."""
    return f"nothing can happen: {'the system rests here' if walk.rests else 'DEADLOCK'}"


def _number(text: str) -> int:
    if not text.isdecimal():
        raise UsageError(f"{text!r} is not a number: give a whole number of at least 0")
    return int(text)
