"""The comparisons of the edition SEED of the rendezvous with the program, as `trystate verify` runs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any

from trystate.model.rendezvous.deadlines import Deadlines
from trystate.model.rendezvous.holder import Holders
from trystate.model.rendezvous.operators import OPERATORS
from trystate.model.rendezvous.vocabulary import Edition, Membership

from ...harness.checks import Check, Outcome
from ...harness.paths import replay_systems
from ..torch_rendezvous import simulation as sim
from ..torch_rendezvous.conformance import SAMPLE_EDGES, compared_with
from ..torch_rendezvous.contexts import NOW_SECONDS, Classes, observe
from . import engine
from .executors import SeedDeadlines, SeedHolders, settings

TABLES = OPERATORS[Edition.SEED]
LISTS = (Membership.OUTSIDE, Membership.PARTICIPANT, Membership.WAITING)
CLASSES = Classes(engine.Node, engine.State, engine.Context, settings, LISTS)
FEW: Mapping[str, Any] = {"settings": ((1, 1), (2, 3), (3, 1)), "nodes": 3}
Report = Callable[[str], None]


class StoppedClock:
    """Both clocks are stopped, at the moment of the contexts."""

    def now(self) -> datetime:
        return sim.NOW

    def monotonic(self) -> float:
        return NOW_SECONDS


SEED_OPERATORS = {name: make(StoppedClock()) for name, make in engine.OPERATORS.items()}


def operator_contexts(report: Report, few: bool = False) -> Outcome:
    """Compare every operator of the program with its table in every context, or in `few` that have every valuation."""
    report("asking torch 1.10's operators in every context")
    sizes = FEW if few else {}
    return compared_with(
        TABLES, lambda: observe(TABLES, SEED_OPERATORS, classes=CLASSES, **sizes), "the program of torch 1.10"
    )


def every_edge(report: Report, edges_max: int | None = None) -> Outcome:
    """Replay every step of two state holders on the program's executors, or a sample, and try what is forbidden."""
    system = Holders(node=2, min_nodes=2, max_nodes=2, rounds=2, edition=Edition.SEED)
    return replay_systems([system], SeedHolders, report, edges_max)


def every_edge_of_calls(report: Report, edges_max: int | None = None) -> Outcome:
    """Replay every step of a node's calls and heartbeats on the program's handler, or a sample."""
    return replay_systems([Deadlines(edition=Edition.SEED, faults=("corrupt",))], SeedDeadlines, report, edges_max)


CHECKS: tuple[Check, ...] = (
    Check("torch 1.10's operators", operator_contexts, partial(operator_contexts, few=True)),
    Check("torch 1.10's state holders and executors", every_edge, partial(every_edge, edges_max=SAMPLE_EDGES)),
    Check(
        "torch 1.10's calls other than heartbeats",
        every_edge_of_calls,
        partial(every_edge_of_calls, edges_max=SAMPLE_EDGES),
    ),
)
