"""Which engine fits a system: an estimate from a short look, said in words so that nobody has to guess."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .engine import Report
from .kernel import Exploration, Kernel, Limits, Watch

if TYPE_CHECKING:
    from .explicit import ExplicitEngine

LOOK = Limits(states=300_000, seconds=3.0)
EXPLICIT_STATES_MAX = 150_000_000  # 24 to 48 bytes each; decision diagrams only pay beyond what fits


@dataclass(frozen=True, slots=True)
class Choice:
    """An engine, and why; and what is left of the look: the engine itself, and what it saw if that was everything."""

    engine: str
    reason: str
    searcher: ExplicitEngine | None = None
    seen: Exploration | None = None


def choose(kernel: Kernel, symmetry: bool, watches: Sequence[Watch], limits: Limits, report: Report) -> Choice:
    """The engine for this system; what a look completes need not be explored again."""
    if symmetry:
        return Choice("explicit", "explicit: symmetry was asked for")
    from .explicit import ExplicitEngine

    look = Limits(min(LOOK.states, limits.states), limits.memory_bytes, min(LOOK.seconds, limits.seconds))
    engine = ExplicitEngine(kernel, look)
    seen = engine.explore(watches)
    if seen.complete:
        engine.limits, engine.report = limits, report
        return Choice("explicit", f"explicit: {seen.distinct:,} states", engine, seen)
    states = project(seen.distinct, [len(level) for level in engine.levels])
    guess = f"about {states:.0e} states"
    if states > EXPLICIT_STATES_MAX:
        if importlib.util.find_spec("dd") is not None:
            return Choice("symbolic", f"symbolic: {guess}")
        guess += ", and the extra 'symbolic' is not installed"
    return Choice("explicit", f"explicit: {guess}", engine.again(limits, report))


def project(distinct: int, sizes: Sequence[int]) -> int:
    """How many states a search that was stopped would have seen, from the sizes of its levels.

    Levels rise and fall about evenly; while they rise by a factor, half as many again are taken to rise by it.
    """
    growth = max(1.0, sizes[-2] / max(1, sizes[-3])) if len(sizes) > 3 else 2.0
    return int(min(1e30, 2 * distinct * growth ** (len(sizes) / 2)))
