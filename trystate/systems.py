"""The protocols of PyTorch as systems: to check them, to draw them, to drive an implementation of your own by them.

    from trystate.systems import Rendezvous

    system = Rendezvous(edition=Rendezvous.Edition.TRYSTATE, node=2, min_nodes=2, max_nodes=2)

`trystate verify --help` names them for the command line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trystate.model.agent import Agents
    from trystate.model.agent.ranks import Ranks
    from trystate.model.autograd.backward import Backward
    from trystate.model.autograd.contexts import Contexts
    from trystate.model.autograd.ids import Ids
    from trystate.model.autograd.meeting import Meetings
    from trystate.model.autograd.optimizer import Optimizers
    from trystate.model.autograd.references import References
    from trystate.model.autograd.tombstones import Tombstones
    from trystate.model.groups.creation import Groups
    from trystate.model.groups.exchange import Exchanges
    from trystate.model.groups.files import Files
    from trystate.model.groups.reconfigure import Reconfigure
    from trystate.model.groups.registry import Registry
    from trystate.model.nvrx.barrier import NvrxBarrier
    from trystate.model.rendezvous import Rendezvous
    from trystate.model.rendezvous.deadlines import Deadlines
    from trystate.model.rendezvous.holder import Holders
    from trystate.model.rendezvous.hosting import SharedEndpoints
    from trystate.model.rendezvous.rooms import Rooms
    from trystate.model.rendezvous.served import Served
    from trystate.model.rendezvous.successive import SuccessiveJobs
    from trystate.model.store.barriers import Barriers
    from trystate.model.store.frames import Frames
    from trystate.model.store.handshake import Handshake
    from trystate.model.store.queues import Queues
    from trystate.model.store.registers import Registers
    from trystate.model.store.registrations import Registrations
    from trystate.model.store.startup import StartUps
    from trystate.model.store.waits import Waits
    from trystate.model.store.watches import Watches
    from trystate.model.torchft.lighthouse import Lighthouse
    from trystate.model.torchft.manager import Managers
else:
    from .lazy import lazily

    __getattr__, __dir__ = lazily(__name__)

__all__ = [
    "Agents", "Backward", "Barriers", "Contexts", "Deadlines", "Exchanges", "Files", "Frames",
    "Groups", "Handshake", "Holders", "Ids", "Lighthouse", "Managers", "Meetings", "NvrxBarrier", "Optimizers",
    "Queues", "Ranks", "Reconfigure", "References", "Registers", "Registrations", "Registry", "Rendezvous", "Rooms",
    "Served", "SharedEndpoints", "StartUps", "SuccessiveJobs", "Tombstones", "Waits", "Watches",
]  # fmt: skip
