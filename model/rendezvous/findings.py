"""Known defects of the editions, and the runs that show them. Data only: `trystate verify` checks it.

R1 to R15 are defects of torch 2.13 that the checker finds in the edition TORCH and that happen again on torch's
own classes (`trystate replay NAME`). Most are as old as torch 1.10, so that the edition SEED has them too. R16 is of
older releases. R17, of torch 2.15, is a pause, which a model without time cannot tell: it has a replay alone. R18 is of
the calls of one node, which `Deadlines` has, and R20 of the jobs at one endpoint, which `SharedEndpoints` has.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..checker.expectations import Finding, Run, explained
from ..language.transitions import fault_bounds
from .deadlines import Deadlines
from .detail import OursInDetail
from .environment import Environment
from .etcd import EtcdRendezvous
from .holder import Holders
from .hosting import SharedEndpoints
from .properties import Rendezvous
from .vocabulary import Edition

_FINDINGS = (
    Finding("master-not-republished", "R1",
            "Rank 0 keeps its master from an earlier round and does not publish it for the new one: a newcomer waits.",
            "publish the master for every round",
            "A node that joins a later round hangs until read_timeout (60 s), ends with DistStoreError, and closes "
            "the job.",
            "A node is added, or comes back, while rank 0 keeps its agent; the workers share the agent's store, as is "
            "the default.",
            "Set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 on every node.",
            since="2.5"),
    Finding("stale-master", "R2",
            "Members keep the master of an earlier round while a newcomer that sorts first serves a new one.",
            "bind the master to the round in which it was published",
            "After a node has joined, ranks wait for each other in init_process_group: their MASTER_PORT differs by "
            "node.",
            "As R1, where the address of the new node sorts before that of rank 0.",
            "Set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 on every node.",
            since="2.5"),
    Finding("fast-exit", "R3",
            "A member leaves a complete round before another has polled: the other returns with a smaller world.",
            "fix the membership of a complete round",
            "Nodes of one round disagree on the world; agents wait for ranks until read_timeout (60 s): "
            "DistStoreError.",
            "TORCH_ELASTIC_WORKER_IDENTICAL=1, with which no agent waits for the others, and a worker fails within a "
            "second of its start; or a program that calls next_rendezvous itself.",
            "Set --monitor-interval=5: an agent then leaves no round that another has yet to see.",
            since="1.10"),
    Finding("death-in-window", "R4",
            "A member that died is dropped from a complete round: others return with a smaller world than some had.",
            "return with the written state, not with a local copy",
            "Nodes of one round disagree on the world; agents wait for ranks until read_timeout (60 s): "
            "DistStoreError.",
            "A node dies while others still join, and is taken for dead (after 15 s) between the polls of two others.",
            "None in a running job: start torchrun again on all nodes.",
            since="1.10"),
    Finding("clock-skew", "R5",
            "Expiry compares wall clocks: a node with a late clock is dropped as dead.",
            "count beats on the observer's own monotonic clock",
            "Nodes disagree on the world at the start, or a live node is dropped as dead.",
            "Wall clocks of nodes differ by more than keep_alive_interval × keep_alive_max_attempt (15 s).",
            "Keep the clocks in step (NTP); set a larger keep_alive_max_attempt in --rdzv-conf (from torch 2.7).",
            since="1.10"),
    Finding("never-told", "R6",
            "A member that missed its heartbeats is removed and never told: it runs on beside a second group.",
            "fence members by round and token",
            "Two groups train at once, and write the same checkpoints; the dropped node logs nothing.",
            "A node is silent for more than 15 s (stopped, swapping, cut off), and another takes its place.",
            "Set a larger keep_alive_max_attempt in --rdzv-conf (from torch 2.7); let the script lock its "
            "checkpoints.",
            since="1.10"),
    Finding("store-pause", "R7",
            "After an outage each node sees its own heartbeat expired and stops beating for ever.",
            "let an expired member recover or be told",
            "The job goes on after a pause of the store; a node that is added later starts a group of its own.",
            "The store, or the network to it, answers nobody for more than 15 s; nodes are added later.",
            "Set a larger keep_alive_max_attempt in --rdzv-conf (from torch 2.7); restart the job before nodes are "
            "added.",
            since="1.10"),
    Finding("restless-spare", "R8",
            "A waiting node that loses the race for a full round is never made a spare: the group restarts for ever.",
            "let a waiting node of a full round become a spare",
            "Workers are restarted again and again without a failure: the log says `Detected 1 new nodes`.",
            "More nodes than max are started, and a round restarts.",
            "Start no more nodes than max, or end the spare.",
            since="1.10"),
    Finding("settings-not-agreed", "R9",
            "Nodes with different min: enough participants but no deadline, and the round never completes.",
            "agree on the settings in the shared state, or refuse",
            "Enough nodes wait, and no round begins: RendezvousTimeoutError after join_timeout (600 s).",
            "Nodes are started with different --nnodes, and one with a larger min leaves.",
            "Start every node with the same --nnodes.",
            since="1.10"),
    Finding("late-node-closes", "R10",
            "A node whose join timed out shuts down, and thereby closes the rendezvous of a healthy group.",
            "close only what one belongs to",
            "A healthy job ends at its next restart, with RendezvousClosedError.",
            "A node comes late, and is not taken in within join_timeout (600 s), as when the others take long to "
            "restart.",
            "Give late nodes a join_timeout in --rdzv-conf that is longer than a restart takes.",
            since="1.10"),
    Finding("lost-write-reported-won", "R11",
            "Two writers of the same bytes: the one that lost is told that it won.",
            "compare versions, not bytes",
            "Nothing yet: of torch's writes only those that close can be equal, and they want the same.",
            "A backend or an operation of one's own counts on the answer.",
            "None is needed.",
            since="1.10"),
    Finding("impatient-observer", "R12",
            "Expiry is judged by the observer's settings: a node with a shorter window removes healthy ones.",
            "agree on the settings in the shared state, or refuse",
            "Live nodes are dropped as dead, and a second group begins beside theirs.",
            "keep_alive_interval or keep_alive_max_attempt in --rdzv-conf differ between nodes (from torch 2.7).",
            "Start every node with the same --rdzv-conf.",
            since="1.10"),
    Finding("clock-steps-back", "R13",
            "A wall clock that is set back stops its node's heartbeats: a live node is removed.",
            "count beats on a monotonic clock",
            "A live node is dropped as dead, and runs on beside the group that replaces it.",
            "A wall clock is set back by seconds or more: by hand, by a step of NTP, with a virtual machine.",
            "Let NTP slew the clock, not step it, while a job runs.",
            since="1.10"),
    Finding("departure-unnoticed", "R14",
            "When a member dies or leaves, nothing tells the others: they run on, or wait for its master.",
            "make a missed heartbeat a membership change",
            "A node dies, and the workers of the others hang in a collective, or run on; nothing restarts.",
            "A node dies together with its agent, and no worker of the others fails by itself.",
            "Give the process group a timeout and torchrun --max-restarts, so that workers fail and restart.",
            since="1.10"),
    Finding("connecting-node-expelled", "R15",
            "A node that waits for the master, or the others' workers, cannot beat: its store client is in use.",
            "give the heartbeats a connection of their own",
            "A live node is dropped as dead while it joins, and then runs with a rank in a round that is not its own.",
            "A member takes longer than 15 s to publish its address, or its number of workers: it is stopped, dies, or "
            "looks up names.",
            "Make the window longer than read_timeout: keep_alive_max_attempt=20 in --rdzv-conf (from torch 2.7).",
            since="2.5"),
    Finding("new-master-asserts", "R16",
            "A member that was led by another and becomes rank 0 asserts: it ends, and the others wait for its master.",
            "let each member bring a store of its own, and take the master with the round",
            "torchrun of the node with rank 0 ends with an AssertionError after a restart; the others wait until their "
            "join timeout.",
            "The node that had rank 0 leaves, or a newcomer changes the order, and a member that was another rank "
            "before becomes rank 0.",
            "Upgrade to 2.13, or set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1.",
            since="2.5", until="2.12"),
    Finding("back-off-retries-stale", "R17",
            "A node that backs off decides on the state from before its pause: its next write is lost as well.",
            "read the state after the pause, not before",
            "The more nodes, the more writes are lost and the longer a round takes to form: in a simulated first "
            "round of 64 nodes with a pause of up to 1 s none has a rank after a minute, without the pause all have "
            "one after 2.4 s. Nodes expire because their heartbeats are such writes too.",
            "cas_backoff_max_seconds is set in --rdzv-conf (by default it is 0).",
            "Leave cas_backoff_max_seconds at 0.",
            since="2.15"),
    Finding("corruption-ends-heartbeats", "R18",
            "A shared state that cannot be read for another reason than PickleError ends the thread that beats.",
            "turn each error of reading the state into RendezvousStateError",
            "torchrun ends with EOFError, AttributeError or ModuleNotFoundError, also out of shutdown, and the log "
            "has 'Exception in thread RendezvousKeepAliveTimer_0'; a node that reads the state no more is dropped as "
            "dead after 15 s, though the state is back.",
            "The value at the rendezvous' key has no bytes, or is a pickle of a class that this torch lacks, as of "
            "another release of torch or of another program.",
            "Run one release of torch on all nodes; give each job its own --rdzv-id.",
            since="1.10"),
    Finding("done-node-replaced", "R19",
            "A node in the exit barrier cannot beat: it is dropped as dead, and a spare or newcomer takes its place.",
            "give the heartbeats a connection of their own",
            "The workers of one node are done, and those of another are restarted without a failure, in a round with a "
            "node that was a spare.",
            "The workers of one node end more than 15 s before those of another, and a node waits for a place.",
            "End the training script with a barrier of all ranks; or keep_alive_max_attempt=60 in --rdzv-conf (from "
            "torch 2.7): longer than the exit barrier's 300 s.",
            since="2.5"),
    Finding("store-of-another-job", "R20",
            "A node that finds the port of its endpoint taken uses the store of another job, which ends with that job.",
            "let the node that serves stay until no node of another job uses its store",
            "A healthy job ends with RendezvousConnectionError when another job, which nothing names, has ended.",
            "Two jobs have the same --rdzv-endpoint, on a machine that may serve it: by mistake, or because both use "
            "the default port.",
            "Give each job a port of its own, or run a store that no job serves: `trystate store serve`.",
            since="1.10"),
)  # fmt: skip
FINDINGS: Mapping[str, Finding] = {f.name: f for f in _FINDINGS}


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
    system: type[Rendezvous] = Rendezvous,
    **found: str | tuple[str, ...],
) -> Run:
    """One search of `Rendezvous`: edition, size and faults, and property = the findings that explain its violation."""
    sizes = {"node": nodes, "min_nodes": min_nodes, "max_nodes": max_nodes, "rounds": rounds}
    return Run(system, sizes, edition, faults, explained(found, FINDINGS), idle, max_faults)


def holders(edition: Edition, nodes: int, min_nodes: int, max_nodes: int, faults: tuple[str, ...], **found: str) -> Run:
    """One search of `Holders`."""
    sizes = {"node": nodes, "min_nodes": min_nodes, "max_nodes": max_nodes, "rounds": 2}
    return Run(Holders, sizes, edition, faults, explained(found, FINDINGS))


def etcd(nodes: int, min_nodes: int, max_nodes: int, faults: tuple[str, ...], idle: tuple[str, ...] = ()) -> Run:
    """One search of the rendezvous over etcd."""
    sizes = {"node": nodes, "min_nodes": min_nodes, "max_nodes": max_nodes}
    return Run(EtcdRendezvous, sizes, Edition.TORCH, faults, idle=idle)


TORCH, TORCH_2_12, SEED, TRYSTATE = Edition.TORCH, Edition.TORCH_2_12, Edition.SEED, Edition.TRYSTATE
CLOCKS = ("clock_skew", "clock_step")
# Every fault but the clocks: in ours no step reads one, so that they only multiply the states.
EVERY_FAULT = (*(fault for fault in fault_bounds(Environment.declarations()) if fault not in CLOCKS), "restart")
# Where min = max, no node can start with a larger min.
EVERY_FAULT_BUT_OTHER_MIN = tuple(fault for fault in EVERY_FAULT if fault != "other_min")


# Edition, nodes, min, max, faults; then property = finding. `idle`: states that such a run cannot reach.
def calls(edition: Edition, faults: tuple[str, ...], **found: str) -> Run:
    """One search of a node's calls beside its heartbeats."""
    return Run(Deadlines, {}, edition, faults, explained(found, FINDINGS))


def hosting(edition: Edition, jobs: int, faults: tuple[str, ...], **found: str) -> Run:
    """One search of the jobs at one endpoint."""
    return Run(SharedEndpoints, {"job": jobs}, edition, faults, explained(found, FINDINGS))


# fmt: off
PLAN: tuple[Run, ...] = (
    run(TORCH, 2, 1, 2, (), members_learn_the_master="R1", agree_on_master="R2", deadlock_freedom="R1"),
    run(TORCH, 2, 2, 2, (), idle=("somebody_waits",)),
    run(TORCH, 2, 2, 2, ("worker_failure",), rounds=4, ranks_are_dense="R3", at_least_min="R3"),
    run(TORCH, 2, 2, 2, ("worker_failure", "identical_workers"), rounds=4,
        agree_on_world="R3", ranks_are_dense="R3", at_least_min="R3"),
    run(TORCH, 2, 2, 2, ("crash",),
        idle=("somebody_waits",), agree_on_world="R4", ranks_are_dense="R4", at_least_min="R4",
        departures_are_noticed="R14", members_learn_the_master="R14", deadlock_freedom="R15"),
    run(TORCH, 2, 2, 2, ("stall",),
        the_removed_are_told="R6", agree_on_world="R4", ranks_are_dense="R4", at_least_min="R4", live_nodes_stay="R15",
        deadlock_freedom="R15"),
    run(TORCH, 2, 2, 2, ("outage",),
        deadlock_freedom="R7", the_removed_are_told="R7", agree_on_world="R4", ranks_are_dense="R4",
        at_least_min="R4"),
    run(TORCH, 2, 2, 2, ("clock_skew",),
        idle=("somebody_waits",), agree_on_world="R5", ranks_are_dense="R5", at_least_min="R5", live_nodes_stay="R5",
        the_removed_are_told="R5"),
    run(TORCH, 2, 2, 2, ("clock_step",),
        idle=("somebody_waits",), live_nodes_stay="R13", agree_on_world="R13", ranks_are_dense="R13",
        at_least_min="R13", the_removed_are_told="R13"),
    run(TORCH, 2, 2, 2, ("other_expiry",),
        idle=("somebody_waits",), live_nodes_stay="R12", agree_on_world="R12", ranks_are_dense="R12",
        at_least_min="R12", the_removed_are_told="R12"),
    run(TORCH, 2, 2, 2, ("join_timeout",),
        idle=("somebody_waits",), at_least_min="R4", ranks_are_dense="R15", members_learn_the_master="R14",
        live_nodes_stay="R15", deadlock_freedom="R15"),
    run(TORCH, 2, 2, 2, ("job_end",),
        idle=("somebody_waits",), ranks_are_dense="R4", at_least_min="R4", live_nodes_stay="R19"),
    run(TORCH, 2, 2, 2, ("partition",),
        the_removed_are_told="R6", agree_on_world="R4", ranks_are_dense="R4", at_least_min="R4", live_nodes_stay="R15",
        deadlock_freedom="R15"),
    run(TORCH, 2, 1, 2, ("outage",),
        never_two_groups="R7", the_removed_are_told="R7", members_learn_the_master="R7", deadlock_freedom="R7",
        agree_on_master="R2", agree_on_world="R4", ranks_are_dense="R4"),
    run(TORCH, 2, 1, 2, ("read_timeout",),
        members_learn_the_master="R1", agree_on_master="R2", ranks_are_dense="R15", live_nodes_stay="R15"),
    run(TORCH, 2, 1, 2, ("identical_workers", "read_timeout"),
        members_learn_the_master="R1", agree_on_master="R2", ranks_are_dense="R15", live_nodes_stay="R15",
        closing_is_earned="R1", deadlock_freedom="R15"),
    run(TORCH, 3, 2, 3, (),
        members_learn_the_master="R1", agree_on_master="R2", ranks_are_dense="R3", at_least_min="R3",
        deadlock_freedom="R1"),
    run(TORCH, 3, 2, 2, ()),
    run(TORCH, 3, 2, 2, ("job_end",),
        ranks_are_dense="R4", at_least_min="R4", live_nodes_stay="R19", agree_on_master="R2",
        members_learn_the_master="R1", deadlock_freedom="R1"),
    run(TORCH, 3, 2, 2, ("join_timeout",),
        closing_is_earned="R10", at_least_min="R4", ranks_are_dense="R15", members_learn_the_master="R14",
        live_nodes_stay="R15", deadlock_freedom="R15"),
    run(TORCH, 3, 2, 2, ("worker_failure",),
        full_rounds_come_to_rest="R8", the_waiting_are_answered="R8", ranks_are_dense="R3", at_least_min="R3",
        agree_on_master="R2", live_nodes_stay="R15"),
    run(TORCH, 3, 2, 3, ("worker_failure",),
        members_learn_the_master="R1", agree_on_master="R2", ranks_are_dense="R3", at_least_min="R3",
        deadlock_freedom="R1"),
    run(TORCH, 3, 2, 3, ("crash",),
        departures_are_noticed="R14", the_removed_are_told="R15", members_learn_the_master=("R14", "R1"),
        agree_on_master="R2", agree_on_world=("R3", "R4"), ranks_are_dense=("R3", "R4"), at_least_min=("R3", "R4"),
        live_nodes_stay="R15", deadlock_freedom="R15"),
    run(TORCH, 3, 2, 3, ("crash", "restart"),
        departures_are_noticed="R14", the_removed_are_told="R15", members_learn_the_master=("R14", "R1"),
        agree_on_master="R2", agree_on_world=("R3", "R4"), ranks_are_dense=("R3", "R4"), at_least_min=("R3", "R4"),
        live_nodes_stay="R15", deadlock_freedom="R15"),
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
        agree_on_world="R12", ranks_are_dense="R12", at_least_min="R12", agree_on_master="R2",
        deadlock_freedom="R12"),
    run(TORCH, 3, 2, 3, ("join_timeout",),
        closing_is_earned="R10", members_learn_the_master=("R14", "R1"), agree_on_master="R2", agree_on_world="R3",
        ranks_are_dense="R3", at_least_min="R3", live_nodes_stay="R15", deadlock_freedom="R15"),
    run(TORCH, 3, 2, 3, ("job_end",),
        members_learn_the_master="R1", agree_on_master="R2", ranks_are_dense=("R3", "R4"), at_least_min=("R3", "R4"),
        live_nodes_stay=("R15", "R19"), deadlock_freedom="R15"),
    run(TORCH, 3, 2, 4, ("other_min",),
        enough_nodes_complete_a_round="R9", deadline_iff_last_call="R9", members_learn_the_master="R1",
        agree_on_master="R2", ranks_are_dense="R3", at_least_min="R3", deadlock_freedom="R1"),
    run(TORCH_2_12, 3, 2, 2, ("worker_failure",),
        members_learn_the_master="R16", deadlock_freedom="R16", full_rounds_come_to_rest="R8",
        the_waiting_are_answered="R8", ranks_are_dense="R3", at_least_min="R3", agree_on_master="R2",
        live_nodes_stay="R15"),
    run(TORCH_2_12, 2, 1, 2, ("read_timeout",),
        members_learn_the_master="R1", agree_on_master="R2", ranks_are_dense="R15", live_nodes_stay="R15"),
    run(TORCH_2_12, 2, 1, 2, ("stall", "outage", "partition", "join_timeout", "job_end"), max_faults=1,
        never_two_groups=("R6", "R7"), the_removed_are_told=("R6", "R7"), closing_is_earned="R10",
        members_learn_the_master="R1", agree_on_master="R2", agree_on_world="R4", ranks_are_dense="R4",
        live_nodes_stay=("R15", "R19"), deadlock_freedom="R15"),
    holders(TORCH, 2, 2, 2, ()),
    holders(TORCH, 2, 2, 2, ("worker_failure",)),
    holders(TORCH, 2, 2, 2, ("join_timeout",)),
    holders(TORCH, 2, 2, 2, ("crash",)),
    holders(TORCH, 2, 1, 2, ("job_end",), lost_writes_are_reported="R11"),
    holders(TORCH, 2, 1, 1, ("worker_failure",)),
    holders(TORCH, 2, 1, 2, ("join_timeout",)),
    holders(TORCH, 3, 2, 2, ()),
    etcd(2, 1, 2, (), idle=("a_full_group_is_to_restart",)),
    etcd(3, 2, 3, ("crash", "restart")),
    etcd(3, 2, 2, ("crash", "restart", "late", "job_end")),
    etcd(3, 2, 3, ("crash", "restart", "worker_failure", "job_end", "join_timeout", "late")),
    calls(TORCH, ()),
    calls(TORCH, ("corrupt", "restored")),
    calls(TORCH, ("corrupt", "foreign", "restored"), corruption_is_named="R18", the_timer_lives="R18"),
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
    run(SEED, 3, 2, 2, ("crash", "join_timeout"),
        closing_is_earned="R10", agree_on_world="R4", ranks_are_dense="R4", at_least_min="R4",
        members_learn_the_master="R14", the_waiting_are_answered="R14"),
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
    calls(SEED, ()),
    calls(SEED, ("corrupt", "foreign", "restored"), corruption_is_named="R18", the_timer_lives="R18"),
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
    calls(TRYSTATE, ("corrupt", "foreign", "restored")),
    hosting(TORCH, 2, (), no_job_ends_another="R20"),
    hosting(TORCH, 3, ("kill",), no_job_ends_another="R20"),
    hosting(TRYSTATE, 2, ()),
    hosting(TRYSTATE, 3, ("kill", "long_job")),
)
# Searches of minutes, which `trystate verify --all` leaves out: docs/larger.py decides them.
LARGER: tuple[Run, ...] = (
    run(TRYSTATE, 3, 2, 3, EVERY_FAULT, max_faults=4),
    run(TRYSTATE, 4, 2, 4, EVERY_FAULT, max_faults=2),
    run(TRYSTATE, 5, 2, 5, ("crash",)),
)
# fmt: on
