"""The stores' models (edition SEED) replayed on the daemons of torch 1.9, as `trystate verify` runs them.

Rule: if a send to a closed connection fails, the daemon does not notify the watchers after that connection in its
table. The model's table has no order, so the model notifies all. So a case in which connections end has one client.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from trystate.model.store.frames import Frames
from trystate.model.store.registers import Registers
from trystate.model.store.startup import StartUps
from trystate.model.store.vocabulary import Edition
from trystate.model.store.waits import Waits
from trystate.model.store.watches import Watches

from ...harness.checks import Check, Outcome
from ...harness.paths import replay_systems
from ..our_store.conformance import Case, Report, checks
from ..our_store.lines import Server
from .edges import MasterProcess, OverTcp19, SeedRegisters, SeedStartUps, SeedWaits, SeedWatches
from .frames import SeedFrames

SEED = Edition.SEED
EDGES_MAX = 2_500  # limit of a case, because an edge takes a few round trips
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
    """Replay the edges of each case, at most about `edges_max` edges of each."""
    return replay_systems((case.build() for case in cases), on_daemons, report, edges_max, repeats=True)


@contextmanager
def on_daemons(system: Any) -> Iterator[Any]:
    """The subject of a system, on its own daemons."""
    if isinstance(system, StartUps | Frames):
        with closing(SeedStartUps(system) if isinstance(system, StartUps) else SeedFrames(system)) as subject:
            yield subject
    else:
        with MasterProcess() as server, OverTcp19(server.port) as lines:
            yield subject_of(system, lines)


def subject_of(system: Any, server: Server) -> SeedRegisters | SeedWaits | SeedWatches:
    """The clients of a system, on a master daemon."""
    if isinstance(system, Registers):
        return SeedRegisters(system, server)
    return SeedWaits(system, server) if isinstance(system, Waits) else SeedWatches(system, server)


CHECKS: tuple[Check, ...] = tuple(checks("torch 1.9's daemons", CASES, replay))
