"""Virtual time: tasks that wait for a moment or for each other. One runs at a time; the seed decides their order.

Rule: nothing here reads a clock. Two events at the same moment happen in the order in which they were planned.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

import greenlet  # type: ignore[import-untyped]

from trystate.model.errors import TrystateError

MOMENTS_MAX = 300_000  # limit of a run: most runs have a hundredth of it


class Endless(TrystateError):
    """A run has more moments than any run that comes to rest."""


class Time:
    """The moments to come. `now` in seconds from the beginning of the run."""

    def __init__(self) -> None:
        self.now = 0.0
        self.main = greenlet.getcurrent()  # it runs the moments: every task returns to it
        self.current: Task | None = None
        self.tasks: list[Task] = []
        self._moments: list[tuple[float, int, Callable[[], None]]] = []
        self.moments = 0  # that were planned

    def at(self, when: float, call: Callable[[], None]) -> None:
        self.moments += 1
        heapq.heappush(self._moments, (max(when, self.now), self.moments, call))

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        self.at(self.now + seconds, call)

    def alarm(self) -> Callable[[], None]:
        """The function that wakes the running task from its next wait."""
        assert self.current is not None  # only tasks wait
        return self.current.alarm()

    def wait(self) -> None:
        """Suspend the running task until an alarm wakes it."""
        self.main.switch()

    def sleep(self, seconds: float) -> None:
        self.after(seconds, self.alarm())
        self.wait()

    def run(self, until: float) -> None:
        """Run all moments that are planned until then.

        Raises:
            Endless: there are too many of them.
        """
        while self._moments and self._moments[0][0] <= until:
            self.now, number, call = heapq.heappop(self._moments)
            if number > MOMENTS_MAX:
                raise Endless(f"more than {MOMENTS_MAX:,} moments until {self.now:.3f} s: some task never sleeps")
            call()
        self.now = until

    def end(self) -> None:
        """End all tasks at once. A suspended greenlet that is part of a cycle would never be collected."""
        for task in self.tasks:
            task.greenlet.throw(greenlet.GreenletExit)


class Task:
    """A thread of a simulated process. `frozen_until` returns the time until which its host is frozen."""

    def __init__(self, time: Time, frozen_until: Callable[[], float], body: Callable[[], None]) -> None:
        self._time, self._frozen_until = time, frozen_until
        self.greenlet = greenlet.greenlet(lambda _: body(), time.main)
        self._nap = 0  # the number of the task's current wait: an alarm of an earlier wait has no effect
        time.tasks.append(self)
        self._time.at(time.now, self.alarm())

    def alarm(self) -> Callable[[], None]:
        """Returns a function that ends the task's next wait.

        If the host is frozen, the wait ends after the freeze. A second call has no effect.
        """
        nap = self._nap = self._nap + 1

        def wake() -> None:
            if nap != self._nap or self.greenlet.dead:
                return
            if self._frozen_until() > self._time.now:
                self._time.at(self._frozen_until(), wake)
            else:
                self._nap += 1
                self._time.current = self
                self.greenlet.switch(None)

        return wake

    def end(self) -> None:
        """The process has ended, or does not need this thread any more."""
        self._nap += 1
        self._time.at(self._time.now, lambda: self.greenlet.throw(greenlet.GreenletExit))


class Signal:
    """A wait of an agent for an event, or for some seconds."""

    def __init__(self, time: Time) -> None:
        self._time = time
        self._happened: list[Any] = []
        self._alarm: Callable[[], None] | None = None

    def set(self, what: Any) -> None:
        self._happened.append(what)
        if self._alarm is not None:
            self._time.at(self._time.now, self._alarm)

    def wait(self, seconds: float) -> Any:
        """The first event; None: there was none in these seconds."""
        if not self._happened:
            self._alarm = self._time.alarm()
            self._time.after(seconds, self._alarm)
            self._time.wait()
            self._alarm = None
        return self._happened.pop(0) if self._happened else None
