"""`Files` on our FileStore: each process of a job is a real process, and writes a record in the model's two steps.

Rule: the store itself writes the bytes of half a record, because its write is cut short once. A full disk is a limit on
the size of the file. A process that dies is killed, and a process that stops is stopped by the kernel.
"""

from __future__ import annotations

import os
import resource
import signal
import tempfile
from collections.abc import Mapping
from contextlib import AbstractContextManager
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from trystate.impl.store.file.records import MAGIC, scan
from trystate.impl.store.file.replica import Replica
from trystate.model.groups.files import Address, Files
from trystate.model.groups.vocabulary import User
from trystate.model.language.sorts import ordinal

from ...harness.subjects import Disagreement
from ..steps import Steps
from ..torch_store.isolated import Child, Silence, silence

PATIENT_S = 60.0  # timeout of an operation that must not time out
BRIEF_S = 0.05  # timeout of an operation that must time out, which takes at least a second if the file is locked
HEARS_S = 60.0
HALF, DONE = "half", "returned"


class FilesSubject(Steps, AbstractContextManager["FilesSubject"]):
    """The processes of a job and of the next job; shows their phases, the records, and whether the file is whole."""

    def __init__(self, system: Files) -> None:
        self._world = system.sizes["process"]
        self._folder = tempfile.TemporaryDirectory()
        self._users: dict[int, Child] = {}
        self._files = 0

    def __exit__(self, *_: object) -> None:
        for process in list(self._users):
            self._end(process)
        self._folder.cleanup()

    def reset(self) -> None:
        """Use a new file, which no process has opened."""
        for process in list(self._users):
            self._end(process)
        self._files += 1
        self._path = Path(self._folder.name) / f"store{self._files}"
        self._job = 1
        self._phases = [User.AWAY] * self._world
        self._stale = [False] * self._world

    def observe(self) -> Mapping[str, int]:
        """The phase of each process, the values that it read, the records, and whether the last record is torn."""
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
        """Send a process a command, and receive its outcome."""
        self._users[process].tell(words)
        said = self._users[process].hear(HEARS_S)
        if isinstance(said, Silence) or said[0] != wanted:
            raise Disagreement(f"process {process} received {words[0]}, and answered {said}, not {wanted}")
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

    _no_address_comes = _time_out

    def _lock_times_out(self, process: int) -> None:
        if self._phases[process] is User.AWAY:
            self._users[process] = Child(_user, str(self._path), self._world)
            self._asked(process, "StoreTimeout", "open", BRIEF_S)
        elif self._phases[process] is User.OPEN:
            self._asked(process, "StoreTimeout", "set", BRIEF_S, self._key(process), str(self._job))
        else:
            self._asked(process, DONE, "close")  # `close` writes its LEAVE in a thread, and raises nothing
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
        """End the process without closing its store: in the model a process ends when its operation raises."""
        self._end(process)
        self._phases[process] = phase

    def _end(self, process: int) -> None:
        with self._users.pop(process):
            pass


def _user(line: Connection, path: str, world: int) -> None:
    """In the child: carry out commands on this process's store, and report the outcomes."""
    from trystate.impl.store.errors import StoreError
    from trystate.impl.store.file.store import FileStore

    silence()
    write, is_cut = os.pwrite, False
    store: Any = None

    def pwrite(fd: int, data: memoryview, at: int) -> int:
        """In the first write of a set, write half of the data, report it, and continue at the next command."""
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
