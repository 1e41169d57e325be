"""The refinement map: every step of `Holders` is a step of `Core`, or none.

The map forgets copies, tokens and operations. An operation counts as over as soon as its node has a copy on which the
operator decides FINISH: the decision is fixed by the read or write that loaded the copy.
"""

from __future__ import annotations

from ..language import Expr, SymbolicState, named, transition
from ..language.state import trace_of
from .copies import SCALARS
from .holder import Holders
from .torch import RUNS, Torch
from .vocabulary import AgentPhase

SAME_PER_NODE = (
    "member", "rank", "heartbeat_age", "join_deadline", "returned", "saw_rank", "crashed", "stalled", "interrupted",
)  # fmt: skip


class Core(Torch):
    """The coarser system without masters, which state holders and executors implement."""

    title = "Rendezvous without masters"

    return_as_master = return_with_cached_master = return_to_connect = connect = None  # type: ignore[assignment]

    @transition(moves=[RUNS])
    def start_workers(self, s: SymbolicState, node: Expr) -> None:
        """next_rendezvous returns, and the agent starts its workers."""
        self.enters(s, node, AgentPhase.RETURNING)
        self.goes_on(s, node, AgentPhase.RUNNING)


def coarse(fine: Holders) -> Core:
    """The coarser system of the same size, edition and faults."""
    return Core(edition=fine.edition, faults=fine.faults, **fine.sizes)


def mapping(fine: Holders, target: Core) -> dict[str, Expr]:
    """For each field of the coarser system that is not constant, its value as an expression over the finer state."""
    s = SymbolicState(fine, frozen="the refinement map")
    t = SymbolicState(target)
    for name in (*SCALARS, *(f"{fault}_left" for fault in fine.faults)):
        setattr(t, name, named(name, getattr(s, name)))
    for name in SAME_PER_NODE:
        for j in s.node:
            getattr(t, name)[j] = named(name, getattr(s, name)[j])
    for j in s.node:
        t.phase[j] = fine.abstract_phase(s, j)
    for j in s.node:
        for k in s.node:
            t.saw[j, k] = named("saw", s.saw[j, k])
    return trace_of(t).bodies
