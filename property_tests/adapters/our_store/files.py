"""`Files` on our FileStore: each process of a job is one, and a record stops in its middle where the model's does.

Rule: the bytes of half a record are written by the store itself, whose write is cut short once; a disk that is full is
a limit on the size of the file; a process that dies is killed, and one that stops is stopped by the kernel.
"""

from __future__ import annotations

import os
import resource
import signal
import tempfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any

from trystate.impl.store.file.records import MAGIC, scan
from trystate.impl.store.file.replica import Replica
from trystate.model.groups.files import Address, Files
from trystate.model.groups.vocabulary import User
from trystate.model.language.sorts import ordinal

from ...harness.subjects import Disagreement
from ..torch_store.isolated import Child, Silence, silence

PATIENT_S = 60.0  # of an operation that is not to be late
BRIEF_S = 0.05  # of one that is; the lock is asked for during a second at least
HEARS_S = 60.0
HALF, DONE = "half", "returned"


class FilesSubject(AbstractContextManager["FilesSubject"]):
    """The processes of a job and of the next one; shows where each is, the records, and whether the file is whole."""

    def __init__(self, system: Files) -> None:
        self._world = system.sizes["process"]
        self._folder = tempfile.TemporaryDirectory()
        self._users: dict[int, Child] = {}
        self._files = 0
        self._steps: Mapping[str, Callable[..., None]] = {
            "open": self._open, "lock": self._lock, "write": self._write, "read": self._read, "close": self._close,
            "time_out": self._time_out, "no_address_comes": self._time_out, "lock_times_out": self._lock_times_out,
            "next_job": self._next_job, "die": self._die, "disk_full": self._disk_full, "stop": self._stop,
        }  # fmt: skip

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for process in list(self._users):
            self._end(process)
        self._folder.cleanup()

    def reset(self) -> None:
        """Another file, which no process has opened."""
        for process in list(self._users):
            self._end(process)
        self._files += 1
        self._path = Path(self._folder.name) / f"store{self._files}"
        self._job = 1
        self._phases = [User.AWAY] * self._world
        self._stale = [False] * self._world

    def perform(self, step: str, indices: tuple[int, ...]) -> None:
        self._steps[step](*indices)

    def can_refuse(self, step: str) -> bool:
        return False  # a process does what comes next

    def observe(self) -> Mapping[str, int]:
        """Where each process is, what it has read, the records, and whether the file ends with part of one."""
        data = self._path.read_bytes() if self._path.exists() else b""
        found = scan(data[len(MAGIC) :])
        replica = Replica()
        for record in found.records:
            replica.replay(record)
        seen = {"there": int(self._path.exists())}
        if User.WRITING not in self._phases:
            seen["torn"] = int(len(data) > len(MAGIC) + found.used)
        for j in range(self._world):
            value = replica.contents.values.get(self._key(j).encode())
            address = Address.NONE if value is None else Address.NEW if int(value) == self._job else Address.OLD
            seen |= {f"phase[{j}]": ordinal(self._phases[j]), f"address[{j}]": ordinal(address)}
            seen[f"stale[{j}]"] = int(self._stale[j])
        return seen

    # ---- steps

    def _key(self, process: int) -> str:
        return f"address{process}"

    def _asked(self, process: int, wanted: str, *words: Any) -> Any:
        """Tell a process something, and hear how it ended."""
        self._users[process].tell(words)
        said = self._users[process].hear(HEARS_S)
        if isinstance(said, Silence) or said[0] != wanted:
            raise Disagreement(f"process {process} was told {words[0]}, and said {said}, not {wanted}")
        return said[1]

    def _open(self, process: int) -> None:
        self._users[process] = Child(_user, str(self._path), self._world)
        self._asked(process, DONE, "open", PATIENT_S)
        self._phases[process] = User.OPEN

    def _lock(self, process: int) -> None:
        self._asked(process, HALF, "set", PATIENT_S, self._key(process), str(self._job))
        self._phases[process] = User.WRITING

    def _write(self, process: int) -> None:
        self._asked(process, DONE, "rest")
        self._phases[process] = User.WROTE

    def _read(self, process: int) -> None:
        values = self._asked(process, DONE, "get", PATIENT_S, [self._key(j) for j in range(self._world)])
        self._stale[process] = any(int(value) != self._job for value in values)
        self._phases[process] = User.READ

    def _close(self, process: int) -> None:
        self._asked(process, DONE, "close")
        self._over(process, User.LEFT)

    def _time_out(self, process: int) -> None:
        self._asked(process, "StoreTimeout", "get", BRIEF_S, [self._key(j) for j in range(self._world)])
        self._over(process, User.FAILED)

    def _lock_times_out(self, process: int) -> None:
        if self._phases[process] is User.AWAY:
            self._users[process] = Child(_user, str(self._path), self._world)
            self._asked(process, "StoreTimeout", "open", BRIEF_S)
        elif self._phases[process] is User.OPEN:
            self._asked(process, "StoreTimeout", "set", BRIEF_S, self._key(process), str(self._job))
        else:
            self._asked(process, DONE, "close")  # says good-bye in a thread, and raises nothing
        self._over(process, User.FAILED)

    def _next_job(self) -> None:
        for process in list(self._users):
            self._end(process)
        self._job += 1
        self._phases = [User.AWAY] * self._world

    def _die(self, process: int) -> None:
        self._over(process, User.DEAD)

    def _disk_full(self, process: int) -> None:
        self._asked(process, "StoreError", "full")
        self._over(process, User.FAILED)

    def _stop(self, process: int) -> None:
        os.kill(self._users[process].pid, signal.SIGSTOP)

    def _over(self, process: int, phase: User) -> None:
        """The process ends: in the model, one whose operation has raised does, and closes nothing."""
        self._end(process)
        self._phases[process] = phase

    def _end(self, process: int) -> None:
        with self._users.pop(process):
            pass


def _user(line: Connection, path: str, world: int) -> None:
    """In the child: do as told on a store of its own, and say how it ended."""
    from trystate.impl.store.errors import StoreError
    from trystate.impl.store.file.store import FileStore

    silence()
    write, is_cut = os.pwrite, False
    store: Any = None

    def pwrite(fd: int, data: memoryview, at: int) -> int:
        """Once after a set has begun: write half, say so, and go on when told."""
        nonlocal is_cut
        if not is_cut:
            return write(fd, data, at)
        is_cut = False
        half = write(fd, data[: len(data) // 2], at)
        line.send((HALF, None))
        if line.recv()[0] == "full":
            resource.setrlimit(resource.RLIMIT_FSIZE, (at + half, resource.RLIM_INFINITY))
        return half

    os.pwrite = pwrite  # type: ignore[assignment]
    while True:
        order, *words = line.recv()
        result = None
        try:
            if order == "close":
                store.close()
            else:
                timeout = timedelta(seconds=words[0])
                if order == "open":
                    store = FileStore(path, world, timeout)
                store.set_timeout(timeout)
                if order == "set":
                    is_cut = words[0] == PATIENT_S
                    store.set(*words[1:])
                elif order == "get":
                    result = [store.get(key).decode() for key in words[1]]
        except StoreError as error:
            line.send((type(error).__name__, None))
        else:
            line.send((DONE, result))
