"""Which engine fits a system: an estimate from a short look, said in words so that nobody has to guess."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .kernel import Kernel, Limits

if TYPE_CHECKING:
    from .explicit import ExplicitEngine

LOOK = Limits(states=300_000, seconds=3.0)
EXPLICIT_STATES_MAX = 150_000_000  # 24 to 48 bytes each; decision diagrams only pay beyond what fits


@dataclass(frozen=True, slots=True)
class Choice:
    """An engine, why, and the explicit engine that took the look, if one did."""

    engine: str
    reason: str
    looked: ExplicitEngine | None = None


def choose(kernel: Kernel, symmetry: bool) -> Choice:
    """The engine for this system."""
    if symmetry:
        return Choice("explicit", "explicit: symmetry was asked for")
    from .explicit import ExplicitEngine

    engine = ExplicitEngine(kernel, LOOK)
    seen = engine.explore([])
    if seen.complete:
        return Choice("explicit", f"explicit: {seen.distinct:,} states", engine)
    states = project(seen.distinct, [len(level) for level in engine.levels])
    guess = f"about {states:.0e} states"
    if states <= EXPLICIT_STATES_MAX:
        return Choice("explicit", f"explicit: {guess}", engine)
    if importlib.util.find_spec("dd") is None:
        return Choice("explicit", f"explicit: {guess}, and the extra 'symbolic' is not installed", engine)
    return Choice("symbolic", f"symbolic: {guess}")


def project(distinct: int, sizes: Sequence[int]) -> int:
    """How many states a search that was stopped would have seen, from the sizes of its levels.

    Levels rise and fall about evenly; while they rise by a factor, half as many again are taken to rise by it.
    """
    growth = max(1.0, sizes[-2] / max(1, sizes[-3])) if len(sizes) > 3 else 2.0
    return int(min(1e30, 2 * distinct * growth ** (len(sizes) / 2)))
