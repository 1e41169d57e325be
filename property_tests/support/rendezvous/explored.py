"""The searches of our rendezvous that only the nightly tests make: docs/rendezvous.md has a table of them."""

from __future__ import annotations

from trystate.model.rendezvous import Edition, Rendezvous
from trystate.model.rendezvous.findings import EVERY_FAULT

from ..pinned import Asked


def run(
    nodes: int, min_nodes: int, max_nodes: int, faults: tuple[str, ...], states: int, *, max_faults: int | None = None
) -> Asked:
    """One exploration of our edition: its size and faults, its states, and how many faults happen at most."""
    sizes = f"node={nodes} min_nodes={min_nodes} max_nodes={max_nodes} rounds=1"
    return Asked(Rendezvous, Edition.TRYSTATE, sizes, states, "", faults, max_faults)


# Nodes, min, max, faults, states. Without `max_faults`, each fault happens as often as its own bound says.
# fmt: off
ONLY_NIGHTLY = (
    run(2, 1, 2, EVERY_FAULT, 5_166_128),
    run(3, 2, 3, EVERY_FAULT, 6_335_025, max_faults=3),
    run(4, 2, 4, ("crash", "stall"), 3_040_556),
    run(3, 2, 3, ("crash", "stall", "join_timeout", "job_end", "other_min", "other_expiry"), 3_249_081),
    run(3, 2, 3, ("worker_failure", "crash", "restart", "stall", "outage", "partition"), 13_252_579),
    run(3, 2, 3, ("worker_failure", "join_timeout", "job_end"), 98_444),
    run(3, 2, 3, ("crash", "restart", "partition"), 168_138),
    run(3, 2, 3, ("crash", "restart", "outage"), 170_420),
    run(3, 2, 3, (*EVERY_FAULT, "drain"), 1_108_220, max_faults=2),
    run(3, 2, 2, ("drain", "crash", "restart"), 88_072),
)
# fmt: on
