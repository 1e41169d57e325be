"""Replays of findings on the installed torch. Rule: `reproduced` is computed from torch's own acts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
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


def judge(violated: bool, claim: str, facts: Iterable[str]) -> Observation:
    """The observation of a run in which `claim` was, or was not, violated."""
    return Observation(violated, tuple(facts), f"{'violated' if violated else 'held in this run'}: {claim}")
