"""Workers of torch.distributed.rpc in processes of their own, for passes of distributed autograd.

Rule: nothing of torch is rewritten, and nothing is asked of this process: what crashes or hangs does so in a child.
"""

from __future__ import annotations

import contextlib
import os
import resource
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any

from ..replays import ScheduleError
from ..torch_store.isolated import Child, Silence

WAIT_S = 60.0  # for anything that must happen: it takes well below a second on an idle machine
RPC_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Raised:
    """An exception of a function in a worker."""

    text: str


class Worker:
    """One worker: does what it is asked, each thing in a thread of its own."""

    def __init__(self, name: str, child: Child) -> None:
        self.name, self._child = name, child
        self._pid = child.hear(WAIT_S)
        if not isinstance(self._pid, int):
            raise ScheduleError(f"worker {name} did not find the others")
        self._asked = 0
        self._said: dict[int, Any] = {}

    def begins(self, function: Callable[..., Any], *arguments: object) -> int:
        """Ask it to call a function; returns a ticket for what comes of it."""
        self._asked += 1
        self._child.tell((self._asked, function, arguments))
        return self._asked

    def ends(self, ticket: int, seconds: float = WAIT_S) -> Any:
        """The outcome of a call: its result, `Raised`, or `Silence`: it goes on, or the worker has crashed."""
        until = time.monotonic() + seconds
        while ticket not in self._said:
            heard = self._child.hear(max(until - time.monotonic(), 0.0))
            if isinstance(heard, Silence):
                return heard
            number, outcome = heard
            self._said[number] = outcome
        return self._said.pop(ticket)

    def does(self, function: Callable[..., Any], *arguments: object) -> Any:
        """The result of a function there.

        Raises:
            ScheduleError: it does not return.
        """
        outcome = self.ends(self.begins(function, *arguments))
        if isinstance(outcome, Silence | Raised):
            raise ScheduleError(f"{function.__name__} on {self.name}: {outcome}")
        return outcome

    def shows(
        self, function: Callable[..., Any], expected: object, seconds: float = WAIT_S, *arguments: object
    ) -> bool:
        """Whether a function comes to return this there in time."""
        until = time.monotonic() + seconds
        while self.does(function, *arguments) != expected:
            if time.monotonic() > until:
                return False
            time.sleep(0.01)
        return True


class Group(AbstractContextManager["Group"]):
    """Workers A, B, C that have found each other; they are killed in the end.

    Raises:
        ScheduleError: they did not.
    """

    def __init__(self, names: str = "ABC", *, threads: int = 8, rpc_timeout_s: float = RPC_TIMEOUT_S) -> None:
        self._names, self._threads, self._timeout_s = names, threads, rpc_timeout_s

    def __enter__(self) -> Group:
        with ExitStack() as undo:
            folder = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="trystate-autograd-")))
            place = (folder / "store", self._threads, self._timeout_s)
            children = [undo.enter_context(Child(_work, self._names, rank, *place)) for rank in range(len(self._names))]
            self.workers = [Worker(name, child) for name, child in zip(self._names, children, strict=True)]
            self._undo = undo.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._undo.close()


def quieten() -> None:
    """In a child: what torch logs about what is brought about here is nobody's news, nor is a core file."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def _work(line: Connection, names: str, rank: int, store: Path, threads: int, rpc_timeout_s: float) -> None:
    quieten()
    os.environ["TP_SOCKET_IFNAME"] = "lo"
    from torch.distributed import rpc

    options = rpc.TensorPipeRpcBackendOptions(
        num_worker_threads=threads, rpc_timeout=rpc_timeout_s, init_method=f"file://{store}"
    )
    rpc.init_rpc(names[rank], rank=rank, world_size=len(names), rpc_backend_options=options)  # type: ignore[no-untyped-call]
    line.send(os.getpid())
    saying = threading.Lock()
    with contextlib.suppress(EOFError):
        while True:
            asked = line.recv()
            threading.Thread(target=_answer, args=(line, saying, *asked), daemon=True).start()


def _answer(
    line: Connection, saying: threading.Lock, ticket: int, function: Callable[..., Any], arguments: tuple[object, ...]
) -> None:
    try:
        outcome = function(*arguments)
    except Exception as error:
        outcome = Raised(str(error))
    with saying:
        line.send((ticket, outcome))
