"""Runs that are given step by step: examples to draw, which show no violation."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import DeclarationError
from .expectations import Run
from .interpret import Interpreter
from .kernel import Path
from .verdicts import Counterexample


@dataclass(frozen=True, slots=True)
class Walk:
    """A run of the system of `run` by its steps, each as `name(index, ...)`; `title` says what it shows."""

    name: str
    title: str
    run: Run
    steps: tuple[str, ...]


def walked(walk: Walk) -> Counterexample:
    """The run of a walk, from the first initial state.

    Raises:
        DeclarationError: a step is none of the system's, or cannot be taken where it stands.
    """
    interpreter = Interpreter(walk.run.build())
    instances = {instance.label: instance for instance in interpreter.kernel.instances}
    states, numbers = [interpreter.system.initial_states[0]], list[int]()
    for label in walk.steps:
        instance = instances.get(label)
        after = None if instance is None else interpreter.step(instance, states[-1])
        if instance is None or after is None:
            raise DeclarationError(f"{walk.name}: no step {label} after {' '.join(walk.steps[: len(numbers)])}")
        states.append(after)
        numbers.append(instance.number)
    return Counterexample(Path(tuple(states), tuple(numbers)))
