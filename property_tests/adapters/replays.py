"""Replays of findings on the installed torch. Rule: `reproduced` is computed from torch's own acts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Say = Callable[[str], None]
"""Prints one step of a scenario."""


@dataclass(frozen=True, slots=True)
class Observation:
    """The result of one run."""

    reproduced: bool
    facts: tuple[str, ...]
    verdict: str


class ScheduleError(RuntimeError):
    """The schedule of a scenario could not be carried out: nothing was observed."""
