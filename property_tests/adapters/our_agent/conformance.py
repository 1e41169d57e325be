"""The agent's decisions compared with the model `Agents`, edge by edge, as `trystate verify` runs it.

Rule: steps that the model forbids are tried in each state. A sample has some edges of some systems.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations

from trystate.model.agent import Agents, Edition, Ours
from trystate.model.language.transitions import fault_bounds

from ...harness.checks import Check, Outcome, sampled
from ...harness.paths import replay_systems
from .edges import AgentSteps

Report = Callable[[str], None]
FAULTS = tuple(fault_bounds(Ours.declarations()))
STANDS_STILL = {"crash", "stall", "freeze"}
SAMPLE_EDGES, SAMPLE_STRIDE = 200, 10


@dataclass(frozen=True)
class Slice:
    """Nodes and min:max, such as `2 1:2`; faults, each as often as its bound; whether workers end; restarts."""

    size: str
    faults: tuple[str, ...] = ()
    ends: int = 1
    max_restarts: int = 1

    def __str__(self) -> str:
        return f"{self.size} ends={self.ends} max_restarts={self.max_restarts} {' '.join(self.faults)}".strip()

    def build(self, edition: Edition = Edition.TRYSTATE) -> Agents:
        nodes, span = self.size.split()
        low, high = map(int, span.split(":"))
        return Agents(
            node=int(nodes), min_nodes=low, max_nodes=high, ends=self.ends, max_restarts=self.max_restarts,
            edition=edition, faults=self.faults,
        )  # fmt: skip


def _pairs(size: str) -> Iterator[Slice]:
    """All pairs of faults, except a signal with a stopped spare, which the model moves up (edges.py)."""
    for faults in combinations(FAULTS, 2):
        if size != "2 1:1" or "signal" not in faults or not STANDS_STILL.intersection(faults):
            yield Slice(size, faults)


SIZES = ("2 2:2", "2 1:2", "2 1:1")
TWO = (
    *(Slice(size, faults) for size in SIZES for faults in ((), *((fault,) for fault in FAULTS if fault != "newcomer"))),
    *(Slice(size, (fault,), max_restarts=0) for size in SIZES for fault in ("worker_failure", "crash", "signal")),
    *(Slice(size, ("worker_failure", "crash"), ends=0) for size in SIZES),
)
FEW = (
    *(Slice("2 2:2", faults) for faults in (("worker_failure", "outage"), ("crash", "newcomer"), ("outage", "signal"))),
    Slice("2 1:1", ("worker_failure", "freeze")),
    *(Slice("2 2:2", (fault, "deaf")) for fault in ("worker_failure", "signal")),
    Slice("2 1:1", ("freeze", "deaf")),
    Slice("2 2:2", ("stall", "signal")),
    *(Slice("2 2:2", ("final_failure", fault)) for fault in ("worker_failure", "outage", "stall")),
)
THREE = (
    *(Slice(size) for size in ("3 2:2", "3 2:3", "3 1:3")),
    Slice("3 1:4", ends=0),
    *(Slice("3 2:2", (fault,)) for fault in ("worker_failure", "crash", "outage", "signal")),
)
LONG = (
    *(pair for size in SIZES for pair in _pairs(size)),
    *(Slice("3 2:3", (fault,)) for fault in FAULTS if fault != "newcomer"),
    *(Slice("2 2:2", faults) for faults in combinations(FAULTS, 3) if "deaf" not in faults),
)


def compare(slices: Iterable[Slice], report: Report, edges_max: int | None = None) -> Outcome:
    """Take every edge of each slice on the agent's decisions, or about `edges_max`."""
    return replay_systems((one.build() for one in slices), AgentSteps, report, edges_max)


CHECKS: tuple[Check, ...] = tuple(
    sampled(f"our agent, {name}", compare, slices, SAMPLE_STRIDE, SAMPLE_EDGES)
    for name, slices in (("two nodes", TWO), ("two nodes, two faults", FEW), ("three nodes", THREE))
)
