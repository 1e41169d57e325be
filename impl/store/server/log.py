"""Lines for a person, written where they cannot stop the server.

Rule: logging never waits and never fails. A thread writes the lines, and counts those that it cannot write in time.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from typing import TextIO

from ...host.visible import visible

LINES_MAX = 1_000  # lines that are not written yet; a reader so far behind does not read


class Log:
    """A bounded, asynchronous writer of lines. `write` is called for each line in a thread, and may raise."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self._put = never_raising(write)
        self._lines: deque[str] = deque()
        self._dropped = 0
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._write, name="trystate log", daemon=True)
        self._thread.start()

    def __call__(self, line: str) -> None:
        with self._changed:
            if len(self._lines) < LINES_MAX:
                self._lines.append(line)
            else:
                self._dropped += 1
            self._changed.notify()

    def close(self, seconds: float = 1.0) -> None:
        """Write the remaining lines, for at most `seconds`."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(seconds)

    def _write(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._lines or self._closed)
                lines, dropped = list(self._lines), self._dropped
                self._lines.clear()
                self._dropped = 0
            if not lines:
                return
            if dropped:
                lines.append(f"{dropped} more lines, not shown: they came faster than they could be written")
            for line in lines:
                self._put(visible(" ".join(line.split())))


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
