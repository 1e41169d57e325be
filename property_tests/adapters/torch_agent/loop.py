"""Steps of the model `Agents` (edition TORCH), performed by torch's own agent loop, one greenlet for each node.

Theory of operation. `launch_agent`, `SimpleElasticAgent.run`, its loop, restarts and exit barrier are torch's,
unmodified. The worker processes, the rendezvous handler, the barrier of the store and `time.sleep` are replaced. In
each of them a greenlet stops, and the model has a step. A stop has a name:

    join     in next_rendezvous               sleep     in the monitor loop
    exit     in a later one, before it        barrier   in the exit barrier
    start    before the workers start         shutdown  in the handler's shutdown

To take a step is to resume a node and to look where it stops next. If torch takes another step than the model, the
subject is rebuilt from the earlier steps, and the step is refused.

The greenlet of a killed agent is abandoned: the effects of torch's cleanup in `run` are ignored. A stopped agent is not
resumed. The fault `deaf` is left out: the wait for a worker that ignores SIGTERM is in torch's MultiprocessContext,
which is replaced.

Rule: the rendezvous below is written out here, as coarse as the model has it; only the loop above it is compared.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any
from unittest import mock

import torch.distributed.elastic.agent.server.api as api
import torch.distributed.elastic.rendezvous.registry as registry
import torch.distributed.elastic.utils.store as store_util
import torch.distributed.launcher.api as launcher
from torch.distributed.elastic.agent.server.api import RunResult
from torch.distributed.elastic.agent.server.api import WorkerState as Seen
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, ProcessFailure, SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousInfo, RendezvousStoreInfo
from torch.distributed.elastic.rendezvous.api import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousGracefulExitError,
    RendezvousTimeoutError,
)

from trystate.impl.torch_release import is_before, needs
from trystate.model.agent import Agents
from trystate.model.agent.vocabulary import Ending, Loop, Pace, Verdict, WorkerState
from trystate.model.language.sorts import ordinal
from trystate.model.rendezvous.vocabulary import Membership

from ...harness.subjects import Refused
from ..our_agent.edges import Happenings
from ..steps import Replacing
from ..torch_release import NotInRelease
from ..torch_rendezvous import simulation as sim

PLACES = {
    "": Loop.AWAY, "join": Loop.JOINING, "start": Loop.STARTING, "sleep": Loop.MONITORING, "barrier": Loop.BARRIER,
    "exit": Loop.RESTARTING, "shutdown": Loop.LEAVING,
}  # fmt: skip
ASKED_AT = {  # the stops from which torch's loop may take the step
    "return_with_a_round": ("join",), "start_workers": ("start",), "enter_barrier": ("sleep",),
    "find_failure": ("sleep",), "restart_workers": ("sleep",), "exit_round": ("exit",), "pass_barrier": ("barrier",),
    "error_connection": ("join", "sleep", "exit"), "error_closed": ("join",), "mark_closed": ("shutdown",),
}  # fmt: skip
ENDINGS: dict[type[BaseException] | None, Ending] = {
    None: Ending.SUCCEEDED, RendezvousClosedError: Ending.CLOSED,
    RendezvousConnectionError: Ending.CUT_OFF, RendezvousTimeoutError: Ending.TIMED_OUT,
    ChildFailedError: Ending.FAILED, AttributeError: Ending.NOTHING,
}  # fmt: skip


class Node:
    """One torchrun: torch's launcher and agent in a greenlet, and what its workers do."""

    def __init__(self, subject: TorchLoop, number: int) -> None:
        self.subject, self.number = subject, number
        self.operation: sim.Operation | None = None
        self.agent: Agent | None = None
        self.workers, self.ending = WorkerState.INIT, Ending.NONE
        self.member, self.round = Membership.OUTSIDE, -1
        self.succeeded = self.signalled = self.late = self.abandoned = self.orphans = False
        self.pace = Pace.GOES_ON

    @property
    def at(self) -> str:
        return self.operation.at if self.operation is not None else ""

    @property
    def over(self) -> bool:
        return self.operation is not None and self.operation.over

    @property
    def loop(self) -> Loop:
        return Loop.LEFT if self.over else PLACES[self.at]

    def start(self) -> None:
        self.subject.starting = self
        self.operation = sim.Operation(partial(launcher.launch_agent, self.subject.config, _nothing, []))
        self.operation.resume()

    def stop_workers(self) -> None:
        if self.runs and not self.abandoned:
            self.workers = WorkerState.STOPPED

    @property
    def runs(self) -> bool:
        return self.workers in (WorkerState.HEALTHY, WorkerState.UNHEALTHY)

    @property
    def is_dead(self) -> bool:
        """Whether it sends no heartbeats."""
        return self.over or self.pace is not Pace.GOES_ON

    def resume(self) -> str:
        """Run to the next stop; returns the model's step that torch has taken, or "" if it has taken none."""
        assert self.operation is not None and self.agent is not None
        before, left = self.at, self.agent._remaining_restarts
        self.operation.resume()
        self.look()
        after, restarts = self.at, left - self.agent._remaining_restarts
        if before == after and not self.over:
            return ""
        if after == "exit":
            return "find_failure" if restarts else "restart_workers"
        if after == "shutdown" and before != "barrier":
            ends = {
                Ending.CUT_OFF: "error_connection",
                Ending.TIMED_OUT: "error_timeout",
                Ending.FAILED: "find_failure",
            }
            return ends.get(self.ending, "error_closed")
        return {
            "join": "return_with_a_round", "start": "start_workers", "sleep": "enter_barrier", "exit": "exit_round",
            "barrier": "barrier_times_out" if self.late else "pass_barrier", "shutdown": "mark_closed",
        }[before]  # fmt: skip

    def look(self) -> None:
        if self.operation is not None and self.operation.over and isinstance(self.operation.error, SignalException):
            self.ending = Ending.SIGNALLED


def _nothing() -> None:
    """The function of workers that are never started."""


def _signal() -> SignalException:
    return SignalException("SIGTERM", signal.SIGTERM)


class Agent(api.SimpleElasticAgent):
    """torch's loop around workers that are values."""

    def __init__(self, spec: Any, **_: Any) -> None:
        super().__init__(spec)
        self.node: Node = spec.rdzv_handler.node
        self.node.agent = self

    def _start_workers(self, worker_group: Any) -> dict[int, Any]:
        sim.stop("start")
        self.node.workers = WorkerState.HEALTHY
        return {0: 1}

    def _stop_workers(self, worker_group: Any) -> None:
        self.node.stop_workers()

    def _shutdown(self, *_: Any, **__: Any) -> None:
        self.node.stop_workers()

    def _monitor_workers(self, worker_group: Any) -> RunResult:
        rank = worker_group.workers[0].global_rank
        if self.node.workers is WorkerState.UNHEALTHY:
            self.node.workers = WorkerState.FAILED  # torch's context stops the others
            return RunResult(Seen.FAILED, failures={rank: ProcessFailure(0, 1, 1, "")})
        if self.node.workers is WorkerState.SUCCEEDED:
            return RunResult(Seen.SUCCEEDED, return_values={rank: None})
        return RunResult(Seen.HEALTHY)


class Handler(RendezvousHandler):
    """A rendezvous without faults, which stops where the model has a step."""

    def __init__(self, node: Node) -> None:
        self.node, self.lists = node, node.subject
        self._again = False

    def get_backend(self) -> str:
        return "simulated"

    def get_run_id(self) -> str:
        return "simulated"

    def is_closed(self) -> bool:
        return self.lists.verdict is not Verdict.NONE

    def set_closed(self) -> None:
        if not self.lists.down and not self.is_closed():
            self.lists.verdict = Verdict.UNSAID

    def next_rendezvous(self) -> RendezvousInfo:
        node, lists = self.node, self.lists
        if self._again:
            sim.stop("exit")
            self._reach()
            node.workers = WorkerState.STOPPED
            lists.leave(node)
        self._again = True
        while True:
            sim.stop("join")
            self._reach()
            if self.is_closed():
                spare = node.member is Membership.REDUNDANT
                raise RendezvousGracefulExitError("spare") if spare else RendezvousClosedError("closed")
            if node.late:
                lists.leave(node)
                raise RendezvousTimeoutError("late")
            if lists.complete and node.member is Membership.PARTICIPANT:
                node.round = lists.round
                rank = [one.number for one in lists.members()].index(node.number)
                return RendezvousInfo(None, rank, lists.world, RendezvousStoreInfo("localhost", 1))  # type: ignore[arg-type]

    def num_nodes_waiting(self) -> int:
        self._reach()
        return sum(node.member is Membership.WAITING for node in self.lists.nodes)

    def shutdown(self) -> bool:
        error = sys.exc_info()[1]
        if self.node.abandoned:
            return True
        if isinstance(error, SignalException):
            self.set_closed()
            return True
        self.node.ending = ENDINGS[type(error) if error is not None else None]
        sim.stop("shutdown")
        self.set_closed()
        return True

    def _reach(self) -> None:
        if self.lists.down:
            raise RendezvousConnectionError("the store is away")


class TorchLoop(Happenings, Replacing):
    """Subject for the model `Agents` (edition TORCH), and the lists of its rendezvous.

    It replaces torch's `sleep` and barrier.

    Raises:
        NotInRelease: the loop of the installed torch ends its workers in another way.
    """

    TRIED = ASKED_AT

    def __init__(self, model: Agents) -> None:
        if is_before("2.8"):
            raise NotInRelease(needs("this comparison of the agent's loop", "2.8"))
        self.model = model
        self.low, self.high = int(model.min_nodes), int(model.max_nodes)
        self.config = launcher.LaunchConfig(
            self.low, self.high, 1, rdzv_backend="static", rdzv_endpoint="localhost:1", run_id="simulated",
            max_restarts=int(model.max_restarts), logs_specs=DefaultLogsSpecs(),
        )  # fmt: skip
        self.nodes: list[Node] = []
        self.reset()

    def replace(self, stack: ExitStack) -> None:
        clock = mock.Mock(wraps=time, sleep=lambda _: sim.stop("sleep"))
        stack.callback(logging.disable, logging.root.manager.disable)
        logging.disable()  # torch's agent and launcher log each step of theirs, and record it as an event
        handler = mock.patch.object(registry, "get_rendezvous_handler", lambda _: Handler(self.starting))
        stack.enter_context(handler)
        stack.enter_context(mock.patch.object(launcher, "LocalElasticAgent", Agent))
        stack.enter_context(mock.patch.object(api, "time", clock))
        stack.enter_context(mock.patch.object(store_util, "barrier", self._barrier))
        stack.enter_context(mock.patch.dict(os.environ, {"TORCH_ELASTIC_WORKER_IDENTICAL": "1"}))

    def abandon(self) -> None:
        for node in self.nodes:
            node.abandoned = True
            if node.operation is not None:
                node.operation.abandon()

    def reset(self) -> None:
        self.abandon()
        self.down = self.complete = False
        self.verdict = Verdict.NONE
        self.round = self.world = 0
        self.nodes = [Node(self, k) for k in range(self.model.sizes["node"])]
        self.starting = self.nodes[0]
        self._taken: list[tuple[str, tuple[int, ...]]] = []

    def perform(self, step: str, indices: tuple[int, ...]) -> None:
        nodes = [self.nodes[k] for k in indices]
        if step in ASKED_AT:
            self._ask(step, nodes[0])
        else:
            getattr(self, f"_{step}")(*nodes)
        self._taken.append((step, indices))

    def _ask(self, step: str, node: Node) -> None:
        if node.pace is not Pace.GOES_ON or node.over or node.at not in ASKED_AT[step]:
            raise Refused(f"the agent is at {node.at or 'its end'}")
        done = node.resume()
        if done == step:
            return
        if done:
            taken = self._taken
            self.reset()
            for each in taken:
                self.perform(*each)
        raise Refused(f"torch's loop does {done or 'nothing'}")

    # ---- the rendezvous below

    def members(self) -> list[Node]:
        return [node for node in self.nodes if node.member is Membership.PARTICIPANT]

    def leave(self, *nodes: Node) -> None:
        for node in nodes:
            node.member, node.succeeded = Membership.OUTSIDE, False
        if self.complete and not self.members():
            self.complete, self.world = False, 0
            self.round += 1
            for node in self.nodes:
                node.succeeded = False

    def _join(self, node: Node) -> None:
        room = len(self.members()) < self.high
        late = Membership.WAITING if room or node.member is Membership.WAITING else Membership.REDUNDANT
        node.member = late if self.complete else Membership.PARTICIPANT
        if not self.complete and len(self.members()) == self.high:
            self._mark_complete(node)

    def _mark_complete(self, node: Node) -> None:
        self.complete, self.world = True, len(self.members())

    def _expel(self, node: Node) -> None:
        self.leave(*(one for one in self.nodes if one.is_dead and one.member is not Membership.OUTSIDE))

    def _barrier(self, **_: Any) -> None:
        node = next(n for n in self.nodes if n.operation is not None and n.operation.running)
        is_current, is_member = node.round == self.round, node.member is Membership.PARTICIPANT
        node.succeeded = is_current and is_member and node.workers is WorkerState.SUCCEEDED
        while True:
            sim.stop("barrier")
            succeeded = sum(one.succeeded for one in self.nodes)
            if node.late or (not self.down and node.round == self.round and succeeded == self.world):
                break
        if node.signalled:
            raise _signal()
        if node.late:
            raise TimeoutError("300 s")

    # ---- what happens to the nodes

    def _start_agent(self, node: Node) -> None:
        node.start()

    def _barrier_times_out(self, node: Node) -> None:
        node.late = True
        assert node.resume() == "barrier_times_out"

    def _error_timeout(self, node: Node) -> None:
        node.late = True
        assert node.resume() == "error_timeout"

    def _receive_signal(self, node: Node) -> None:
        node.signalled = True
        if node.at != "barrier":  # torch waits in C++ there: the handler of the signal runs afterwards
            assert node.operation is not None
            node.operation.interrupt(_signal())
        node.look()

    def _crash(self, node: Node) -> None:
        assert node.operation is not None
        node.abandoned, node.ending, node.pace = True, Ending.KILLED, Pace.GOES_ON
        node.operation.abandon()

    def _start_newcomer(self, node: Node) -> None:
        new = Node(self, node.number)
        new.orphans = node.runs
        self.nodes[node.number] = new
        new.start()

    def _resume(self, node: Node) -> None:
        node.pace = Pace.GOES_ON

    # ---- what can be seen

    def observe(self) -> Mapping[str, int]:
        out = {
            "complete": int(self.complete), "verdict": ordinal(self.verdict), "store_down": int(self.down),
            "world": self.world,
        }  # fmt: skip
        for node in self.nodes:
            k, agent = node.number, node.agent
            out[f"member[{k}]"] = ordinal(node.member)
            out[f"succeeded[{k}]"] = int(node.succeeded)
            out[f"current[{k}]"] = int(node.round == self.round)
            out |= self.see(node)
            out[f"own[{k}]"] = int(self.model.max_restarts) - agent._remaining_restarts if agent is not None else 0
        return out
