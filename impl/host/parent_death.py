"""The leash of a worker: it dies with its agent, even if that is killed. Run as a program, by its path.

Rule: standard library only, and nothing of this package: it is started before every worker, and must be quick.

    python -I -S parent_death.py PID GROUP COMMAND ARGUMENTS...

The process PID must be the parent; GROUP is the folder of a control group that the command is to be in, or empty.

Linux only; elsewhere the command runs without a leash.
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
COMMAND_NOT_FOUND = 127  # as a shell returns it


def die_with_parent(parent: int) -> None:
    """SIGKILL for this process when the thread that started it ends; ends at once if that has happened already.

    `parent`: the process that should be it; 0: whatever it is (Python's fork server ends with its owner).
    """
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent and os.getppid() != parent:
        os._exit(1)


def leash(group: str) -> list[str]:
    """The beginning of a command that is to be on a leash of this process, and in a control group, if it has one."""
    return [sys.executable, "-I", "-S", os.path.abspath(__file__), str(os.getpid()), group]


def enter(group: str) -> None:
    """Go into a control group; if that is refused, the process and its children remain in that of its parent."""
    if group:
        with contextlib.suppress(OSError), open(f"{group}/cgroup.procs", "w") as file:
            file.write(str(os.getpid()))


def prctl(option: int, value: Any) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


class Leashed:
    """A worker's function, on a leash, and in a session of its own as commands are."""

    def __init__(self, function: Callable[..., Any], parent: int, group: str) -> None:
        self._function, self._parent, self._group = function, parent, group
        self.__name__ = self.__qualname__ = getattr(function, "__qualname__", repr(function))

    def __call__(self, *args: Any) -> Any:
        os.setsid()
        die_with_parent(self._parent)
        enter(self._group)
        if __package__:  # a program has none
            from ..store.lives import install

            install()
        return self._function(*args)


def main(argv: list[str]) -> int:
    """Become the command, on a leash; returns only if there is no such command."""
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
