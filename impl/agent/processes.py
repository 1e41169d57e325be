"""Processes that a worker started and left behind: they are found among the agent's descendants, and ended.

Rule: only descendants in other sessions count as a worker's, without the children that this process had before. The
agent's own helpers (a store's server, Python's helper processes) are in the agent's session.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import time
from collections.abc import Callable, Collection, Iterator

from ..host.parent_death import prctl
from .watchdog import Process, kill, look, table

PR_SET_CHILD_SUBREAPER, PR_GET_CHILD_SUBREAPER = 36, 37  # linux/prctl.h
TIME_POLL_SECONDS = 0.1  # polling interval of `over`
END_SECONDS = 10.0  # a killed process that still exists after this time is stuck in the kernel, and cannot be ended


@contextlib.contextmanager
def adopting_orphans() -> Iterator[None]:
    """Make processes that this process's descendants leave behind its children, in this context; it can end them."""
    before = ctypes.c_int()
    prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(before))
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        prctl(PR_SET_CHILD_SUBREAPER, before.value)


def children(agent: int) -> frozenset[int]:
    """The children of a process."""
    return frozenset(process.pid for process in table().values() if process.parent == agent)


def end_what_is_left(left_behind: Callable[[], list[Process]]) -> list[int]:
    """Kill the processes that an agent's workers left behind, and wait for their end; returns the killed ones."""
    until, killed = time.monotonic() + END_SECONDS, set[int]()
    while left := left_behind():
        _kill(left)
        killed.update(process.pid for process in left)
        if time.monotonic() > until:
            break
        time.sleep(0.005)
        for process in left:
            with contextlib.suppress(ChildProcessError):  # its own parent has not ended yet, and reaps it until then
                os.waitpid(process.pid, os.WNOHANG)
    return sorted(killed)


def _kill(processes: list[Process]) -> None:
    for process in processes:
        kill(process)


@contextlib.contextmanager
def killed_when(over: Callable[[], bool], left_behind: Callable[[], list[Process]]) -> Iterator[None]:
    """Kill the workers as soon as `over()` is true, while the body of the context waits for their end."""
    done = threading.Event()

    def look() -> None:
        while not done.wait(TIME_POLL_SECONDS):
            if over():
                _kill(left_behind())

    thread = threading.Thread(target=look, name="trystate stopping", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def reap_adopted(agent: int, known: Collection[int]) -> None:
    """Reap ended processes that workers left behind, like init; `known` processes are reaped elsewhere."""
    mine = look(agent)
    while mine is not None and hasattr(os, "waitid"):
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        process = look(ended.si_pid) if ended is not None else None
        if process is None or process.pid in known or process.session == mine.session:
            return  # other code reaps it soon; it hides the others until then
        os.waitpid(process.pid, os.WNOHANG)
