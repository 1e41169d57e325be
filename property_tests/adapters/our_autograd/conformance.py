"""Containers, parts and ids compared with their models, edge by edge, as `trystate verify` runs it.

Rule: what the model forbids is tried in each state. A sample has some edges of some systems.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from trystate.model.autograd.backward import Backward
from trystate.model.autograd.examples import NUMBER, small_graphs
from trystate.model.autograd.findings import ALL
from trystate.model.autograd.graphs import Graph
from trystate.model.autograd.meeting import Meetings
from trystate.model.autograd.optimizer import Optimizers
from trystate.model.autograd.references import References
from trystate.model.autograd.vocabulary import Edition, Mode
from trystate.model.language import System

from ...harness.checks import Check, Outcome
from ...harness.paths import replay_every_edge
from ...harness.subjects import Subject
from . import context_edges
from .edges import PassSteps
from .meeting_edges import MeetingSteps
from .optimizer_edges import OptimizerSteps
from .reference_edges import ReferenceSteps

Report = Callable[[str], None]
FAST, SMART = Edition.TRYSTATE, Mode.SMART


@dataclass(frozen=True)
class Slice:
    """A graph of the examples, faults, each of which may happen once, and how often backward() is called."""

    graph: str
    faults: tuple[str, ...] = ()
    attempts: int = 1

    def build(self, edition: Edition | Mode) -> Backward:
        return Backward(graph=NUMBER[self.graph], attempt=self.attempts, edition=edition, faults=self.faults)


# With all faults at once even two workers have hundreds of thousands of edges; each fault alone, with a retry.
ALONE = tuple(Slice("note", (fault,), 2) for fault in (*ALL, "again"))
SHAPES = tuple(
    map(
        Slice,
        ("nested", "diamond", "twice", "unused-alone", "unused-call", "unused-far", "served", "joined", "parallel"),
    )
)
SLICES = (
    *ALONE, *SHAPES, Slice("unused-output", ("error", "die")), Slice("chain-3", ("die",)),
    Slice("local", ("error", "die")),
)  # fmt: skip
LONG = (
    *(Slice(graph, ALL) for graph in ("note", "shared", "fetched", "unused-output")), Slice("crossed", ("late",)),
    Slice("note", ("late", "leave"), 2), Slice("diamond", ("die", "lose")), Slice("chain-3", ("die", "lose")),
)  # fmt: skip
SAMPLE_EDGES, SAMPLE_STRIDE = 100, 10
SMALL = (*small_graphs(1, 1), *small_graphs(2, 0))


def replay(systems: Iterable[tuple[System, Subject]], report: Report, edges_max: int | None = None) -> Outcome:
    """Take every edge of each system on its subject, or about `edges_max`, and try what the model forbids."""
    began, edges, of, disagreements = time.perf_counter(), 0, 0, list[str]()
    for model, subject in systems:
        report(f"replaying {model.label}")
        replayed = replay_every_edge(model, subject, refusals=True, repeats=False, edges_max=edges_max, report=report)
        edges, of = edges + replayed.edges, of + replayed.edges_of_all
        disagreements += [f"{model.label}: {text}" for text in replayed.disagreements]
    return Outcome(edges, "edges", tuple(disagreements), time.perf_counter() - began, of)


def passes(models: Iterable[Backward], report: Report, edges_max: int | None = None) -> Outcome:
    return replay(((model, PassSteps(model)) for model in models), report, edges_max)


def examples(edition: Edition | Mode, slices: Iterable[Slice], report: Report, edges_max: int | None = None) -> Outcome:
    return passes((one.build(edition) for one in slices), report, edges_max)


def every_small(
    edition: Edition | Mode, graphs: Iterable[Graph], report: Report, edges_max: int | None = None
) -> Outcome:
    return passes((Backward.over(graph)(edition=edition) for graph in graphs), report, edges_max)


def contexts(slices: Iterable[context_edges.Slice], report: Report, edges_max: int | None = None) -> Outcome:
    models = ((one, one.build()) for one in slices)
    return replay(((model, one.subject(model)) for one, model in models), report, edges_max)


OptimizerSlice = tuple[tuple[str, ...], Mapping[str, int]]  # faults, and sizes
OPTIMIZERS: tuple[OptimizerSlice, ...] = (
    ((), {}),
    (("error", "slow"), {"owner": 1}),
    (("timeout", "crash"), {"owner": 1}),
)
LONG_OPTIMIZERS: tuple[OptimizerSlice, ...] = (
    (("error", "slow"), {}),
    (("error", "slow", "timeout", "crash"), {"owner": 1, "steps": 2}),
)


def optimizers(slices: Iterable[OptimizerSlice], report: Report, edges_max: int | None = None) -> Outcome:
    """Every step of optimizers that make one step each, or as many as a slice says."""
    began, edges, of, disagreements = time.perf_counter(), 0, 0, list[str]()
    for faults, sizes in slices:
        model = Optimizers(edition=FAST, faults=faults, **{"steps": 1, **sizes})
        with OptimizerSteps(model) as subject:
            one = replay([(model, subject)], report, edges_max)
        edges, of, disagreements = edges + one.compared, of + (one.of or 0), [*disagreements, *one.disagreements]
    return Outcome(edges, "edges", tuple(disagreements), time.perf_counter() - began, of)


def references(slices: Iterable[tuple[str, ...]], report: Report, edges_max: int | None = None) -> Outcome:
    """Every step of three workers that pass a reference, under each of the faults."""
    models = [References(faults=faults) for faults in slices]
    return replay(((model, ReferenceSteps(model)) for model in models), report, edges_max)


MEETINGS = ((), ("crash",), ("late",), ("impatient",), ("twin",))
LONG_MEETINGS = (("timeout", "late"), ("timeout", "crash"), ("crash", "again"), ("impatient", "again"))


def meetings(slices: Iterable[tuple[str, ...]], report: Report, edges_max: int | None = None) -> Outcome:
    """Every step of two workers that meet, call each other and part, under each of the faults."""
    began, edges, of, disagreements = time.perf_counter(), 0, 0, list[str]()
    for faults in slices:
        model = Meetings(edition=FAST, faults=faults)
        with MeetingSteps(model) as subject:
            one = replay([(model, subject)], report, edges_max)
        edges, of, disagreements = edges + one.compared, of + (one.of or 0), [*disagreements, *one.disagreements]
    return Outcome(edges, "edges", tuple(disagreements), time.perf_counter() - began, of)


def _checks(edition: Edition | Mode, mode: str) -> tuple[Check, ...]:
    return (
        _sampled(f"our {mode} pass, examples", partial(examples, edition), SLICES),
        _sampled(f"our {mode} pass, small graphs", partial(every_small, edition), SMALL),
    )


def _sampled(name: str, compare: Callable[..., Outcome], what: Sequence[Any]) -> Check:
    return Check(name, partial(compare, what), partial(compare, what[::SAMPLE_STRIDE], edges_max=SAMPLE_EDGES))


PASS_CHECKS: tuple[Check, ...] = (*_checks(FAST, "FAST"), *_checks(SMART, "SMART"))
CHECKS: tuple[Check, ...] = (
    *PASS_CHECKS,
    _sampled("our contexts, tombstones and ids", contexts, context_edges.SLICES),
    _sampled("our distributed optimizers", optimizers, OPTIMIZERS),
    _sampled("our references", references, ((), ("crash",), ("owner_crash",))),
    _sampled("our workers that meet and part", meetings, MEETINGS),
)
