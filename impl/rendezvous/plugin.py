"""`torchrun --rdzv-backend=trystate`: the entry point of torch's group `torchrun.handlers`.

Rule: torch imports this for every torchrun, whatever its backend, so that it imports nothing more until it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousHandlerCreator, RendezvousParameters


def creator() -> RendezvousHandlerCreator:
    """What makes a handler; torch asks for it by the name in the project's metadata."""
    return create


def create(params: RendezvousParameters) -> RendezvousHandler:
    """The handler of one node. Raises RendezvousSettingsError, RendezvousConnectionError."""
    from .handler import DynamicRendezvousHandler
    from .torchrun import command

    return DynamicRendezvousHandler.of(params, command(params))
