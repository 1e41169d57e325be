"""What is known to be wrong with the editions, and the runs that show it. Data only: `trystate verify` checks it.

R1 to R15 are defects of torch 2.13 that the checker finds in the edition TORCH and that happen again on torch's
own classes (`trystate replay NAME`). Most are as old as torch 1.10, so that the edition SEED has them too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..checker.expectations import Finding, Run, explained
from .claims import Rendezvous
from .holder import Holders
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
            "return with what was written, not with a local copy"),
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

WORLD = ("agree_on_world", "ranks_are_dense", "at_least_min")
RANKS = ("agree_on_world", "ranks_are_dense")
MASTER = ("agree_on_master",)
LEARN = ("members_learn_the_master",)
TOLD = ("the_removed_are_told",)
WAIT = ("the_waiting_are_answered",)
GROUPS = ("never_two_groups",)
EXPELLED = ("live_nodes_stay",)
GONE = ("departures_are_noticed",)
CLOSING = ("closing_is_earned",)
REST = ("full_rounds_come_to_rest",)
NO_ROUND = ("enough_nodes_complete_a_round",)
REST_FOR_EVER = ("deadlock_freedom",)
DEADLINE = ("deadline_iff_last_call",)
NO_WAITING = ("somebody_waits",)


def _run(
    edition: Edition, size: str, *faults: str, idle: Any = (), rounds: int = 1, together: int | None = None,
    **found: tuple[str, ...],
) -> Run:  # fmt: skip
    """`size` is nodes and min:max, such as `3 2:3`; with `together`, at most so many faults in all."""
    nodes, span = size.split()
    low, high = span.split(":")
    sizes = {"node": int(nodes), "min_nodes": int(low), "max_nodes": int(high), "rounds": rounds}
    return Run(Rendezvous, sizes, edition, faults, explained(_FINDINGS, found), tuple(idle), together)


def _holders(edition: Edition, size: str, *faults: str, **found: tuple[str, ...]) -> Run:
    run = _run(edition, size, *faults, rounds=2, together=None, **found)
    return Run(Holders, run.sizes, edition, faults, run.findings)


TORCH, SEED, OURS = Edition.TORCH, Edition.SEED, Edition.TRYSTATE

# fmt: off
_TORCH_RUNS = (
    _run(TORCH, "2 1:2", R1=LEARN, R2=MASTER, R15=EXPELLED),
    _run(TORCH, "2 2:2", idle=NO_WAITING),
    _run(TORCH, "2 2:2", "worker_failure", R3=WORLD, rounds=4),
    _run(TORCH, "2 2:2", "crash", idle=NO_WAITING, R4=WORLD, R14=GONE + LEARN, R15=REST_FOR_EVER),
    _run(TORCH, "2 2:2", "stall", R6=TOLD + LEARN, R4=WORLD, R15=EXPELLED + REST_FOR_EVER),
    _run(TORCH, "2 2:2", "outage", R7=REST_FOR_EVER + TOLD + LEARN, R4=WORLD, R15=EXPELLED),
    _run(TORCH, "2 2:2", "clock_skew", idle=NO_WAITING, R5=WORLD + EXPELLED + TOLD),
    _run(TORCH, "2 2:2", "clock_step", R13=EXPELLED + WORLD + TOLD),
    _run(TORCH, "2 2:2", "other_expiry", R12=EXPELLED + WORLD + TOLD + LEARN + WAIT),
    _run(TORCH, "2 2:2", "join_timeout", idle=NO_WAITING, R10=CLOSING, R4=WORLD[2:], R14=LEARN,
         R15=EXPELLED + REST_FOR_EVER),
    _run(TORCH, "2 2:2", "job_end", idle=NO_WAITING, R4=WORLD[1:]),
    _run(TORCH, "2 2:2", "partition", R6=TOLD + LEARN, R4=WORLD, R15=EXPELLED + REST_FOR_EVER),
    _run(TORCH, "2 1:2", "outage", R7=GROUPS + TOLD + LEARN + REST_FOR_EVER, R2=MASTER, R4=RANKS, R15=EXPELLED),
    _run(TORCH, "3 2:3", R1=LEARN, R2=MASTER, R3=WORLD, R15=EXPELLED),
    _run(TORCH, "3 2:2"),
    _run(TORCH, "3 2:2", "job_end", R4=WORLD[1:]),
    _run(TORCH, "3 2:2", "worker_failure", R8=REST + WAIT, R3=WORLD, R2=MASTER, R15=EXPELLED),
    _run(TORCH, "3 2:3", "worker_failure", R1=LEARN, R2=MASTER, R3=WORLD, R15=EXPELLED),
    _run(TORCH, "3 2:3", "crash", R14=GONE + LEARN, R1=LEARN, R2=MASTER, R3=WORLD, R4=WORLD,
         R15=EXPELLED + REST_FOR_EVER),
    _run(TORCH, "3 2:3", "crash", "restart", R14=GONE + LEARN, R1=LEARN, R2=MASTER, R3=WORLD, R4=WORLD,
         R15=EXPELLED + REST_FOR_EVER),
    _run(TORCH, "3 2:3", "stall", R6=GROUPS + TOLD + LEARN, R1=LEARN, R2=MASTER, R3=WORLD, R4=WORLD,
         R15=EXPELLED + REST_FOR_EVER),
    _run(TORCH, "3 2:3", "outage", R7=GROUPS + TOLD + LEARN + REST_FOR_EVER, R1=LEARN, R2=MASTER,
         R3=WORLD, R4=WORLD, R15=EXPELLED),
    _run(TORCH, "3 2:3", "other_expiry", R12=GROUPS + EXPELLED + NO_ROUND + WAIT + LEARN + TOLD + WORLD, R2=MASTER,
         R15=EXPELLED),
    _run(TORCH, "3 2:3", "join_timeout", R10=CLOSING, R14=LEARN, R1=LEARN, R2=MASTER, R3=WORLD,
         R15=EXPELLED + REST_FOR_EVER),
    _run(TORCH, "3 2:3", "job_end", R1=LEARN, R2=MASTER, R3=WORLD, R4=WORLD, R15=EXPELLED + REST_FOR_EVER),
    _run(TORCH, "3 2:4", "other_min", R9=NO_ROUND + DEADLINE, R1=LEARN, R2=MASTER, R3=WORLD, R15=EXPELLED),
    _holders(TORCH, "2 2:2"),
    _holders(TORCH, "2 2:2", "worker_failure"),
    _holders(TORCH, "2 2:2", "join_timeout"),
    _holders(TORCH, "2 2:2", "crash"),
    _holders(TORCH, "2 1:2", "job_end", R11=("lost_writes_are_reported",)),
    _holders(TORCH, "2 1:1", "worker_failure"),
    _holders(TORCH, "2 1:2", "join_timeout"),
    _holders(TORCH, "3 2:2"),
)
_SEED_RUNS = (
    _run(SEED, "2 2:2", idle=NO_WAITING),
    _run(SEED, "2 2:2", "worker_failure", R3=WORLD, rounds=4),
    _run(SEED, "2 2:2", "crash", idle=NO_WAITING, R4=WORLD, R14=GONE + LEARN),
    _run(SEED, "2 2:2", "stall", R6=TOLD + WAIT + LEARN, R4=WORLD),
    _run(SEED, "2 2:2", "outage", R7=REST_FOR_EVER + TOLD + WAIT + LEARN, R4=WORLD),
    _run(SEED, "2 2:2", "partition", R6=TOLD + WAIT + LEARN, R4=WORLD),
    _run(SEED, "2 2:2", "clock_skew", idle=NO_WAITING, R5=WORLD + EXPELLED + TOLD),
    _run(SEED, "2 2:2", "clock_step", R13=EXPELLED + WORLD + TOLD + LEARN),
    _run(SEED, "2 2:2", "other_expiry", R12=EXPELLED + WORLD + TOLD + LEARN + WAIT),
    _run(SEED, "2 1:2", "outage", R7=GROUPS + TOLD + WAIT + LEARN + REST_FOR_EVER, R4=RANKS),
    _run(SEED, "3 2:2", "worker_failure", R8=REST + WAIT, R3=WORLD),
    _run(SEED, "3 2:3", R3=WORLD),
    _run(SEED, "3 2:3", "worker_failure", R3=WORLD),
    _run(SEED, "3 2:3", "crash", "restart", R14=GONE + WAIT + LEARN, R3=WORLD, R4=WORLD),
    _run(SEED, "3 2:3", "stall", R6=GROUPS + TOLD + WAIT + LEARN, R3=WORLD, R4=WORLD),
    _run(SEED, "3 2:3", "outage", R7=GROUPS + TOLD + WAIT + LEARN + REST_FOR_EVER, R3=WORLD, R4=WORLD),
    _run(SEED, "3 2:3", "join_timeout", R10=CLOSING, R14=LEARN, R3=WORLD),
    _run(SEED, "3 2:3", "job_end", R3=WORLD, R4=WORLD),
    _run(SEED, "3 2:4", "other_min", R9=DEADLINE, R3=WORLD),
    _holders(SEED, "2 2:2", "worker_failure"),
    _holders(SEED, "2 1:2", "job_end", "join_timeout", R11=("lost_writes_are_reported",)),
)
# Every fault but the clocks: in ours no step reads one, so that they only multiply the states.
_FAULTS = ("worker_failure", "crash", "restart", "stall", "outage", "partition", "join_timeout", "job_end", "other_min",
           "other_expiry")
# Where min = max, no node can start with a larger min.
_BEARABLE = tuple(fault for fault in _FAULTS if fault != "other_min")
_OUR_RUNS = (
    _run(OURS, "2 2:2", *_BEARABLE, idle=NO_WAITING),
    _run(OURS, "2 1:2", "worker_failure", "crash", "restart", "stall", "join_timeout", "job_end"),
    _run(OURS, "2 1:1", "worker_failure", "crash", "restart", "stall", idle=("two_return", "somebody_is_expected")),
    _run(OURS, "3 2:3"),
    _run(OURS, "3 2:3", *_FAULTS, together=2),
    _run(OURS, "3 2:3", "clock_skew", "clock_step"),
    _run(OURS, "3 2:3", "worker_failure", "crash", "restart", "stall"),
    _run(OURS, "3 2:2", *_BEARABLE, together=2),
    _run(OURS, "3 1:2", "worker_failure"),
    _run(OURS, "3 1:2", "crash", "restart", "join_timeout"),
    _run(OURS, "3 2:4", "other_min", "other_expiry", "join_timeout"),
    _run(OURS, "4 2:3", "crash", "stall"),
)
# fmt: on
PLAN: tuple[Run, ...] = _TORCH_RUNS + _SEED_RUNS + _OUR_RUNS
