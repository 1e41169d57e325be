"""The shipped lighthouse and manager compared with the model, edge by edge, as `trystate verify` runs it.

Rule: without the package nothing is compared, and the report has the reason.
"""

from __future__ import annotations

from collections.abc import Callable
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
    system: System, subject: Callable[[Any], Any], report: Callable[[str], None], edges_max: int | None = None
) -> Outcome:
    """Take every edge of the system on the shipped servers, or `edges_max`, and try the forbidden steps.

    Raises:
        UnavailableError: the package is not installed, or not for this machine.
    """
    if (why := problem()) is not None:
        raise UnavailableError(why)
    return replay_systems([system], subject, report, edges_max)


def _check(system: System, name: str, subject: Callable[[Any], Any]) -> Check:
    whole = partial(compare, system, subject)
    return Check(f"torchft's {name} with {', '.join(system.faults)}", whole, partial(whole, edges_max=SAMPLE_EDGES))


CHECKS = (
    *(_check(system, "lighthouse", Replicas) for system in LIGHTHOUSES),
    *(_check(system, "manager", Ranks) for system in MANAGERS),
)
