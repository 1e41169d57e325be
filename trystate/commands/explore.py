"""`trystate explore`: walk the states of a system: plain lines in, plain lines out, so a pipe will do."""

from __future__ import annotations

import argparse
import webbrowser
from collections.abc import Callable, Iterator

from trystate.model.checker.interpret import Interpreter
from trystate.model.checker.kernel import Instance
from trystate.model.checker.verdicts import Counterexample
from trystate.model.errors import UsageError
from trystate.model.language import Form, Kind, State, System

from .. import registry
from ..choosing import build
from ..deciding import decide
from ..exits import Exit
from ..progress import Reporter
from ..report.results import plural

HELP = """\
  NUMBER      take that step
  b           back: undo the last command that moved
  r [NUMBER]  restart in an initial state (default 0)
  c PROPERTY  check it and load its counterexample, or the witness of a `sometimes`
  n           next step of the loaded run
  i NUMBER    go to the state after that many steps of the loaded run
  s           show every cell, the ones that never change included
  h           this help
  q           quit (so does the end of the input)"""


def explore(args: argparse.Namespace) -> int:
    """Carry out the command; returns the exit code."""
    system = build(registry.system_class(args.system), args)
    if args.web is not None:
        return _open(system, args)
    walk = Walk(system, print, Reporter())
    if args.counterexample:
        walk.load(args.counterexample)
    print(f"{system.label}, {plural(len(system.initial_states), 'initial state')}; h for help, q to quit")
    walk.show()
    while True:
        try:
            line = input("> ")
        except EOFError:
            print()
            return Exit.OK
        if line.strip() in ("q", "quit"):
            return Exit.OK
        try:
            walk.obey(line)
        except UsageError as error:
            print(error)


def _open(system: System, args: argparse.Namespace) -> int:
    """Write a page of the system, and open it in the browser."""
    from ..report.page import of_system, write_page

    verdict = decide(system, args.counterexample, Reporter().search) if args.counterexample else None
    if verdict is not None and verdict.run is None:
        raise UsageError(f"{args.counterexample} {verdict.status.value}: there is no run to show")
    write_page(args.web, of_system(system, args.system, verdict))
    print(f"{args.web}: {system.label}")
    webbrowser.open(args.web.absolute().as_uri())
    return Exit.OK


class Walk:
    """Where a reader is in a system, how they got there, and the run that they follow."""

    def __init__(self, system: System, say: Callable[[str], None], reporter: Reporter) -> None:
        self.system, self.say, self.reporter = system, say, reporter
        self.interpreter = Interpreter(system)
        self.state: State = system.initial_states[0]
        self.before: State | None = None  # changes are marked against this state
        self.came = "initially"
        self.history: list[tuple[State, State | None, str, int | None]] = []
        self.run: Counterexample | None = None
        self.place: int | None = None  # steps of the loaded run that lead here; None off the run

    def obey(self, line: str) -> None:
        """Carry out one command.

        Raises:
            UsageError: it is none, or does not fit here; nothing changed.
        """
        word, _, rest = line.strip().partition(" ")
        if word.isdecimal() and not rest:
            self.take(int(word))
        elif word == "r":
            self.restart(rest.strip() or "0")
        elif word == "c" and rest.strip():
            self.load(rest.strip())
        elif word == "i":
            self.jump(rest.strip())
        elif line.strip() in ("", "b", "n", "s", "h", "?"):
            {"": self.show, "b": self.back, "n": self.next, "s": self.show_all}.get(word, lambda: self.say(HELP))()
        else:
            raise UsageError(f"no command {line.strip()!r}: give a number, b, r, n, i NUMBER, c PROPERTY, s, h or q")

    def enabled(self) -> list[tuple[Instance, State]]:
        return list(self.interpreter.successors(self.state))

    def _go(self, state: State, before: State | None, came: str, place: int | None) -> None:
        self.history.append((self.state, self.before, self.came, self.place))
        self.state, self.before, self.came, self.place = state, before, came, place
        self.show()

    def take(self, number: int) -> None:
        steps = self.enabled()
        if not 1 <= number <= len(steps):
            raise UsageError(f"no step {number}: {f'choose 1 to {len(steps)}' if steps else 'none is enabled here'}")
        (instance, after), place = steps[number - 1], self.place
        if place is not None:
            place = self._after(place) if self._taken(place) == (instance.number, after) else None
        self._go(after, self.state, f"after {instance.label}", place)

    def back(self) -> None:
        if not self.history:
            raise UsageError("nothing to go back to: this is where you began")
        self.state, self.before, self.came, self.place = self.history.pop()
        self.show()

    def restart(self, text: str) -> None:
        states = self.system.initial_states
        number = _number(text, "initial state", len(states) - 1)
        self._go(states[number], None, "initially", None)

    def load(self, name: str) -> None:
        with self.reporter.doing(f"checking {name} in {self.system.label}"):
            verdict = decide(self.system, name, self.reporter.search)
        if verdict.run is None:
            raise UsageError(f"{name} {verdict.status.value}: there is no run to follow. {verdict.reason}".rstrip(". "))
        self.run = verdict.run
        self.place = None
        self.history = [(*where[:3], None) for where in self.history]  # places on the run before this one
        what = "witness" if verdict.property.form is Form.SOMETIMES else "counterexample"
        self.say(f"{name} {verdict.status.value}: {verdict.property.doc}")
        self.say(f"loaded its {what} of {plural(len(self.run.path.steps), 'step')}: n follows it, i NUMBER jumps")
        self.jump("0")

    def _loaded(self) -> Counterexample:
        if self.run is None:
            raise UsageError("no run is loaded: c PROPERTY loads one")
        return self.run

    def _taken(self, place: int) -> tuple[int, State] | None:
        """The step that the loaded run takes after `place` steps; a lasso goes round."""
        path, loop = self._loaded().path, self._loaded().loop
        if place == len(path.steps) and loop is not None and loop < place:
            place = loop
        return (path.steps[place], path.states[place + 1]) if place < len(path.steps) else None

    def next(self) -> None:
        self._loaded()
        if self.place is None:
            raise UsageError("you have left the loaded run: i NUMBER returns to it")
        taken = self._taken(self.place)
        if taken is None:
            raise UsageError("the loaded run ends here")
        number, after = taken
        label = self.interpreter.kernel.instances[number].label
        self._go(after, self.state, f"after {label}", self._after(self.place))

    def _after(self, place: int) -> int:
        """Where the step after `place` leads; a lasso goes round."""
        run = self._loaded()
        return run.loop + 1 if place == len(run.path.steps) and run.loop is not None else place + 1

    def jump(self, text: str) -> None:
        path = self._loaded().path
        place = _number(text, "step of the loaded run", len(path.steps))
        if place == 0:
            self._go(path.states[0], None, "initially", 0)
        else:
            label = self.interpreter.kernel.instances[path.steps[place - 1]].label
            self._go(path.states[place], path.states[place - 1], f"after {label}", place)

    def show(self) -> None:
        """The state, what is wrong with it, and what can happen next."""
        where = f", step {self.place} of {len(self.run.path.steps)}" if self.run and self.place is not None else ""
        self.say(f"\n{self.came}{where}")
        for line in self._fields():
            self.say(line)
        for prop in self.system.properties:
            if prop.form is Form.ALWAYS and not self.interpreter.holds(prop.exprs[0], self.state):
                self.say(f"  VIOLATED {prop.name}: {prop.doc}")
        steps = self.enabled()
        for number, (instance, _) in enumerate(steps, 1):
            kind = "" if instance.transition.kind is Kind.PROTOCOL else f"[{instance.transition.kind.value}] "
            self.say(f"  {number:3}. {instance.label}: {kind}{instance.transition.doc}")
        if not steps:
            rests = self.interpreter.holds(self.system.terminal, self.state)
            self.say(f"  nothing can happen: {'the system rests here' if rests else 'DEADLOCK'}")

    def _fields(self) -> Iterator[str]:
        """A line per field; `*` marks what the last step changed. Fields that never change are left out."""
        frozen = self.interpreter.kernel.frozen
        shown: dict[str, list[str]] = {}
        for k, cell in enumerate(self.system.cells):
            if k not in frozen:
                changed = self.before is not None and self.before[k] != self.state[k]
                shown.setdefault(cell.slot.name, []).append(cell.sort.show(self.state[k]) + "*" * changed)
        width = max(map(len, shown), default=0)
        for name, values in shown.items():
            mark = "*" if any(value.endswith("*") for value in values) else " "
            yield f"{mark} {name:{width}}  {' '.join(values)}"

    def show_all(self) -> None:
        cells = self.system.decode(self.state)
        width = max(map(len, cells))
        for name, value in cells.items():
            self.say(f"  {name:{width}}  {value}")


def _number(text: str, what: str, high: int) -> int:
    if not text.isdecimal() or int(text) > high:
        raise UsageError(f"no {what} {text!r}: choose 0 to {high}")
    return int(text)
