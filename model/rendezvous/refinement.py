"""The refinement maps: every step of `Holders` is a step of `Core`, or none; every step of `Rooms` is one of `Served`.

The map of `Holders` forgets copies, tokens and operations. An operation counts as over as soon as its node has a copy
on which the operator decides FINISH: the decision is fixed by the read or write that loaded the copy.

The map of `Rooms` forgets requests, answers and notices. A join counts as failed as soon as the server has ended it.
"""

from __future__ import annotations

from ..language import Expr, SymbolicState, ite, named, transition
from ..language.state import trace_of
from ..language.transitions import fault_bounds
from .copies import SCALARS
from .holder import Holders
from .rooms import Rooms
from .served import Served
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


def served(fine: Rooms) -> tuple[Served, dict[str, Expr]]:
    """The coarser system of the same size and faults, and for each field of it its value in the finer one."""
    known = Served().all_declarations()
    faults = {name: bound for name, bound in fine.faults.items() if name in fault_bounds(known)}
    target = Served(faults=faults, **{name: size for name, size in fine.sizes.items() if name in known})
    s = SymbolicState(fine, frozen="the refinement map")
    t = SymbolicState(target)
    for j in s.node:
        failed = (s.phase[j] == AgentPhase.JOINING) & s.ended[j]
        t.phase[j] = ite(failed, AgentPhase.FAILED, s.phase[j])
    return target, {name: slot.identity() for name, slot in target.slots.items()} | trace_of(t).bodies
