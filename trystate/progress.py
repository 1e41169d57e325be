"""How far a command is, on stderr: one live line on a terminal, plain lines anywhere else."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.status import Status
from rich.text import Text

from trystate.model.checker.engine import Progress


class Reporter:
    """Tells what is being done. `search` is what an engine reports to."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._status: Status | None = None
        self._doing = ""

    @contextmanager
    def doing(self, what: str) -> Iterator[None]:
        """While the block runs, `what` is what is being done."""
        self._doing = what
        if not self._console.is_terminal:
            print(what, file=sys.stderr, flush=True)
            yield
            return
        with self._console.status(Text(what)) as self._status:
            try:
                yield
            finally:
                self._status = None

    def done(self, text: str) -> None:
        """Leave a line behind."""
        print(text, file=sys.stderr, flush=True)

    def search(self, progress: Progress) -> None:
        """Show how far an engine is; nothing where it would fill a log."""
        p = progress
        self.detail(f"{p.engine} {p.phase}: {p.distinct:,} states, depth {p.depth}, {p.seconds:.0f} s")

    def detail(self, text: str) -> None:
        if self._status is not None:
            self._status.update(Text(f"{self._doing}: {text}"))
