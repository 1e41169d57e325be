"""Known defects of torchft, and the runs that show them. Data: `trystate verify` checks it."""

from __future__ import annotations

from typing import Any

from ..checker.expectations import Found, Run, read_findings, search
from .lighthouse import Lighthouse
from .manager import Managers
from .vocabulary import Edition

FINDINGS = read_findings(__name__)
TORCHFT, MENDED = Edition


def _run(
    edition: Edition, *faults: str, node: int = 3, quorum: int = 4, least: int = 1, jobs: int = 1, **given: Any
) -> Run:
    """A search of the lighthouse; `given`: each property's findings."""
    sizes = {"node": node, "quorum": quorum, "least": least, "steps": 2, "jobs": jobs}
    return search(FINDINGS, Lighthouse, edition, *faults, sizes=sizes, **given)


def _ranks(edition: Edition, *faults: str, rank: int = 2, **given: Any) -> Run:
    """A search of the manager."""
    return search(FINDINGS, Managers, edition, *faults, sizes={"rank": rank, "steps": 2}, **given)


FORKED: Found = {"a_step_is_of_one_group": "L1"}
EMPTY: Found = dict.fromkeys(
    ("a_quorum_has_enough_members", "a_step_is_of_one_group", "who_waits_is_answered", "deadlock_freedom"), "L2"
)
REUSED: Found = {"a_group_has_the_members_of_its_quorum": "L3"}
STALE: Found = {"a_quorum_is_of_all_ranks": "L5", "ranks_commit_together": "L6"}
STUCK: Found = dict.fromkeys(("who_waits_is_answered", "deadlock_freedom"), "L7")

# fmt: off
PLAN: tuple[Run, ...] = (
    _run(TORCHFT, **FORKED),
    _run(TORCHFT, "crash", **FORKED),
    _run(TORCHFT, "pause", **FORKED),
    _run(TORCHFT, "crash", least=2),
    _run(TORCHFT, "shrink", least=2, **EMPTY),
    _run(TORCHFT, "restart", least=2, **REUSED),
    _run(TORCHFT, least=2, jobs=2, a_quorum_is_of_one_job="L4"),
    _run(MENDED, "crash"),
    _run(MENDED, "crash", "restart"),
    _run(MENDED, "crash", "shrink", least=2),
    _run(MENDED, "crash", jobs=2),
    _ranks(TORCHFT, "veto"),
    _ranks(TORCHFT, "timeout", "veto", **STALE),
    _ranks(TORCHFT, "failure", **STUCK),
    _ranks(TORCHFT, "timeout", "veto", rank=3, **STALE),
    _ranks(MENDED, "failure", "timeout", "veto"),
    _ranks(MENDED, "failure", "timeout", "veto", rank=3),
)
# fmt: on
