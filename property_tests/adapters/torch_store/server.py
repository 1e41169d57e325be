"""The servers that a scenario may run on: torch's, and ours, each in a process of its own.

Rule: never in the process of a client: torch's `list_keys` and `queue_len` hold the interpreter lock while they wait.
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
from types import TracebackType
from typing import Any, ClassVar

from trystate.impl.store.tcp_server import TCPStoreServer

from ..replays import ScheduleError
from .isolated import Child, silence

HOST = "127.0.0.1"
START_S = 60.0  # for a process that imports torch, on a busy machine
STILL = frozenset("TtZX")  # states of a thread that does nothing more (`man proc_pid_stat`)


def free_port() -> int:
    """A port that nothing listens at."""
    with socket.create_server((HOST, 0)) as found:
        return int(found.getsockname()[1])


def freeze(pid: int) -> None:
    """Stop a process; returns when all its threads have stopped, which is some time after the signal."""
    os.kill(pid, signal.SIGSTOP)
    ends = time.monotonic() + START_S
    while not all(_state(thread) in STILL for thread in Path(f"/proc/{pid}/task").iterdir()):
        if time.monotonic() > ends:
            raise ScheduleError(f"process {pid} was told to stop, and still runs after {START_S:g} s")
        time.sleep(0.001)


def _state(thread: Path) -> str:
    try:
        return (thread / "stat").read_text(encoding="ascii", errors="replace").rpartition(") ")[2][0]
    except (FileNotFoundError, ProcessLookupError):  # it has just ended
        return "X"


class Server(AbstractContextManager["Server"]):
    """A server on a free port of 127.0.0.1, and the clients that are under test with it."""

    library: ClassVar[str] = "torch.distributed"  # the library of its clients' and masters' TCPStore
    port: int
    pid: int

    def client(self, timeout_s: float = 5.0) -> Any:
        """A client, connected."""
        make = importlib.import_module(self.library).TCPStore
        return make(HOST, self.port, None, False, timedelta(seconds=timeout_s), False)

    def freeze(self) -> None:
        """Stop the process: its sockets stay open and nothing is answered."""
        freeze(self.pid)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """End the process at once; its connections are reset or closed by the kernel."""
        raise NotImplementedError

    def close(self) -> None:
        """End it in any case, frozen or dead."""
        raise NotImplementedError

    def resident_bytes(self) -> int:
        """The memory that the process occupies now (`/proc/PID/statm`)."""
        with open(f"/proc/{self.pid}/statm", encoding="ascii") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class TorchServer(Server):
    """torch's server; it dies with this process.

    Raises:
        ScheduleError: it did not start.
    """

    backend: ClassVar[str] = "libuv"
    method: ClassVar[str] = "forkserver"  # how its process begins

    def __init__(self) -> None:
        self._child = Child(_serve, self.backend, method=self.method)
        self.pid = self._child.pid
        port = self._child.hear(START_S)
        if not isinstance(port, int):
            self.close()
            raise ScheduleError(f"torch's {self.backend} server did not start: {port}")
        self.port = port

    def kill(self) -> None:
        self._child.kill()

    def close(self) -> None:
        self._child.__exit__(None, None, None)


def _serve(line: Connection, backend: str) -> None:
    """In the child: serve until the other end of the line is closed."""
    from torch._C._distributed_c10d import TCPStore as TorchTCPStore

    # torch looks up the name of every peer in its only thread: without an answer, for 10 s as glibc is set up.
    os.environ["RES_OPTIONS"] = "timeout:1 attempts:1"
    silence()  # torch's warnings about peers that misbehave are not for the reader here
    store = TorchTCPStore(HOST, 0, None, True, timedelta(seconds=300), False, use_libuv=backend == "libuv")
    line.send(store.port)
    with contextlib.suppress(EOFError):
        line.recv()


class TorchLegacyServer(TorchServer):
    """torch's server of `use_libuv=False`."""

    backend = "legacy"


class OurServer(Server):
    """Our server, and torch's clients."""

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
