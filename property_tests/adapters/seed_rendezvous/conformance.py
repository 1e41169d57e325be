"""The comparisons of the edition SEED of the rendezvous with the program, as `trystate verify` runs them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any

from trystate.model.rendezvous.deadlines import Deadlines
from trystate.model.rendezvous.holder import Holders
from trystate.model.rendezvous.operators import OPERATORS
from trystate.model.rendezvous.vocabulary import Edition, Membership

from ...harness.checks import Check, Outcome
from ...harness.paths import replay_every_edge
from ..torch_rendezvous import simulation as sim
from ..torch_rendezvous.conformance import SAMPLE_EDGES, gaps
from ..torch_rendezvous.contexts import NOW_SECONDS, Classes, compare, observe
from . import engine
from .deadlines import SeedDeadlines
from .executors import SeedHolders, settings

TABLES = OPERATORS[Edition.SEED]
LISTS = (Membership.OUTSIDE, Membership.PARTICIPANT, Membership.WAITING)
CLASSES = Classes(engine.Node, engine.State, engine.Context, settings, LISTS)
FEW: Mapping[str, Any] = {"settings": ((1, 1), (2, 3), (3, 1)), "nodes": 3}
Report = Callable[[str], None]


class StoppedClock:
    """Both clocks stand still, at the moment that the contexts speak of."""

    def now(self) -> datetime:
        return sim.NOW

    def monotonic(self) -> float:
        return NOW_SECONDS


SEED_OPERATORS = {name: make(StoppedClock()) for name, make in engine.OPERATORS.items()}


def operator_contexts(report: Report, few: bool = False) -> Outcome:
    """Ask every operator of the program in every context, or in `few` that have every valuation, and its table."""
    started = time.perf_counter()
    report("asking torch 1.10's operators in every context")
    differences: list[str] = []
    contexts = 0
    sizes = FEW if few else {}
    for name, seen in observe(TABLES, SEED_OPERATORS, classes=CLASSES, **sizes).items():
        compared = compare(TABLES[name], seen, "the program of torch 1.10")
        differences += (*compared.disagreements, *gaps(name, compared))
        contexts += compared.contexts
    return Outcome(contexts, "contexts", tuple(differences), time.perf_counter() - started)


def every_edge(report: Report, edges_max: int | None = None) -> Outcome:
    """Replay every step of two state holders on the program's executors, or a sample, and try what is forbidden."""
    started = time.perf_counter()
    system = Holders(node=2, min_nodes=2, max_nodes=2, rounds=2, edition=Edition.SEED)
    replayed = replay_every_edge(
        system, SeedHolders(system), refusals=True, repeats=False, edges_max=edges_max, report=report
    )
    seconds = time.perf_counter() - started
    return Outcome(replayed.edges, "edges", replayed.disagreements, seconds, replayed.edges_of_all)


def every_edge_of_calls(report: Report, edges_max: int | None = None) -> Outcome:
    """Replay every step of a node's calls beside its heartbeats on the program's handler, or a sample."""
    started = time.perf_counter()
    system = Deadlines(edition=Edition.SEED, faults=("corrupt",))
    with SeedDeadlines(system) as subject:
        replayed = replay_every_edge(system, subject, refusals=True, repeats=False, edges_max=edges_max, report=report)
    seconds = time.perf_counter() - started
    return Outcome(replayed.edges, "edges", replayed.disagreements, seconds, replayed.edges_of_all)


CHECKS: tuple[Check, ...] = (
    Check("torch 1.10's operators", operator_contexts, partial(operator_contexts, few=True)),
    Check("torch 1.10's state holders and executors", every_edge, partial(every_edge, edges_max=SAMPLE_EDGES)),
    Check(
        "torch 1.10's calls beside heartbeats",
        every_edge_of_calls,
        partial(every_edge_of_calls, edges_max=SAMPLE_EDGES),
    ),
)
