"""The shipped lighthouse and manager compared with the model, edge by edge, as `trystate verify` runs it.

Rule: without the package nothing is compared, and the report has the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from trystate.model.errors import UnavailableError
from trystate.model.language import System
from trystate.model.torchft.lighthouse import Lighthouse
from trystate.model.torchft.manager import Managers

from ...harness.checks import Check, Outcome
from ...harness.paths import replay_systems
from .ranks import Ranks
from .replicas import Replicas
from .shipped import problem

TWO = {"node": 2, "quorum": 3, "steps": 1}
THREE = {"node": 3, "quorum": 2, "steps": 1, "least": 2}
LIGHTHOUSES = (
    *(Lighthouse(faults=(fault,), **TWO) for fault in ("crash", "pause")),
    Lighthouse(faults=("restart",), **{**TWO, "steps": 2}),
    Lighthouse(faults=("shrink",), **THREE),
)
MANAGERS = (Managers(faults=("veto", "timeout", "failure")),)
SAMPLE_EDGES = 60


def compare(
    systems: Sequence[System], subject: Callable[[Any], Any], report: Callable[[str], None],
    edges_max: int | None = None,
) -> Outcome:  # fmt: skip
    """Take every edge of each system on the shipped servers, or `edges_max`, and try the forbidden steps.

    Raises:
        UnavailableError: the package is not installed, or not for this machine.
    """
    if (why := problem()) is not None:
        raise UnavailableError(why)
    return replay_systems(systems, subject, report, edges_max)


def _check(name: str, systems: Sequence[System], subject: Callable[[Any], Any]) -> Check:
    return Check(name, partial(compare, systems, subject), partial(compare, systems, subject, edges_max=SAMPLE_EDGES))


CHECKS = (
    _check("torchft's lighthouse, every edge", LIGHTHOUSES, Replicas),
    _check("torchft's manager, every edge", MANAGERS, Ranks),
)
