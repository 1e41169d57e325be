"""Threads of simulated processes, and what they wait for: the interface of `threading`, in virtual time.

Rule: an ended thread does not continue, not even to clean up: an ended process affects no other process.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import greenlet  # type: ignore[import-untyped]

from .machines import Machine
from .moments import Task, Time

PID_MIN = 1 << 23  # greater than the pids of real processes: a simulated one is never taken for this one


class Process:
    """A simulated process: its threads, and the calls at its end."""

    def __init__(self, machine: Machine, name: str, pid: int) -> None:
        self.machine, self.time, self.name, self.pid = machine, machine.time, name, PID_MIN + pid
        self.up = True
        self.at_exit: list[Callable[[], object]] = []  # registered with `atexit`
        self.at_death: list[Callable[[], None]] = []  # called however it ends
        self.threads: list[Thread] = []

    def start(self, body: Callable[[], object]) -> Thread:
        """Run something in a thread of this process, whichever thread calls."""
        thread = Thread(target=body)
        thread.begin(self)
        return thread

    def lost(self, error: Exception) -> None:
        """A thread has died of an exception."""

    def die(self) -> None:
        """The process ends; may be called twice."""
        self.up = False
        for thread in self.threads:
            thread.end()
        for call in self.at_death:
            call()
        self.threads.clear()
        self.at_death.clear()


RUNNING: ContextVar[Thread | None] = ContextVar("the thread that runs", default=None)  # a greenlet has its own context


def current() -> Process | None:
    thread = RUNNING.get()
    return thread.process if thread is not None else None


def living() -> Process:
    """The process that runs. In a thread that was ended, and is unwinding, this raises GreenletExit."""
    thread = RUNNING.get()
    assert thread is not None  # only threads of simulated processes wait, or use their process
    if thread.ended:
        raise greenlet.GreenletExit
    return thread.process


class Event:
    """`threading.Event`, for the threads of one process."""

    def __init__(self) -> None:
        self._set = False
        self._waiting: dict[Callable[[], None], Time] = {}

    def is_set(self) -> bool:
        return self._set

    def clear(self) -> None:
        self._set = False

    def set(self) -> None:
        self._set = True
        waiting, self._waiting = self._waiting, {}
        for alarm, moments in waiting.items():
            moments.at(moments.now, alarm)

    def wait(self, timeout: float | None = None) -> bool:
        """Whether it was set in time."""
        process = living()
        if self._set or (timeout is not None and timeout <= 0):
            return self._set
        alarm = process.time.alarm()
        self._waiting[alarm] = process.time
        if timeout is not None:
            process.time.after(timeout / process.machine.host.rate, alarm)
        process.time.wait()
        self._waiting.pop(alarm, None)
        living()
        return self._set


class Lock:
    """`threading.Lock`, in the order of arrival."""

    def __init__(self) -> None:
        self._queue: list[Event] = []

    def __enter__(self) -> None:
        turn = Event()
        self._queue.append(turn)
        try:
            if self._queue[0] is not turn:
                turn.wait()
        except BaseException:
            self._queue.remove(turn)
            raise

    def __exit__(self, *exception: object) -> None:
        self._queue.pop(0)
        if self._queue:
            self._queue[0].set()


class Thread:
    """`threading.Thread`. An exception ends only this thread, as in CPython."""

    process: Process

    def __init__(self, target: Callable[..., object], name: str = "", args: tuple[Any, ...] = (), daemon: bool = True):
        self._target, self._args = target, args
        self.ended = False
        self._over = Event()

    def start(self) -> None:
        self.begin(living())

    def begin(self, process: Process) -> None:
        self.process = process
        process.threads.append(self)
        self._task = Task(process.time, lambda: process.machine.frozen_until, self._run)

    def _run(self) -> None:
        RUNNING.set(self)
        try:
            self._target(*self._args)
        except Exception as error:
            self.process.lost(error)
        self.ended = True
        self._over.set()

    def end(self) -> None:
        self.ended = True
        self._task.end()

    def is_alive(self) -> bool:
        return not self.ended

    def join(self, timeout: float | None = None) -> None:
        """Wait for the end of the thread. Finalizers call this in any thread, and do not wait."""
        if not self.ended and current() is self.process:
            self._over.wait(timeout)


def detach_finalizers() -> None:
    """Detach the finalizers of all threads: torch's timers have one each, and their registry would keep each world."""
    for each in [*weakref.finalize._registry]:  # type: ignore[attr-defined]
        found = each.peek()
        if found is not None and found[2] and isinstance(found[2][0], Thread):
            each.detach()
