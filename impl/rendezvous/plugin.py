"""`torchrun --rdzv-backend=trystate`: the entry point of torch's group `torchrun.handlers`.

Rule: torch imports this for every torchrun, whatever its backend. So it imports nothing else until it is used, or until
TRYSTATE_RECORD requests a record of that torchrun's events.
"""

from __future__ import annotations

import inspect
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousHandlerCreator, RendezvousParameters

    from .command import Command


def creator() -> RendezvousHandlerCreator:
    """The function that makes a handler; torch finds it by the name in the project's metadata."""
    if os.environ.get("TRYSTATE_RECORD"):
        from .event_file import begin

        try:
            begin()
        except Exception as error:  # the job continues without a record
            print(f"trystate: no events are recorded: {error}", file=sys.stderr)
    return create


def create(params: RendezvousParameters) -> RendezvousHandler:
    """The handler of one node. Raises RendezvousSettingsError, RendezvousConnectionError."""
    from .command import UNKNOWN
    from .events import log_to_stderr
    from .handler import DynamicRendezvousHandler

    runs = launched(params)
    if runs is not None:  # any other program has its own loggers
        log_to_stderr()
    handler = DynamicRendezvousHandler.of(params, runs or UNKNOWN)
    handler.for_launcher = runs is not None
    return handler


def launched(params: RendezvousParameters) -> Command | None:
    """The command that the launcher, torch's `launch_agent`, is to run for these parameters; None: no launcher calls.

    torchrun, `python -m torch.distributed.launch`, accelerate's launchers and programs that call `elastic_launch` call
    `launch_agent`, which requests a handler without passing the command. So its frame is read, and not changed. A
    program that makes an agent by itself is not a launcher.
    """
    from torch.distributed.launcher import api

    from ..store.lives import call_of
    from .command import Command

    # A program may have replaced torch's function by an object that has no code; then no call is found.
    frame = call_of(getattr(inspect.unwrap(api.launch_agent), "__code__", None))
    if frame is None:
        return None
    config, entrypoint, args = (frame.f_locals.get(name) for name in ("config", "entrypoint", "args"))
    if not isinstance(config, api.LaunchConfig) or config.run_id != params.run_id or entrypoint is None:
        return None
    return Command.of(params.run_id, entrypoint, list(args or ()), config.nproc_per_node)
