"""The engine compared with the model `Rendezvous`, edge by edge, as `trystate verify` runs it.

Rule: in each state, steps that the model forbids are tried too. A sample has some edges of some systems.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from trystate.model.language.transitions import fault_bounds
from trystate.model.rendezvous import Edition, Rendezvous
from trystate.model.rendezvous.environment import Environment

from ...harness.checks import Check, Outcome, sampled
from ...harness.paths import replay_systems
from .edges import EngineSteps
from .following import followed, harm, recorded

Report = Callable[[str], None]
Slice = tuple[str, tuple[str, ...]]  # nodes and min:max, such as `2 1:2`, and faults that may each happen once

# With all faults at once two nodes have millions of states. So each fault is alone, or in a set whose faults interact.
# Where min = max, no node can start with a larger min.
ALONE = tuple(fault for fault in fault_bounds(Environment.declarations()) if fault != "other_min")
TOGETHER = (("worker_failure", "crash", "restart"), ("crash", "stall"), ("worker_failure", "outage"))
SLICES: Mapping[str, tuple[Slice, ...]] = {
    "two nodes": (
        *((size, (fault,)) for size in ("2 2:2", "2 1:2") for fault in ALONE),
        ("2 1:2", ("other_min",)),
        *(("2 2:2", faults) for faults in TOGETHER),
    ),
    "two nodes, one seat": tuple(
        ("2 1:1", faults) for faults in (*((fault,) for fault in ALONE), ("crash", "restart", "join_timeout"))
    ),
    "three nodes": (("3 2:3", ()), ("3 2:2", ()), ("3 1:2", ())),
    "rank keys": (("2 1:2", ("rank_key", "worker_failure")), ("3 2:2", ("rank_key",))),
    "newcomers held back": (("2 1:2", ("scale_up_interval", "worker_failure", "join_timeout")),),
    "health checks": (("2 1:2", ("health_check", "unhealthy", "worker_failure")),),
    "drained nodes": (
        *((size, ("drain",)) for size in ("2 1:2", "2 1:1", "2 2:2")),
        *(("2 1:2", ("drain", fault)) for fault in ("crash", "worker_failure", "join_timeout")),
        ("2 1:1", ("drain", "crash", "restart")),
    ),
}
FOLLOWED_SEEDS, FOLLOWED_NODES = 20, 3
SAMPLE_EDGES, SAMPLE_SEEDS, SAMPLE_STRIDE = 200, 5, 10


def system(size: str, faults: tuple[str, ...]) -> Rendezvous:
    """A system of ours. Its size is written as in the plan of `verify`."""
    nodes, span = size.split()
    low, high = span.split(":")
    return Rendezvous(
        node=int(nodes), min_nodes=int(low), max_nodes=int(high), rounds=1, edition=Edition.TRYSTATE, faults=faults
    )


def replay(slices: tuple[Slice, ...], report: Report, edges_max: int | None = None) -> Outcome:
    """Take every edge of each slice on the engine's operators and changes, and try what the model forbids.

    With `edges_max`, a sample of about that many edges of each.
    """
    return replay_systems((system(*one) for one in slices), EngineSteps, report, edges_max)


def follow(seeds: Iterable[int], report: Report, nodes: int | None = None) -> Outcome:
    """Follow the writes of our handlers in simulated runs on the model: each must be a step of the model."""
    began = time.perf_counter()
    steps, disagreements = 0, list[str]()
    for seed in seeds:
        report(f"following seed {seed}")
        done, record = recorded(seed, nodes)
        follower = followed(record)
        steps += len(record)
        problems = [*([done.fails] if done.fails else []), *harm(follower), *follower.undecided]
        disagreements += [f"seed {seed}: {problem}" for problem in problems]
    return Outcome(steps, "steps", tuple(disagreements), time.perf_counter() - began)


CHECKS: tuple[Check, ...] = (
    *(sampled(f"our engine, {name}", replay, slices, SAMPLE_STRIDE, SAMPLE_EDGES) for name, slices in SLICES.items()),
    Check(
        "our handlers in simulated runs",
        *(partial(follow, range(seeds), nodes=FOLLOWED_NODES) for seeds in (FOLLOWED_SEEDS, SAMPLE_SEEDS)),
    ),
)
