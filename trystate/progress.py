"""How far a command is, on stderr: one live line on a terminal, plain lines anywhere else."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.status import Status
from rich.text import Text

from trystate.model.checker.engine import Progress

LINE_SECONDS = 5.0  # time between two lines if the output is not a terminal


class Reporter:
    """Prints what is being done. An engine reports to `search`."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._status: Status | None = None
        self._doing = ""

    @contextmanager
    def doing(self, what: str) -> Iterator[None]:
        """Show `what` while the block runs."""
        if not self._console.is_terminal:
            print(what, file=sys.stderr, flush=True)
            yield
            return
        with self._live(what):
            yield

    @contextmanager
    def counting(self, names: Sequence[str], costs: Sequence[int]) -> Iterator[Callable[[int], None]]:
        """Print how many of these are done, and the time left; the block passes the number of each that is done.

        `costs` compare them: the time left is computed from the remaining costs and the rate so far.
        """
        count = TaskCount(names, costs)
        with self.showing(count.line) as changed:

            def done(number: int) -> None:
                count.done(number)
                changed()

            yield done

    @contextmanager
    def showing(self, line: Callable[[], str]) -> Iterator[Callable[[], None]]:
        """Show a line that changes while the block runs; the block calls the result after each change."""
        if self._console.is_terminal:
            with self._live(line()):

                def changed() -> None:
                    self._doing = line()
                    self.detail("")

                yield changed
            return
        over = threading.Event()
        thread = threading.Thread(target=_print_lines, args=(line, over), daemon=True)
        thread.start()
        try:
            yield lambda: None
        finally:
            over.set()
            thread.join()

    @contextmanager
    def _live(self, what: str) -> Iterator[None]:
        self._doing = what
        with self._console.status(Text(what)) as self._status:
            try:
                yield
            finally:
                self._status = None

    def done(self, text: str) -> None:
        """Print a line that stays."""
        print(text, file=sys.stderr, flush=True)

    def search(self, progress: Progress) -> None:
        """Show how far an engine is; nothing where it would fill a log."""
        p = progress
        self.detail(f"{p.engine} {p.phase}: {p.distinct:,} states, depth {p.depth}, {p.seconds:.0f} s")

    def detail(self, text: str) -> None:
        if self._status is not None:
            self._status.update(Text(": ".join(part for part in (self._doing, text) if part)))


class TaskCount:
    """How many of a list are done, and how long the others will take."""

    def __init__(self, names: Sequence[str], costs: Sequence[int]) -> None:
        self._costs = dict(enumerate(costs))
        self._names, self._all = names, max(sum(costs), 1)
        self._last = ""
        self._began = time.monotonic()

    def done(self, number: int) -> None:
        """The one with this number is done."""
        del self._costs[number]
        self._last = self._names[number]

    def line(self) -> str:
        """`17 of 97 done, about 40 s left; the last: ...`."""
        left, total = sum(self._costs.values()), len(self._names)
        text = f"{total - len(self._costs)} of {total} done"
        if self._last and left < self._all:
            seconds = (time.monotonic() - self._began) * left / (self._all - left)
            text += f", about {shown(seconds)} left; the last: {self._last}"
        return text


def shown(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def _print_lines(line: Callable[[], str], over: threading.Event) -> None:
    while not over.wait(LINE_SECONDS):
        print(line(), file=sys.stderr, flush=True)
