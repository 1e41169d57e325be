"""Mutants of handlers: each must be caught by the swarm, within the first `SEEDS` seeds.

Rule: the engine is sound in all of them. The mistake is in the handler or its driver.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch.distributed.elastic.rendezvous import RendezvousInfo

from trystate.impl.rendezvous import driver
from trystate.impl.rendezvous.driver import KeepAlive
from trystate.impl.rendezvous.engine import Standing
from trystate.impl.rendezvous.errors import RendezvousError
from trystate.impl.rendezvous.handler import DynamicRendezvousHandler

from ...adapters.simulator.handlers import Run, sweep
from ..mutants import Mutant, planted, replaced

SEEDS, NODES = 400, 4  # few nodes: what these do wrong shows in any crowd
next_rendezvous = DynamicRendezvousHandler.next_rendezvous
standing = KeepAlive.standing


def _dying(self: KeepAlive) -> None:
    try:
        steps = self._engine.keep_alive(self._joined, until=(Standing.EXPELLED, Standing.CLOSED))
        self._end = driver.run(steps, self._holder, outage_seconds_max=0.0, look=self._look)
    except RendezvousError:
        return


def _remembering(self: DynamicRendezvousHandler, failed: bool = False) -> RendezvousInfo:
    info = next_rendezvous(self, failed)
    first: Any = vars(self).setdefault("_first", info.bootstrap_store_info)
    return RendezvousInfo(info.store, info.rank, info.world_size, first)


def _believing(self: KeepAlive) -> Standing:
    found = standing(self)
    return Standing.CURRENT if found is Standing.LAPSED else found


def _slamming(self: DynamicRendezvousHandler) -> bool:
    self._close("its agent has ended", anyway=True)
    return True


MUTANTS: Mapping[str, Mutant] = {
    "the thread of the heartbeats dies of an exception": replaced(KeepAlive, "_beat", _dying),
    "nobody ever waits": replaced(DynamicRendezvousHandler, "num_nodes_waiting", lambda self: 0),
    "the master of the first round is remembered": replaced(DynamicRendezvousHandler, "next_rendezvous", _remembering),
    "a lease that nobody looks at": replaced(KeepAlive, "standing", _believing),
    "whoever ends closes the rendezvous": replaced(DynamicRendezvousHandler, "shutdown", _slamming),
}


def caught(mutant: Mutant, seeds: int = SEEDS) -> Run | None:
    """The first run in which something is wrong."""
    with planted(mutant):
        return next((one for one in sweep(range(seeds), nodes=NODES) if one.fails), None)
