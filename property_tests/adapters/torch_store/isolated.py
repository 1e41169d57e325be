"""A child process for what may crash, hang or freeze the interpreter that does it.

Rule: the child is forked from a process that has torch loaded already, and is killed when the test is done with it.
"""

from __future__ import annotations

import enum
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any

LOAD_S = 60.0  # for the first child: torch is imported, on a busy machine
_PRELOADED: list[str] = []


def preload(*modules: str) -> None:
    """The process from which children are forked is to import these first, if it has not begun yet."""
    _PRELOADED.extend(module for module in modules if module not in _PRELOADED)
    multiprocessing.get_context("forkserver").set_forkserver_preload(_PRELOADED)


preload("torch.distributed", "trystate.impl.store.file.store", "trystate.impl.store.tcp")


class Silence(enum.Enum):
    """The state of a child that says nothing."""

    LATE = enum.auto()
    ENDED = enum.auto()  # crashed, if it had something to say


class Child(AbstractContextManager["Child"]):
    """Runs `function(connection, *arguments)`, a module's, in a process of its own.

    A child that is to begin with other variables than its siblings is not forked: its `method` is "spawn".
    """

    def __init__(self, function: Callable[..., object], *arguments: object, method: str = "forkserver") -> None:
        context: Any = multiprocessing.get_context(method)
        self._line, theirs = context.Pipe()
        self._process = context.Process(target=_run, args=(theirs, function, arguments), daemon=True)
        with _importable(function):
            self._process.start()
        theirs.close()
        if self.hear(LOAD_S) is not True:
            raise RuntimeError("the child did not start: nothing was observed")

    @property
    def pid(self) -> int:
        return int(self._process.pid)

    def kill(self) -> None:
        """End it at once; returns when the kernel has closed what it held."""
        self._process.kill()
        self._process.join()

    def hear(self, seconds: float) -> Any:
        """The next thing that it sends."""
        if not self._line.poll(seconds):
            return Silence.LATE
        try:
            return self._line.recv()
        except (EOFError, ConnectionResetError):
            return Silence.ENDED

    def tell(self, word: object) -> None:
        self._line.send(word)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()
        self._process.close()
        self._line.close()


@contextmanager
def _importable(function: Callable[..., object]) -> Iterator[None]:
    """The child, which is told this process's path, finds the module: pytest imports a test without a path to it."""
    name = function.__module__
    place = Path(str(sys.modules[name].__file__))
    sys.path.append(str(place.parents[name.count(".")]))
    try:
        yield
    finally:
        sys.path.pop()


def _run(line: Connection, function: Callable[..., object], arguments: tuple[object, ...]) -> None:
    line.send(True)
    function(line, *arguments)


def silence() -> None:
    """In a child: what it writes to stderr from here on goes nowhere, torch's C++ included."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    os.close(nowhere)
