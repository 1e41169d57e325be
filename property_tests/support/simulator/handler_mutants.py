"""Mutants of handlers: each must be caught by the swarm, within the first `SEEDS` seeds.

Rule: the engine is correct in all of them. The mistake is in the handler or its driver.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from torch.distributed.elastic.rendezvous import RendezvousInfo

from trystate.impl.rendezvous import driver
from trystate.impl.rendezvous.driver import KeepAlive
from trystate.impl.rendezvous.handler import DynamicRendezvousHandler
from trystate.impl.rendezvous.rooms.part import RoomPart
from trystate.impl.rendezvous.rooms.room import Room

from ...adapters.simulator.handlers import OURS
from ...adapters.simulator.swarm import Run, Subject, sweep
from ..mutants import Mutant, planted, replaced, rewritten, together

SEEDS, NODES = 400, 4  # few nodes: these mistakes show in a run of any size
next_rendezvous = DynamicRendezvousHandler.next_rendezvous


def _remembering(self: DynamicRendezvousHandler, failed: bool = False) -> RendezvousInfo:
    info = next_rendezvous(self, failed)
    first: Any = vars(self).setdefault("_first", info.bootstrap_store_info)
    return RendezvousInfo(info.store, info.rank, info.world_size, first)


MUTANTS: Mapping[str, Mutant] = {
    "the thread of the heartbeats dies of an exception": together(
        rewritten(KeepAlive._beat, "self._holder.pause(RETRY_SECONDS_MAX)", "return"),
        replaced(driver, "math", SimpleNamespace(inf=0.0)),  # an error at once if the store is away
    ),
    "nobody ever waits": replaced(DynamicRendezvousHandler, "num_nodes_waiting", lambda self: 0),
    "the master of the first round is remembered": replaced(DynamicRendezvousHandler, "next_rendezvous", _remembering),
    "a lease that nobody looks at": rewritten(KeepAlive.standing, "self._holder.clock()", "0.0"),
    "whoever ends closes the rendezvous": rewritten(
        DynamicRendezvousHandler.shutdown,
        'return self.close("its agent has ended")',
        "return self.set_closed() or True",
    ),
}
IN_ROOMS: Mapping[str, Mutant] = {
    "a lease that no node looks at": rewritten(RoomPart.standing, "(self.clock())", "(0.0)"),
    "a round that does not wait for expected nodes": rewritten(
        Room._set_due, "t.calling and not t.expected", "t.calling"
    ),
}


def caught(mutant: Mutant, subject: Subject = OURS) -> Run | None:
    """The first run in which something is wrong."""
    with planted(mutant):
        return next((one for one in sweep(range(SEEDS), subject, NODES) if one.fails), None)
