"""The shipped file of NVRx's barrier compared with the model, edge by edge, as `trystate verify` runs it.

Rule: the file decides the edition. Without the file nothing is compared, and the report has the reason.
"""

from __future__ import annotations

from collections.abc import Callable

from trystate.model.errors import UnavailableError
from trystate.model.nvrx.barrier import NvrxBarrier

from ...harness.checks import Check, Outcome
from ...harness.paths import replay_systems
from .nodes import Job
from .shipped import barrier_file, edition, problem

# Sizes and faults of the systems. Every edge of each is compared.
SLICES: tuple[tuple[dict[str, int], tuple[str, ...]], ...] = (
    ({"node": 2, "slot": 2, "world": 1, "most": 2}, ("crash", "kill", "end")),
    ({"node": 2, "slot": 3, "world": 1, "most": 2}, ("refill",)),
    ({"node": 3, "round": 2}, ("crash", "kill")),
    ({"node": 2, "slot": 2, "world": 1, "most": 2, "outside": 1}, ("restart",)),
)
SAMPLE_EDGES = 300


def systems() -> list[NvrxBarrier]:
    """The compared systems, in the edition of the file that is here."""
    path = barrier_file()
    return [NvrxBarrier(edition=edition(path), faults=faults, **sizes) for sizes, faults in SLICES] if path else []


def compare(report: Callable[[str], None], edges_max: int | None = None) -> Outcome:
    """Take every edge of each system on the shipped barrier, or `edges_max`, and try the forbidden steps.

    Raises:
        UnavailableError: the file is not here.
    """
    if (why := problem()) is not None:
        raise UnavailableError(why)
    return replay_systems(systems(), Job, report, edges_max)


CHECKS = (Check("NVRx's barrier, every edge", compare, lambda report: compare(report, SAMPLE_EDGES)),)
