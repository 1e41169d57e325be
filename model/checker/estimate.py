"""Which engine fits a system: an estimate from a short look, said in words so that nobody has to guess."""

from __future__ import annotations

import importlib.util

from .kernel import Kernel, Limits

LOOK = Limits(states=300_000, seconds=3.0)
EXPLICIT_STATES_MAX = 150_000_000  # 24 to 48 bytes each; decision diagrams only pay beyond what fits


def choose(kernel: Kernel, symmetry: bool) -> tuple[str, str]:
    """The engine for this system, and why."""
    if symmetry:
        return "explicit", "explicit: symmetry was asked for"
    states, closed = project(kernel)
    if closed:
        return "explicit", f"explicit: {states:,} states"
    guess = f"about {states:.0e} states"
    if states <= EXPLICIT_STATES_MAX:
        return "explicit", f"explicit: {guess}"
    if importlib.util.find_spec("dd") is None:
        return "explicit", f"explicit: {guess}, and the extra 'symbolic' is not installed"
    return "symbolic", f"symbolic: {guess}"


def project(kernel: Kernel) -> tuple[int, bool]:
    """How many states there are: exactly, if a short search sees them all, else a projection.

    The sizes of the breadth-first levels rise and fall about evenly; while they rise by a factor per level,
    half as many levels again are taken to rise by that factor.
    """
    from .explicit import ExplicitEngine

    engine = ExplicitEngine(kernel, LOOK)
    seen = engine.explore([])
    if seen.complete:
        return seen.distinct, True
    sizes = [len(level) for level in engine.levels]
    growth = max(1.0, sizes[-2] / max(1, sizes[-3])) if len(sizes) > 3 else 2.0
    return int(min(1e30, 2 * seen.distinct * growth ** (len(sizes) / 2))), False
