"""The servers on which a script can run: torch's and ours, each in a separate process.

Rule: a server is not in the process of a client, since torch's `list_keys` and `queue_len` block the interpreter.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import socket
import time
from contextlib import AbstractContextManager
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, ClassVar

from trystate.impl.store.tcp_server import TCPStoreServer

from ..replays import ScheduleError
from .isolated import Child, silence

HOST = "127.0.0.1"
START_S = 60.0  # limit for a process that imports torch, on a busy machine
STILL = frozenset("TtZX")  # states of a thread that does not run (`man proc_pid_stat`)


def free_port() -> int:
    """A port on which no socket listens."""
    with socket.create_server((HOST, 0)) as found:
        return int(found.getsockname()[1])


def freeze(pid: int) -> None:
    """Stop a process, and wait until all its threads have stopped."""
    os.kill(pid, signal.SIGSTOP)
    ends = time.monotonic() + START_S
    while not all(_state(thread) in STILL for thread in Path(f"/proc/{pid}/task").iterdir()):
        if time.monotonic() > ends:
            raise ScheduleError(f"process {pid} was signalled to stop, and still runs after {START_S:g} s")
        time.sleep(0.001)


def _state(thread: Path) -> str:
    try:
        return (thread / "stat").read_text(encoding="ascii", errors="replace").rpartition(") ")[2][0]
    except (FileNotFoundError, ProcessLookupError):  # it has just ended
        return "X"


class Server(AbstractContextManager["Server"]):
    """A server on a free port of 127.0.0.1, and clients of its library."""

    library: ClassVar[str] = "torch.distributed"  # the library whose TCPStore its clients and masters use
    kind: ClassVar[str]
    port: int
    pid: int

    def client(self, timeout_s: float = 5.0) -> Any:
        """A connected client."""
        make = importlib.import_module(self.library).TCPStore
        return make(HOST, self.port, None, False, timedelta(seconds=timeout_s), False)

    def freeze(self) -> None:
        """Stop the process: its sockets remain open, and no request is answered."""
        freeze(self.pid)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """Kill the process; the kernel closes or resets its connections."""
        raise NotImplementedError

    def close(self) -> None:
        """End the process in any state, also frozen or dead."""
        raise NotImplementedError

    def __exit__(self, *_: object) -> None:
        self.close()


class TorchServer(Server):
    """torch's server; it dies with this process.

    Raises:
        ScheduleError: it did not start.
    """

    kind = "libuv"
    method: ClassVar[str] = "forkserver"  # the start method of its process

    def __init__(self) -> None:
        self._child = Child(_serve, self.kind, method=self.method)
        self.pid = self._child.pid
        port = self._child.hear(START_S)
        if not isinstance(port, int):
            self.close()
            raise ScheduleError(f"torch's {self.kind} server did not start: {port}")
        self.port = port

    def kill(self) -> None:
        self._child.kill()

    def close(self) -> None:
        self._child.__exit__()


def _serve(line: Connection, backend: str) -> None:
    """In the child: serve until the other end of the line is closed."""
    from torch._C._distributed_c10d import TCPStore as TorchTCPStore

    # torch looks up the name of every peer in its only thread. By glibc's defaults, a missing answer takes 10 s.
    os.environ["RES_OPTIONS"] = "timeout:1 attempts:1"
    silence()  # torch warns about peers that misbehave
    store = TorchTCPStore(HOST, 0, None, True, timedelta(seconds=300), False, use_libuv=backend == "libuv")
    line.send(store.port)
    with contextlib.suppress(EOFError):
        line.recv()


class TorchLegacyServer(TorchServer):
    """torch's server of `use_libuv=False`."""

    kind = "legacy"


class OurServer(Server):
    """Our server, and torch's clients."""

    kind = "ours"

    def __init__(self) -> None:
        self._server = TCPStoreServer()
        self.port, self.pid = self._server.port, self._server.pid

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)

    def close(self) -> None:
        if self._server.running:
            self.thaw()
        self._server.close()


class OurServerAndClients(OurServer):
    """Our server, and our clients."""

    library = "trystate.store"
