"""Carries out tasks in several processes and yields each result as soon as it has arrived.

Theory of operation. A task is a function without arguments whose result can be pickled. The processes are forked at the
start, and each has the whole list of tasks: only the number of a task and its result cross a pipe. A process does one
task after the other until its pipe is closed.

Failures:

- A task raises: the exception is raised here, with the traceback of its process as a note.
- A process ends without a result (it was killed, for its memory or by hand): `ProcessLost`.
- The caller leaves early, or is interrupted: the processes are killed.

Ctrl-C reaches every process of a terminal's group. The processes here ignore it and leave it to the caller. A process
whose caller is killed is killed with it.
"""

from __future__ import annotations

import gc
import math
import os
import pickle
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any

from trystate.impl.host.parent_death import die_with_parent
from trystate.model.errors import LimitReached

Task = Callable[[], Any]
YOUNG = 100_000  # objects made between two collections: with Python's 700 these take a sixth of a task's time
JOIN_SECONDS = 5.0  # limit for a killed process to end: the kernel may be busy freeing its memory


class ProcessLost(LimitReached):
    """A process ended without a result."""


class Processes:
    """`jobs` processes that do tasks; with one job the tasks are done here. Enter it before any thread is started.

    Args:
        tasks: functions without arguments, whose results can be pickled.
        jobs: how many processes, at most one for each task.
        grace_seconds: how long the tasks under way may take after the end of the time.

    Attributes:
        under_way: the numbers of the tasks that were under way even then.
    """

    def __init__(self, tasks: Sequence[Task], jobs: int, grace_seconds: float = 0.0) -> None:
        self._tasks, self._grace, self.under_way = tasks, grace_seconds, list[int]()
        self._jobs = min(jobs, len(tasks))
        self._processes: dict[Connection, BaseProcess] = {}

    def __enter__(self) -> Processes:
        if self._jobs > 1:
            try:
                for _ in range(self._jobs):
                    self._fork()
            except BaseException:
                self.__exit__(None, None, None)
                raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for connection, process in self._processes.items():
            process.kill()
            process.join(JOIN_SECONDS)
            connection.close()
        self._processes.clear()

    def results(self, order: Sequence[int], ends: float = math.inf) -> Iterator[tuple[int, Any]]:
        """The number of each task of `order` and its result, in the order in which the tasks end.

        When the monotonic clock shows `ends`, no further task begins.

        Raises:
            ProcessLost: a process ended without a result.
            Exception: what a task raised.
        """
        if not self._processes:
            for number in order:
                yield number, self._tasks[number]()
                if time.monotonic() > ends:
                    break
            return
        left = list(reversed(order))
        busy: dict[Connection, int] = {}
        for connection in self._processes:
            _give(connection, left, busy)
        while busy:
            ready = wait(list(busy), None if ends == math.inf else max(0.0, ends + self._grace - time.monotonic()))
            if not ready:
                self.under_way = sorted(busy.values())
                return
            for one in ready:
                assert isinstance(one, Connection)
                number = busy.pop(one)
                result = self._received(one)
                if time.monotonic() < ends:
                    _give(one, left, busy)
                yield number, result

    def _fork(self) -> None:
        context = get_context("fork")
        ours, theirs = context.Pipe()
        inherited = [*self._processes, ours]
        process = context.Process(
            name=f"verify-{len(self._processes)}", target=_work, args=(self._tasks, theirs, inherited, os.getpid())
        )
        process.start()
        theirs.close()
        self._processes[ours] = process

    def _received(self, connection: Connection) -> Any:
        try:
            result, error = connection.recv()
        except (EOFError, ConnectionError):
            process = self._processes[connection]
            process.join(JOIN_SECONDS)
            raise ProcessLost(
                f"a process ended with {process.exitcode} before its task did: "
                "if the kernel killed it for its memory (-9), give a smaller --jobs or --max-memory"
            ) from None
        if error is not None:
            raise error
        return result


def _give(connection: Connection, left: list[int], busy: dict[Connection, int]) -> None:
    if left:
        busy[connection] = left.pop()
        connection.send(busy[connection])


def detach(inherited: Sequence[Connection]) -> None:
    """In a forked process: let go of the caller's signals and pipes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group: the caller decides
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in inherited:  # while it is open here too, no process sees the end of that pipe
        other.close()


def _work(tasks: Sequence[Task], connection: Connection, inherited: list[Connection], caller: int) -> None:
    """In a forked process: do the tasks whose numbers come."""
    detach(inherited)
    die_with_parent(caller)
    gc.freeze()  # a collection does not look at the objects of the caller, such as the trees of a plan
    gc.set_threshold(YOUNG, *gc.get_threshold()[1:])
    try:
        while True:
            connection.send(done(tasks[connection.recv()]))
    except (EOFError, ConnectionError):
        return


def done(task: Task) -> tuple[Any, Exception | None]:
    """The result of a task, or what it raised, with the traceback as a note; both can be pickled."""
    try:
        return task(), None
    except Exception as error:
        error.add_note(f"in a process of its own:\n{traceback.format_exc()}")
        return None, sendable(error)


def sendable(error: Exception) -> Exception:
    """The exception, or one with the same text if it does not survive being pickled."""
    try:
        if type(pickle.loads(pickle.dumps(error))) is type(error):
            return error
    except Exception:
        pass
    return RuntimeError("\n".join((repr(error), *error.__notes__)))
