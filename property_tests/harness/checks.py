"""Conformance checks and their outcomes. Rule: nothing here needs torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a check: the number of compared units (`unit`: contexts, edges, steps), and the differences.

    `of` is the number of all units, if only a sample was compared.
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
    """A comparison of a model with a finer model, with the installed torch, or with our stores.

    `whole` compares everything, and reports its progress with the function that it receives. A comparison that takes
    more than a few seconds also has a `part`, which compares a sample.
    """

    name: str
    whole: Callable[[Callable[[str], None]], Outcome]
    part: Callable[[Callable[[str], None]], Outcome] | None = None

    def run(self, report: Callable[[str], None], *, sample: bool = False) -> Outcome:
        """Compare everything. With `sample`, compare only the sample, if the check has one."""
        return self.part(report) if sample and self.part is not None else self.whole(report)


def sampled(name: str, compare: Callable[..., Outcome], what: Sequence[Any], stride: int, edges_max: int) -> Check:
    """A check of several systems. Its sample has some edges of each `stride`-th."""
    return Check(name, partial(compare, what), partial(compare, what[::stride], edges_max=edges_max))
