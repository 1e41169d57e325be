"""Searches on several cores with tiny chunks, so that small systems have many of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from trystate.model.checker.check import watches
from trystate.model.checker.explicit import engine as explicit
from trystate.model.checker.explicit import visited, workers
from trystate.model.checker.explicit.engine import ExplicitEngine
from trystate.model.checker.kernel import Kernel, Limits
from trystate.model.language import System
from trystate.property_tests.support.runs import MANY
from trystate.property_tests.support.systems.engine_samples import Ring, ThreeWords, TwoWords
from trystate.property_tests.support.systems.two_phase_commit import TwoPhaseCommit
from trystate.search import cores
from trystate.search.cores import Cores


@contextmanager
def tiny(chunk: int = 3, slot: int = 1 << 16) -> Iterator[None]:
    """Chunks of so many states, ranges of two keys, and a comparison with the set after every nine successors."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(explicit, "CHUNK", chunk)
        patch.setattr(visited, "PENDING_MIN", 8)
        patch.setattr(workers, "RANGE_MIN", 2)
        patch.setattr(cores, "SLOT_BYTES", slot)
        patch.setattr(cores, "ANSWER_SECONDS", 10.0)
        yield


def answers(of: System, count: int, limits: Limits = MANY, **options: Any) -> dict[str, Any]:
    """Everything that a search says, but for times and bytes."""
    kernel = Kernel(of)
    engine = ExplicitEngine(kernel, limits, workers=Cores(count), **options)
    seen = engine.explore([replace(watch, path=True) for watch in watches(kernel)])
    said: dict[str, Any] = {
        "graph": (seen.distinct, seen.edges, seen.depth, seen.stopped),
        "found": list(seen.found.items()),
        "levels": [level[:].tobytes() for level in engine.levels],
    }
    if seen.complete and engine.symmetry is None:
        said["edges"] = engine.explored().graph.after.tobytes()
    return said


SYSTEMS: dict[str, Callable[[], System]] = {
    "one word": lambda: TwoPhaseCommit(rm=4),
    "two words": lambda: TwoWords(rm=2),
    "six words": lambda: ThreeWords(rm=3),
    "several initial states": lambda: Ring(node=2, faults=["loss"]),
}
