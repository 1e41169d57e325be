"""The decisions of a node's agent: one pure function from what it sees to its next order.

Theory of operation. The agent (local.py) calls `decide` in its monitor loop, on its main thread, and whenever the
standing of its round changes, and carries out the order. There are two sources, and the round comes first: the state of
a worker says little once its round is over, since workers fail when their peers are stopped.

Rule: workers of a round that is over are stopped, whatever has become of them. No agent ends with success before the
whole job has succeeded: until then it waits in the exit barrier, and may still have to join the next round.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from torch.distributed.elastic.agent.server.api import WorkerState

from ..rendezvous.engine import Standing
from ..rendezvous.state import Closed


class Order(enum.Enum):
    """An order to the agent; the value says it in words."""

    GO_ON = "look again, a little later or when something has changed"
    REPORT = "say in the shared state that the workers have succeeded"
    REJOIN = "stop the workers, and join the next round"
    RESTART = "the same because they failed: that spends a restart of the job, or fails it if none is left"
    FAIL = "stop the workers, and fail the job, whatever restarts are left: the exit code is one that is not restarted"
    LEAVE = "stop the workers, and withdraw; the others go on"
    GIVE_UP = "end with an error: the verdict cannot be heard"
    END = "stop the workers, and end with the verdict of the job"


@dataclass(frozen=True, slots=True)
class View:
    """The inputs of a decision, after the agent has joined a round and started its workers."""

    workers: WorkerState
    standing: Standing
    signalled: bool = False
    reported: bool = False  # the shared state says that these workers have succeeded
    cut_off: bool = False  # it has had no lease for as long as it may wait for the verdict
    final: bool = False  # a worker has failed with an exit code that is not restarted
    killed: bool = False  # the watchdog has killed these workers, because a lease had ended


def decide(view: View) -> Order:
    """The next order for the agent."""
    if view.signalled:
        return Order.LEAVE
    if view.standing is Standing.CLOSED:
        return Order.END
    if view.standing in (Standing.REPLACED, Standing.EXPELLED):
        # Another node failed, and replaced the round, which has spent a restart. The workers here then fail for the
        # loss of their peers: that is a consequence, and spends nothing more.
        return Order.REJOIN
    if view.workers is WorkerState.SUCCEEDED:
        return _after_success(view)
    if view.workers in (WorkerState.FAILED, WorkerState.HEALTHY) and view.standing is Standing.LAPSED:
        # The store is away. Other agents stop their workers at the end of their leases, and the workers here may fail
        # for the loss of them: an outage spends no restart.
        return Order.REJOIN
    if view.workers is WorkerState.FAILED:
        # The agent was stopped for longer than its lease, and its first heartbeat afterwards was acknowledged before
        # this look: the node has a lease again. Its workers have not failed by themselves; their end spends nothing.
        if view.killed:
            return Order.REJOIN
        return Order.FAIL if view.final else Order.RESTART
    if view.workers is WorkerState.HEALTHY:
        # A newcomer waits: the heartbeat thread replaces the round for it first (engine.keep_alive), so that no worker
        # is stopped in a round that still counts.
        return Order.GO_ON
    # The workers cannot be stopped: they are stuck in the kernel, or lost. New ones would share the devices of this
    # node with them, so the node leaves, and the others go on.
    return Order.LEAVE


def _after_success(view: View) -> Order:
    """In the exit barrier: no worker runs that a lost lease could endanger, so the agent waits until an outage ends."""
    if view.standing is Standing.LAPSED and view.cut_off:
        return Order.GIVE_UP
    return Order.GO_ON if view.reported else Order.REPORT


def ending(closed: Closed | None) -> WorkerState:
    """How an agent ends in a rendezvous that is closed: the same way on every node."""
    succeeded = closed is not None and closed.verdict == "succeeded"
    return WorkerState.SUCCEEDED if succeeded else WorkerState.FAILED


def may_finish(standing: Standing) -> bool:
    """Whether workers that are stopped may take their time: not when, without us, a round may run or be about to."""
    return standing not in (Standing.LAPSED, Standing.EXPELLED)
