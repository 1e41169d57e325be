"""Subjects of the conformance suites: something that can be stepped and looked at.

A subject is the thing under test behind an adapter: torch's own classes, our runtime, or yours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from trystate.model import TrystateError
from trystate.model.language import State, System


class Refused(TrystateError):
    """The subject would not take this step now. Nothing has changed."""


class Disagreement(TrystateError):
    """The subject did something else than the model: the text says what, after which steps."""


class Subject(Protocol):
    """An adapter between a model's steps and the thing under test."""

    def reset(self) -> None:
        """Go back to the model's initial state."""

    def perform(self, step: str, indices: tuple[int, ...]) -> None:
        """Take one step of the model.

        Raises:
            Refused: the subject would not do this now; it must not have changed anything.
        """

    def observe(self) -> Mapping[str, int]:
        """The visible state: name of a cell (`member[0]`) -> its value as in a model state.

        Cells that are left out are not compared.
        """

    def can_refuse(self, step: str) -> bool:
        """Can a disabled `step` be tried? Not steps of the environment, nor steps whose trial would change
        something."""


def difference(system: System, state: State, seen: Mapping[str, int]) -> str:
    """How an observation differs from a model state, in words; empty if it does not.

    Raises:
        KeyError: the subject observes a cell that the system does not have.
    """
    positions = system.positions
    names = sorted(name for name, value in seen.items() if state[positions[name]] != value)
    out = []
    for name in names:
        show = system.cells[positions[name]].sort.show
        out.append(f"{name}: model {show(state[positions[name]])}, subject {show(seen[name])}")
    return "; ".join(out)
