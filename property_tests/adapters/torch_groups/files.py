"""P5 to P7: FileStore, torch's or ours, on files that a process has left behind, torn or locked.

Rule: every process that opens the file is one of its own, and is killed when the scenario is over: torch's constructor
holds the interpreter lock while it hangs. The record is torn by the store's own write, which meets a limit of the size.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import os
import resource
import tempfile
from collections.abc import Callable, Iterator
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from ..replays import Observation, Say, ScheduleError, judge
from ..torch_store.isolated import Child, Silence, silence

TORCH = "torch.distributed"
TIMEOUT = timedelta(seconds=1)
PATIENCE_S = 4.0  # longer than the timeout by a good deal
HEARS_S = 60.0
USERS = 2


def left_over_file(say: Say, *, benign: bool = False, library: str = TORCH) -> Observation:
    """P5. A process of the first job writes a key and is killed; the second job reads it. Benign: it closes it."""
    with _path() as path:
        with Child(_leave, library, path, benign) as first:
            _heard(first)
        with Child(_look, library, path) as second:
            value = _heard(second)
    say(f"the first job {'closed' if benign else 'was killed'}; the second reads its key: {value}")
    return judge(value == "old", "no process reads a key of an earlier job", [f"get returned or raised {value}"])


def torn_record(say: Say, *, benign: bool = False, library: str = TORCH) -> Observation:
    """P6. A set meets a full disk; a process that opens the file then never returns. Benign: there is room."""
    with _path() as path:
        with Child(_tear, library, path, benign) as writer:
            outcome = _heard(writer)
        with Child(_open, library, path) as reader:
            opened = reader.hear(HEARS_S if benign else PATIENCE_S)
    hangs = opened is Silence.LATE
    say(f"set {outcome}; the next process {'has not opened the file' if hangs else 'opens the file'}")
    return judge(hangs, "half a record stops nobody", [f"still in its constructor after {PATIENCE_S:g} s: {hangs}"])


def lock_kept(say: Say, *, benign: bool = False, library: str = TORCH) -> Observation:
    """P7. Another process keeps the lock; a set with a timeout of 1 s does not return. Benign: it has let it go."""
    with _path() as path, Child(_set, library, path) as writer:
        _heard(writer)
        with Child(_lock, path, benign) as other:
            _heard(other)
            writer.tell("set")
            outcome = writer.hear(PATIENCE_S)
    hangs = outcome is Silence.LATE
    say(f"set with a timeout of {TIMEOUT.seconds} s: {f'not back after {PATIENCE_S:g} s' if hangs else outcome}")
    return judge(hangs, "every operation honours its timeout", [f"still waiting after {PATIENCE_S:g} s: {hangs}"])


SCHEDULES: dict[str, Callable[..., Observation]] = {
    "left-over-file": left_over_file, "torn-record": torn_record, "lock-kept": lock_kept,
}  # fmt: skip


@contextlib.contextmanager
def _path() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        yield str(Path(folder) / "store")


def _heard(child: Child) -> Any:
    said = child.hear(HEARS_S)
    if isinstance(said, Silence):
        raise ScheduleError(f"a process said nothing: {said}")
    return said


# ---- in the children


def _store(library: str, path: str, users: int = USERS) -> Any:
    silence()
    store = importlib.import_module(library).FileStore(path, users)
    store.set_timeout(TIMEOUT)
    return store


def _done(operation: Callable[..., object], *arguments: object) -> str:
    """`returned`, or the name of the exception."""
    try:
        operation(*arguments)
    except (RuntimeError, OSError) as error:
        return type(error).__name__
    return "returned"


def _leave(line: Connection, library: str, path: str, benign: bool) -> None:
    store = _store(library, path, 1 if benign else USERS)
    store.set("address", "old")
    if benign:
        del store
    line.send("left")
    os._exit(0)


def _look(line: Connection, library: str, path: str) -> None:
    store = _store(library, path)
    try:
        line.send(store.get("address").decode())
    except RuntimeError as error:
        line.send(type(error).__name__)


def _tear(line: Connection, library: str, path: str, benign: bool) -> None:
    store = _store(library, path)
    store.set("before", "1")
    if not benign:
        resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(path) + 40, resource.RLIM_INFINITY))
    line.send(_done(store.set, "address", "x" * 100))
    os._exit(0)


def _open(line: Connection, library: str, path: str) -> None:
    _store(library, path)
    line.send("opened")


def _set(line: Connection, library: str, path: str) -> None:
    store = _store(library, path)
    line.send("opened")
    line.recv()
    line.send(_done(store.set, "key", "value"))


def _lock(line: Connection, path: str, benign: bool) -> None:
    with open(path, "rb+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if not benign:
            line.send("locked")
            line.recv()
    line.send("free")
    line.recv()
