"""Replays of findings on the installed torch. Rule: `reproduced` is computed from torch's own acts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

Say = Callable[[str], None]
"""Prints one step of a scenario."""


@dataclass(frozen=True, slots=True)
class Observation:
    """The result of one run."""

    reproduced: bool
    facts: tuple[str, ...]
    verdict: str


@dataclass(frozen=True, slots=True)
class Scenario:
    """One replayable counterexample on the torch that is installed."""

    name: str
    finding: str
    title: str
    run: Callable[[Say], Observation]


class Schedule(Protocol):
    """The function behind a scenario; a benign run has a harmless schedule, and must not reproduce the finding."""

    def __call__(self, say: Say, *, benign: bool = False) -> Observation: ...


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The scenarios of one part of torch by name, and the same on benign schedules."""

    scenarios: Mapping[str, Scenario]
    controls: Mapping[str, Callable[[Say], Observation]]

    @classmethod
    def of(cls, rows: Iterable[tuple[str, str, Schedule, str]]) -> Catalogue:
        """From rows of number, name, function and title."""
        known = tuple(rows)
        return cls(
            {name: Scenario(name, number, title, run) for number, name, run, title in known},
            {name: partial(run, benign=True) for _, name, run, _ in known},
        )


class ScheduleError(RuntimeError):
    """The schedule of a scenario could not be carried out: nothing was observed."""


def finish(thread: threading.Thread, seconds: float = 30.0) -> None:
    """Wait for the end of a thread.

    Raises:
        ScheduleError: it does not come in time.
    """
    thread.join(seconds)
    if thread.is_alive():
        raise ScheduleError(f"{thread.name} is not done after {seconds:g} s")


def judge(violated: bool, claim: str, facts: Iterable[str]) -> Observation:
    """The observation of a run in which `claim` was, or was not, violated."""
    return Observation(violated, tuple(facts), f"{'violated' if violated else 'held in this run'}: {claim}")
