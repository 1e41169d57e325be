"""A model and a subject side by side: a step is taken on the subject, and the cells that it shows are compared.

`.stateful` draws the steps; `.paths` takes every step of a small graph. Both compute the model's states. This module
writes the texts of disagreements.
"""

from __future__ import annotations

from collections.abc import Iterator

from trystate.model.checker.interpret import Interpreter
from trystate.model.checker.kernel import Instance
from trystate.model.errors import UsageError
from trystate.model.language import State, System

from .subjects import Calls, Disagreement, Refused, Subject, cells_of, check_reset, difference


class SideBySide:
    """One subject, and the steps that it has taken since its last reset."""

    def __init__(self, interpreter: Interpreter, subject: Subject, call: Calls | None = None) -> None:
        self.subject = subject
        self.trail: list[str] = []
        self._began = ""  # the cells in which initial states differ
        self._interpreter, self._call = interpreter, call or Calls()
        self._several = len(interpreter.system.initial_states) > 1
        if self._several:
            check_reset(interpreter.system, subject)

    def reset(self, state: State | None = None) -> None:
        """The subject goes to an initial state, by default the first."""
        self.trail = []
        if not self._several:
            self._call(self.subject, "reset")
            return
        system = self._interpreter.system
        state = state or system.initial_states[0]
        self._began = initially(system, state)
        self._call(self.subject, "reset", cells_of(system, state))

    def take(self, instance: Instance) -> None:
        """The subject takes a step that the model allows.

        Raises:
            Disagreement: the subject refuses it.
        """
        self.trail.append(instance.label)
        try:
            self._perform(instance)
        except Refused as why:
            raise Disagreement(f"the model allows, the subject refuses ({why}): {self.steps_taken}") from None

    def forbidden(self, state: State) -> Iterator[Instance]:
        """The steps that the model forbids in this state and the subject can refuse."""
        for instance in self._interpreter.kernel.instances:
            can_refuse = self._call(self.subject, "can_refuse", instance.transition.name)
            if can_refuse and not self._interpreter.allowed(instance, state):
                yield instance

    def refuse(self, instance: Instance) -> None:
        """The subject refuses a step that the model forbids.

        Raises:
            Disagreement: the subject takes it.
        """
        try:
            self._perform(instance)
        except Refused:
            return
        raise Disagreement(f"the model forbids {instance.label}, the subject does it, after: {self.steps_taken}")

    def _perform(self, instance: Instance) -> None:
        try:
            result = self._call(self.subject, "perform", instance.transition.name, instance.arguments)
        except Exception as error:
            if not isinstance(error, Refused):
                error.add_note(f"raised by perform() of {instance.label}, after: {self.steps_taken}")
            raise
        if result is not None:
            raise UsageError(f"perform() of {instance.label} returns {result!r}: raise Refused where a step is refused")

    def compare(self, state: State, refused: str = "") -> None:
        """Check that the subject shows the model's state; `refused` names the steps that were refused before.

        Raises:
            Disagreement: a cell differs.
        """
        text = difference(self._interpreter.system, state, self._call(self.subject, "observe"))
        if text:
            then = f"; then refused {refused}" if refused else ""
            raise Disagreement(f"{text}; after: {self.steps_taken}{then}")

    @property
    def steps_taken(self) -> str:
        steps = " ".join(self.trail) or "the initial state"
        return f"{steps}, with {self._began} initially" if self._began else steps


def initially(system: System, state: State) -> str:
    """The cells of an initial state that other initial states have with other values: `at = 1, up = yes`."""
    named = zip(system.cells, state, strict=True)
    return ", ".join(f"{cell.name} = {cell.sort.show(value)}" for cell, value in named if len(cell.initial) > 1)
