"""Known defects of process groups and of file://, and the runs that show them. Data: `trystate verify` checks it.

P1 to P7 happen on torch 2.6 to 2.15, P10 on 2.13 (`trystate replay NAME`): P1 to P4 and P10 with gloo groups, P5 to
P7 with FileStore; P9 happens up to 2.13. P8 belongs to the edition SEED, whose barrier torch has today only with
TORCH_DIST_INIT_BARRIER=1. P11 to P13 are of symmetric memory, on 2.13. C1 to C5 are of torchcomms' reconfigure, and on
paper: nothing replays them. Ours creates torch's groups over its own store: this removes P3 and P10, and P1, P2 and P9
remain. The edition MENDED of a store in a file has the remedies of P5 to P7, and none of these findings.
"""

from __future__ import annotations

from typing import Any

from ..checker.expectations import Found, Run, read_findings, search
from .creation import Groups
from .exchange import Exchanges
from .files import Files
from .reconfigure import Reconfigure
from .registry import Registry
from .vocabulary import Comms, Counting, Edition, Filing

FINDINGS = read_findings(__name__)


def _run(edition: Edition, *faults: str, p: int = 3, g: int = 2, o: int = 1, others: int = 0, **found: Any) -> Run:
    """One search: `p` processes, `g` groups, `o` and `others` outsiders; `found`: each property's findings."""
    sizes = {"process": p, "group": g, "outsiders": o} | ({"others": others} if others else {})
    return search(FINDINGS, Groups, edition, *faults, sizes=sizes, **found)


def _files(edition: Filing, *faults: str, p: int = 2, **found: Any) -> Run:
    return search(FINDINGS, Files, edition, *faults, sizes={"process": p}, **found)


def _exchange(edition: Counting, *faults: str, p: int = 2, o: int = 0, n: int = 2, **found: Any) -> Run:
    """One search: `p` processes, `o` outsiders of the first group, `n` numbers; `found`: each property's findings."""
    sizes = {"process": p, "exchange": 2, "number": n, "outsiders": o}
    return search(FINDINGS, Exchanges, edition, *faults, sizes=sizes, **found)


def _reconfigure(edition: Comms, *faults: str, unordered: int = 0, **found: Any) -> Run:
    sizes = {"process": 3, "configuration": 3, "unordered": unordered}
    return search(FINDINGS, Reconfigure, edition, *faults, sizes=sizes, **found)


SEED, TORCH, LOCAL, TRYSTATE = Edition


def _hangs(number: str) -> Found:
    return dict.fromkeys(("creation_ends", "called_means_created", "deadlock_freedom"), number)


MIXED: Found = {"a_communicator_is_of_one_group": "P2"}
REUSED: Found = {"names_are_fresh": "P3", "called_means_created": "P3"}
MISLED: Found = {"a_communicator_is_of_one_group": "P10"}
TAKEN: Found = {"a_name_is_given_once": "P9", "a_group_can_be_made": "P9"}
UNMET = ("all_are_created",)
LEFT: Found = {"addresses_are_of_this_job": "P5", "the_last_one_deletes": "P5"}
TORN: Found = dict.fromkeys(("half_a_record_stops_nobody", "operations_end", "deadlock_freedom"), "P6")
KEPT: Found = dict.fromkeys(("operations_end", "deadlock_freedom"), "P7")
BOTH: Found = dict.fromkeys(("operations_end", "deadlock_freedom"), ("P6", "P7"))
SHIFTED: Found = dict.fromkeys(("exchanges_end", "deadlock_freedom"), "P11")
LOST: Found = dict.fromkeys(SHIFTED, "P12")
STALE: Found = {"values_are_of_one_exchange": "P12"}
RETRIED: Found = dict.fromkeys((*SHIFTED, "values_are_of_one_exchange"), "P13")
SPOILT: Found = {"the_quorum_stays": "C1"}
BLOCKED: Found = dict.fromkeys(("calls_end", "deadlock_freedom"), "C3")
SHARED: Found = dict.fromkeys(BLOCKED, ("C2", "C3"))
REVERSED: Found = dict.fromkeys(BLOCKED, ("C3", "C4"))
ALL = ("another_job", "die", "full", "stop")

# fmt: off
PLAN: tuple[Run, ...] = (
    _run(SEED),
    _run(SEED, "skip", **_hangs("P8")),
    _run(TORCH),
    _run(TORCH, "skip", **_hangs("P1")),
    _run(TORCH, p=4, o=2, others=2),
    _run(TORCH, "skip", p=4, o=2, others=2, **MISLED, **_hangs("P1")),
    _run(TORCH, "skip", others=1, **MISLED, **_hangs("P1")),
    _run(TORCH, "threads", p=2, o=0, **MIXED),
    _run(TORCH, "threads", **MIXED, **_hangs("P2")),
    _run(TORCH, "again", **REUSED),
    _run(TORCH, "restart", names_are_fresh="P3"),
    _run(TORCH, "again", "restart", **REUSED),
    _run(LOCAL, o=0),
    _run(LOCAL, idle=UNMET, **_hangs("P4")),
    _run(LOCAL, "skip", idle=UNMET, **_hangs("P4")),
    _run(TRYSTATE),
    _run(TRYSTATE, "skip", **_hangs("P1")),
    _run(TRYSTATE, "skip", p=4, o=2, others=2, **_hangs("P1")),
    _run(TRYSTATE, "skip", others=1, **_hangs("P1")),
    _run(TRYSTATE, "threads", p=2, o=0, **MIXED),
    _run(TRYSTATE, "again"),
    _run(TRYSTATE, "again", "restart"),
    _run(TRYSTATE, "again", "restart", p=2, g=3, o=0),
    search(FINDINGS, Registry, TORCH),
    search(FINDINGS, Registry, LOCAL, **TAKEN),
    _files(Filing.TORCH),
    _files(Filing.TORCH, "another_job"),
    _files(Filing.TORCH, "full", **TORN),
    _files(Filing.TORCH, "die", **TORN),
    _files(Filing.TORCH, "stop", **KEPT),
    _files(Filing.TORCH, "another_job", "die", **LEFT, **TORN),
    _files(Filing.TORCH, *ALL, p=3, **LEFT, half_a_record_stops_nobody="P6", **BOTH),
    _files(Filing.MENDED),
    _files(Filing.MENDED, "another_job"),
    _files(Filing.MENDED, "die"),
    _files(Filing.MENDED, "full"),
    _files(Filing.MENDED, "stop"),
    _files(Filing.MENDED, *ALL),
    _files(Filing.MENDED, *ALL, p=3),
    *(_exchange(edition, p=3) for edition in Counting),
    _exchange(Counting.TORCH, p=3, o=1, idle=("all_have_returned",), **SHIFTED),
    _exchange(Counting.TORCH, "retry", n=3, **RETRIED),
    _exchange(Counting.TORCH, "again", n=4),
    _exchange(Counting.TORCH, "restart", n=4, **STALE),
    _exchange(Counting.TORCH, "again", "restart", n=4, **STALE, **LOST),
    _exchange(Counting.SCOPED, p=3, o=1),
    _exchange(Counting.SCOPED, "retry", n=3, **RETRIED),
    _exchange(Counting.SCOPED, "again", **STALE),
    _exchange(Counting.SCOPED, "again", "restart", **STALE),
    _exchange(Counting.MENDED, p=3, o=1),
    _exchange(Counting.MENDED, "retry", p=3, o=1),
    _exchange(Counting.MENDED, "again", "restart", "retry", n=3),
    _reconfigure(Comms.TORCHCOMMS),
    _reconfigure(Comms.TORCHCOMMS, "die", **SPOILT, **BLOCKED),
    _reconfigure(Comms.TORCHCOMMS, "die", "replace", **SPOILT, ranks_differ="C2", places_are_ranks="C5",
                 **SHARED),
    _reconfigure(Comms.TORCHCOMMS, unordered=1, one_communicator="C4"),
    _reconfigure(Comms.TORCHCOMMS, "die", "replace", unordered=1, one_communicator="C4", ranks_differ=("C2", "C4"),
                 **REVERSED),
    _reconfigure(Comms.MENDED, "die"),
    *(_reconfigure(Comms.MENDED, "die", "replace", unordered=u) for u in (0, 1)),
)
# fmt: on
