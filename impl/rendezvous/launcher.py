"""The launcher that makes a rendezvous handler: torch's `launch_agent`, and the command that it is to run.

torchrun, `python -m torch.distributed.launch`, accelerate's launchers and programs that call `elastic_launch` come
to torch's `launch_agent`, which asks for a handler and passes nothing of the command. So its frame is read.

Rule: nothing is changed in the frame, and a program that makes an agent by itself is not a launcher.
"""

from __future__ import annotations

import sys
from types import FrameType

from torch.distributed.elastic.rendezvous import RendezvousParameters
from torch.distributed.launcher.api import LaunchConfig

from .command import Command

CALLS = ("torch.distributed.launcher.api", "launch_agent")  # the module and the function
FRAMES_MAX = 1000  # Python's own limit of recursion


def command(params: RendezvousParameters) -> Command | None:
    """The command of the launcher that calls this for these parameters; None: no launcher does."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(FRAMES_MAX):
        if frame is None:
            return None
        if (frame.f_globals.get("__name__"), frame.f_code.co_name) == CALLS:
            return _command(frame, params)
        frame = frame.f_back
    return None


def _command(frame: FrameType, params: RendezvousParameters) -> Command | None:
    config, entrypoint, args = (frame.f_locals.get(name) for name in ("config", "entrypoint", "args"))
    if not isinstance(config, LaunchConfig) or config.run_id != params.run_id or entrypoint is None:
        return None
    return Command.of(params.run_id, entrypoint, list(args or ()), config.nproc_per_node)
