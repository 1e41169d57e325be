"""The decisions of a node's agent: one pure function from its observations to its next order.

Theory of operation. The agent (local.py) calls `decide` on its main thread: in each turn of its monitor loop, and when
the standing of its round changes. It then carries out the order. `decide` considers the standing of the round first,
and the state of the workers after it. Once the round is over, the state of the workers means little, because workers
fail when their peers are stopped.

Rule: the workers of a round that is over are stopped, whatever their state. No agent ends with success before the
whole job has succeeded: until then it waits in the exit barrier, and may still have to join the next round.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from torch.distributed.elastic.agent.server.api import WorkerState

from ..rendezvous.engine import Standing
from ..rendezvous.state import Closed


class Order(enum.Enum):
    """An order to the agent; the value is the text for the log."""

    GO_ON = "look again, a little later or when something has changed"
    REPORT = "write into the shared state that the workers have succeeded"
    REJOIN = "stop the workers and join the next round"
    RESTART = "the same after a failure: it spends a restart of the job, or fails the job if none is left"
    FAIL = "stop the workers and fail the job, even if restarts are left: the exit code is one that is not restarted"
    LEAVE = "stop the workers and withdraw; the others continue"
    GIVE_UP = "end with an error: the verdict of the job cannot be read"
    END = "stop the workers and end with the verdict of the job"


@dataclass(frozen=True, slots=True)
class View:
    """The inputs of a decision after the agent has joined a round and started its workers."""

    workers: WorkerState
    standing: Standing
    signalled: bool = False
    reported: bool = False  # the shared state records that these workers have succeeded
    cut_off: bool = False  # the node has had no lease for as long as it may wait for the verdict
    final: bool = False  # a worker has failed with an exit code that is not restarted
    killed: bool = False  # the watchdog has killed these workers, because a lease had ended


def decide(view: View) -> Order:
    """The next order for the agent."""
    if view.signalled:
        # Also in the exit barrier: the report in the shared state stays, and the others count it.
        return Order.LEAVE
    if view.standing is Standing.CLOSED:
        # The job is over on all nodes: this one ends with the same verdict, even if its workers still run.
        return Order.END
    if view.standing in (Standing.REPLACED, Standing.EXPELLED):
        # Another node failed and replaced the round, which has spent a restart. The workers here then fail because
        # their peers are lost: that is a consequence, and spends no further restart.
        return Order.REJOIN
    if view.workers is WorkerState.SUCCEEDED:
        return _after_success(view)
    if view.workers in (WorkerState.FAILED, WorkerState.HEALTHY) and view.standing is Standing.LAPSED:
        # The store is away. Other agents stop their workers at the end of their leases, and the workers here may fail
        # because those peers are lost: an outage spends no restart.
        return Order.REJOIN
    if view.workers is WorkerState.FAILED:
        # The agent was stopped for longer than its lease, and its first heartbeat afterwards was acknowledged before
        # this look: the node has a lease again. Its workers have not failed by themselves; their end spends nothing.
        if view.killed:
            return Order.REJOIN
        return Order.FAIL if view.final else Order.RESTART
    if view.workers is WorkerState.HEALTHY:
        # A newcomer waits: the heartbeat thread replaces the round for it first (engine.keep_alive), so no worker is
        # stopped in a round that still counts. torch's agent restarts them itself (api.py:_invoke_run).
        return Order.GO_ON
    # The workers cannot be stopped: they are stuck in the kernel, or lost. New ones would share the devices of this
    # node with them, so the node leaves and the others continue.
    return Order.LEAVE


def _after_success(view: View) -> Order:
    """The order in the exit barrier. A lost lease endangers no running worker, so the agent waits out an outage."""
    if view.standing is Standing.LAPSED and view.cut_off:
        # The store did not come back within join_timeout. torch's agent ends with success after its barrier's timeout
        # (api.py:_exit_barrier), even if the job fails afterwards.
        return Order.GIVE_UP
    # A report that the store did not confirm is repeated.
    return Order.GO_ON if view.reported else Order.REPORT


def ending(closed: Closed | None) -> WorkerState:
    """The result of an agent in a closed rendezvous, the same on every node."""
    succeeded = closed is not None and closed.verdict == "succeeded"
    return WorkerState.SUCCEEDED if succeeded else WorkerState.FAILED


def may_finish(standing: Standing) -> bool:
    """Whether workers may take their time to stop: not if a round without this node may run or be about to run."""
    return standing not in (Standing.LAPSED, Standing.EXPELLED)
