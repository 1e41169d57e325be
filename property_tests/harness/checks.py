"""Conformance checks and their outcomes. Rule: nothing here needs torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a check: how many of which `unit` (contexts, edges, steps) it compared, and where the two differ.

    `of` says how many there are, where a sample of them was compared.
    """

    compared: int
    unit: str
    disagreements: tuple[str, ...]
    seconds: float
    of: int | None = None

    @property
    def amount(self) -> str:
        """`500 of 14,364 edges`."""
        whole = f" of {self.of:,}" if self.of not in (None, self.compared) else ""
        return f"{self.compared:,}{whole} {self.unit}"


@dataclass(frozen=True, slots=True)
class Check:
    """A model against a finer one, the installed torch, or our stores.

    `whole` makes the comparison, and is given a function to report with. `part`, if there is one, compares a sample, of
    a comparison that takes more than a few seconds.
    """

    name: str
    whole: Callable[[Callable[[str], None]], Outcome]
    part: Callable[[Callable[[str], None]], Outcome] | None = None

    def run(self, report: Callable[[str], None], *, sample: bool = False) -> Outcome:
        """Compare everything, or a sample if there is one."""
        return self.part(report) if sample and self.part is not None else self.whole(report)
