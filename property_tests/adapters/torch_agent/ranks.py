"""The exchange of ranks: torch's own function on torch's own store, a greenlet for each agent, and the model `Ranks`.

Theory of operation. `SimpleElasticAgent._assign_worker_ranks` is torch's, unmodified; ours is the same function over
`impl/agent/exchange.py`. The store is torch's HashStore, with a PrefixStore for each round, as torch's rendezvous
makes it. A gate between the function and the store stops the greenlet before each request, and finds by the key which
step of the model it is. A read of a missing key does not block: it is refused, or times out at a step of the model.
The edition SEED is not replayed: the installed torch has no function for it.

Rule: the rounds below are written here, as coarse as in the model. The adapter reads roles and assignments from
the store, and the ranks from the workers that the function returns.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any
from unittest import mock

import torch.distributed as dist
from torch.distributed.elastic.agent.server.api import SimpleElasticAgent, Worker, WorkerSpec

from trystate.impl.agent import exchange
from trystate.impl.agent.exchange import Exchange, RoundOver
from trystate.model.agent.ranks import Ranks
from trystate.model.agent.vocabulary import Assignment, Ranking, Role
from trystate.model.language.sorts import ordinal

from ...harness.subjects import Refused
from ..steps import Replacing, Steps
from ..torch_rendezvous import simulation as sim

C10d: Any = dist  # torch's stub has no stores
TOLD, ASSIGNED = "torchelastic/role_info", "torchelastic/assigned_ranks"
EXCHANGE = ("tell", "gather", "assign", "read")  # the steps of the function; the other steps happen to the agent
LEAVES = {"restart_workers": Ranking.WAITING, "error_closed": Ranking.FAILED, "crash": Ranking.DEAD}
AT = {"tell": Ranking.MET, "gather": Ranking.TOLD, "assign": Ranking.GATHERED}


def assign(store: Any, rank: int, size: int, spec: WorkerSpec) -> Sequence[Worker]:
    """torch's own function, which does not use its agent."""
    function: Any = SimpleElasticAgent._assign_worker_ranks
    workers: Sequence[Worker] = function(None, store, rank, size, spec)
    return workers


class Gate:
    """The store of a round, as one agent sees it: the greenlet stops before each request, at a step of the model."""

    def __init__(self, node: Node, store: Any) -> None:
        self._node, self._store = node, store

    def _stop(self, step: str, keys: Sequence[str] = ()) -> None:
        self._node.keys = keys
        sim.stop(step)
        if self._node.unanswered or not self._store.check(list(keys)):
            raise dist.DistStoreError("the request has timed out")

    def _read(self, keys: Sequence[str]) -> None:
        self._stop("gather" if keys[0].startswith(TOLD) else "read", keys)

    def set(self, key: str, value: Any) -> None:
        self._stop("tell")
        self._store.set(key, value)

    def multi_set(self, keys: Sequence[str], values: Sequence[Any]) -> None:
        self._stop("assign")
        self._store.multi_set(keys, values)
        self._node.assigns = True

    def get(self, key: str) -> bytes:
        self._read([key])
        value: bytes = self._store.get(key)
        return value

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        self._read(keys)
        values: list[bytes] = self._store.multi_get(keys)
        return values


class PatientGate(Gate):
    """For our Exchange, which waits for the keys before it reads them: only the wait stops."""

    def wait(self, keys: Sequence[str], within: Any) -> None:
        self._read(keys)

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        assert self._store.check(list(keys)), f"{keys} are read before they are there"
        values: list[bytes] = self._store.multi_get(keys)
        return values


class Node:
    """One agent, and the function that it is in."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.workers, self.role = 0, Role.TRAINER
        self.outside = Ranking.AWAY  # its place while it is not in the function
        self.round = 0
        self.operation: sim.Operation | None = None
        self.keys: Sequence[str] = ()
        self.assigns = self.unanswered = self.over = False
        self.ranked: Sequence[Worker] = ()

    @property
    def place(self) -> Ranking:
        if self.operation is None:
            return self.outside
        return AT.get(self.operation.at, Ranking.ASSIGNED if self.assigns else Ranking.TOLD)

    def begin(self, round: int, run: Callable[[], Sequence[Worker]]) -> None:
        def guarded() -> None:
            self.ranked = run()

        self.round, self.assigns = round, False
        self.operation = sim.Operation(guarded)
        self.resume()

    def resume(self) -> None:
        """Run to the next request, or to the end of the function."""
        assert self.operation is not None
        self.operation.resume()
        if self.operation.over:
            error = self.operation.error
            ends = {RoundOver: Ranking.WAITING, dist.DistStoreError: Ranking.FAILED, type(None): Ranking.RANKED}
            if type(error) not in ends:
                raise AssertionError(f"node {self.number} raises {error!r}")
            self.outside, self.operation = ends[type(error)], None

    def leave(self, place: Ranking) -> None:
        if self.operation is not None:
            self.operation.abandon()
        self.outside, self.operation = place, None


class Exchanges(Replacing, Steps):
    """Subject for the model `Ranks`. Time does not pass for our Exchange."""

    TRIED = EXCHANGE

    def __init__(self, model: Ranks) -> None:
        self._sizes, self._edition = model.sizes, model.edition
        self.nodes: list[Node] = []

    def replace(self, stack: ExitStack) -> None:
        clock = mock.Mock(wraps=time, sleep=lambda _: None)
        stack.enter_context(mock.patch.object(exchange, "time", clock))

    def abandon(self) -> None:
        for node in self.nodes:
            node.leave(Ranking.DEAD)

    def reset(self) -> None:
        self.abandon()
        self.nodes = [Node(k) for k in range(self._sizes["node"])]
        self._below = C10d.HashStore()
        self._rounds: list[list[Node]] = []
        self._closed = False

    def perform(self, step: str, indices: tuple[int, ...]) -> None:
        if step in EXCHANGE:
            self._exchange(step, self.nodes[indices[0]], indices[1])
        elif step in LEAVES:
            self.nodes[indices[0]].leave(LEAVES[step])
        else:
            super().perform(step, indices)

    def _exchange(self, step: str, node: Node, round: int) -> None:
        """One request of the function.

        Raises:
            Refused: it is at another, or reads a key that is not there.
        """
        if node.operation is None or node.round != round + 1 or node.operation.at != step:
            raise Refused(f"node {node.number} is {node.place.name} in round {node.round}")
        if step in ("gather", "read") and not self._store(round).check(list(node.keys)):
            raise Refused(f"{node.keys} are not in the store")
        node.resume()

    def _store(self, round: int) -> Any:
        """The store of a round: dynamic_rendezvous.py:_get_store."""
        return C10d.PrefixStore(f"torch.rendezvous.job.{round}", self._below)

    # ---- the rounds, and what happens to agents

    def _start_agent(self, number: int, kind: int) -> None:
        node = self.nodes[number]
        node.workers, node.role = 1 + kind % 2, list(Role)[kind // 2]
        node.outside = Ranking.WAITING

    _start_newcomer = _start_agent

    def _begin_round(self, round: int) -> None:
        members = [node for node in self.nodes if node.place is Ranking.WAITING]
        self._rounds.append(members)
        for rank, node in enumerate(members):
            node.begin(round + 1, self._function(node, round, rank, len(members)))

    def _function(self, node: Node, round: int, rank: int, size: int) -> Callable[[], Sequence[Worker]]:
        spec = WorkerSpec(node.role.name, node.workers, rdzv_handler=None, entrypoint="true")  # type: ignore[arg-type]
        store: Any = Gate(node, self._store(round))
        if self._edition is Assignment.TRYSTATE:
            store = Exchange(PatientGate(node, self._store(round)), lambda: self._look(node))
        node.over = False
        return lambda: assign(store, rank, size, spec)

    def _look(self, node: Node) -> None:
        if node.over:
            raise RoundOver("a member is dead")

    def _wait_times_out(self, number: int, round: int) -> None:
        self._unanswered(self.nodes[number])
        self._closed = True

    def _leave_exchange(self, number: int, round: int) -> None:
        node = self.nodes[number]
        node.over = True
        self._unanswered(node)

    def _unanswered(self, node: Node) -> None:
        node.unanswered = True
        node.resume()
        node.unanswered = False

    # ---- what can be seen

    def observe(self) -> Mapping[str, int]:
        out = {"begun": len(self._rounds), "closed": int(self._closed)}
        for node in self.nodes:
            k, ranks = node.number, _ranks(node.ranked)
            out |= {
                f"place[{k}]": ordinal(node.place), f"workers[{k}]": node.workers, f"role[{k}]": ordinal(node.role),
                f"number[{k}]": node.round,
            }  # fmt: skip
            out |= {f"{name}[{k}]": value for name, value in zip(RANKS, ranks, strict=True)}
        for round in range(self._sizes["round"]):
            members = self._rounds[round] if round < len(self._rounds) else []
            store = self._store(round)
            out[f"assigned[{round}]"] = int(bool(members) and store.check([f"{ASSIGNED}/0"]))
            for node in self.nodes:
                at, rank = f"[{round}][{node.number}]", members.index(node) if node in members else -1
                info = _read(store, f"{TOLD}/{rank}")
                out[f"member{at}"] = int(node in members)
                out[f"told{at}"] = info["local_world_size"] if info else 0
                out[f"told_role{at}"] = ordinal(Role[info["role"]]) if info else 0
                base, world, role_base, role_world = _read(store, f"{ASSIGNED}/{rank}") or (0, 0, 0, 0)
                out |= {
                    f"base_of{at}": base, f"world_of{at}": world, f"role_base_of{at}": role_base,
                    f"role_world_of{at}": role_world,
                }  # fmt: skip
        return out


RANKS = ("base", "world", "role_base", "role_world")


def _read(store: Any, key: str) -> Any:
    return json.loads(store.get(key)) if store.check([key]) else None


def _ranks(workers: Sequence[Worker]) -> tuple[int, int, int, int]:
    """The first ranks of a node's workers, and the sizes; the ranks must be consecutive.

    Raises:
        AssertionError: they do not.
    """
    if not workers:
        return 0, 0, 0, 0
    first = workers[0]
    for k, worker in enumerate(workers):
        assert (worker.local_rank, worker.global_rank, worker.role_rank) == (
            k, first.global_rank + k, first.role_rank + k,
        )  # fmt: skip
        assert (worker.world_size, worker.role_world_size) == (first.world_size, first.role_world_size)
    return first.global_rank, first.world_size, first.role_rank, first.role_world_size
