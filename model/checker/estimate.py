"""Chooses the engine for a system by an estimate from a short search, and gives the reason in words."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from math import log10, prod
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..language.expressions import TRUE
from .engine import Engine, OnProgress
from .kernel import Exploration, Kernel, Limits, Watch

if TYPE_CHECKING:
    from .explicit.ranks import Ranks
    from .explicit.storage import Storage
    from .explicit.workers import Workers

LOOK_STATES, LOOK_STATES_PLAIN, LOOK_SECONDS = 300_000, 10_000, 10.0
EXPLICIT_STATES_MAX = 150_000_000  # 24 to 48 bytes each; decision diagrams pay only if states do not fit in memory


@dataclass(frozen=True, slots=True)
class Options:
    """How to search a system: the arguments of `check`."""

    engine: str
    symmetry: bool | tuple[str, ...]
    limits: Limits
    on_progress: OnProgress
    workers: Workers | None = None
    storage: Storage | None = None
    ranks: Ranks | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """An engine and the reason for it; if it made the short search, also the engine itself and its exploration."""

    engine: str
    reason: str
    searcher: Engine | None = None
    seen: Exploration | None = None


def choose(kernel: Kernel, watches: Sequence[Watch], options: Options) -> Choice:
    """The engine for this system; a system that the short search completes is not explored again."""
    if options.symmetry:
        return Choice("explicit", "explicit: symmetry was requested")
    possible = prod(len(cell.initial) for cell in kernel.cells)
    initial = possible if kernel.system.initial_condition is TRUE else 0  # a condition may leave few of them
    if initial > EXPLICIT_STATES_MAX and _has_diagrams():
        return Choice("symbolic", f"symbolic: {initial:.0e} initial states")
    from .explicit.engine import ExplicitEngine, Pause

    guess = Guess(initial, possible, options.limits)
    try:
        pause = Pause(LOOK_STATES, LOOK_SECONDS, guess.stop_reason)
        engine = ExplicitEngine(kernel, options.limits, options.on_progress, pause=pause, workers=options.workers)
    except UsageError as refused:
        return _beside_explicit(kernel, watches, options, str(refused))
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
    """Estimates the states of a search that the short look did not complete, and whether they fit the engine."""

    def __init__(self, initial: int, possible: int, limits: Limits) -> None:
        """`possible`: the limit of initial states, which counts while they are not all found."""
        self._initial, self._possible = initial, possible
        self._limits = limits
        self.text = ""
        self.too_large = False

    def stop_reason(self, distinct: int, sizes: Sequence[int], bytes_per_state: float) -> str:
        """Why the search should continue with diagrams; empty if it should not."""
        states = max(self._initial, project(distinct, sizes), self._possible if len(sizes) < 2 else 0)
        self.text = f"about {states:.0e} states"
        self.too_large = states > min(EXPLICIT_STATES_MAX, self._limits.memory_bytes / max(1.0, bytes_per_state))
        return self.text if self.too_large and _has_diagrams() else ""


def _beside_explicit(kernel: Kernel, watches: Sequence[Watch], options: Options, refused: str) -> Choice:
    """The engine for a system that cannot be packed; perhaps few values of its wide field are reachable."""
    from .reference.engine import ReferenceEngine

    own = options.limits
    look = Limits(min(LOOK_STATES_PLAIN, own.states), own.memory_bytes, min(LOOK_SECONDS, own.seconds))
    reference = ReferenceEngine(kernel, look)
    seen = reference.explore(watches)
    if seen.complete:
        reference.limits, reference.on_progress = own, options.on_progress
        return Choice("interpret", f"interpret: {seen.distinct:,} states; {refused}", reference, seen)
    if _has_diagrams():
        return Choice("symbolic", f"symbolic: more than {seen.distinct:,} states; {refused}")
    return Choice("interpret", f"interpret: the extra 'symbolic' is not installed; {refused}")


def _has_diagrams() -> bool:
    return importlib.util.find_spec("dd") is not None


def project(distinct: int, sizes: Sequence[int]) -> int:
    """The estimated number of states of a search that was stopped, from the sizes of its levels.

    Levels grow and shrink about evenly. While they grow by a factor, the estimate assumes that half as many further
    levels grow by the same factor.
    """
    growth = max(1.0, sizes[-2] / max(1, sizes[-3])) if len(sizes) > 3 else 2.0
    return int(10 ** min(30.0, log10(2 * max(1, distinct)) + len(sizes) / 2 * log10(growth)))
