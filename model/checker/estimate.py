"""Which engine fits a system: an estimate from a short look, said in words so that nobody has to guess."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from math import log10, prod
from typing import TYPE_CHECKING

from ..errors import UsageError
from .engine import Engine, OnProgress
from .kernel import Exploration, Kernel, Limits, Watch

if TYPE_CHECKING:
    from .explicit.workers import Workers

LOOK_STATES, LOOK_STATES_PLAIN, LOOK_SECONDS = 300_000, 10_000, 10.0
EXPLICIT_STATES_MAX = 150_000_000  # 24 to 48 bytes each; decision diagrams only pay beyond what fits


@dataclass(frozen=True, slots=True)
class Choice:
    """An engine, and why; and, if the look was made with it, the engine itself, and what it saw."""

    engine: str
    reason: str
    searcher: Engine | None = None
    seen: Exploration | None = None


def choose(
    kernel: Kernel, symmetry: bool, watches: Sequence[Watch], limits: Limits, on_progress: OnProgress,
    workers: Workers | None = None,
) -> Choice:  # fmt: skip
    """The engine for this system; what a look completes need not be explored again."""
    if symmetry:
        return Choice("explicit", "explicit: symmetry was asked for")
    initial = prod(len(cell.slot.initial) for cell in kernel.cells)
    if initial > EXPLICIT_STATES_MAX and _has_diagrams():
        return Choice("symbolic", f"symbolic: {initial:.0e} initial states")
    from .explicit.engine import ExplicitEngine, Pause

    guess = Guess(initial, limits)
    try:
        pause = Pause(LOOK_STATES, LOOK_SECONDS, guess.stop_reason)
        engine = ExplicitEngine(kernel, limits, on_progress, pause=pause, workers=workers)
    except UsageError as refused:
        return _beside_explicit(kernel, watches, limits, on_progress, str(refused))
    seen = engine.explore(watches)
    if seen.complete and seen.distinct <= LOOK_STATES:
        return Choice("explicit", f"explicit: {seen.distinct:,} states", engine, seen)
    if not guess.text:
        guess.stop_reason(seen.distinct, engine.levels.sizes, seen.bytes_per_state)
    if guess.too_large and _has_diagrams():
        return Choice("symbolic", f"symbolic: {guess.text}")
    missing = ", and the extra 'symbolic' is not installed" if guess.too_large else ""
    return Choice("explicit", f"explicit: {guess.text}{missing}", engine, seen)


class Guess:
    """How many states a search will see that is not over after a short look, and whether the engine can hold them."""

    def __init__(self, initial: int, limits: Limits) -> None:
        self._initial = initial
        self._limits = limits
        self.text = ""
        self.too_large = False

    def stop_reason(self, distinct: int, sizes: Sequence[int], bytes_per_state: float) -> str:
        """Why the search should go on with diagrams; empty if it should not."""
        states = max(self._initial, project(distinct, sizes))
        self.text = f"about {states:.0e} states"
        self.too_large = states > min(EXPLICIT_STATES_MAX, self._limits.memory_bytes / max(1.0, bytes_per_state))
        return self.text if self.too_large and _has_diagrams() else ""


def _beside_explicit(
    kernel: Kernel, watches: Sequence[Watch], limits: Limits, on_progress: OnProgress, refused: str
) -> Choice:  # fmt: skip
    """The engine for a system that cannot be packed. Few values of a wide field may be reachable."""
    from .reference.engine import ReferenceEngine

    reference = ReferenceEngine(kernel, _look(LOOK_STATES_PLAIN, limits))
    seen = reference.explore(watches)
    if seen.complete:
        reference.limits, reference.on_progress = limits, on_progress
        return Choice("interpret", f"interpret: {seen.distinct:,} states; {refused}", reference, seen)
    if _has_diagrams():
        return Choice("symbolic", f"symbolic: more than {seen.distinct:,} states; {refused}")
    return Choice("interpret", f"interpret: the extra 'symbolic' is not installed; {refused}")


def _look(states: int, limits: Limits) -> Limits:
    return Limits(min(states, limits.states), limits.memory_bytes, min(LOOK_SECONDS, limits.seconds))


def _has_diagrams() -> bool:
    return importlib.util.find_spec("dd") is not None


def project(distinct: int, sizes: Sequence[int]) -> int:
    """How many states a search that was stopped would have seen, from the sizes of its levels.

    Levels rise and fall about evenly; while they rise by a factor, half as many again are taken to rise by it.
    """
    growth = max(1.0, sizes[-2] / max(1, sizes[-3])) if len(sizes) > 3 else 2.0
    return int(10 ** min(30.0, log10(2 * max(1, distinct)) + len(sizes) / 2 * log10(growth)))
