"""Virtual time: tasks that wait for a moment or for each other, one at a time, in an order that the seed decides.

Rule: nothing here reads a clock. Two events at the same moment happen in the order in which they were planned.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import Any

import greenlet  # type: ignore[import-untyped]

from trystate.model.errors import TrystateError

MOMENTS_MAX = 300_000  # of a run: a hundred times as many as most have


class Endless(TrystateError):
    """More happened in a run than anything that comes to rest can need."""


class Time:
    """The moments to come. `now` in seconds from the beginning of the run."""

    def __init__(self) -> None:
        self.now = 0.0
        self.main = greenlet.getcurrent()  # where moments are worked off: every task goes back there
        self.current: Task | None = None
        self._moments: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()

    def at(self, when: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._moments, (max(when, self.now), next(self._count), call))

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        self.at(self.now + seconds, call)

    def alarm(self) -> Callable[[], None]:
        """The function that wakes the running task from the wait that comes next."""
        assert self.current is not None  # only tasks wait
        return self.current.alarm()

    def wait(self) -> None:
        """The running task stands still until an alarm wakes it."""
        self.main.switch()

    def sleep(self, seconds: float) -> None:
        self.after(seconds, self.alarm())
        self.wait()

    def run(self, until: float) -> None:
        """Let everything happen that is planned until then.

        Raises:
            Endless: that does not end.
        """
        while self._moments and self._moments[0][0] <= until:
            self.now, number, call = heapq.heappop(self._moments)
            if number > MOMENTS_MAX:
                raise Endless(f"more than {MOMENTS_MAX:,} moments until {self.now:.3f} s: some task never sleeps")
            call()
        self.now = until


class Task:
    """A thread of a simulated process. `frozen_until` says until when its host stands still."""

    def __init__(self, time: Time, frozen_until: Callable[[], float], body: Callable[[], None]) -> None:
        self._time, self._frozen_until = time, frozen_until
        self._greenlet = greenlet.greenlet(lambda _: body(), time.main)
        self._nap = 0  # which wait of this task is on: whoever wakes it from an earlier one comes too late
        self._time.at(time.now, self.alarm())

    def alarm(self) -> Callable[[], None]:
        """Wakes the task from the wait that comes next: later if its host stands still, and never twice."""
        nap = self._nap = self._nap + 1

        def wake() -> None:
            if nap != self._nap or self._greenlet.dead:
                return
            if self._frozen_until() > self._time.now:
                self._time.at(self._frozen_until(), wake)
            else:
                self._nap += 1
                self._time.current = self
                self._greenlet.switch(None)

        return wake

    def end(self) -> None:
        """The process is gone, or does not need this thread any more."""
        self._nap += 1
        self._time.at(self._time.now, lambda: self._greenlet.throw(greenlet.GreenletExit))


class Signal:
    """A wait of an agent: for the first thing that happens, or for some seconds."""

    def __init__(self, time: Time) -> None:
        self._time = time
        self._happened: list[Any] = []
        self._alarm: Callable[[], None] | None = None

    def set(self, what: Any) -> None:
        self._happened.append(what)
        if self._alarm is not None:
            self._time.at(self._time.now, self._alarm)

    def wait(self, seconds: float) -> Any:
        """The first thing that happened; None: nothing did in these seconds."""
        if not self._happened:
            self._alarm = self._time.alarm()
            self._time.after(seconds, self._alarm)
            self._time.wait()
            self._alarm = None
        return self._happened.pop(0) if self._happened else None
