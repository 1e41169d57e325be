"""Steps of the model `Holders`, performed on torch's own executors and state holders."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import torch.distributed.elastic.rendezvous.dynamic_rendezvous as dr

from trystate.model.rendezvous.holder import Holders
from trystate.model.rendezvous.vocabulary import JoinDeadline

from ..holders import HoldersSubject, Process
from ..steps import Replacing
from . import simulation as sim
from .contexts import TORCH_OPERATORS


class Node(Process):
    """torch's node descriptor, state holder and executor."""

    def __init__(self, number: int, model: Holders, backend: sim.Backend, clock: sim.Clock) -> None:
        super().__init__(clock)
        self.desc = dr._NodeDesc(f"node{number}", 1, 0)
        settings = sim.settings(model.min_nodes, model.max_nodes)
        self.holder = dr._BackendRendezvousStateHolder(backend, settings)
        self.executor = dr._DistributedRendezvousOpExecutor(self.desc, self.holder, settings)
        self._sync = self.holder.sync
        self.holder.sync = self._watched_sync

    @property
    def dirty(self) -> bool:
        return bool(self.holder._dirty)

    @property
    def version(self) -> int:
        return int(self.holder._token or 0)

    @property
    def synced_at(self) -> float:
        return float(self.holder._last_sync_time)

    def expect_cached(self) -> None:
        self.holder._last_sync_time = self.clock.seconds

    def _watched_sync(self) -> Any:
        """torch's sync. A write stops here: in the backend the state is pickled, and its heartbeats could not age."""
        if self.holder._dirty:
            sim.stop("set")
        return self.watch(self._sync)

    def run(self, operator: str) -> None:
        asked = TORCH_OPERATORS[operator]

        def decide(context: Any, deadline: float) -> Any:
            sim.stop("decide")
            return self.decide(asked, context)

        def update_deadline(timeout: timedelta) -> float:
            self.join_deadline = JoinDeadline.IN_TIME
            return self.clock.seconds + timeout.total_seconds()

        self.executor.run(decide, 0.0, update_deadline)


class TorchHolders(HoldersSubject, Replacing):
    """Subject for the model `Holders` (edition TORCH): torch's classes on a backend in memory.

    It replaces torch's sources of time.
    """

    def __init__(self, model: Holders) -> None:
        super().__init__(model, sim.Clock())

    def replace(self, stack: ExitStack) -> None:
        stack.enter_context(sim.simulated(self.clock, self._recorded))

    def fresh(self) -> tuple[sim.Backend, list[Node]]:
        backend = sim.Backend(sim.stop)
        return backend, [Node(k, self.model, backend, self.clock) for k in range(self.model.sizes["node"])]

    def _recorded(self, **event: Any) -> None:
        """torch logs an action before it performs the action: the model's step ends here."""
        for node in self.nodes:
            if node.about_to_act and node.operation is not None and node.operation.running:
                node.about_to_act = False
                sim.stop("act")
