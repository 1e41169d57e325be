"""Steps as people write them: the steps that a label names, the states after them, and why one is not enabled.

Rule: `trystate explore`, `follow` and scenarios find the steps of a label here, and explain a refusal with these texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import UsageError, unknown
from ..language.expressions import Expr
from ..language.scenarios import normal
from ..language.systems import State, System
from .interpret import Interpreter
from .kernel import Binding, Instance, Path

VALUES_MAX = 4  # values shown next to a part of a guard: a quantifier over many members reads all of them

Run = tuple[Any, ...]
"""The steps to a state, the last one first: (step, state before it, (step, ...)); empty for an initial state."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a guard, for given indices.

    Args:
        text: the condition, below the labels of the named conditions that it is a part of
        holds: whether the condition holds in the state
        values: the cells that decide it, with their values
    """

    text: str
    holds: bool
    values: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        more = ", …" if len(self.values) > VALUES_MAX else ""
        shown = ", ".join(f"{cell} is {value}" for cell, value in self.values[:VALUES_MAX])
        return f"{self.text} ({shown}{more})" if shown else self.text


@dataclass(frozen=True, slots=True)
class Disabled:
    """A step that is not enabled, and the parts of its guard that fail; none where it would change nothing."""

    instance: Instance
    failing: tuple[Part, ...]

    @property
    def why(self) -> str:
        """Such as `¬complete (complete is yes)`."""
        return "; ".join(map(str, self.failing)) or "it would change nothing"


class _Read(tuple[int, ...]):
    """A state that records which of its values are read."""

    seen: dict[int, None]

    def __getitem__(self, k: Any) -> Any:
        self.seen[k] = None
        return tuple.__getitem__(self, k)


class Steps:
    """The steps of a system, by their names and labels.

    Args:
        system: the system, built
    """

    def __init__(self, system: System) -> None:
        self.system = system
        self.interpreter = Interpreter(system)
        self.named: dict[str, list[Instance]] = {t.name: [] for t in system.transitions}
        for instance in self.interpreter.kernel.instances:
            self.named[instance.transition.name].append(instance)

    def called(self, step: str, indices: Mapping[str, Any] | None = None) -> list[Instance]:
        """The steps with this name or label, and these members of their indices.

        Args:
            step: `send`, `send(0)` or `send(0, 2)`; what is left out may have any value
            indices: the name of an index -> its member

        Raises:
            UsageError: the system has none.
        """
        (name, _, members), indices = normal(step).partition("("), indices or {}
        if name not in self.named:
            raise UsageError(unknown("step", name, self.named))
        instances = self.named[name]
        params = [param.name for param in instances[0].transition.params]
        for index in sorted(indices.keys() - {*params}):
            raise UsageError(unknown(f"index of {name}", index, params))
        found = [
            i
            for i in instances
            if (not members or i.label == normal(step) or i.label.startswith(f"{normal(step)[:-1]}, "))
            and all(indices.get(param, member) == member for param, member in zip(params, i.indices, strict=True))
        ]
        if not found:
            given = "".join(f", {key}={value!r}" for key, value in indices.items())
            values = (f"{p.name} from {p.sort.show(p.sort.low)} to {p.sort.show(p.sort.high)}"
                      for p in instances[0].transition.params)  # fmt: skip
            raise UsageError(
                f"{self.system.label} has no step {step}{given}: {name} has {', '.join(values) or 'no index'}"
            )
        return found

    def taken(self, states: Mapping[State, Run], steps: Iterable[Instance]) -> dict[State, Run]:
        """The states after one of these steps from one of these states, each with a run to it."""
        found: dict[State, Run] = {}
        for state, run in states.items():
            for instance in steps:
                after = self.interpreter.step(instance, state)
                if after is not None:
                    found.setdefault(after, (instance, state, run))
        return found

    def why_not(self, instance: Instance, state: State) -> Disabled:
        """Why a step that is not enabled is not: the parts of its guard that fail."""
        return Disabled(instance, tuple(part for part in self.guard(instance, state) if not part.holds))

    def refusal(self, steps: Iterable[Instance], states: Mapping[State, Run]) -> str:
        """Why none of these steps is enabled in any of these states: the reason in one of them."""
        state = next(iter(states))
        reason = "; ".join(f"{i.label} is not enabled: {self.why_not(i, state).why}" for i in steps)
        return in_one_of(states) + reason

    def guard(self, instance: Instance, state: State) -> tuple[Part, ...]:
        """The parts of a step's guard: all of them have to hold."""
        return tuple(self.parts(instance.transition.guard, state, instance.binding))

    def parts(self, expr: Expr, state: State, binding: Binding, names: tuple[str, ...] = ()) -> Iterator[Part]:
        """The parts of a condition: all of them have to hold."""
        if expr.op == "and":
            for each in expr.args:
                yield from self.parts(each, state, binding, names)
        elif expr.op == "named" and expr.args[1].op == "and" and not expr.args[2:]:
            yield from self.parts(expr.args[1], state, binding, (*names, expr.name))
        else:
            tree = self.interpreter.kernel.substituted(expr, binding)
            reads = _Read(state)
            reads.seen = {}
            holds = self.interpreter.holds(expr, reads, binding)
            cells = self.system.cells
            values = tuple((cells[k].name, cells[k].sort.show(state[k])) for k in reads.seen)
            text = str(expr if tree.op == "const" else tree)
            yield Part(": ".join((*names, text)), holds, values)


def in_one_of(states: Mapping[State, Run]) -> str:
    """The beginning of a reason that is shown for the first of several possible states."""
    return f"in none of {len(states):,} possible states; in one of them, " if len(states) > 1 else ""


def path_of(state: State, run: Run) -> Path:
    """The path of a run to a state."""
    states, numbers = [state], list[int]()
    while run:
        instance, before, run = run
        states.append(before)
        numbers.append(instance.number)
    return Path(tuple(reversed(states)), tuple(reversed(numbers)))
