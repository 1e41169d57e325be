"""The runtime compared with its models, edge by edge, as `trystate verify` runs it.

Rule: what the model forbids is tried in each state. A sample has some edges of some systems.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from trystate.model.autograd.backward import Backward
from trystate.model.autograd.contexts import Contexts
from trystate.model.autograd.examples import NUMBER, small_graphs
from trystate.model.autograd.findings import ALL
from trystate.model.autograd.graphs import Graph
from trystate.model.autograd.ids import Ids
from trystate.model.autograd.meeting import Meetings
from trystate.model.autograd.references import References
from trystate.model.autograd.tombstones import Tombstones
from trystate.model.autograd.vocabulary import Edition, Mode
from trystate.model.language import System

from ...harness.checks import Check, Outcome, sampled
from ...harness.paths import replay_systems
from ...harness.subjects import Subject
from .context_edges import ContextSteps, IdSteps, TombstoneSteps
from .edges import PassSteps
from .meeting_edges import MeetingSteps
from .reference_edges import ReferenceSteps

Report = Callable[[str], None]
FAST, SMART = Edition.TRYSTATE, Mode.SMART
SUBJECTS: Mapping[type[System], Callable[..., Subject]] = {
    Backward: PassSteps, Contexts: ContextSteps, Tombstones: TombstoneSteps, Ids: IdSteps, Meetings: MeetingSteps,
    References: ReferenceSteps,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Slice:
    """A model of one size, whose every edge is replayed."""

    system: type[System]
    sizes: Mapping[str, int] = field(default_factory=dict)
    faults: tuple[str, ...] = ()
    edition: Edition | Mode = FAST

    def build(self) -> Any:
        return self.system(edition=self.edition, faults=self.faults, **self.sizes)

    def replay(self, **options: Any) -> Outcome:
        """Its edges on the runtime; see `replay_every_edge`."""
        return replay_systems([self.build()], subject_of, lambda _: None, **options)


def subject_of(model: System) -> Subject:
    return next(make for system, make in SUBJECTS.items() if isinstance(model, system))(model)


def compare(slices: Iterable[Slice], report: Report, edges_max: int | None = None) -> Outcome:
    """Take every edge of each slice, or about `edges_max`, and try what the model forbids."""
    return replay_systems((one.build() for one in slices), subject_of, report, edges_max)


def a_pass(graph: str, faults: tuple[str, ...] = (), attempts: int = 1, edition: Edition | Mode = FAST) -> Slice:
    """A graph of the examples, faults that may each happen once, and the number of calls of backward()."""
    return Slice(Backward, {"graph": NUMBER[graph], "attempt": attempts}, faults, edition)


def examples(edition: Edition | Mode) -> tuple[Slice, ...]:
    """Each fault alone, with a retry: with all faults at once, two workers have hundreds of thousands of edges."""
    shapes = ("nested", "diamond", "twice", "unused-alone", "unused-call", "unused-far", "served", "joined", "parallel")
    return (
        *(a_pass("note", (fault,), 2, edition) for fault in (*ALL, "again")),
        *(a_pass(graph, (), 1, edition) for graph in shapes), a_pass("unused-output", ("error", "die"), 1, edition),
        a_pass("chain-3", ("die",), 1, edition), a_pass("local", ("error", "die"), 1, edition),
    )  # fmt: skip


def long(edition: Edition | Mode) -> tuple[Slice, ...]:
    """Slices with millions of edges in all."""
    return (
        *(a_pass(graph, ALL, 1, edition) for graph in ("note", "shared", "fetched", "unused-output")),
        a_pass("crossed", ("late",), 1, edition), a_pass("note", ("late", "leave"), 2, edition),
        a_pass("diamond", ("die", "lose"), 1, edition), a_pass("chain-3", ("die", "lose"), 1, edition),
    )  # fmt: skip


def small(edition: Edition | Mode, graphs: Iterable[Graph]) -> tuple[Slice, ...]:
    return tuple(Slice(Backward.over(graph), {}, (), edition) for graph in graphs)


def contexts(workers: int, calls: int, outlives: int, *faults: str, passes: int = 0) -> Slice:
    """A slice of `Contexts`; with `passes=1` its creator runs a pass."""
    return Slice(Contexts, {"worker": workers, "calls": calls, "outlives": outlives, "passes": passes}, faults)


LOSSES = ("crash", "creator_crash", "timeout", "lose", "duplicate")
CONTEXTS: tuple[Slice, ...] = (
    contexts(2, 2, 1, "crash", "creator_crash", "timeout"),
    contexts(2, 2, 0, *LOSSES),
    contexts(3, 2, 1),
    contexts(3, 2, 0, "crash", "creator_crash"),
    contexts(3, 2, 0, "crash", "lose", "duplicate"),
    contexts(2, 2, 1, "error", "crash", "creator_crash", "timeout", passes=1),
    contexts(3, 2, 1, "error", passes=1),
    Slice(Tombstones, {"peer": 1}),
    Slice(Tombstones, {"context": 2}),
    Slice(Ids),
)
MEETINGS = tuple(Slice(Meetings, {}, faults) for faults in ((), ("crash",), ("late",), ("impatient",), ("twin",)))
LONG_MEETINGS = tuple(
    Slice(Meetings, {}, faults)
    for faults in (("timeout", "late"), ("timeout", "crash"), ("crash", "again"), ("impatient", "again"))
)
LONG = (
    contexts(3, 2, 0, *LOSSES), contexts(3, 3, 1), contexts(4, 3, 0), contexts(3, 2, 1, "error", "crash", passes=1),
    Slice(Tombstones),
    *(one for edition in (FAST, SMART) for one in long(edition)),
)  # fmt: skip
SAMPLE_EDGES, SAMPLE_STRIDE = 100, 10
_sampled = partial(sampled, compare=compare, stride=SAMPLE_STRIDE, edges_max=SAMPLE_EDGES)
CHECKS: tuple[Check, ...] = (
    *(
        _sampled(f"our {mode} pass, {name}", what=what)
        for mode, edition in (("FAST", FAST), ("SMART", SMART))
        for name, what in (
            ("examples", examples(edition)),
            ("small graphs", small(edition, (*small_graphs(1, 1), *small_graphs(2, 0)))),
        )
    ),
    _sampled("our contexts, tombstones and ids", what=CONTEXTS),
    _sampled("our references", what=[Slice(References, {}, faults) for faults in ((), ("crash",), ("owner_crash",))]),
    _sampled("our workers that meet and part", what=MEETINGS),
)
