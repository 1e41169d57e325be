"""torch's own executors, state holders and operators in the simulator: what a seed does to them.

Replaced are the sources of time, the event log and the backend, which compares bytes as that of c10d does; the agent
is a loop here: exit, join, run, and again when a worker fails.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch.distributed.elastic.rendezvous.dynamic_rendezvous as dr
from torch.distributed.elastic.rendezvous.api import RendezvousTimeoutError

from ..torch_rendezvous.simulation import NOW, settings
from .moments import Task, Time
from .schedule import Schedule

RUN_SECONDS = 60.0
JOIN_SECONDS = 30.0
Worlds = dict[int, set[tuple[str, ...]]]  # round -> what its members were told


class Backend(dr.RendezvousBackend):
    """One state for all nodes, each access after a delay."""

    def __init__(self, time: Time, rng: random.Random, shared: SimpleNamespace) -> None:
        self._time, self._rng, self._shared = time, rng, shared

    @property
    def name(self) -> str:
        return "simulated"

    def get_state(self) -> Any:
        self._time.sleep(self._rng.uniform(0.0, 0.004))
        return None if self._shared.data is None else (self._shared.data, self._shared.data)

    def set_state(self, state: bytes, token: Any = None) -> Any:
        self._time.sleep(self._rng.uniform(0.0, 0.004))
        if self._shared.data == token:
            self._shared.data = state
        return self._shared.data, self._shared.data, self._shared.data == state


@contextmanager
def _simulated(time: Time, rng: random.Random) -> Iterator[None]:
    class Now(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return NOW + timedelta(seconds=time.now)

    def delay(seconds: Any) -> None:
        time.sleep(rng.uniform(*seconds) if isinstance(seconds, tuple) else seconds)

    with mock.patch.multiple(
        dr, datetime=Now, time=SimpleNamespace(monotonic=lambda: time.now), _delay=delay,
        construct_and_record_rdzv_event=lambda **event: None, get_method_name=lambda depth=2: "",
    ):  # fmt: skip
        yield


def worlds(schedule: Schedule) -> Worlds:
    """What the nodes of a schedule are told when they run torch's classes; of the faults, their workers' failures."""
    time, rng = Time(), random.Random(schedule.seed)
    shared, told = SimpleNamespace(data=None), Worlds()
    low, high = schedule.hosts[0].settings.min_nodes, schedule.hosts[0].settings.max_nodes

    def body(number: int, failures: list[float]) -> None:
        desc = dr._NodeDesc(f"node{number}", 1, 0)
        holder = dr._BackendRendezvousStateHolder(Backend(time, rng, shared), settings(low, high))
        executor = dr._DistributedRendezvousOpExecutor(desc, holder, settings(low, high))
        while True:
            for operator in (dr._RendezvousExitOp(), dr._RendezvousJoinOp()):
                try:
                    executor.run(operator, time.now + JOIN_SECONDS)
                except RendezvousTimeoutError:
                    return
            state = holder.state
            world = tuple(sorted(f"{node.addr} is {rank}" for node, rank in state.participants.items()))
            told.setdefault(state.round, set()).add(world)
            failures[:] = [at for at in failures if at > time.now]
            time.sleep((failures[0] if failures else RUN_SECONDS) - time.now)

    with _simulated(time, rng):
        tasks = [_start(time, h.number, h.start, body, schedule) for h in schedule.hosts]
        time.run(RUN_SECONDS)
        for task in tasks:
            task.end()
        time.run(RUN_SECONDS)
    return told


def _start(time: Time, number: int, start: float, body: Any, schedule: Schedule) -> Task:
    failures = [f.at for f in schedule.faults if f.kind == "worker_failure" and f.node == number]

    def live() -> None:
        time.sleep(start)
        body(number, failures)

    return Task(time, lambda: 0.0, live)


def disagree(told: Worlds) -> list[int]:
    """The rounds whose members were told different worlds."""
    return sorted(number for number, seen in told.items() if len(seen) > 1)
