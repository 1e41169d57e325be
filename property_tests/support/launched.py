"""Ranks as real processes, which meet over gloo on 127.0.0.1 as those of torchrun do: forked, and none imports torch.

The store is the one of torchrun: it outlives the processes, and those that are started again find in it what the ones
before have written.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, NoReturn

WAIT_SECONDS = 40.0  # for all ranks; those that are still there are killed


class Ended(NamedTuple):
    """A rank that has ended: its exit code, or minus the signal that killed it, and what it has printed."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Started:
    """The ranks of one group; `pids` by rank."""

    pids: list[int]
    folder: Path

    def ended(self, seconds: float = WAIT_SECONDS) -> list[Ended]:
        """All ranks, when all have ended.

        Raises:
            AssertionError: some had not in time, and were killed; the text has what they said.
        """
        codes: dict[int, int] = {}
        until, late = time.monotonic() + seconds, False
        while len(codes) < len(self.pids):
            for rank, pid in enumerate(self.pids):
                if rank not in codes:
                    if time.monotonic() > until:
                        if not late:
                            self._dump(codes)
                        late = True
                        os.kill(pid, signal.SIGKILL)
                    done, status = os.waitpid(pid, os.WNOHANG)
                    if done:
                        codes[rank] = os.waitstatus_to_exitcode(status)
            time.sleep(0.005)
        assert not late, [self.said(rank, "err") for rank in codes]
        return [Ended(code, self.said(rank, "out"), self.said(rank, "err")) for rank, code in sorted(codes.items())]

    def _dump(self, codes: Collection[int]) -> None:
        """Let the ranks that have not ended write where they are."""
        for rank, pid in enumerate(self.pids):
            if rank not in codes:
                os.kill(pid, signal.SIGUSR1)
        time.sleep(0.5)

    def said(self, rank: int, kind: str) -> str:
        """The text that a rank has printed so far, to `out` or `err`."""
        return (self.folder / f"{rank}.{kind}").read_text()


@contextmanager
def _forking() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of other threads, none of which holds a lock of ours
        yield


def _serve(writing: int) -> NoReturn:
    """In a process of its own, for a thread of the store may hold a lock when a rank is forked: be the store."""
    try:
        from torch._C._distributed_c10d import TCPStore

        store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        os.write(writing, str(store.port).encode())
        os.close(writing)
        parent = os.getppid()
        while os.getppid() == parent:
            time.sleep(1.0)
    finally:
        os._exit(0)


class Launcher:
    """Starts groups of ranks, one after the other, until `close`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._groups = 0
        reading, writing = os.pipe()
        with _forking():
            self._store = os.fork()
        if self._store == 0:
            _serve(writing)
        os.close(writing)
        self._port = int(os.read(reading, 10))
        os.close(reading)

    def close(self) -> None:
        """End the store."""
        os.kill(self._store, signal.SIGKILL)
        os.waitpid(self._store, 0)

    def start(self, count: int, do: Callable[[int], int]) -> Started:
        """Fork so many ranks: each does this, is given its rank, and ends with the exit code that it returns."""
        self._groups += 1
        folder = self._folder / f"group-{self._groups}"
        folder.mkdir()
        with _forking():
            pids = [os.fork() or self._rank(rank, count, folder, do) for rank in range(count)]
        return Started(pids, folder)

    def _rank(self, rank: int, count: int, folder: Path, do: Callable[[int], int]) -> int:
        """In the forked process; does not return."""
        code = 99
        try:
            for fd, kind in ((1, "out"), (2, "err")):
                os.dup2(os.open(folder / f"{rank}.{kind}", os.O_WRONLY | os.O_CREAT, 0o600), fd)
            sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
            faulthandler.register(signal.SIGUSR1, sys.stderr)  # where a rank hangs
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os.environ.update(
                RANK=str(rank), WORLD_SIZE=str(count), LOCAL_WORLD_SIZE=str(count), MASTER_ADDR="127.0.0.1",
                MASTER_PORT=str(self._port), TORCHELASTIC_USE_AGENT_STORE="True",
            )  # fmt: skip
            code = do(rank)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
