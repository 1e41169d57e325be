"""Known defects of NVRx's barrier, and the runs that show them. Data: `trystate verify` checks it.

The file of one release has the findings of its edition (`trystate replay NAME`). B6 and B8 happen in the newest edition
too; the edition MENDED has their remedies, and none of the findings of one job. B9 and B10 concern a job that is
started again (`SuccessiveJobs`), in the newest edition only, and so does B8.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ..checker.expectations import Found, Run, read_findings, search
from ..rendezvous.successive import Edition as Jobs
from ..rendezvous.successive import SuccessiveJobs
from .barrier import NvrxBarrier
from .vocabulary import Edition

FINDINGS = read_findings(__name__)
NVRX, LENIENT, REASONED = Edition.NVRX, Edition.LENIENT, Edition.REASONED
NVRX_0_6, SET, MENDED = Edition.NVRX_0_6, Edition.SET, Edition.MENDED


def _run(edition: Edition, *faults: str, rounds: int = 2, **given: Any) -> Run:
    """A search, by default of three nodes in two rounds; `given`: other sizes, and each property's findings."""
    sizes = {"node": 3, "world": 2, "most": 3, "outside": 0}
    sizes |= {name: given.pop(name) for name in (*sizes,) if name in given}
    sizes |= {"slot": sizes["node"] + ("refill" in faults), "round": rounds + 1}
    idle = ("the_next_round_is_closed",) if rounds == 1 else ()
    return search(FINDINGS, NvrxBarrier, edition, *faults, sizes=sizes, idle=idle, **given)


SURPLUS: Found = {"no_failure_shuts_down": "B2", "a_failure_is_no_success": "B7"}
STUCK: Found = dict.fromkeys(("an_open_round_closes", "deadlock_freedom"), "B3")
RANKED: Found = {"the_dead_have_no_rank": "B4"}
CONFLICT: Found = dict.fromkeys(("conflicts_are_excluded", "no_failure_shuts_down", "a_failure_is_no_success"), "B6")
TWO = {"node": 2, "world": 1, "most": 2}
OUTSIDE = {**TWO, "outside": 1}
IDLE: Found = {"a_round_is_opened_again": "B8"}
jobs = partial(search, FINDINGS, SuccessiveJobs, Jobs.NVRX)
AGAIN: Found = {"never_silently_done": "B9", **dict.fromkeys(("who_starts_is_answered", "deadlock_freedom"), "B8")}

# fmt: off
PLAN: tuple[Run, ...] = (
    *(run for edition in (NVRX_0_6, REASONED) for run in (
        _run(edition),
        _run(edition, most=2, **SURPLUS),
        _run(edition, world=1, **CONFLICT),
        _run(edition, "crash", "end", rounds=1, **TWO, **STUCK),
        _run(edition, "kill", **RANKED),
        _run(edition, "refill", rounds=1, **SURPLUS, **RANKED),
        _run(edition, **OUTSIDE),
        _run(edition, "restart", **OUTSIDE, **IDLE),
    )),
    *(run for edition in (LENIENT, NVRX) for run in (
        _run(edition, **CONFLICT),
        _run(edition, most=2, **CONFLICT),
        _run(edition, "crash", "end", **TWO, **CONFLICT),
        _run(edition, **OUTSIDE, **CONFLICT),
        _run(edition, "restart", **OUTSIDE, **CONFLICT, **IDLE),
    )),
    _run(LENIENT, "kill", **CONFLICT, **RANKED),
    _run(LENIENT, "refill", rounds=1, no_failure_shuts_down="B5", **RANKED),
    _run(NVRX, "kill", **CONFLICT),
    _run(NVRX, "refill", rounds=1),
    _run(SET),
    _run(SET, most=2, **SURPLUS),
    _run(SET, world=1, slots_do_not_go_back="B1", an_open_round_closes="B1"),
    _run(SET, "crash", "end", rounds=1, **TWO, **STUCK),
    _run(SET, "kill", **RANKED),
    _run(MENDED),
    _run(MENDED, world=1),
    _run(MENDED, "crash", "kill", "end"),
    _run(MENDED, "crash", "kill", "end", rounds=1, **TWO),
    _run(MENDED, "refill", rounds=1, **TWO),
    _run(MENDED, "crash", **OUTSIDE),
    _run(MENDED, "restart", **OUTSIDE),
    jobs(sizes={"node": 4}, never_silently_done="B9"),
    jobs("kill", "cut", sizes={"node": 2}, **AGAIN, a_killed_job_can_be_started_again="B8"),
    jobs("kill", "cut", sizes={"node": 4}, **AGAIN, a_killed_job_can_be_started_again=("B8", "B10")),
)
# fmt: on
