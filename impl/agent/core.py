"""What the agent of a node does next: decided by what it sees, without doing any of it.

Rule: the round decides before the workers do. Workers of a round that is over are stopped, whatever became of them, and
nobody ends with success before the whole job has.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from torch.distributed.elastic.agent.server.api import WorkerState

from ..rendezvous.engine import Standing
from ..rendezvous.state import Closed


class Order(enum.Enum):
    """What the agent does next."""

    GO_ON = "look again, a little later or when something has changed"
    REPORT = "say in the shared state that the workers have succeeded"
    REJOIN = "stop the workers, and join the next round"
    RESTART = "the same because they failed: that spends a restart of the job, or fails it if none is left"
    LEAVE = "stop the workers, and withdraw; the others go on"
    GIVE_UP = "end with an error: the verdict cannot be heard"
    END = "stop the workers, and end with the verdict of the job"


@dataclass(frozen=True, slots=True)
class View:
    """What an agent sees that is a member of a round and has started its workers."""

    workers: WorkerState
    standing: Standing
    signalled: bool = False
    reported: bool = False  # the shared state says that these workers have succeeded
    cut_off: bool = False  # it has been without a lease for as long as it is ready to wait
    killed: bool = False  # the watchdog has killed these workers, because a lease had ended


def decide(view: View) -> Order:
    """The next order for the agent."""
    if view.signalled:
        return Order.LEAVE
    if view.standing is Standing.CLOSED:
        return Order.END
    if view.standing in (Standing.REPLACED, Standing.EXPELLED):
        return Order.REJOIN  # if the workers failed, that is a consequence, and whoever replaced the round has paid
    if view.workers is WorkerState.SUCCEEDED:
        return _after_success(view)
    if view.workers in (WorkerState.FAILED, WorkerState.HEALTHY) and view.standing is Standing.LAPSED:
        return Order.REJOIN  # if they failed, maybe for want of those that others stopped at the end of their leases
    if view.workers is WorkerState.FAILED:
        # The agent was stopped for longer than its lease, and its first heartbeat afterwards was acknowledged before
        # this look: the node has a lease again. Its workers have not failed by themselves; their end spends nothing.
        return Order.REJOIN if view.killed else Order.RESTART
    if view.workers is WorkerState.HEALTHY:
        return Order.GO_ON  # for a node that waits the keep-alive replaces the round before any workers are stopped
    return Order.LEAVE  # stuck in the kernel, or lost: new ones would fight with them for the devices of this node


def _after_success(view: View) -> Order:
    """In the exit barrier: nothing runs here that a lost lease could endanger, so that an outage is sat out."""
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
