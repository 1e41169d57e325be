"""Runs that are given step by step: examples to draw, and states to begin with, which show no violation.

Rule: a walk names its steps by the transitions of its system; a step that is not enabled where it stands is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ..errors import DeclarationError
from ..language import State, System
from .expectations import Run
from .interpret import Interpreter
from .kernel import Path
from .verdicts import Counterexample

LABEL = re.compile(r"\w+(?:\([^)]*\))?")


@dataclass(frozen=True, slots=True)
class Taken:
    """A step of a walk, as `name(index, ...)`; `of` has the numbers that its source gives what happens in it."""

    step: str
    says: str = ""
    of: tuple[int, ...] = ()

    @property
    def note(self) -> str:
        """Such as `source 3, 4: the operator decides`; empty if the step has no words."""
        numbers = f"source {', '.join(map(str, self.of))}" if self.of else ""
        return ": ".join(part for part in (numbers, self.says) if part)


@dataclass(frozen=True, slots=True)
class Walk:
    """A run of the system of `run`; `title` says what it shows, and `before` has the steps that lead to its begin."""

    name: str
    title: str
    run: Run
    steps: tuple[Taken, ...]
    before: str = ""

    @property
    def all_steps(self) -> tuple[Taken, ...]:
        """Those before the walk too."""
        return (*map(Taken, LABEL.findall(self.before)), *self.steps)

    @property
    def notes(self) -> tuple[str, ...]:
        """The words of each step."""
        return tuple(taken.note for taken in self.steps)


def walked(walk: Walk, system: System | None = None) -> Counterexample:
    """The run of a walk; `system` is what its `run` builds, if that is there already.

    Raises:
        DeclarationError: a step is none of the system's, or is not enabled where it stands.
    """
    labels = [taken.step for taken in walk.all_steps]
    path, begin = _follow(system or walk.run.build(), labels, f"{walk.name}: "), len(labels) - len(walk.steps)
    return Counterexample(Path(path.states[begin:], path.steps[begin:]))


def after(system: System, steps: str) -> State:
    """The state after these steps from the first initial state, such as `join(0) crash(1)`.

    Raises:
        DeclarationError: a step is none of the system's, or is not enabled where it stands.
    """
    return _follow(system, LABEL.findall(steps)).states[-1]


def _follow(system: System, steps: Iterable[str], whose: str = "") -> Path:
    interpreter = Interpreter(system)
    instances = {instance.label: instance for instance in interpreter.kernel.instances}
    states, numbers, labels = [system.initial_states[0]], list[int](), list[str]()
    for label in steps:
        instance = instances.get(label)
        reached = None if instance is None else interpreter.step(instance, states[-1])
        if instance is None or reached is None:
            behind = " ".join(labels) or "none"
            at = interpreter.kernel.decode(states[-1])
            raise DeclarationError(f"{whose}no step {label} after {behind}, in {at}")
        states.append(reached)
        numbers.append(instance.number)
        labels.append(label)
    return Path(tuple(states), tuple(numbers))
