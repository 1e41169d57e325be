"""The finer systems that must refine a coarser one, as checks that `trystate verify` runs."""

from __future__ import annotations

import time
from collections.abc import Callable

from trystate.model.checker.refinement import refines
from trystate.model.rendezvous.holder import Holders
from trystate.model.rendezvous.refinement import coarse, mapping
from trystate.model.rendezvous.vocabulary import Edition

from ..harness.checks import Check, Outcome

RUNS: tuple[tuple[Edition, int, int, tuple[str, ...]], ...] = (
    (Edition.TORCH, 2, 2, ("worker_failure",)),
    (Edition.TORCH, 2, 2, ("crash",)),
    (Edition.TORCH, 1, 2, ("job_end",)),
    (Edition.TORCH, 1, 1, ("worker_failure",)),
    (Edition.SEED, 1, 2, ()),
)


def refinement(edition: Edition, low: int, high: int, faults: tuple[str, ...]) -> Outcome:
    """Map every step of the finer system of two nodes, and look for it in the coarser one."""
    started = time.perf_counter()
    fine = Holders(node=2, min_nodes=low, max_nodes=high, rounds=2, edition=edition, faults=faults)
    target = coarse(fine)
    seen = refines(fine, target, mapping(fine, target))
    return Outcome(seen.fine_steps, "steps", seen.broken, time.perf_counter() - started)


def _check(edition: Edition, low: int, high: int, faults: tuple[str, ...]) -> Check:
    def run(report: Callable[[str], None]) -> Outcome:
        return refinement(edition, low, high, faults)

    with_faults = f" with {', '.join(faults)}" if faults else ""
    return Check(f"state holders refine the rendezvous: 2 nodes, {low}:{high} {edition.name}{with_faults}", run)


REFINEMENTS: tuple[Check, ...] = tuple(_check(*run) for run in RUNS)
