"""The command of torchrun: torch tells a rendezvous handler nothing of it, so this reads torchrun's command line.

A program that calls torch's `elastic_launch` itself has no such command line: its command is not known here.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from torch.distributed.elastic.rendezvous import RendezvousParameters

from .command import Command

PROGRAMS = ("torchrun", "torch.distributed.run")  # as a command, and as a module


class _NotTorchrun(Exception):
    """This process is not the torchrun that these parameters come from."""


def command(params: RendezvousParameters) -> Command | None:
    """The command of this process's torchrun; None: it is no torchrun, or not the one of these parameters."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if not {getattr(spec, "name", ""), os.path.splitext(os.path.basename(sys.argv[0]))[0]}.intersection(PROGRAMS):
        return None
    try:
        return _command(sys.argv[1:], params)
    except (_NotTorchrun, SystemExit, ValueError):
        return None


def _command(argv: list[str], params: RendezvousParameters) -> Command:
    from torch.distributed.run import determine_local_world_size, get_args_parser, run_script_path

    parser = get_args_parser()
    parser.error = _refuse  # type: ignore[method-assign]
    said = parser.parse_args(argv)
    if (said.rdzv_id, said.rdzv_backend, said.rdzv_endpoint) != (params.run_id, params.backend, params.endpoint):
        raise _NotTorchrun
    entrypoint = run_script_path if said.run_path else said.training_script if said.no_python else "python"
    script = [] if said.no_python and not said.run_path else [said.training_script]
    nproc = determine_local_world_size(said.nproc_per_node)
    return Command.of(params.run_id, entrypoint, [*script, *said.training_script_args], nproc)


def _refuse(message: str) -> NoReturn:
    raise _NotTorchrun(message)
