"""The rendezvous: how the members of a group find each other, by a URL or as the nodes of an elastic job.

`register()` teaches torch the schemes `trystate-env://` and `trystate-tcp://`:

    import torch.distributed as dist
    from trystate import rendezvous

    rendezvous.register()
    dist.init_process_group("gloo", init_method="trystate-tcp://10.0.0.1:29500", rank=rank, world_size=4)

`torchrun --rdzv-backend=trystate` needs no program at all: `docs/deploy.md`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trystate.impl.rendezvous.backend import Backend
    from trystate.impl.rendezvous.command import Command
    from trystate.impl.rendezvous.endpoint import Endpoint
    from trystate.impl.rendezvous.engine import Standing
    from trystate.impl.rendezvous.errors import *
    from trystate.impl.rendezvous.handler import DynamicRendezvousHandler
    from trystate.impl.rendezvous.options import Options
    from trystate.impl.rendezvous.rooms.messages import Summary
    from trystate.impl.rendezvous.state import Node, Settings, State
    from trystate.impl.store.urls import register
else:
    from .lazy import lazily

    __getattr__, __dir__ = lazily(__name__)

__all__ = [
    "Backend", "Command", "DynamicRendezvousHandler", "Endpoint", "Interrupted", "Node", "NotNeeded",
    "Options", "RendezvousClosedError", "RendezvousConnectionError", "RendezvousDrained", "RendezvousError",
    "RendezvousSettingsError", "RendezvousStateError", "RendezvousTimeoutError", "Settings", "Standing", "State",
    "Summary", "register",
]  # fmt: skip
