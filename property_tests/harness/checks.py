"""What a conformance check is, and what it answers. Rule: nothing here needs torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a check compared: how many of which `unit` (contexts, edges, steps), and where the two differ."""

    compared: int
    unit: str
    disagreements: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Check:
    """A model against a finer one, the installed torch, or our stores; `run` is given a function to report with."""

    name: str
    run: Callable[[Callable[[str], None]], Outcome]
