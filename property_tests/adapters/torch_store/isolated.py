"""A child process for code that may crash, hang or freeze its interpreter.

Rule: the child is forked from a process that has already imported torch. The end of the `with` block kills it.
"""

from __future__ import annotations

import enum
import gc
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

LOAD_S = 60.0  # limit for the first child: torch is imported, on a busy machine
_PRELOADED: list[str] = []


def preload(*modules: str) -> None:
    """Let the process from which children are forked import these modules, if it has not started yet."""
    _PRELOADED.extend(module for module in modules if module not in _PRELOADED)
    multiprocessing.get_context("forkserver").set_forkserver_preload(_PRELOADED)


preload("torch.distributed", "trystate.impl.store.tcp")


class Silence(enum.Enum):
    """The state of a child that sends nothing."""

    LATE = enum.auto()
    ENDED = enum.auto()  # if it still had to send something, it has crashed


class Child(AbstractContextManager["Child"]):
    """Runs `function(connection, *arguments)`, a module's function, in a separate process.

    A child that needs other environment variables is not forked: its `method` is "spawn".
    """

    def __init__(self, function: Callable[..., object], *arguments: object, method: str = "forkserver") -> None:
        context: Any = multiprocessing.get_context(method)
        self._line, theirs = context.Pipe()
        self._process = context.Process(target=_run, args=(theirs, function, arguments), daemon=True)
        with importable(function):
            self._process.start()
        theirs.close()
        if self.hear(LOAD_S) is not True:
            raise RuntimeError("the child did not start: nothing was observed")

    @property
    def pid(self) -> int:
        return int(self._process.pid)

    def kill(self) -> None:
        """Kill it; returns when the kernel has closed its files and sockets."""
        self._process.kill()
        self._process.join()

    def hear(self, seconds: float) -> Any:
        """The next object that it sends."""
        if not self._line.poll(seconds):
            return Silence.LATE
        try:
            return self._line.recv()
        except (EOFError, ConnectionResetError):
            return Silence.ENDED

    def tell(self, word: object) -> None:
        self._line.send(word)

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._process.close()
        self._line.close()


@contextmanager
def importable(function: Callable[..., object]) -> Iterator[None]:
    """Let the child, which inherits `sys.path`, import the function's module, even if it is a test's module."""
    name = getattr(function, "func", function).__module__  # a `partial` has its function in `func`
    place = Path(str(sys.modules[name].__file__))
    sys.path.append(str(place.parents[name.count(".")]))
    try:
        yield
    finally:
        sys.path.pop()


def _run(line: Connection, function: Callable[..., object], arguments: tuple[object, ...]) -> None:
    gc.freeze()  # a collection would copy the pages of all objects that this process shares
    line.send(True)
    function(line, *arguments)


def silence() -> None:
    """In a child: from now on, drop the output to stderr, including the output of torch's C++."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    os.close(nowhere)
