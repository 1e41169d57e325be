"""Known defects of the editions, and the runs that show them. Data only: `trystate verify` checks it.

R1 to R15 are defects of torch 2.13. The checker finds them in the edition TORCH, and they happen again on torch's own
classes (`trystate replay NAME`). Most are as old as torch 1.10, so the edition SEED has them too. R16 is a defect of
older releases. R17, in torch 2.15, is a pause, which a model without time cannot show: it has only a replay. R18
concerns the calls of one node (`Deadlines`), and R20 the jobs at one endpoint (`SharedEndpoints`). In `SuccessiveJobs`
R10 and R14 concern a job that is started again.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ..checker.expectations import Found, Run, read_findings, search
from ..language.systems import System
from ..language.transitions import fault_bounds
from .deadlines import Deadlines
from .detail import OursInDetail
from .environment import Environment
from .holder import Holders
from .hosting import SharedEndpoints
from .properties import Rendezvous
from .rooms import Rooms
from .served import Served
from .successive import Edition as Jobs
from .successive import SuccessiveJobs
from .vocabulary import Edition

FINDINGS = read_findings(__name__)


def run(
    edition: Edition, nodes: int, min_nodes: int, max_nodes: int, faults: tuple[str, ...], *known: Found,
    rounds: int = 1, system: type[System] = Rendezvous, **found: Any,
) -> Run:  # fmt: skip
    """One search of `Rendezvous`; `known` and `found`: for each property, the findings that explain its violation."""
    sizes = {"node": nodes, "min_nodes": min_nodes, "max_nodes": max_nodes, "rounds": rounds}
    for one in known:
        found = {**one, **found}
    return search(FINDINGS, system, edition, *faults, sizes=sizes, **found)


def holders(edition: Edition, nodes: int, min_nodes: int, max_nodes: int, *faults: str, **found: str) -> Run:
    """One search of `Holders`."""
    return run(edition, nodes, min_nodes, max_nodes, faults, rounds=2, system=Holders, **found)


calls = partial(search, FINDINGS, Deadlines)
hosting = partial(search, FINDINGS, SharedEndpoints)
jobs = partial(search, FINDINGS, SuccessiveJobs)
TORCH, TORCH_2_12, SEED, TRYSTATE = Edition.TORCH, Edition.TORCH_2_12, Edition.SEED, Edition.TRYSTATE
CLOCKS = ("clock_skew", "clock_step")
# Every fault except the clocks': no step of ours reads a clock, so they only multiply the states.
EVERY_FAULT = (*(fault for fault in fault_bounds(Environment.declarations()) if fault not in CLOCKS), "restart")
# Where min = max, no node can start with a larger min.
EVERY_FAULT_BUT_OTHER_MIN = tuple(fault for fault in EVERY_FAULT if fault != "other_min")
OF_SERVED = (*EVERY_FAULT, "drain", "comes_again", "server_restart", "lost_tail")
OF_ROOMS = (*(fault for fault in OF_SERVED if fault in fault_bounds(Rooms.declarations())), "departure", "cut")


def size(*found: str) -> Found:
    """The number of members of a round or their ranks are wrong, because of these findings."""
    return dict.fromkeys(("ranks_are_dense", "at_least_min"), found)


def world(*found: str) -> Found:
    """The members of a round differ in its world, which has a wrong size too, because of these findings."""
    return {"agree_on_world": found, **size(*found)}


STALE: Found = {"members_learn_the_master": "R1", "agree_on_master": "R2"}
REMOVED: Found = {"live_nodes_stay": "R15", "deadlock_freedom": "R15"}
PAUSED: Found = {"the_removed_are_told": "R7", "deadlock_freedom": "R7"}

# fmt: off
# Edition, nodes, min, max, faults; then property = finding. `idle`: states that such a run cannot reach.
PLAN: tuple[Run, ...] = (
    run(TORCH, 2, 1, 2, (), STALE, deadlock_freedom="R1"),
    run(TORCH, 2, 2, 2, (), idle=("somebody_waits",)),
    run(TORCH, 2, 2, 2, ("worker_failure",), size("R3"), rounds=4),
    run(TORCH, 2, 2, 2, ("worker_failure", "identical_workers"), world("R3"), rounds=4),
    run(TORCH, 2, 2, 2, ("crash",), world("R4"),
        idle=("somebody_waits",), departures_are_noticed="R14", members_learn_the_master="R14", deadlock_freedom="R15"),
    run(TORCH, 2, 2, 2, ("stall",), world("R4"), REMOVED, the_removed_are_told="R6"),
    run(TORCH, 2, 2, 2, ("outage",), world("R4"), PAUSED),
    run(TORCH, 2, 2, 2, ("clock_skew",), world("R5"),
        idle=("somebody_waits",), live_nodes_stay="R5", the_removed_are_told="R5"),
    run(TORCH, 2, 2, 2, ("clock_step",), {"live_nodes_stay": "R13", **world("R13")},
        idle=("somebody_waits",), the_removed_are_told="R13"),
    run(TORCH, 2, 2, 2, ("other_expiry",), {"live_nodes_stay": "R12", **world("R12")},
        idle=("somebody_waits",), the_removed_are_told="R12"),
    run(TORCH, 2, 2, 2, ("join_timeout",), REMOVED,
        idle=("somebody_waits",), at_least_min="R4", ranks_are_dense="R15", members_learn_the_master="R14"),
    run(TORCH, 2, 2, 2, ("job_end",), size("R4"), idle=("somebody_waits",), live_nodes_stay="R19"),
    run(TORCH, 2, 2, 2, ("partition",), world("R4"), REMOVED, the_removed_are_told="R6"),
    run(TORCH, 2, 1, 2, ("outage",), PAUSED,
        never_two_groups="R7", members_learn_the_master="R7", agree_on_master="R2", agree_on_world="R4",
        ranks_are_dense="R4"),
    run(TORCH, 2, 1, 2, ("read_timeout",), STALE, ranks_are_dense="R15", live_nodes_stay="R15"),
    run(TORCH, 2, 1, 2, ("identical_workers", "read_timeout"), STALE, REMOVED,
        ranks_are_dense="R15", closing_is_earned="R1"),
    run(TORCH, 3, 2, 3, (), size("R3"), STALE, deadlock_freedom="R1"),
    run(TORCH, 3, 2, 2, ()),
    run(TORCH, 3, 2, 2, ("job_end",), size("R4"), STALE, live_nodes_stay="R19", deadlock_freedom="R1"),
    run(TORCH, 3, 2, 2, ("join_timeout",), REMOVED,
        closing_is_earned="R10", at_least_min="R4", ranks_are_dense="R15", members_learn_the_master="R14"),
    run(TORCH, 3, 2, 2, ("worker_failure",), size("R3"),
        full_rounds_come_to_rest="R8", the_waiting_are_answered="R8", agree_on_master="R2", live_nodes_stay="R15"),
    run(TORCH, 3, 2, 3, ("worker_failure",), size("R3"), STALE, deadlock_freedom="R1"),
    run(TORCH, 3, 2, 3, ("crash",), world("R3", "R4"), REMOVED,
        departures_are_noticed="R14", the_removed_are_told="R15", members_learn_the_master=("R14", "R1"),
        agree_on_master="R2"),
    run(TORCH, 3, 2, 3, ("crash", "restart"), world("R3", "R4"), REMOVED,
        departures_are_noticed="R14", the_removed_are_told="R15", members_learn_the_master=("R14", "R1"),
        agree_on_master="R2"),
    run(TORCH, 3, 2, 3, ("stall",), world("R3", "R4"), REMOVED,
        never_two_groups="R6", the_removed_are_told="R6", members_learn_the_master=("R6", "R1"), agree_on_master="R2"),
    run(TORCH, 3, 2, 3, ("outage",), world("R3", "R4"), PAUSED,
        never_two_groups="R7", members_learn_the_master=("R7", "R1"), agree_on_master="R2", live_nodes_stay="R15"),
    run(TORCH, 3, 2, 3, ("other_expiry",), world("R12"),
        never_two_groups="R12", live_nodes_stay=("R12", "R15"), enough_nodes_complete_a_round="R12",
        the_waiting_are_answered="R12", members_learn_the_master="R12", the_removed_are_told="R12",
        agree_on_master="R2", deadlock_freedom="R12"),
    run(TORCH, 3, 2, 3, ("join_timeout",), world("R3"), REMOVED,
        closing_is_earned="R10", members_learn_the_master=("R14", "R1"), agree_on_master="R2"),
    run(TORCH, 3, 2, 3, ("job_end",), size("R3", "R4"), STALE, live_nodes_stay=("R15", "R19"), deadlock_freedom="R15"),
    run(TORCH, 3, 2, 4, ("other_min",), size("R3"), STALE,
        enough_nodes_complete_a_round="R9", deadline_iff_last_call="R9", deadlock_freedom="R1"),
    run(TORCH_2_12, 3, 2, 2, ("worker_failure",), size("R3"),
        members_learn_the_master="R16", deadlock_freedom="R16", full_rounds_come_to_rest="R8",
        the_waiting_are_answered="R8", agree_on_master="R2", live_nodes_stay="R15"),
    run(TORCH_2_12, 2, 1, 2, ("read_timeout",), STALE, ranks_are_dense="R15", live_nodes_stay="R15"),
    run(TORCH_2_12, 2, 1, 2, ("stall", "outage", "partition", "join_timeout", "job_end"), STALE, max_faults=1,
        never_two_groups=("R6", "R7"), the_removed_are_told=("R6", "R7"), closing_is_earned="R10", agree_on_world="R4",
        ranks_are_dense="R4", live_nodes_stay=("R15", "R19"), deadlock_freedom="R15"),
    holders(TORCH, 2, 2, 2),
    holders(TORCH, 2, 2, 2, "worker_failure"),
    holders(TORCH, 2, 2, 2, "join_timeout"),
    holders(TORCH, 2, 2, 2, "crash"),
    holders(TORCH, 2, 1, 2, "job_end", lost_writes_are_reported="R11"),
    holders(TORCH, 2, 1, 1, "worker_failure"),
    holders(TORCH, 2, 1, 2, "join_timeout"),
    holders(TORCH, 3, 2, 2),
    calls(TORCH),
    calls(TORCH, "corrupt", "restored"),
    calls(TORCH, "corrupt", "foreign", "restored", corruption_is_named="R18", the_timer_lives="R18"),
    run(SEED, 2, 2, 2, (), idle=("somebody_waits",)),
    run(SEED, 2, 2, 2, ("worker_failure",), world("R3"), rounds=4),
    run(SEED, 2, 2, 2, ("crash",), world("R4"),
        idle=("somebody_waits",), departures_are_noticed="R14", members_learn_the_master="R14"),
    run(SEED, 2, 2, 2, ("stall",), world("R4"),
        the_removed_are_told="R6", the_waiting_are_answered="R6", members_learn_the_master="R6"),
    run(SEED, 2, 2, 2, ("outage",), world("R4"), PAUSED, the_waiting_are_answered="R7", members_learn_the_master="R7"),
    run(SEED, 2, 2, 2, ("partition",), world("R4"),
        the_removed_are_told="R6", the_waiting_are_answered="R6", members_learn_the_master="R6"),
    run(SEED, 2, 2, 2, ("clock_skew",), world("R5"),
        idle=("somebody_waits",), live_nodes_stay="R5", the_removed_are_told="R5"),
    run(SEED, 2, 2, 2, ("clock_step",), world("R13"),
        live_nodes_stay="R13", the_removed_are_told="R13", members_learn_the_master="R13"),
    run(SEED, 2, 2, 2, ("other_expiry",), world("R12"),
        live_nodes_stay="R12", the_removed_are_told="R12", members_learn_the_master="R12",
        the_waiting_are_answered="R12"),
    run(SEED, 2, 1, 2, ("outage",), PAUSED,
        never_two_groups="R7", the_waiting_are_answered="R7", members_learn_the_master="R7", agree_on_world="R4",
        ranks_are_dense="R4"),
    run(SEED, 3, 2, 2, ("worker_failure",), world("R3"), full_rounds_come_to_rest="R8", the_waiting_are_answered="R8"),
    run(SEED, 3, 2, 2, ("crash", "join_timeout"), world("R4"),
        closing_is_earned="R10", members_learn_the_master="R14", the_waiting_are_answered="R14"),
    run(SEED, 3, 2, 3, (), world("R3")),
    run(SEED, 3, 2, 3, ("worker_failure",), world("R3")),
    run(SEED, 3, 2, 3, ("crash", "restart"), world("R3", "R4"),
        departures_are_noticed="R14", the_waiting_are_answered="R14", members_learn_the_master="R14"),
    run(SEED, 3, 2, 3, ("stall",), world("R3", "R4"),
        never_two_groups="R6", the_removed_are_told="R6", the_waiting_are_answered="R6", members_learn_the_master="R6"),
    run(SEED, 3, 2, 3, ("outage",), world("R3", "R4"), PAUSED,
        never_two_groups="R7", the_waiting_are_answered="R7", members_learn_the_master="R7"),
    run(SEED, 3, 2, 3, ("join_timeout",), world("R3"), closing_is_earned="R10", members_learn_the_master="R14"),
    run(SEED, 3, 2, 3, ("job_end",), world("R3", "R4")),
    run(SEED, 3, 2, 4, ("other_min",), world("R3"), deadline_iff_last_call="R9"),
    holders(SEED, 2, 2, 2, "worker_failure"),
    holders(SEED, 2, 1, 2, "job_end", "join_timeout", lost_writes_are_reported="R11"),
    calls(SEED),
    calls(SEED, "corrupt", "foreign", "restored", corruption_is_named="R18", the_timer_lives="R18"),
    run(TRYSTATE, 2, 2, 2, EVERY_FAULT_BUT_OTHER_MIN, idle=("somebody_waits",)),
    run(TRYSTATE, 2, 1, 2, ("worker_failure", "crash", "restart", "stall", "join_timeout", "job_end")),
    run(TRYSTATE, 2, 1, 1, ("worker_failure", "crash", "restart", "stall"),
        idle=("two_return", "somebody_is_expected")),
    run(TRYSTATE, 3, 2, 3, ()),
    run(TRYSTATE, 3, 2, 3, EVERY_FAULT, max_faults=2),
    run(TRYSTATE, 3, 2, 3, ("clock_skew", "clock_step")),
    run(TRYSTATE, 3, 2, 3, ("worker_failure", "crash", "restart", "stall")),
    run(TRYSTATE, 3, 2, 2, EVERY_FAULT_BUT_OTHER_MIN, max_faults=2),
    run(TRYSTATE, 3, 2, 2, ("crash", "join_timeout")),
    run(TRYSTATE, 3, 1, 2, ("worker_failure",)),
    run(TRYSTATE, 3, 2, 3, ("rank_key", "worker_failure")),
    run(TRYSTATE, 3, 2, 3, ("scale_up_interval", "worker_failure", "join_timeout")),
    run(TRYSTATE, 3, 2, 3, ("health_check", "unhealthy", "worker_failure")),
    run(TRYSTATE, 2, 1, 2, ("health_check", "unhealthy", "worker_failure", "crash", "restart", "stall", "job_end")),
    run(TRYSTATE, 3, 1, 2, ("crash", "restart", "join_timeout")),
    run(TRYSTATE, 3, 2, 4, ("other_min", "other_expiry", "join_timeout")),
    run(TRYSTATE, 4, 2, 3, ("crash", "stall")),
    run(TRYSTATE, 3, 2, 3, ("drain",)),
    run(TRYSTATE, 3, 1, 2, ("drain", "crash")),
    run(TRYSTATE, 2, 1, 2, (*EVERY_FAULT, "drain", "comes_again"), system=OursInDetail, max_faults=1),
    run(TRYSTATE, 2, 1, 1, (*EVERY_FAULT_BUT_OTHER_MIN, "drain", "comes_again"), system=OursInDetail, max_faults=1,
        idle=("two_return",)),
    run(TRYSTATE, 3, 1, 2, (), system=OursInDetail),
    run(TRYSTATE, 2, 1, 2, ("crash", "worker_failure", "job_end"), system=OursInDetail, rounds=2),
    run(TRYSTATE, 2, 2, 2, ("stall", "join_timeout"), system=OursInDetail, rounds=2, idle=("somebody_waits",)),
    run(TRYSTATE, 2, 1, 2, ("drain",), system=OursInDetail, rounds=2),
    run(TRYSTATE, 2, 1, 2, ("comes_again",), system=OursInDetail, rounds=2),
    run(TRYSTATE, 2, 1, 2, OF_SERVED, system=Served, max_faults=1),
    run(TRYSTATE, 3, 1, 2, ("crash",), system=Served),
    run(TRYSTATE, 2, 1, 2, OF_ROOMS, system=Rooms, max_faults=1, idle=("an_ended_join_is_repeated",)),
    run(TRYSTATE, 2, 1, 2, ("cut", "drain", "departure", "comes_again"), system=Rooms),
    run(TRYSTATE, 2, 1, 2, ("cut", "crash", "restart", "worker_failure"), system=Rooms),
    run(TRYSTATE, 2, 2, 2, ("cut", "server_restart", "lost_tail", "worker_failure"), system=Rooms, rounds=2,
        idle=("somebody_waits",)),
    run(TRYSTATE, 3, 2, 3, ("cut",), system=Rooms),
    calls(TRYSTATE, "corrupt", "foreign", "restored"),
    hosting(TORCH, sizes={"job": 2}, no_job_ends_another="R20"),
    hosting(TORCH, "kill", sizes={"job": 3}, no_job_ends_another="R20"),
    hosting(TRYSTATE, sizes={"job": 2}),
    hosting(TRYSTATE, "kill", "long_job", sizes={"job": 3}),
    jobs(Jobs.TORCH, sizes={"node": 4}),
    jobs(Jobs.TORCH, "kill", "cut", sizes={"node": 2}, no_job_closes_a_later_one="R10"),
    jobs(Jobs.TORCH, "kill", "cut", sizes={"node": 4}, no_job_closes_a_later_one="R10",
         a_killed_job_can_be_started_again="R14"),
    jobs(Jobs.TRYSTATE, "kill", "cut", sizes={"node": 2}),
    jobs(Jobs.TRYSTATE, "kill", "cut", sizes={"node": 6}),
)
# Searches of minutes, which `trystate verify --all` leaves out: docs/larger.py decides them.
LARGER: tuple[Run, ...] = (
    run(TRYSTATE, 3, 2, 3, EVERY_FAULT, max_faults=4),
    run(TRYSTATE, 4, 2, 4, EVERY_FAULT, max_faults=2),
    run(TRYSTATE, 5, 2, 5, ("crash",)),
)
# fmt: on
