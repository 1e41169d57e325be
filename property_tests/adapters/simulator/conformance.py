"""The engine compared with the model `Rendezvous`, edge by edge, as `trystate verify` runs it.

Rule: what the model forbids is tried in each state. A sample has some edges of some systems.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

from trystate.model.language.transitions import fault_bounds
from trystate.model.rendezvous import Edition, Rendezvous
from trystate.model.rendezvous.environment import Environment

from ...harness.checks import Check, Outcome
from ...harness.paths import replay_every_edge
from .edges import EngineSteps
from .following import follow_seeds

Report = Callable[[str], None]
Slice = tuple[str, tuple[str, ...]]  # nodes and min:max, such as `2 1:2`, and faults, each of which may happen once

# With all faults at once two nodes have millions of states; each fault alone, and pairs that feed on each other.
# Where min = max, no node can start with a larger min.
ALONE = tuple(fault for fault in fault_bounds(Environment.declarations()) if fault != "other_min")
TOGETHER = (("worker_failure", "crash", "restart"), ("crash", "stall"), ("worker_failure", "outage"))
TWO: tuple[Slice, ...] = (
    *((size, (fault,)) for size in ("2 2:2", "2 1:2") for fault in ALONE),
    ("2 1:2", ("other_min",)),
    *(("2 2:2", faults) for faults in TOGETHER),
)
ONE_SEAT: tuple[Slice, ...] = tuple(
    ("2 1:1", faults) for faults in (*((fault,) for fault in ALONE), ("crash", "restart", "join_timeout"))
)
THREE: tuple[Slice, ...] = (("3 2:3", ()), ("3 2:2", ()), ("3 1:2", ()))
KEYS: tuple[Slice, ...] = (("2 1:2", ("rank_key", "worker_failure")), ("3 2:2", ("rank_key",)))
CHECKED: tuple[Slice, ...] = (("2 1:2", ("health_check", "unhealthy", "worker_failure")),)
HELD_BACK: tuple[Slice, ...] = (("2 1:2", ("scale_up_interval", "worker_failure", "join_timeout")),)
DRAINED: tuple[Slice, ...] = (
    *((size, ("drain",)) for size in ("2 1:2", "2 1:1", "2 2:2")),
    *(("2 1:2", ("drain", fault)) for fault in ("crash", "worker_failure", "join_timeout")),
    ("2 1:1", ("drain", "crash", "restart")),
)
FOLLOWED_SEEDS = 150
SAMPLE_EDGES, SAMPLE_SEEDS, SAMPLE_STRIDE = 200, 5, 10


def system(size: str, faults: tuple[str, ...]) -> Rendezvous:
    """A system of ours, its size as in the plan of what is verified."""
    nodes, span = size.split()
    low, high = span.split(":")
    return Rendezvous(
        node=int(nodes), min_nodes=int(low), max_nodes=int(high), rounds=1, edition=Edition.TRYSTATE, faults=faults
    )


def replay(slices: tuple[Slice, ...], report: Report, edges_max: int | None = None) -> Outcome:
    """Take every edge of each slice on the engine's operators and changes, and try what the model forbids.

    With `edges_max`, about so many of each.
    """
    began = time.perf_counter()
    edges = of = 0
    disagreements: list[str] = []
    for one in slices:
        model = system(*one)
        report(f"replaying {model.label}")
        replayed = replay_every_edge(
            model, EngineSteps(model), refusals=True, repeats=False, edges_max=edges_max, report=report
        )
        edges, of = edges + replayed.edges, of + replayed.edges_of_all
        disagreements += [f"{model.label}: {text}" for text in replayed.disagreements]
    return Outcome(edges, "edges", tuple(disagreements), time.perf_counter() - began, of)


def follow(seeds: int, report: Report) -> Outcome:
    """Follow what engines do in simulated runs on the model: every write and return must be a step of it."""
    began = time.perf_counter()
    steps, disagreements = 0, []
    for one in follow_seeds(range(seeds)):
        report(f"following seed {one.seed}")
        steps += one.steps
        disagreements += [f"seed {one.seed}: {one.problem}"] if one.problem else []
    return Outcome(steps, "steps", tuple(disagreements), time.perf_counter() - began)


def _checks() -> Iterator[Check]:
    for name, slices in (
        ("two nodes", TWO),
        ("two nodes, one seat", ONE_SEAT),
        ("three nodes", THREE),
        ("rank keys", KEYS),
        ("newcomers held back", HELD_BACK),
        ("health checks", CHECKED),
        ("drained nodes", DRAINED),
    ):
        part = partial(replay, slices[::SAMPLE_STRIDE], edges_max=SAMPLE_EDGES)
        yield Check(f"our engine, {name}", partial(replay, slices), part)
    yield Check("our engine in simulated runs", partial(follow, FOLLOWED_SEEDS), partial(follow, SAMPLE_SEEDS))


CHECKS: tuple[Check, ...] = tuple(_checks())
