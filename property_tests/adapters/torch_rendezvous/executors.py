"""Steps of the model `Holders`, performed on torch's own executors and state holders.

Rule: a process runs its operations itself, and stops before it reads, writes, decides and acts (`Node.operation`).
The compared values are read from its copy and from the backend, whose versions show the age of a token.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from datetime import timedelta
from functools import partialmethod
from typing import Any, cast

import torch.distributed.elastic.rendezvous.dynamic_rendezvous as dr

from trystate.model.language.sorts import ordinal
from trystate.model.rendezvous.holder import Holders, Token
from trystate.model.rendezvous.vocabulary import (
    Action,
    AgentPhase,
    Deadline,
    Heartbeat,
    JoinDeadline,
    Membership,
    Operation,
)

from ...harness.subjects import Refused
from ..steps import Replacing, Steps
from . import simulation as sim
from .contexts import TORCH_OPERATORS

ACTS = {f"act_{a.name.lower()}": a.name for a in Action} | {
    "act_mark_complete": Action.MARK_RENDEZVOUS_COMPLETE.name,
    "act_mark_closed": Action.MARK_RENDEZVOUS_CLOSED.name,
}
OPERATORS = {
    AgentPhase.EXITING: "exit",
    AgentPhase.JOINING: "join",
    AgentPhase.RUNNING: "keep-alive",
    AgentPhase.DONE: "close",
    AgentPhase.FAILED: "close",
}
LATE = {JoinDeadline.IN_TIME: -sim.JOIN_SECONDS, JoinDeadline.ROLLBACK: 1.0, JoinDeadline.OVER: 60.0}


class Node:
    """One process: torch's node descriptor, state holder and executor, and the phase of its agent."""

    def __init__(self, number: int, model: Holders, backend: sim.Backend, clock: sim.Clock) -> None:
        self.clock = clock
        self.phase = AgentPhase.EXITING
        self.join_deadline = JoinDeadline.IN_TIME
        self.operation: sim.Operation | None = None
        self.action = ""
        self.synced = self.crashed = self.told_won = self.about_to_act = False
        self.desc = dr._NodeDesc(f"node{number}", 1, 0)
        settings = sim.settings(model.min_nodes, model.max_nodes)
        self.holder = cast(Any, dr._BackendRendezvousStateHolder(backend, settings))
        self.executor = dr._DistributedRendezvousOpExecutor(self.desc, self.holder, settings)
        self._sync = self.holder.sync
        self.holder.sync = self._watched_sync

    @property
    def version(self) -> int:
        """The version of the backend that the copy's token names; 0: the copy has no token."""
        return int(self.holder._token or 0)

    def _watched_sync(self) -> Any:
        """torch's sync, whose answer is noted: won, lost, or read (None is also the answer for a cached copy).

        A write stops here: in the backend the state is pickled, and its heartbeats could not age.
        """
        if self.holder._dirty:
            sim.stop("set")
        before = self.holder._last_sync_time
        has_set = self._sync()
        if has_set is not None or self.holder._last_sync_time != before:
            self.told_won = bool(has_set)
        self.synced = True
        return has_set

    def _run(self, operator: str) -> None:
        """Run an operation until it ends."""

        def decide(context: Any, deadline: float) -> Any:
            """Call the operator at a time that is before or after its deadline, as in the model."""
            sim.stop("decide")
            late = LATE[self.join_deadline] if self.phase is AgentPhase.JOINING else -sim.JOIN_SECONDS
            action = TORCH_OPERATORS[operator](context, self.clock.seconds - late)
            self.action = action.name
            self.about_to_act = action.name in ACTS.values()
            return action

        def update_deadline(timeout: timedelta) -> float:
            self.join_deadline = JoinDeadline.IN_TIME
            return self.clock.seconds + timeout.total_seconds()

        self.executor.run(decide, 0.0, update_deadline)

    def start(self, *, cached: bool) -> None:
        """Run the operation of the node's phase up to its first stop."""
        if not cached:
            self.clock.seconds += sim.CACHE_SECONDS + 1
        else:
            self.holder._last_sync_time = self.clock.seconds
        operator = OPERATORS[self.phase]
        self.operation = sim.Operation(lambda: self._run(operator))
        self.operation.resume()

    @property
    def stage(self) -> Operation:
        if self.operation is None:
            return Operation.IDLE
        if self.operation.over:
            return Operation.FAILED if self.operation.error else Operation.FINISHED
        return {"get": Operation.SYNCING, "set": Operation.SYNCING, "decide": Operation.DECIDING}.get(
            self.operation.at, Operation.ACTING
        )


class TorchHolders(Replacing, Steps):
    """Subject for the model `Holders` (edition TORCH): torch's classes on a backend in memory.

    It replaces torch's sources of time.
    """

    TRIED = ("begin", "begin_from_cache", "read", "write_wins", "write_loses", "decide", "conclude", *ACTS)

    def __init__(self, model: Holders) -> None:
        self.model, self.clock = model, sim.Clock()
        self.nodes: list[Node] = []
        self.reset()

    def replace(self, stack: ExitStack) -> None:
        stack.enter_context(sim.simulated(self.clock, lambda **event: sim.act(self.nodes)))

    def abandon(self) -> None:
        for node in self.nodes:
            if node.operation is not None:
                node.operation.abandon()

    def reset(self) -> None:
        self.abandon()
        self.backend = sim.Backend(sim.stop)
        self.nodes = [Node(k, self.model, self.backend, self.clock) for k in range(self.model.sizes["node"])]

    def perform(self, step: str, indices: tuple[int, ...]) -> None:
        node = self.nodes[indices[0]] if indices else None
        if node is not None and node.crashed and step not in ("heartbeat_ages", "heartbeat_expires"):
            raise Refused(f"node {indices[0]} is dead")
        if step in ACTS:
            assert node is not None
            self._act(node, step)
        else:
            getattr(self, f"_{step}")(*([] if node is None else [node]))

    # ---- steps of a node

    def _begin(self, node: Node) -> None:
        self._expect_idle(node)
        if node.phase not in OPERATORS:
            raise Refused(f"the node is {node.phase.name}")
        node.start(cached=False)

    def _begin_from_cache(self, node: Node) -> None:
        self._expect_idle(node)
        if node.phase not in (AgentPhase.JOINING, AgentPhase.RUNNING) or not node.synced:
            raise Refused("there is no copy to use")
        state = node.holder.state
        returns = state.complete and not state.closed and node.desc in state.participants
        if node.phase is AgentPhase.JOINING and returns:
            raise Refused("left out of the model: the join would return from the cache")
        if any(sim.age_of(stamp) == "EXPIRED" for stamp in state.last_heartbeats.values()):
            raise Refused("left out of the model: a heartbeat has expired within the second that the cache serves")
        node.start(cached=True)

    def _read(self, node: Node) -> None:
        self._at(node, "get").resume()

    def _writes(self, node: Node, wins: bool) -> None:
        operation = self._at(node, "set")
        if (node.version == self.backend.version) is not wins:
            raise Refused(f"the token is {'stale' if wins else 'good'}")
        operation.resume()

    _write_wins = partialmethod(_writes, wins=True)
    _write_loses = partialmethod(_writes, wins=False)

    def _decide(self, node: Node) -> None:
        self._at(node, "decide").resume()

    def _act(self, node: Node, step: str) -> None:
        operation = self._at(node, "act")
        if node.action != ACTS[step]:
            raise Refused(f"the operator decided {node.action}")
        operation.resume()

    def _conclude(self, node: Node) -> None:
        if node.operation is None or not node.operation.over:
            raise Refused("no operation has ended")
        failed = node.operation.error is not None
        node.phase = {
            AgentPhase.EXITING: AgentPhase.JOINING,
            AgentPhase.JOINING: AgentPhase.FAILED if failed else AgentPhase.RUNNING,
            AgentPhase.RUNNING: AgentPhase.RUNNING,
        }.get(node.phase, AgentPhase.LEFT)
        node.operation = None

    def _restart_workers(self, node: Node) -> None:
        self._expect_idle(node)
        self.clock.seconds += sim.CACHE_SECONDS + 1
        node.holder.sync()  # num_nodes_waiting syncs too
        if not node.holder.state.wait_list:
            raise Refused("no node waits")
        self._worker_fails(node)

    # ---- a node's environment

    def _worker_fails(self, node: Node) -> None:
        node.phase = AgentPhase.EXITING
        node.join_deadline = JoinDeadline.IN_TIME

    def _job_ends(self, node: Node) -> None:
        node.phase = AgentPhase.DONE

    def _crash(self, node: Node) -> None:
        node.crashed = True

    def _join_deadline_passes(self, node: Node) -> None:
        node.join_deadline = JoinDeadline.ROLLBACK

    def _rollback_window_passes(self, node: Node) -> None:
        node.join_deadline = JoinDeadline.OVER

    def _age(self, node: Node, before: str, after: str) -> None:
        def change(state: Any) -> None:
            stamp = state.last_heartbeats.get(node.desc)
            if stamp is not None and sim.age_of(stamp) == before:
                state.last_heartbeats[node.desc] = stamp + sim.AGES[before] - sim.AGES[after]

        written = self.backend.state().last_heartbeats.get(node.desc)
        unwritten = node.holder._dirty and node.holder.state.last_heartbeats.get(node.desc) not in (None, written)
        self._everywhere(change, skip=node if unwritten else None)

    _heartbeat_ages = partialmethod(_age, before="FRESH", after="DUE")
    _heartbeat_expires = partialmethod(_age, before="DUE", after="EXPIRED")

    def _last_call_passes(self) -> None:
        def change(state: Any) -> None:
            if state.deadline is not None:
                state.deadline = sim.NOW - timedelta(seconds=1)

        self._everywhere(change)

    def _everywhere(self, change: Any, skip: Node | None = None) -> None:
        self.backend.rewrite(change)
        for node in self.nodes:
            if node is not skip:
                change(node.holder.state)

    # ---- helpers

    def _expect_idle(self, node: Node) -> None:
        if node.stage is not Operation.IDLE:
            raise Refused(f"the executor is {node.stage.name}")

    def _at(self, node: Node, where: str) -> sim.Operation:
        if node.operation is None or node.operation.at != where:
            raise Refused(f"the executor is not before {where}")
        return node.operation

    # ---- what can be seen

    def observe(self) -> Mapping[str, int]:
        out: dict[str, int] = {}
        self._observe_state(out, "", "", self.backend.state())
        for i, node in enumerate(self.nodes):
            self._observe_state(out, "copy_", f"[{i}]", node.holder.state)
            stage = node.stage
            out[f"operation[{i}]"] = ordinal(stage)
            out[f"phase[{i}]"] = ordinal(node.phase)
            out[f"join_deadline[{i}]"] = ordinal(node.join_deadline)
            out[f"dirty[{i}]"] = int(node.holder._dirty)
            out[f"token[{i}]"] = ordinal(self._token(node))
            out[f"synced[{i}]"] = int(node.synced)
            out[f"told_won[{i}]"] = int(node.told_won)
            out[f"crashed[{i}]"] = int(node.crashed)
            if stage is Operation.ACTING:
                out[f"action[{i}]"] = ordinal(Action[node.action])
            if stage is Operation.FINISHED and node.phase is AgentPhase.JOINING:
                # Rank and world size, as DynamicRendezvousHandler._get_world reads them.
                members = node.holder.state.participants
                out[f"saw_rank[{i}]"] = members[node.desc]
                if node.holder.state.round == self.backend.state().round:  # the model forgets earlier members
                    out |= {f"saw[{i}][{j}]": int(other.desc in members) for j, other in enumerate(self.nodes)}
        return out

    def _token(self, node: Node) -> Token:
        behind = self.backend.version - node.version
        if not node.synced or behind > 1:
            return Token.OLD
        return Token.PREVIOUS if behind else Token.GOOD

    def _observe_state(self, out: dict[str, int], prefix: str, index: str, state: Any) -> None:
        out[f"{prefix}complete{index}"] = int(state.complete)
        out[f"{prefix}closed{index}"] = int(state.closed)
        out[f"{prefix}round{index}"] = state.round % self.model.rounds
        deadline = Deadline.UNSET
        if state.deadline is not None:
            deadline = Deadline.PASSED if state.deadline < sim.NOW else Deadline.RUNNING
        out[f"{prefix}deadline{index}"] = ordinal(deadline)
        for j, node in enumerate(self.nodes):
            at = f"{index}[{j}]"
            out[f"{prefix}member{at}"] = ordinal(_membership(state, node.desc))
            out[f"{prefix}rank{at}"] = state.participants.get(node.desc, 0)
            stamp = state.last_heartbeats.get(node.desc)
            out[f"{prefix}heartbeat_age{at}"] = ordinal(
                Heartbeat.NONE if stamp is None else Heartbeat[sim.age_of(stamp)]
            )


def _membership(state: Any, desc: Any) -> Membership:
    """The list that a node is on; the lists of a state must not overlap."""
    lists = {
        Membership.PARTICIPANT: state.participants, Membership.WAITING: state.wait_list,
        Membership.REDUNDANT: state.redundancy_list,
    }  # fmt: skip
    on = [kind for kind, members in lists.items() if desc in members]
    assert len(on) <= 1, f"{desc} is listed as {' and '.join(k.name for k in on)}"
    return on[0] if on else Membership.OUTSIDE
