"""What a worker started, and left behind: found among the agent's descendants, and ended.

Rule: only descendants in sessions of their own are taken for a worker's. What the agent itself runs beside its workers
(a store's server, Python's helpers) is in the agent's session.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
END_SECONDS = 2.0  # a killed process that is not gone by then is stuck in the kernel, and nobody can end it


@dataclass(frozen=True, slots=True)
class Process:
    """A line of the process table."""

    pid: int
    parent: int
    session: int


def table() -> dict[int, Process]:
    """All processes that can be seen; none where there is no /proc."""
    found = {}
    for entry in PROC.iterdir() if PROC.is_dir() else ():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError):  # it has ended meanwhile
                # pid (name) state parent group session ...: a name may have blanks and brackets in it
                fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                found[int(entry.name)] = Process(int(entry.name), int(fields[1]), int(fields[3]))
    return found


def left_behind(processes: dict[int, Process], agent: int) -> list[int]:
    """The agent's descendants in sessions of their own, and theirs."""
    mine = processes.get(agent)
    if mine is None:
        return []
    children: dict[int, list[Process]] = {}
    for process in processes.values():
        children.setdefault(process.parent, []).append(process)
    found, rest = [], [(child, False) for child in children.get(agent, ())]
    while rest:
        process, apart = rest.pop()
        apart = apart or process.session != mine.session
        if apart:
            found.append(process.pid)
        rest += [(child, apart) for child in children.get(process.pid, ())]
    return found


def end_what_is_left(agent: int) -> list[int]:
    """Kill what the workers of an agent left behind, and wait until it is gone; returns what was killed."""
    until, killed = time.monotonic() + END_SECONDS, set()
    while left := left_behind(table(), agent):
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        killed.update(left)
        if time.monotonic() > until:
            break
        time.sleep(0.005)
        for pid in left:
            with contextlib.suppress(ChildProcessError):  # not ours to reap yet: its own parent has to go first
                os.waitpid(pid, os.WNOHANG)
    return sorted(killed)
