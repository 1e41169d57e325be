"""The finer systems that must refine a coarser one, as checks that `trystate verify` runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from trystate.model.autograd import refinement as passes
from trystate.model.autograd.backward import Backward
from trystate.model.autograd.examples import NUMBER
from trystate.model.autograd.findings import ALL
from trystate.model.autograd.vocabulary import Edition as AutogradEdition
from trystate.model.autograd.vocabulary import Mode
from trystate.model.checker.refinement import Refinement, refines
from trystate.model.rendezvous.holder import Holders
from trystate.model.rendezvous.refinement import coarse, mapping, served
from trystate.model.rendezvous.rooms import Rooms
from trystate.model.rendezvous.vocabulary import Edition

from ..harness.checks import Check, Outcome

RUNS: tuple[tuple[Edition, int, int, tuple[str, ...]], ...] = (
    (Edition.TORCH, 2, 2, ("worker_failure",)),
    (Edition.TORCH, 2, 2, ("crash",)),
    (Edition.TORCH, 1, 2, ("job_end",)),
    (Edition.TORCH, 1, 1, ("worker_failure",)),
    (Edition.SEED, 1, 2, ()),
)
ROOMS: tuple[tuple[int, int, int, tuple[str, ...]], ...] = (
    (2, 1, 2, ("cut", "worker_failure")),
    (2, 2, 2, ("cut", "server_restart", "lost_tail", "departure")),
    (2, 1, 1, ("cut", "drain", "join_timeout")),
    (3, 2, 2, ("cut",)),
)
PASSES: tuple[tuple[AutogradEdition | Mode, str, tuple[str, ...]], ...] = (
    (AutogradEdition.TRYSTATE, "note", ALL),
    (AutogradEdition.TRYSTATE, "chain-3", ("error",)),
    (AutogradEdition.TRYSTATE, "joined", ("late",)),
    (Mode.SMART, "nested", ()),
)


def holders_refine(fine: Holders) -> Refinement:
    """Map every step of the finer system of two nodes, and look for it in the coarser one."""
    target = coarse(fine)
    return refines(fine, target, mapping(fine, target))


def rooms_refine(fine: Rooms) -> Refinement:
    """Map every step of a room, and look for it in the system in which a request is one step."""
    return refines(fine, *served(fine))


def pass_refinement(fine: Backward, attempt: int = 0) -> Refinement:
    """Map every step of a pass over one graph, and look for it in the system of a pass over any graph."""
    target = passes.coarse(fine)
    return refines(fine, target, passes.mapping(fine, target, attempt), several=True)


def _check(
    label: str, refine: Callable[[Any], Refinement], system: Callable[..., Any], faults: tuple[str, ...], **sizes: Any
) -> Check:
    def run(report: Callable[[str], None]) -> Outcome:
        started = time.perf_counter()
        seen = refine(system(faults=faults, **sizes))
        return Outcome(seen.fine_steps, "steps", seen.broken, time.perf_counter() - started)

    return Check(label + (f" with {', '.join(faults)}" if faults else ""), run)


REFINEMENTS: tuple[Check, ...] = (
    *(_check(f"state holders refine the rendezvous: 2 nodes, {low}:{high} {edition.name}", holders_refine, Holders,
             faults, node=2, min_nodes=low, max_nodes=high, rounds=2, edition=edition)
      for edition, low, high, faults in RUNS),
    *(_check(f"rooms refine the served rendezvous: {nodes} nodes, {low}:{high}", rooms_refine, Rooms,
             faults, node=nodes, min_nodes=low, max_nodes=high, rounds=2)
      for nodes, low, high, faults in ROOMS),
    *(_check(f"a backward pass refines that over any graph: {graph} {edition.name}", pass_refinement, Backward,
             faults, edition=edition, graph=NUMBER[graph])
      for edition, graph, faults in PASSES),
)  # fmt: skip
