"""Searches on several cores with tiny chunks: small systems then have many of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from trystate.model.checker.explicit import codes, packing, storage, vectorise, visited, workers
from trystate.model.checker.explicit import engine as explicit
from trystate.model.checker.explicit.engine import ExplicitEngine
from trystate.model.checker.explicit.packing import Layout
from trystate.model.checker.explicit.workers import Workers
from trystate.model.checker.kernel import Kernel, Limits
from trystate.model.language import System
from trystate.property_tests.support.ranks import answers as found_by
from trystate.property_tests.support.runs import MANY
from trystate.property_tests.support.systems.declarations import declared
from trystate.property_tests.support.systems.engine_samples import Overflowing, Ring, ThreeWords, TwoWords
from trystate.property_tests.support.systems.two_phase_commit import TwoPhaseCommit
from trystate.property_tests.support.systems.wide_systems import TERM_MAX, Totals, cells
from trystate.search import cores, spill
from trystate.search.cores import Cores


@contextmanager
def patched(*values: tuple[Any, str, Any]) -> Iterator[pytest.MonkeyPatch]:
    """Attributes, each of a module or a class, have other values."""
    with pytest.MonkeyPatch.context() as patch:
        for value in values:
            patch.setattr(*value)
        yield patch


def tiny(chunk: int = 3) -> AbstractContextManager[pytest.MonkeyPatch]:
    """Chunks of `chunk` states, ranges of two keys, and a comparison with the set after every nine successors.

    A group of terms has two.
    """
    return patched(
        (explicit, "CHUNK", chunk), (vectorise, "TERMS_MAX", 2), (visited, "PENDING_MIN", 8),
        (workers, "RANGE_MIN", 2), (cores, "SLOT_BYTES", 1 << 16), (cores, "ANSWER_SECONDS", 10.0),
    )  # fmt: skip


def answers(of: System, workers: int | Workers, limits: Limits = MANY, **options: Any) -> dict[str, Any]:
    """The complete result of a search, except times and bytes."""
    kernel = Kernel(of)
    engine = ExplicitEngine(kernel, limits, workers=Cores(workers) if isinstance(workers, int) else workers, **options)
    said = found_by(engine)
    said["levels"] = [level[:].tobytes() for level in engine.levels]
    if not said["graph"][-1] and engine.symmetry is None:
        said["edges"] = engine.explored().graph.after.tobytes()
    return said


@contextmanager
def narrow(of: Callable[[], System], bits: int = 5) -> Iterator[int]:
    """Words of `bits` bits, or as wide as the widest cell. Yields the number of words."""
    kernel = Kernel(of())
    widest = max(place.bits for place in Layout(kernel.cells, kernel.constant_cells).places)
    with patched((packing, "WORD_BITS", max(widest, bits))):
        yield Layout(kernel.cells, kernel.constant_cells).words


def coded(bits: int) -> AbstractContextManager[pytest.MonkeyPatch]:
    """Codes of `bits` bits from the first level on, in tables with many values to a slot.

    With 14 bits, two phase commit has two sets of codes one after the other, and then no codes.
    """
    values = {"CODE_BITS": bits, "SHARE": 0, "RETRY": 2, "SLOTS_MIN": 2, "SPARSE": 1}
    return patched((visited, "CODED_MIN", 1), *((codes, name, value) for name, value in values.items()))


@contextmanager
def small(chunk: int = 3, block: int = 4, seconds: float = 0.0) -> Iterator[None]:
    """Tiny chunks, ranges and blocks; a search saves at each level."""
    with tiny(chunk), patched((storage, "BLOCK", block), (spill, "SAVE_SECONDS", seconds)):
        yield


# A step that computes beyond int64.
Sums = declared(
    "@transition()\ndef empty(self, s):\n    'The numbers are 0 again.'\n"
    "    s.when(sum(cells(s.amount, s.part)) > 2 * TERM_MAX)\n    for k in s.part: s.amount[k] = 0",
    Totals, cells=cells, TERM_MAX=TERM_MAX,
)  # fmt: skip
# Negations of whole conditions.
Negated = declared(
    """
a, b, c = flag(), flag(), flag()
m, n = integer(0, 2), integer(0, 2)
@transition()
def differ(self, s): 'Where the numbers differ.'; s.a = s.a | (s.m != s.n); s.b = s.b | (s.m != s.n)
@transition()
def count(self, s): 'Both numbers, one behind the other.'; s.when(s.m < 2); s.m, s.n = s.m + 1, s.m
@transition()
def turn(self, s): 'Not when both flags are set.'; s.when(~(s.a & s.b)); s.c = ~s.c
@transition()
def set_a(self, s): 'One flag.'; s.a = True
@transition()
def set_b(self, s): 'The other.'; s.b = True
""",
    System,
)
SYSTEMS: dict[str, Callable[[], System]] = {
    "one word": lambda: TwoPhaseCommit(rm=4),
    "two words": lambda: TwoWords(rm=2),
    "six words": lambda: ThreeWords(rm=2),
    "several initial states": lambda: Ring(node=2, faults=["loss"]),
    "effects out of range": Overflowing,
    "negations": Negated,
    "sums beyond int64": Sums,
}
