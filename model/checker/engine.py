"""The interface of every engine, so that the checker can ask any of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from ..errors import LimitReached
from ..language.expressions import Expr
from .kernel import Binding, Exploration, Kernel, Lasso, Limits, Watch


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a search is: shown on a terminal while it runs."""

    engine: str
    phase: str
    distinct: int
    depth: int
    seconds: float


OnProgress = Callable[[Progress], None]


def quiet(_: Progress) -> None:
    """Show nothing."""


class Engine(Protocol):
    """One way of answering watches and lassos about a kernel. One engine object serves one search."""

    name: str
    limits: Limits
    on_progress: OnProgress

    def __init__(self, kernel: Kernel, limits: Limits, on_progress: OnProgress = quiet) -> None: ...

    def explore(self, watches: Sequence[Watch]) -> Exploration:
        """Visit every reachable state, or stop at a limit; `found` has a shortest path per watch that occurs.

        For a watch with an instance the path ends with the step of that instance. An allocation that fails is a
        limit too: the search stops, and keeps what it has found.
        """

    def lasso(self, premise: Expr, goal: Expr, binding: Binding) -> Lasso | None:
        """After a complete `explore`: a weakly fair run through `premise` on which `goal` stays false from there on.

        Raises:
            LimitReached: of memory or seconds.
        """


def memory_ended(limits: Limits) -> str:
    """Why a search stopped whose allocation failed, in words."""
    limit = limits.memory_bytes >> 20
    return f"stopped as the process got no more memory (limit {limit:,} MiB): free some, or check a smaller system"


@contextmanager
def memory_bounded(limits: Limits) -> Iterator[None]:
    """Turn an allocation that fails into a limit that is reached.

    Raises:
        LimitReached: memory has ended.
    """
    try:
        yield
    except MemoryError:
        raise LimitReached(memory_ended(limits)) from None


class Clock:
    """Elapsed seconds against a limit. The only time in the checker; it decides when to stop, never what is true."""

    def __init__(self, limits: Limits) -> None:
        self.restart(limits)

    def restart(self, limits: Limits) -> None:
        self._start = time.perf_counter()
        self._limits = limits

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._start

    def stop_reason(self, distinct: int, memory_bytes: int) -> str:
        """Which limit has been passed, in words; empty if none."""
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

    def check(self) -> None:
        """Go on only within the seconds.

        Raises:
            LimitReached: they are over.
        """
        reason = self.stop_reason(0, 0)
        if reason:
            raise LimitReached(reason)
