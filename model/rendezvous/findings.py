"""Known defects of the editions, and the runs that show them. Data only: `trystate verify` checks it.

R1 to R15 are defects of torch 2.13 that the checker finds in the edition TORCH and that happen again on torch's
own classes (`trystate replay NAME`). Most are as old as torch 1.10, so that the edition SEED has them too.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..checker.expectations import Finding, Run
from .holder import Holders
from .properties import Rendezvous
from .vocabulary import Edition

_FINDINGS = (
    Finding("master-not-republished", "R1",
            "Rank 0 keeps its master from an earlier round and does not publish it for the new one: a newcomer waits.",
            "publish the master for every round"),
    Finding("stale-master", "R2",
            "Members keep the master of an earlier round while a newcomer that sorts first serves a new one.",
            "bind the master to the round in which it was published"),
    Finding("fast-exit", "R3",
            "A member leaves a complete round before another has polled: the other returns with a smaller world.",
            "fix the membership of a complete round"),
    Finding("death-in-window", "R4",
            "A member that died is dropped from a complete round: others return with a smaller world than some had.",
            "return with the written state, not with a local copy"),
    Finding("clock-skew", "R5",
            "Expiry compares wall clocks: a node with a late clock is dropped as dead.",
            "count beats on the observer's own monotonic clock"),
    Finding("never-told", "R6",
            "A member that missed its heartbeats is removed and never told: it runs on beside a second group.",
            "fence members by round and token"),
    Finding("store-pause", "R7",
            "After an outage each node sees its own heartbeat expired and stops beating for ever.",
            "let an expired member recover or be told"),
    Finding("restless-spare", "R8",
            "A waiting node that loses the race for a full round is never made a spare: the group restarts for ever.",
            "let a waiting node of a full round become a spare"),
    Finding("settings-not-agreed", "R9",
            "Nodes with different min: enough participants but no deadline, and the round never completes.",
            "agree on the settings in the shared state, or refuse"),
    Finding("late-node-closes", "R10",
            "A node whose join timed out shuts down, and thereby closes the rendezvous of a healthy group.",
            "close only what one belongs to"),
    Finding("lost-write-reported-won", "R11",
            "Two writers of the same bytes: the one that lost is told that it won.",
            "compare versions, not bytes"),
    Finding("impatient-observer", "R12",
            "Expiry is judged by the observer's settings: a node with a shorter window removes healthy ones.",
            "agree on the settings in the shared state, or refuse"),
    Finding("clock-steps-back", "R13",
            "A wall clock that is set back stops its node's heartbeats: a live node is removed.",
            "count beats on a monotonic clock"),
    Finding("departure-unnoticed", "R14",
            "When a member dies or leaves, nothing tells the others: they run on, or wait for its master.",
            "make a missed heartbeat a membership change"),
    Finding("connecting-node-expelled", "R15",
            "A node that waits for the master's address cannot beat: its store client serves one call at a time.",
            "give the heartbeats a connection of their own"),
)  # fmt: skip
FINDINGS: Mapping[str, Finding] = {f.name: f for f in _FINDINGS}

NUMBERED: Mapping[str, str] = {f.number: f.name for f in _FINDINGS}


def explained(found: Mapping[str, str | tuple[str, ...]], numbered: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Property -> the names of the findings that explain its violation; each may be given as one number or several."""
    several = {name: (numbers,) if isinstance(numbers, str) else numbers for name, numbers in found.items()}
    return {name: tuple(numbered[number] for number in numbers) for name, numbers in several.items()}


def run(
    edition: Edition,
    nodes: int,
    min_nodes: int,
    max_nodes: int,
    faults: tuple[str, ...],
    *,
    rounds: int = 1,
    max_faults: int | None = None,
    idle: tuple[str, ...] = (),
    **found: str | tuple[str, ...],
) -> Run:
    """One search of `Rendezvous`: edition, size and faults, and property = the findings that explain its violation."""
    sizes = {"node": nodes, "min_nodes": min_nodes, "max_nodes": max_nodes, "rounds": rounds}
    return Run(Rendezvous, sizes, edition, faults, explained(found, NUMBERED), idle, max_faults)


def holders(edition: Edition, nodes: int, min_nodes: int, max_nodes: int, faults: tuple[str, ...], **found: str) -> Run:
    """One search of `Holders`."""
    sizes = {"node": nodes, "min_nodes": min_nodes, "max_nodes": max_nodes, "rounds": 2}
    return Run(Holders, sizes, edition, faults, explained(found, NUMBERED))


TORCH, SEED, TRYSTATE = Edition.TORCH, Edition.SEED, Edition.TRYSTATE
# Every fault but the clocks: in ours no step reads one, so that they only multiply the states.
EVERY_FAULT = (
    "worker_failure",
    "crash",
    "restart",
    "stall",
    "outage",
    "partition",
    "join_timeout",
    "job_end",
    "other_min",
    "other_expiry",
)
# Where min = max, no node can start with a larger min.
EVERY_FAULT_BUT_OTHER_MIN = tuple(fault for fault in EVERY_FAULT if fault != "other_min")

# Edition, nodes, min, max, faults; then property = finding. `idle`: states that such a run cannot reach.
# fmt: off
PLAN: tuple[Run, ...] = (
    run(TORCH, 2, 1, 2, (), members_learn_the_master="R1", agree_on_master="R2", live_nodes_stay="R15"),
    run(TORCH, 2, 2, 2, (), idle=("somebody_waits",)),
    run(TORCH, 2, 2, 2, ("worker_failure",), rounds=4, agree_on_world="R3", ranks_are_dense="R3", at_least_min="R3"),
    run(TORCH, 2, 2, 2, ("crash",),
        idle=("somebody_waits",), agree_on_world="R4", ranks_are_dense="R4", at_least_min="R4",
        departures_are_noticed="R14", members_learn_the_master="R14", deadlock_freedom="R15"),
    run(TORCH, 2, 2, 2, ("stall",),
        the_removed_are_told="R6", members_learn_the_master="R6", agree_on_world="R4", ranks_are_dense="R4",
        at_least_min="R4", live_nodes_stay="R15", deadlock_freedom="R15"),
    run(TORCH, 2, 2, 2, ("outage",),
        deadlock_freedom="R7", the_removed_are_told="R7", members_learn_the_master="R7", agree_on_world="R4",
        ranks_are_dense="R4", at_least_min="R4", live_nodes_stay="R15"),
    run(TORCH, 2, 2, 2, ("clock_skew",),
        idle=("somebody_waits",), agree_on_world="R5", ranks_are_dense="R5", at_least_min="R5", live_nodes_stay="R5",
        the_removed_are_told="R5"),
    run(TORCH, 2, 2, 2, ("clock_step",),
        live_nodes_stay="R13", agree_on_world="R13", ranks_are_dense="R13", at_least_min="R13",
        the_removed_are_told="R13"),
    run(TORCH, 2, 2, 2, ("other_expiry",),
        live_nodes_stay="R12", agree_on_world="R12", ranks_are_dense="R12", at_least_min="R12",
        the_removed_are_told="R12", members_learn_the_master="R12", the_waiting_are_answered="R12"),
    run(TORCH, 2, 2, 2, ("join_timeout",),
        idle=("somebody_waits",), closing_is_earned="R10", at_least_min="R4", members_learn_the_master="R14",
        live_nodes_stay="R15", deadlock_freedom="R15"),
    run(TORCH, 2, 2, 2, ("job_end",), idle=("somebody_waits",), ranks_are_dense="R4", at_least_min="R4"),
    run(TORCH, 2, 2, 2, ("partition",),
        the_removed_are_told="R6", members_learn_the_master="R6", agree_on_world="R4", ranks_are_dense="R4",
        at_least_min="R4", live_nodes_stay="R15", deadlock_freedom="R15"),
    run(TORCH, 2, 1, 2, ("outage",),
        never_two_groups="R7", the_removed_are_told="R7", members_learn_the_master="R7", deadlock_freedom="R7",
        agree_on_master="R2", agree_on_world="R4", ranks_are_dense="R4", live_nodes_stay="R15"),
    run(TORCH, 3, 2, 3, (),
        members_learn_the_master="R1", agree_on_master="R2", agree_on_world="R3", ranks_are_dense="R3",
        at_least_min="R3", live_nodes_stay="R15"),
    run(TORCH, 3, 2, 2, ()),
    run(TORCH, 3, 2, 2, ("job_end",), ranks_are_dense="R4", at_least_min="R4"),
    run(TORCH, 3, 2, 2, ("worker_failure",),
        full_rounds_come_to_rest="R8", the_waiting_are_answered="R8", agree_on_world="R3", ranks_are_dense="R3",
        at_least_min="R3", agree_on_master="R2", live_nodes_stay="R15"),
    run(TORCH, 3, 2, 3, ("worker_failure",),
        members_learn_the_master="R1", agree_on_master="R2", agree_on_world="R3", ranks_are_dense="R3",
        at_least_min="R3", live_nodes_stay="R15"),
    run(TORCH, 3, 2, 3, ("crash",),
        departures_are_noticed="R14", members_learn_the_master=("R14", "R1"), agree_on_master="R2",
        agree_on_world=("R3", "R4"), ranks_are_dense=("R3", "R4"), at_least_min=("R3", "R4"), live_nodes_stay="R15",
        deadlock_freedom="R15"),
    run(TORCH, 3, 2, 3, ("crash", "restart"),
        departures_are_noticed="R14", members_learn_the_master=("R14", "R1"), agree_on_master="R2",
        agree_on_world=("R3", "R4"), ranks_are_dense=("R3", "R4"), at_least_min=("R3", "R4"), live_nodes_stay="R15",
        deadlock_freedom="R15"),
    run(TORCH, 3, 2, 3, ("stall",),
        never_two_groups="R6", the_removed_are_told="R6", members_learn_the_master=("R6", "R1"), agree_on_master="R2",
        agree_on_world=("R3", "R4"), ranks_are_dense=("R3", "R4"), at_least_min=("R3", "R4"), live_nodes_stay="R15",
        deadlock_freedom="R15"),
    run(TORCH, 3, 2, 3, ("outage",),
        never_two_groups="R7", the_removed_are_told="R7", members_learn_the_master=("R7", "R1"), deadlock_freedom="R7",
        agree_on_master="R2", agree_on_world=("R3", "R4"), ranks_are_dense=("R3", "R4"), at_least_min=("R3", "R4"),
        live_nodes_stay="R15"),
    run(TORCH, 3, 2, 3, ("other_expiry",),
        never_two_groups="R12", live_nodes_stay=("R12", "R15"), enough_nodes_complete_a_round="R12",
        the_waiting_are_answered="R12", members_learn_the_master="R12", the_removed_are_told="R12",
        agree_on_world="R12", ranks_are_dense="R12", at_least_min="R12", agree_on_master="R2"),
    run(TORCH, 3, 2, 3, ("join_timeout",),
        closing_is_earned="R10", members_learn_the_master=("R14", "R1"), agree_on_master="R2", agree_on_world="R3",
        ranks_are_dense="R3", at_least_min="R3", live_nodes_stay="R15", deadlock_freedom="R15"),
    run(TORCH, 3, 2, 3, ("job_end",),
        members_learn_the_master="R1", agree_on_master="R2", agree_on_world=("R3", "R4"), ranks_are_dense=("R3", "R4"),
        at_least_min=("R3", "R4"), live_nodes_stay="R15", deadlock_freedom="R15"),
    run(TORCH, 3, 2, 4, ("other_min",),
        enough_nodes_complete_a_round="R9", deadline_iff_last_call="R9", members_learn_the_master="R1",
        agree_on_master="R2", agree_on_world="R3", ranks_are_dense="R3", at_least_min="R3", live_nodes_stay="R15"),
    holders(TORCH, 2, 2, 2, ()),
    holders(TORCH, 2, 2, 2, ("worker_failure",)),
    holders(TORCH, 2, 2, 2, ("join_timeout",)),
    holders(TORCH, 2, 2, 2, ("crash",)),
    holders(TORCH, 2, 1, 2, ("job_end",), lost_writes_are_reported="R11"),
    holders(TORCH, 2, 1, 1, ("worker_failure",)),
    holders(TORCH, 2, 1, 2, ("join_timeout",)),
    holders(TORCH, 3, 2, 2, ()),
    run(SEED, 2, 2, 2, (), idle=("somebody_waits",)),
    run(SEED, 2, 2, 2, ("worker_failure",), rounds=4, agree_on_world="R3", ranks_are_dense="R3", at_least_min="R3"),
    run(SEED, 2, 2, 2, ("crash",),
        idle=("somebody_waits",), agree_on_world="R4", ranks_are_dense="R4", at_least_min="R4",
        departures_are_noticed="R14", members_learn_the_master="R14"),
    run(SEED, 2, 2, 2, ("stall",),
        the_removed_are_told="R6", the_waiting_are_answered="R6", members_learn_the_master="R6", agree_on_world="R4",
        ranks_are_dense="R4", at_least_min="R4"),
    run(SEED, 2, 2, 2, ("outage",),
        deadlock_freedom="R7", the_removed_are_told="R7", the_waiting_are_answered="R7", members_learn_the_master="R7",
        agree_on_world="R4", ranks_are_dense="R4", at_least_min="R4"),
    run(SEED, 2, 2, 2, ("partition",),
        the_removed_are_told="R6", the_waiting_are_answered="R6", members_learn_the_master="R6", agree_on_world="R4",
        ranks_are_dense="R4", at_least_min="R4"),
    run(SEED, 2, 2, 2, ("clock_skew",),
        idle=("somebody_waits",), agree_on_world="R5", ranks_are_dense="R5", at_least_min="R5", live_nodes_stay="R5",
        the_removed_are_told="R5"),
    run(SEED, 2, 2, 2, ("clock_step",),
        live_nodes_stay="R13", agree_on_world="R13", ranks_are_dense="R13", at_least_min="R13",
        the_removed_are_told="R13", members_learn_the_master="R13"),
    run(SEED, 2, 2, 2, ("other_expiry",),
        live_nodes_stay="R12", agree_on_world="R12", ranks_are_dense="R12", at_least_min="R12",
        the_removed_are_told="R12", members_learn_the_master="R12", the_waiting_are_answered="R12"),
    run(SEED, 2, 1, 2, ("outage",),
        never_two_groups="R7", the_removed_are_told="R7", the_waiting_are_answered="R7", members_learn_the_master="R7",
        deadlock_freedom="R7", agree_on_world="R4", ranks_are_dense="R4"),
    run(SEED, 3, 2, 2, ("worker_failure",),
        full_rounds_come_to_rest="R8", the_waiting_are_answered="R8", agree_on_world="R3", ranks_are_dense="R3",
        at_least_min="R3"),
    run(SEED, 3, 2, 3, (), agree_on_world="R3", ranks_are_dense="R3", at_least_min="R3"),
    run(SEED, 3, 2, 3, ("worker_failure",), agree_on_world="R3", ranks_are_dense="R3", at_least_min="R3"),
    run(SEED, 3, 2, 3, ("crash", "restart"),
        departures_are_noticed="R14", the_waiting_are_answered="R14", members_learn_the_master="R14",
        agree_on_world=("R3", "R4"), ranks_are_dense=("R3", "R4"), at_least_min=("R3", "R4")),
    run(SEED, 3, 2, 3, ("stall",),
        never_two_groups="R6", the_removed_are_told="R6", the_waiting_are_answered="R6", members_learn_the_master="R6",
        agree_on_world=("R3", "R4"), ranks_are_dense=("R3", "R4"), at_least_min=("R3", "R4")),
    run(SEED, 3, 2, 3, ("outage",),
        never_two_groups="R7", the_removed_are_told="R7", the_waiting_are_answered="R7", members_learn_the_master="R7",
        deadlock_freedom="R7", agree_on_world=("R3", "R4"), ranks_are_dense=("R3", "R4"), at_least_min=("R3", "R4")),
    run(SEED, 3, 2, 3, ("join_timeout",),
        closing_is_earned="R10", members_learn_the_master="R14", agree_on_world="R3", ranks_are_dense="R3",
        at_least_min="R3"),
    run(SEED, 3, 2, 3, ("job_end",),
        agree_on_world=("R3", "R4"), ranks_are_dense=("R3", "R4"), at_least_min=("R3", "R4")),
    run(SEED, 3, 2, 4, ("other_min",),
        deadline_iff_last_call="R9", agree_on_world="R3", ranks_are_dense="R3", at_least_min="R3"),
    holders(SEED, 2, 2, 2, ("worker_failure",)),
    holders(SEED, 2, 1, 2, ("job_end", "join_timeout"), lost_writes_are_reported="R11"),
    run(TRYSTATE, 2, 2, 2, EVERY_FAULT_BUT_OTHER_MIN, idle=("somebody_waits",)),
    run(TRYSTATE, 2, 1, 2, ("worker_failure", "crash", "restart", "stall", "join_timeout", "job_end")),
    run(TRYSTATE, 2, 1, 1, ("worker_failure", "crash", "restart", "stall"),
        idle=("two_return", "somebody_is_expected")),
    run(TRYSTATE, 3, 2, 3, ()),
    run(TRYSTATE, 3, 2, 3, EVERY_FAULT, max_faults=2),
    run(TRYSTATE, 3, 2, 3, ("clock_skew", "clock_step")),
    run(TRYSTATE, 3, 2, 3, ("worker_failure", "crash", "restart", "stall")),
    run(TRYSTATE, 3, 2, 2, EVERY_FAULT_BUT_OTHER_MIN, max_faults=2),
    run(TRYSTATE, 3, 1, 2, ("worker_failure",)),
    run(TRYSTATE, 3, 1, 2, ("crash", "restart", "join_timeout")),
    run(TRYSTATE, 3, 2, 4, ("other_min", "other_expiry", "join_timeout")),
    run(TRYSTATE, 4, 2, 3, ("crash", "stall")),
)
# fmt: on
