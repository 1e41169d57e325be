"""The common interface of the engines: the checker can use any of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from ..errors import LimitReached
from ..language.expressions import Expr
from ..language.properties import Form, Within
from .kernel import Binding, Exploration, Kernel, Lasso, Limits, Path, Watch


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a search, shown on a terminal while it runs."""

    engine: str
    phase: str
    distinct: int
    depth: int
    seconds: float


OnProgress = Callable[[Progress], None]
REPORT_SECONDS = 0.12


def quiet(_: Progress) -> None:
    """Show nothing."""


class Engine(Protocol):
    """A search that answers the watches and lassos of a kernel. One engine object serves one search."""

    name: str
    limits: Limits
    on_progress: OnProgress

    def __init__(self, kernel: Kernel, limits: Limits, on_progress: OnProgress = quiet) -> None: ...

    def explore(self, watches: Sequence[Watch]) -> Exploration:
        """Visit every reachable state, or stop at a limit; `found` has a shortest path per watch that occurs.

        For a watch with an instance the path ends with the step of that instance. An allocation that fails is a
        limit too: the search stops and keeps what it has found.
        """

    def lasso(self, premise: Expr, goal: Expr, binding: Binding, form: Form = Form.LEADS_TO) -> Lasso | None:
        """After a complete `explore`: a fair run through `premise` on which `goal` stays false from there on.

        For `Form.EVENTUALLY` the premise holds in the initial state. For `Form.STABLE` the goal is false again and
        again.

        Raises:
            LimitReached: the limit of memory or of seconds.
        """

    def late(self, premise: Expr, goal: Expr, binding: Binding, form: Form, within: Within) -> Path | None:
        """After a complete `explore`: a run through `premise`, and then as many steps as `within` has, without `goal`.

        For `Form.EVENTUALLY` the premise holds in the initial state.

        Raises:
            LimitReached: the limit of memory or of seconds.
        """

    def occurs(self, expr: Expr, binding: Binding) -> bool:
        """After a complete `explore`: whether the condition holds in some state."""


def memory_ended(limits: Limits) -> str:
    """The reason, in words, for a stop after a failed allocation."""
    limit = limits.memory_bytes >> 20
    return f"stopped since no memory could be allocated (limit {limit:,} MiB): free some, or check a smaller system"


@contextmanager
def memory_bounded(limits: Limits) -> Iterator[None]:
    """Turn an allocation that fails into a limit that is reached.

    Raises:
        LimitReached: memory ran out.
    """
    try:
        yield
    except MemoryError:
        raise LimitReached(memory_ended(limits)) from None


class Clock:
    """Elapsed seconds against a limit. Only this class reads time in the checker; a verdict never depends on it."""

    def __init__(self, limits: Limits) -> None:
        self.restart(limits)

    def restart(self, limits: Limits) -> None:
        self._start = time.perf_counter()
        self._limits = limits

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._start

    def stop_reason(self, distinct: int, memory_bytes: int) -> str:
        """The limit that has been passed, in words; empty if no limit has."""
        if distinct > self._limits.states:
            return f"stopped at {distinct:,} states (limit {self._limits.states:,}; raise it with --max-states)"
        if memory_bytes > self._limits.memory_bytes:
            limit = self._limits.memory_bytes >> 20
            return f"stopped at {memory_bytes >> 20:,} MiB (limit {limit:,} MiB; raise it with --max-memory)"
        if self.seconds > self._limits.seconds:
            return (
                f"stopped after {self.seconds:.0f} s (limit {self._limits.seconds:.0f} s; raise it with --max-seconds)"
            )
        return ""

    def check(self, memory_bytes: int = 0) -> None:
        """Check the limits of seconds and of memory.

        Raises:
            LimitReached: a limit has been passed.
        """
        reason = self.stop_reason(0, memory_bytes)
        if reason:
            raise LimitReached(reason)


class ShowingClock(Clock):
    """A clock that also reports the progress of a search, once in `REPORT_SECONDS`."""

    def __init__(self, limits: Limits, engine: str, on_progress: OnProgress) -> None:
        super().__init__(limits)
        self._engine = engine
        self._on_progress = on_progress

    def restart(self, limits: Limits) -> None:
        super().restart(limits)
        self._shown = 0.0

    def show(self, phase: str, distinct: int, levels: int) -> None:
        seconds = self.seconds
        if seconds - self._shown >= REPORT_SECONDS:
            self._shown = seconds
            self._on_progress(Progress(self._engine, phase, distinct, max(0, levels - 1), seconds))
