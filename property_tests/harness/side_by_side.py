"""A model and a subject side by side: a step is taken on the subject, and the cells that it shows are compared.

`.stateful` draws the steps; `.paths` takes every step of a small graph. Both compute the model's states. This module
writes the texts of disagreements.
"""

from __future__ import annotations

from collections.abc import Iterator

from trystate.model.checker.interpret import Interpreter
from trystate.model.checker.kernel import Instance
from trystate.model.language import State

from .subjects import Disagreement, Refused, Subject, called, difference


class SideBySide:
    """One subject, and the steps that it has taken since its last reset."""

    def __init__(self, interpreter: Interpreter, subject: Subject) -> None:
        self.subject = subject
        self.trail: list[str] = []
        self._interpreter = interpreter

    def reset(self) -> None:
        self.trail = []
        called(self.subject, "reset")

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
            can_refuse = called(self.subject, "can_refuse", instance.transition.name)
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
        called(self.subject, "perform", instance.transition.name, instance.arguments)

    def compare(self, state: State, refused: str = "") -> None:
        """Check that the subject shows the model's state; `refused` names the steps that were refused before.

        Raises:
            Disagreement: a cell differs.
        """
        text = difference(self._interpreter.system, state, called(self.subject, "observe"))
        if text:
            then = f"; then refused {refused}" if refused else ""
            raise Disagreement(f"{text}; after: {self.steps_taken}{then}")

    @property
    def steps_taken(self) -> str:
        return " ".join(self.trail) or "the initial state"
