"""How far a sweep is, on stderr: one live line on a terminal, and a plain line now and then anywhere else.

Rule: Ctrl-C ends a sweep between two runs, so that what was found is known; a second one ends it at once.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TextIO, TypeVar

from rich.console import Console
from rich.text import Text

LIVE_SECONDS = 0.2  # between two looks of a terminal
PLAIN_SECONDS = 10.0  # between two lines of a log
FIRST_SECONDS = 2.0  # until the first of them
T = TypeVar("T")


class Progress:
    """Counts what is done of `total`. `clock` gives seconds; `stream` is where the lines go."""

    def __init__(
        self, total: int, what: str, *, clock: Callable[[], float] = time.monotonic, stream: TextIO | None = None
    ) -> None:
        self.total, self.done, self.failed, self.interrupted = total, 0, 0, False
        self._what, self._clock = what, clock
        self._console = Console(file=stream or sys.stderr)
        self._began = clock()
        live = self._console.is_terminal
        self._every, self._next = (LIVE_SECONDS, self._began) if live else (PLAIN_SECONDS, self._began + FIRST_SECONDS)
        self._status = self._console.status(Text(str(self))) if live else None

    def watch(self, runs: Iterable[T], failed: Callable[[T], object]) -> Generator[T, None, None]:
        """The runs, counted, until all are done or Ctrl-C was pressed."""
        with self._hearing():
            for one in runs:
                self.done += 1
                self.failed += bool(failed(one))
                yield one
                if self.interrupted:
                    return
                if self._clock() >= self._next:
                    self._next = self._clock() + self._every
                    self._show()

    @property
    def seconds(self) -> float:
        """Since it began."""
        return self._clock() - self._began

    def __str__(self) -> str:
        rate = self.done / self.seconds if self.seconds > 0 else 0.0
        left = f"{_span((self.total - self.done) / rate)} left" if rate else "no rate yet"
        failed = f", {self.failed:,} failed" if self.failed else ""
        return f"{self.done:,} of {self.total:,} {self._what}, {rate:,.3g} a second, {left}{failed}"

    def _show(self) -> None:
        if self._status is not None:
            self._status.update(Text(str(self)))
        else:
            print(self, file=self._console.file, flush=True)

    @contextmanager
    def _hearing(self) -> Iterator[None]:
        before: Any = signal.getsignal(signal.SIGINT)

        def hear(number: int, frame: FrameType | None) -> None:
            signal.signal(signal.SIGINT, before)
            self.interrupted = True

        signal.signal(signal.SIGINT, hear)
        if self._status is not None:
            self._status.start()
        try:
            yield
        finally:
            if self._status is not None:
                self._status.stop()
            signal.signal(signal.SIGINT, before)


def _span(seconds: float) -> str:
    """`42 s`, `7 min`, `3.5 h`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 100 * 60 else f"{seconds / 3600:.1f} h"
