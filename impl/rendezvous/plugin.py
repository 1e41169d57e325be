"""`torchrun --rdzv-backend=trystate`: the entry point of torch's group `torchrun.handlers`.

Rule: torch imports this for every torchrun, whatever its backend, so that it imports nothing more until it is used, or
until TRYSTATE_RECORD asks for a record of that torchrun's events.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousHandlerCreator, RendezvousParameters


def creator() -> RendezvousHandlerCreator:
    """The function that makes a handler; torch asks for it by the name in the project's metadata."""
    if os.environ.get("TRYSTATE_RECORD"):
        from .event_file import begin

        try:
            begin()
        except Exception as error:  # the job goes on without
            print(f"trystate: no events are recorded: {error}", file=sys.stderr)
    return create


def create(params: RendezvousParameters) -> RendezvousHandler:
    """The handler of one node. Raises RendezvousSettingsError, RendezvousConnectionError."""
    from .command import UNKNOWN
    from .events import log_to_stderr
    from .handler import DynamicRendezvousHandler
    from .launcher import command

    runs = command(params)
    if runs is not None:  # any other program has loggers of its own
        log_to_stderr()
    handler = DynamicRendezvousHandler.of(params, runs or UNKNOWN)
    handler.for_launcher = runs is not None
    return handler
