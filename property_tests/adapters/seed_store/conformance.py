"""The stores' models (edition SEED) replayed on the daemons of torch 1.9, as `trystate verify` runs them.

Rule: a daemon whose send to a closed connection fails tells no watcher that stands after it in its table. The model,
whose table has no order, says that it tells all: where connections end, a case has one client.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

from trystate.model.store.frames import Frames
from trystate.model.store.registers import Registers
from trystate.model.store.startup import StartUps
from trystate.model.store.vocabulary import Edition
from trystate.model.store.waits import Waits
from trystate.model.store.watches import Watches

from ...harness.checks import Check, Outcome
from ...harness.paths import replay_every_edge
from ..our_store.conformance import Case, Report
from ..our_store.lines import Server
from .edges import MasterProcess, OverTcp19, SeedRegisters, SeedStartUps, SeedWaits, SeedWatches
from .frames import SeedFrames

SEED = Edition.SEED
SAMPLE_EDGES = 100
EDGES_MAX = 2_500  # of a case: an edge is a few round trips
CASES = (
    Case(Waits, SEED, {"client": 1, "deletes": 0, "compares": 0}),
    Case(Waits, SEED, {"client": 1, "key": 1}, ("drop",)),
    Case(Watches, SEED, {"key": 1, "writes": 2}),
    Case(Watches, SEED, {"client": 1, "key": 2, "writes": 2}, ("again",)),
    Case(Watches, SEED, {"client": 1, "key": 2, "writes": 2}, ("another",)),
    Case(Watches, SEED, {"client": 1, "key": 1, "writes": 3}, ("leave", "newcomer", "wait")),
    Case(Watches, SEED, {"client": 1, "key": 1, "writes": 3}, ("drop",)),
    Case(StartUps, SEED, {"client": 2}, ("again", "overwrite")),
    Case(StartUps, SEED, {"client": 2}, ("crash", "stop")),
    Case(StartUps, SEED, {"client": 2}, ("crash", "patience", "stop")),
    Case(StartUps, SEED, {"client": 3}),
    Case(Frames, SEED, {"connection": 1}),
    Case(Frames, SEED, {"connection": 2}),
    Case(Registers, SEED, {"client": 1}, ("drop",)),
    Case(Registers, SEED, {"value": 1}),
)


def replay(cases: tuple[Case, ...], report: Report, edges_max: int | None = EDGES_MAX) -> Outcome:
    """Replay the edges of each case, at most about `edges_max` of each."""
    started = time.perf_counter()
    edges = of = 0
    disagreements: list[str] = []
    for case in cases:
        report(f"replaying {case}")
        with ExitStack() as stack:
            system, subject = made(case, stack)
            seen = replay_every_edge(system, subject, edges_max=edges_max, report=report)
        edges, of = edges + seen.edges, of + seen.edges_of_all
        disagreements += [f"{case}: {text}" for text in seen.disagreements]
    return Outcome(edges, "edges", tuple(disagreements), time.perf_counter() - started, of)


def made(case: Case, stack: ExitStack) -> tuple[Any, Any]:
    """The system of a case, and its subject."""
    system = case.build()
    if isinstance(system, StartUps | Frames):
        subject = SeedStartUps(system) if isinstance(system, StartUps) else SeedFrames(system)
        stack.callback(subject.close)
        return system, subject
    server = stack.enter_context(OverTcp19(stack.enter_context(MasterProcess()).port))
    return system, subject_of(system, server)


def subject_of(system: Any, server: Server) -> SeedRegisters | SeedWaits | SeedWatches:
    """The clients of a system, on a master daemon."""
    if isinstance(system, Registers):
        return SeedRegisters(system, server)
    return SeedWaits(system, server) if isinstance(system, Waits) else SeedWatches(system, server)


def _checks() -> Iterator[Check]:
    for system in dict.fromkeys(case.system for case in CASES):
        whole = partial(replay, tuple(case for case in CASES if case.system is system))
        yield Check(f"{system.__name__.lower()} on torch 1.9's daemons", whole, partial(whole, edges_max=SAMPLE_EDGES))


CHECKS: tuple[Check, ...] = tuple(_checks())
