"""The script of each finding of torch's TCPStore, played to any server: torch's, ours or a user's.

Rule: the server runs unmodified in a separate process. A script starts torch's server; here it uses the given server,
and the clients of that server's library.
"""

from __future__ import annotations

import importlib
import io
import os
import runpy
import signal
import sys
from collections.abc import Mapping
from functools import partial
from importlib.metadata import version
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

from trystate.model import releases
from trystate.model.checker.expectations import Finding
from trystate.model.store.findings import FINDINGS

from ..adapters.replays import Observation, Say, ScheduleError
from ..adapters.torch_release import NotInRelease
from ..adapters.torch_store.isolated import Child, silence
from ..adapters.torch_store.server import Server, TorchLegacyServer, TorchServer
from . import SECONDS_MAX, script

LEGACY = {"compare-set-wakes-nobody", "half-request-blocks"}  # findings of torch's legacy server


class StoreSchedule(Protocol):
    """A schedule for any server; without `serve`, for the server of torch that has the finding."""

    def __call__(self, say: Say, *, benign: bool = False, serve: type[Server] | None = None) -> Observation: ...


def _schedule(finding: Finding, say: Say, *, benign: bool = False, serve: type[Server] | None = None) -> Observation:
    installed, path, text = version("torch"), script(finding), ""
    if (absence := releases.absence(installed, finding)) and not releases.is_over(installed, finding):
        raise NotInRelease(absence)
    kind = serve or (TorchLegacyServer if finding.name in LEGACY else TorchServer)
    with kind() as server, Child(_play, path, benign, server.library, server.port, server.pid) as child:
        while isinstance(more := child.hear(SECONDS_MAX), str):
            text += more
    for line in (lines := text.splitlines()):
        say(line)
    result, _, claim = lines[-1].partition(": ") if lines else ("", "", "")
    if result not in ("reproduced", "not reproduced"):
        raise ScheduleError(f"{path.name} ended without a result on the server of kind {kind.__name__}: {text}")
    is_violated = result == "reproduced"
    verdict = f"{'violated' if is_violated else 'held in this run'}: {claim}"
    return Observation(is_violated, tuple(lines[:-1]), verdict)


def _play(line: Connection, path: Path, benign: bool, library: str, port: int, pid: int) -> None:
    """In the child: run the script on the server at this port, and send what it prints."""

    class Sent(io.StringIO):
        def write(self, text: str) -> int:
            line.send(text)
            return len(text)

    def serve(self: Any, **options: Any) -> None:
        self.options, self.port, self.pid = {}, port, pid

    silence()
    sys.stdout = sys.stderr = Sent()  # the traceback of a script that fails is part of the text
    sys.argv = [str(path), *["--control"] * benign]
    sys.path.insert(0, str(path.parent))
    stores: Any = importlib.import_module("stores")
    stores.Server.__init__ = serve
    kill = partial(os.kill, pid, signal.SIGKILL)
    stores.served_apart = lambda: (SimpleNamespace(pid=pid, kill=kill, join=lambda: None), port)
    stores.dist.TCPStore = importlib.import_module(library).TCPStore
    runpy.run_path(str(path))


SCHEDULES: Mapping[str, StoreSchedule] = {
    name: partial(_schedule, finding) for name, finding in FINDINGS.items() if script(finding).is_file()
}
"""The script that shows each finding of the stores: a function that plays it to any server."""
