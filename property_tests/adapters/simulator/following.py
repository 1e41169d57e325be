"""Simulated runs of two nodes, followed on the model: what real engines do there is a run of it.

The model's states that a run could be in are kept as a set. A write, a return, a start of workers or a fault must be a
step from one of them; time, and what a node does without a trace, may happen in between. An empty set names the event.
Rule: messages take no time here, so that a write happens while its node is as the model has it. The model's agent stops
its workers for a node that waits before it replaces the round, as torchrun's does, and nobody leaves after the closing.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any
from unittest import mock

from torch.distributed.elastic.agent.server.api import WorkerState

from trystate.impl.agent import core
from trystate.impl.agent.core import Order, View
from trystate.impl.rendezvous.engine import Engine, Standing
from trystate.impl.rendezvous.state import Settings, State
from trystate.model.checker.interpret import Interpreter
from trystate.model.language.sorts import ordinal
from trystate.model.rendezvous import Edition, Rendezvous
from trystate.model.rendezvous.fields import written
from trystate.model.rendezvous.vocabulary import AgentPhase, Membership

from ...harness.paths import explore_graph
from .monitors import Event
from .schedule import DRIFT_MAX, NO_RETURN, Fault, Host, Schedule
from .swarm import run

SILENT = (
    "heartbeat_ages", "heartbeat_expires", "last_call_passes", "exit_finish", "restart_workers",
    "lose_lease", "join_deadline_passes", "store_returns", "job_ends", "close_finish",
)  # fmt: skip
FAULTS = {"worker_failure": "worker_fails", "outage": "store_stops"}
KINDS = ("worker_failure", "crash", "outage", "success")
MODELLED = ("worker_failure", "crash", "outage", "job_end")
FAULT_SECONDS = 8.0


@dataclass(frozen=True, slots=True)
class Followed:
    """A run as the model sees it: how many steps it took, and the event that the model does not have."""

    seed: int
    steps: int
    problem: str


def pair(seed: int) -> Schedule:
    """Two nodes, and at most one fault of each kind that the model has."""
    rng = random.Random(f"pair {seed}")
    settings = Settings(
        rng.randint(1, 2), 2, last_call_timeout=rng.uniform(0.0, 1.0), keep_alive_interval=1.0, keep_alive_max_attempt=3
    )
    hosts = tuple(
        Host(k, rng.choice((rng.uniform(0.0, 0.1), rng.uniform(0.0, 4.0))), settings, rng.uniform(0.0, 1e6),
             1.0 + rng.uniform(-DRIFT_MAX, DRIFT_MAX), 1_000.0, 0.0, False)
        for k in range(2)
    )  # fmt: skip
    kinds = rng.sample(KINDS, rng.randint(0, 3))
    lengths = {"crash": NO_RETURN, "outage": rng.uniform(0.0, 6.0)}
    faults = (Fault(rng.uniform(0.5, FAULT_SECONDS), kind, rng.randrange(2), lengths.get(kind, 0.0)) for kind in kinds)
    return Schedule(seed, hosts, tuple(sorted(faults, key=lambda fault: fault.at)), prompt=True)


Step = tuple[str, tuple[int, ...], int]  # name, indices, number of the state after
Signature = tuple[object, ...]


class Atlas:
    """The graph of the model, as a run is followed on it."""

    def __init__(self, low: int) -> None:
        model = Rendezvous(
            node=2, min_nodes=low, max_nodes=2, rounds=1, edition=Edition.TRYSTATE, faults=sorted(MODELLED)
        )
        self.writes = [t.name for t in written(model)]
        explored = explore_graph(model)
        instances = [(i.transition.name, i.indices) for i in Interpreter(model).kernel.instances]
        graph, positions = explored.graph, model.positions
        self.initial = frozenset(explored.initial)
        self.steps: list[list[Step]] = [
            [(*instances[number], int(after)) for after, number in zip(*graph.out(state), strict=True)]
            for state in range(graph.size)
        ]
        states = [explored.state(k) for k in range(graph.size)]
        seen = [positions[name] for name in ("complete", "closed", "member[0]", "member[1]", "rank[0]", "rank[1]")]
        self.signatures: list[Signature] = [tuple(state[k] for k in seen) for state in states]
        returning = ordinal(AgentPhase.RETURNING)
        self.returning = [tuple(state[positions[f"phase[{k}]"]] == returning for k in (0, 1)) for state in states]

    def later(self, states: frozenset[int]) -> frozenset[int]:
        """With whatever may happen without a trace."""
        reached, ahead = set(states), list(states)
        while ahead:
            for name, _, after in self.steps[ahead.pop()]:
                if name in SILENT and after not in reached:
                    reached.add(after)
                    ahead.append(after)
        return frozenset(reached)

    def taken(self, states: Iterable[int], names: Iterable[str], node: int | None) -> frozenset[int]:
        """Where steps with these names lead; of this node, if it is one's."""
        indices = () if node is None else (node,)
        wanted = set(names)
        return frozenset(after for s in states for name, of, after in self.steps[s] if name in wanted and of == indices)


@cache
def atlas(low: int) -> Atlas:
    return Atlas(low)


def signature(state: State) -> Signature:
    """The part of the store's state that the model has."""
    ranks = [p.node.address for p in state.participants] if state.complete else []
    where = {p.node.address: state.membership(p.node.token) for p in state.listed()}
    nodes = ("node0", "node1")
    return (
        int(state.complete), int(state.closed is not None),
        *(ordinal(where.get(node, Membership.OUTSIDE)) for node in nodes),
        *(ranks.index(node) if node in ranks else 0 for node in nodes),
    )  # fmt: skip


def followed(map_: Atlas, states: frozenset[int], event: Event) -> frozenset[int] | None:
    """The model's states after an event; None: it is none of the model's."""
    node = int(event.who[1:]) if event.who else None
    before = map_.later(states)
    if event.state is not None:
        wanted = signature(event.state)
        return frozenset(s for s in map_.taken(before, map_.writes, node) if map_.signatures[s] == wanted)
    word = event.what.split()[0]
    if word == "returns:":
        assert node is not None
        at_once = frozenset(s for s in before if map_.returning[s][node])
        return at_once | map_.taken(before, ("finish",), node)
    if word in ("runs", "died"):
        return map_.taken(before, ("start_workers" if word == "runs" else "crash",), node)
    if event.fault is not None and event.fault.kind in FAULTS:  # it hits nobody whose workers do not run
        hit = None if event.fault.kind == "outage" else event.fault.node
        return before | map_.taken(before, (FAULTS[event.fault.kind],), hit)
    return None


class Staying(Engine):
    """An engine that leaves it to its agent to replace the round for a node that waits."""

    makes_room = property(lambda self: False, lambda self, wanted: None)


def stopping_first(view: View, decide: Any = core.decide) -> Order:
    """The agent of the model."""
    waits = view.standing is Standing.NEWCOMERS and view.workers is WorkerState.HEALTHY
    order: Order = decide(view)
    return Order.REJOIN if waits and order is Order.GO_ON else order


def follow(schedule: Schedule, engine: type[Engine] = Engine) -> Followed:
    """Let a schedule of two nodes happen, and follow it."""
    with mock.patch.object(core, "decide", stopping_first):
        done = run(schedule, type("Engine", (Staying, engine), {}))
    map_ = atlas(schedule.hosts[0].settings.min_nodes)
    states, steps = map_.initial, 0
    for event in done.log:
        after = followed(map_, states, event)
        if after is None:
            continue
        if not after:
            return Followed(schedule.seed, steps, f"the model has no such step: {event}")
        states, steps = after, steps + 1
        if event.state is not None and event.state.closed is not None:
            break
    return Followed(schedule.seed, steps, str(done.violation or ""))


def follow_seeds(seeds: Iterable[int]) -> Iterator[Followed]:
    for seed in seeds:
        yield follow(pair(seed))
