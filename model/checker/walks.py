"""Runs that are given step by step: examples to draw, and initial states for tests. They show no violation.

Rule: a walk names its steps by the transitions of its system, and the state that it reaches by a `sometimes`, its
witness. A step that is not enabled at its place is refused, and so is a walk that does not reach its witness.
The `transitions` library moves the machines of the system, and the walk has the states that they reach.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import DeclarationError
from ..language import State, System
from ..language.properties import Claim, Form, Property, trace_property
from ..language.scenarios import LABEL
from .expectations import Run
from .interpret import Interpreter
from .kernel import Instance, Path
from .verdicts import Counterexample

if TYPE_CHECKING:
    from .transitions_adapter import Running


@dataclass(frozen=True, slots=True)
class Taken:
    """A step of a walk, such as `name(index, ...)`; `of` has the numbers of its events in the source of the walk."""

    step: str
    says: str = ""
    of: tuple[int, ...] = ()

    @property
    def note(self) -> str:
        """A note such as `source 3, 4: the operator decides`; empty if the step has no numbers and no words."""
        numbers = f"source {', '.join(map(str, self.of))}" if self.of else ""
        return ": ".join(part for part in (numbers, self.says) if part)


@dataclass(frozen=True, slots=True)
class Walk:
    """A run of the system of `run`; `title` describes it, and `before` has the steps that lead to its first state.

    `witness` is the name of a `sometimes` of the system, or a `sometimes` that only the walk has. It is false in the
    first state of the walk, and true in the last.
    """

    name: str
    title: str
    run: Run
    steps: tuple[Taken, ...]
    witness: str | Claim
    before: str = ""

    @property
    def all_steps(self) -> tuple[Taken, ...]:
        """The steps before the walk and the steps of the walk."""
        return (*map(Taken, LABEL.findall(self.before)), *self.steps)

    @property
    def notes(self) -> tuple[str, ...]:
        """The note of each step."""
        return tuple(taken.note for taken in self.steps)


def walked(walk: Walk, system: System | None = None) -> Counterexample:
    """The run of a walk; `system` is the system that its `run` builds, if it is built already.

    Raises:
        DeclarationError: a step does not belong to the system, or is not enabled at its place; or the witness does not
            belong to the system, is true before the walk, or is not true after it.
    """
    system = system or walk.run.build()
    labels = [taken.step for taken in walk.all_steps]
    path, begin = _follow(system, labels, f"{walk.name}: ", _on_library(system)), len(labels) - len(walk.steps)
    witness, interpreter = shown_by(walk, system), Interpreter(system)
    if interpreter.holds(witness.exprs[0], path.states[begin]):
        raise DeclarationError(f"{walk.name}: {witness.name} is true where the walk begins: begin earlier")
    if not interpreter.holds(witness.exprs[0], path.states[-1]):
        at = interpreter.system.decode(path.states[-1])
        raise DeclarationError(f"{walk.name}: {witness.name} is not true where the walk ends, in {at}")
    return Counterexample(Path(path.states[begin:], path.steps[begin:]))


def shown_by(walk: Walk, system: System) -> Property:
    """The property that is true in the last state of the walk.

    Raises:
        DeclarationError: the system has no such `sometimes`.
    """
    if isinstance(walk.witness, Claim):
        return trace_property(system, walk.witness.body.__name__, walk.witness)
    having = {p.name: p for p in system.properties if p.form is Form.SOMETIMES}
    if walk.witness not in having:
        raise DeclarationError(f"{walk.name}: no witness {walk.witness!r}: known are {', '.join(having) or 'none'}")
    return having[walk.witness]


def after(system: System, steps: str) -> State:
    """The state after steps such as `join(0) crash(1)` from the first initial state.

    Raises:
        DeclarationError: a step does not belong to the system, or is not enabled at its place.
    """
    return _follow(system, LABEL.findall(steps)).states[-1]


def _on_library(system: System) -> tuple[Running, ...]:
    """Each machine of the system, for the first members of its indices, as the `transitions` library runs it."""
    from .transitions_adapter import to_transitions  # imported here: only a walk needs the library

    return tuple(
        to_transitions(each, **{p.args[0]: p.sort.low for p in each.params})[0] for each in system.machines.values()
    )


def _follow(system: System, steps: Iterable[str], whose: str = "", machines: Sequence[Running] = ()) -> Path:
    """The path of the steps: the library's machines take them, or the interpreter without a machine."""
    interpreter = Interpreter(system)
    instances = {instance.label: instance for instance in interpreter.kernel.instances}
    states, numbers, labels = [system.initial_states[0]], list[int](), list[str]()
    for label in steps:
        reached = None
        if (instance := instances.get(label)) is not None:
            reached = _moved(machines, instance) if machines else interpreter.step(instance, states[-1])
        if instance is None or reached is None:
            behind = " ".join(labels) or "none"
            at = interpreter.system.decode(states[-1])
            raise DeclarationError(f"{whose}no step {label} after {behind}, in {at}")
        states.append(reached)
        numbers.append(instance.number)
        labels.append(label)
    return Path(tuple(states), tuple(numbers))


def _moved(machines: Sequence[Running], instance: Instance) -> State | None:
    """The state to which the library moves the machines, or None if one of them refuses the step."""
    from .transitions_adapter import taken

    found = {taken(machine, instance) for machine in machines}
    return found.pop() if len(found) == 1 else None
