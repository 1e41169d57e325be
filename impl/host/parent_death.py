"""The leash of a worker: it dies with its agent, even if that is killed. Run as a program, by its path.

Rule: standard library only, and no import of this package: it is started before every worker, and must be quick.

    python -I -S parent_death.py PID GROUP COMMAND ARGUMENTS...

The process PID must be the parent; GROUP is the folder of the command's control group, or empty.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

PR_SET_PDEATHSIG = 1  # linux/prctl.h
COMMAND_NOT_FOUND = 127  # the exit code of a shell


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when the thread that started it ends; end at once if that has happened.

    `parent`: the expected parent; 0: any parent (Python's fork server ends with its owner).
    """
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent and os.getppid() != parent:
        os._exit(1)


def leash(group: str) -> list[str]:
    """The start of a command line that puts a command on a leash of this process, and into a control group if any."""
    return [sys.executable, "-I", "-S", os.path.abspath(__file__), str(os.getpid()), group]


def enter(group: str) -> None:
    """Enter a control group; if that is refused, the process and its children remain in its parent's group."""
    if group:
        with contextlib.suppress(OSError), open(f"{group}/cgroup.procs", "w") as file:
            file.write(str(os.getpid()))


def prctl(option: int, value: Any) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


class Leashed:
    """A worker's function, on a leash and in its own session, like commands."""

    def __init__(self, function: Callable[..., Any], parent: int, group: str) -> None:
        self._function, self._parent, self._group = function, parent, group
        self.__name__ = self.__qualname__ = getattr(function, "__qualname__", repr(function))

    def __call__(self, *args: Any) -> Any:
        os.setsid()
        die_with_parent(self._parent)
        enter(self._group)
        if __package__:  # empty if this file runs as a program
            from ..store.lives import install

            install()
        return self._function(*args)


def main(argv: list[str]) -> int:
    """Become the command, on a leash; returns only if the command does not exist."""
    parent, group, *command = argv
    die_with_parent(int(parent))
    enter(group)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"trystate: cannot run {command[0]}: {error.strerror}", file=sys.stderr)
        return COMMAND_NOT_FOUND


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
