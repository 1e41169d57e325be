"""The runs that elastic-node-change shows in pictures: a newcomer to two running nodes, and the loss of a node."""

from __future__ import annotations

from ..checker.expectations import Run
from ..checker.walks import Taken, Walk
from ..language import Condition, SymbolicState, all_, count, sometimes
from ..rendezvous.vocabulary import Membership
from . import Agents
from .vocabulary import Edition, Loop, WorkerState

SIZES = {"node": 3, "min_nodes": 1, "max_nodes": 4, "max_restarts": 1, "counted": 2, "ends": 0}
COMES = Run(Agents, SIZES, Edition.TORCH)
GOES = Run(Agents, SIZES, Edition.TORCH, faults=("crash", "worker_failure"))

STARTED = "start_agent({0}) join({0}) "
BEGUN = "return_with_a_round({0}) start_workers({0}) "
TWO_RUN = STARTED.format(0) + STARTED.format(1) + "mark_complete(0) " + BEGUN.format(0) + BEGUN.format(1)
THREE_RUN = "".join(map(STARTED.format, range(3))) + "mark_complete(0) " + "".join(map(BEGUN.format, range(3)))


@sometimes()
def two_restart_for_a_third(system: Agents, s: SymbolicState) -> Condition:
    """Two agents have stopped their healthy workers for a node that waits."""
    stopped = s.workers.count(WorkerState.STOPPED)
    return (s.loop.count(Loop.RESTARTING) == 2) & (s.member.count(Membership.WAITING) == 1) & (stopped == 2)


@sometimes()
def three_run(system: Agents, s: SymbolicState) -> Condition:
    """Three nodes run workers in the present round."""
    return all_(system.runs(s, j) & s.current[j] for j in s.node)


@sometimes()
def two_run_without_the_third(system: Agents, s: SymbolicState) -> Condition:
    """Two nodes run workers in a round of two."""
    return (count(system.runs(s, j) & s.current[j] for j in s.node) == 2) & (s.world == 2)


SEES = "_monitor_workers finds HEALTHY, num_nodes_waiting is 1: _restart_workers"
SCALE_UP = Walk(
    "scale-up-noticed", "The agents of two nodes see that a third waits (elastic-node-change 2.3.1).", COMES,
    (
        Taken("start_agent(2)", "the agent of a new node calls next_rendezvous", (1, 2)),
        Taken("join(2)", "ADD_TO_WAIT_LIST: the wait list now has the node", (3, 4, 5)),
        Taken("restart_workers(0)", SEES, (6, 7, 8, 9)),
        Taken("restart_workers(1)", SEES, (6, 7, 8, 9)),
    ),
    witness=two_restart_for_a_third,
    before=TWO_RUN,
)  # fmt: skip
RESTART = Walk(
    "restart-with-newcomer", "The agents restart their workers with the node that waits (elastic-node-change 2.3.3.6).",
    COMES,
    (
        Taken("restart_workers(0)", "_stop_workers: MultiprocessContext.close ends the processes", (1, 2)),
        Taken("restart_workers(1)", "and on the other node", (1, 2)),
        Taken("exit_round(0)", "_initialize_workers: next_rendezvous, with the exit operator first", (3, 4)),
        Taken("exit_round(1)", "the last member leaves, so the round is over", (3, 4)),
        Taken("join(0)", "the join operator decides ADD_TO_PARTICIPANTS: _add_to_participants", (5, 6)),
        Taken("join(1)", "and on the other node", (5, 6)),
        Taken("join(2)", "the node moves from the wait list to the participants", (7,)),
        Taken("mark_complete(0)", "the last call is over"),
        *(Taken(f"return_with_a_round({k})", "next_rendezvous returns") for k in range(3)),
        *(Taken(f"start_workers({k})", "with a new rank and world size") for k in range(3)),
    ),
    witness=three_run,
    before=f"{TWO_RUN} start_agent(2) join(2)",
)  # fmt: skip
LOST = (
    Taken("crash(2)", "a node is lost"),
    Taken("worker_fails(0)", "a worker that communicates with it fails"),
    Taken("worker_fails(1)", "and on the other node"),
)
CLOSE = "_stop_workers, and MultiprocessContext.close"
SCALE_DOWN = Walk(
    "scale-down", "One node of three is lost, and the others continue (elastic-node-change 3.3.2).", GOES,
    (
        *LOST,
        Taken("find_failure(0)", f"_monitor_workers finds FAILED, a restart is left: _restart_workers, {CLOSE}",
              (1, 2, 5, 6, 7)),
        Taken("find_failure(1)", "and on the other node", (1, 2, 5, 6, 7)),
        Taken("exit_round(0)", "_initialize_workers: next_rendezvous, with the exit operator first", (8, 9)),
        Taken("exit_round(1)", "and on the other node", (8, 9)),
        Taken("expel(0)", "the heartbeat of the lost node is too old, so the round has no member left", (10,)),
        Taken("join(0)", "a participant of the next round", (10,)),
        Taken("join(1)", "and on the other node", (10,)),
        Taken("mark_complete(0)", "the last call is over: two participants", (10,)),
        *(Taken(f"return_with_a_round({k})", "next_rendezvous returns", (10,)) for k in range(2)),
        *(Taken(f"start_workers({k})", "the workers start with a new rank and world size", (10,)) for k in range(2)),
    ),
    witness=two_run_without_the_third,
    before=THREE_RUN,
)  # fmt: skip
NO_RESTART_LEFT = Walk(
    "scale-down-no-restart-left", "A worker fails, and no restart is left (elastic-node-change 3.3.2).",
    Run(Agents, {**SIZES, "max_restarts": 0, "counted": 1}, Edition.TORCH, faults=("worker_failure",)),
    (
        Taken("worker_fails(2)", "a worker of the third node fails"),
        Taken("find_failure(2)", f"_monitor_workers finds FAILED, no restart is left: {CLOSE}", (1, 2, 3, 4)),
        Taken("mark_closed(2)", "the agent ends and closes the rendezvous"),
    ),
    witness="it_is_closed",
    before=THREE_RUN,
)  # fmt: skip
WALKS = (SCALE_UP, RESTART, SCALE_DOWN, NO_RESTART_LEFT)
