"""Lines for a person, written where they cannot stop the server.

Rule: logging never waits and never fails. A thread writes the lines, and counts those that it cannot write in time.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
from typing import TextIO

from ...host.visible import visible

LINES_MAX = 1_000  # lines that are not written yet; a reader so far behind does not read


def for_people(line: str) -> str:
    return visible(" ".join(line.split()))


class Log:
    """A bounded, asynchronous writer of lines. `write` is called for each line in a thread, and may raise.

    Lines are for people unless `form` makes them other texts.
    """

    def __init__(self, write: Callable[[str], object], form: Callable[[str], str] = for_people) -> None:
        self._put, self._form = never_raising(write), form
        # A finalizer may log a line while its thread puts another one: `put` of a SimpleQueue allows that.
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._dropped = 0
        self._thread = threading.Thread(target=self._write, name="trystate log", daemon=True)
        self._thread.start()

    def __call__(self, line: str) -> None:
        if self._lines.qsize() < LINES_MAX:
            self._lines.put(line)
        else:
            self._dropped += 1

    def close(self, seconds: float = 1.0) -> None:
        """Write the remaining lines, for at most `seconds`."""
        self._lines.put(None)
        self._thread.join(seconds)

    def _write(self) -> None:
        line: str | None = ""
        while line is not None:
            if (line := self._lines.get()) is not None:
                self._put(self._form(line))
            if self._dropped and self._lines.empty():
                dropped, self._dropped = self._dropped, 0
                self._put(f"{dropped} more lines, not shown: they came faster than they could be written")


def lines_to(stream: TextIO, prefix: str) -> Callable[[str], None]:
    """A function that writes each line to a stream in one piece."""

    def write(line: str) -> None:
        stream.write(f"{prefix}{line}\n")
        stream.flush()

    return write


def never_raising(write: Callable[[str], object]) -> Callable[[str], None]:
    """A function that ignores the exceptions of `write`: a log that cannot be written must not stop the server."""

    def put(line: str) -> None:
        with contextlib.suppress(Exception):
            write(line)

    return put
