"""The servers that a scenario may run on: torch's, and ours, each in a process of its own.

Rule: never in the process of a client: torch's `list_keys` and `queue_len` hold the interpreter lock while they wait.
"""

from __future__ import annotations

import importlib
import os
import select
import signal
import subprocess
import sys
from contextlib import AbstractContextManager
from datetime import timedelta
from types import TracebackType
from typing import Any, ClassVar

from trystate.impl.store import TCPStoreServer

from ..replays import ScheduleError

HOST = "127.0.0.1"
START_S = 60.0  # for a process that imports torch, on a busy machine
_SERVE = """
import sys, torch.distributed as dist
from datetime import timedelta
store = dist.TCPStore("127.0.0.1", 0, None, True, timedelta(seconds=300), False, use_libuv=sys.argv[1] == "libuv")
print(store.port, flush=True)
sys.stdin.read()
"""


def freeze(pid: int) -> None:
    """Stop a child; returns when all its threads have stopped, which is some time after the signal."""
    os.kill(pid, signal.SIGSTOP)
    os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)


class Server(AbstractContextManager["Server"]):
    """A server on a free port of 127.0.0.1, and the clients that are under test with it."""

    library: ClassVar[str] = "torch.distributed"  # whose TCPStore its clients and masters are
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

    def __init__(self) -> None:
        # torch looks up the name of every peer in its only thread: without an answer, for 10 s as glibc is set up.
        environment = {**os.environ, "TORCH_CPP_LOG_LEVEL": "FATAL", "RES_OPTIONS": "timeout:1 attempts:1"}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SERVE, self.backend], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True, env=environment,
        )  # fmt: skip
        self.pid = self._process.pid
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], START_S)
        line = self._process.stdout.readline() if ready else ""
        if not line.strip().isdigit():
            self.close()
            raise ScheduleError(f"torch's {self.backend} server did not start: {line!r}")
        self.port = int(line)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        if self._process.poll() is None:
            self.thaw()
            self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


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

    library = "trystate.impl.store"
