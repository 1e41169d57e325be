"""The finer system seen as the coarser one: every step of `Holders` is a step of `Core`, or none.

The map forgets copies, tokens and operations. An operation counts as over as soon as its node has a copy on
which the operator says FINISH: from the read or write that loaded it nothing can change that any more.
"""

from __future__ import annotations

from ..language import Expr, State, SymbolicState, System, named
from .holder import Holders
from .surroundings import Surroundings

SAME = ("complete", "closed", "deadline", "round")
SAME_PER_NODE = ("member", "rank", "hb", "patience", "returned", "saw_rank", "crashed", "stalled", "lapsed")


class Core(Surroundings):
    """The coarser system without masters: what state holders and executors implement."""

    title = "Rendezvous without masters"


def coarse(fine: Holders) -> Core:
    """The coarser system of the same size, edition and faults."""
    return Core(edition=fine.edition, faults=fine.faults, **fine.sizes)


def mapping(fine: Holders, target: Core) -> dict[str, Expr]:
    """For each field of the coarser system that is not constant, its value as an expression over the finer state."""
    s = SymbolicState(fine, frozen="the refinement map")
    t = SymbolicState(target)
    for name in (*SAME, *(f"{fault}_left" for fault in fine.faults)):
        setattr(t, name, named(name, getattr(s, name)))
    for name in SAME_PER_NODE:
        for j in s.node:
            getattr(t, name)[j] = named(name, getattr(s, name)[j])
    for j in s.node:
        t.place[j] = fine.abstract_place(s, j)
    for j in s.node:
        for k in s.node:
            t.saw[j, k] = named("saw", s.saw[j, k])
    return dict(t._bodies)


__all__ = ["Core", "State", "System", "coarse", "mapping"]
