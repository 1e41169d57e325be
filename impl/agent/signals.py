"""Signals that end an agent: heard at once where it waits, and afterwards where it must not be interrupted.

The first one ends the agent in order; a second one means that its user does not want to wait for that.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from torch.distributed.elastic.multiprocessing import SignalException

ECHO_SECONDS = 0.1  # a terminal and a program between may both send what was one Ctrl-C


class Signals:
    """The handlers of some signals, from `install` to `restore`; only a main thread can have any."""

    def __init__(self, names: str) -> None:
        """`names`: `SIGTERM,SIGINT`; signals that this system lacks are left out."""
        self.got: signal.Signals | None = None
        self.again = False  # a second one came
        self._since = 0.0
        self._numbers = [getattr(signal, name.strip()) for name in names.split(",") if hasattr(signal, name.strip())]
        self._before: dict[int, Any] = {}
        self._waiting = False

    def install(self) -> None:
        """Handle them; again, after somebody else took them over."""
        if threading.current_thread() is threading.main_thread():
            for number in self._numbers:
                before = signal.signal(number, self._hear)
                self._before.setdefault(number, before)

    def restore(self) -> None:
        for number, before in self._before.items():
            signal.signal(number, before if before is not None else signal.SIG_DFL)
        self._before = {}

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self.got is None:
            self.got, self._since = signal.Signals(number), time.monotonic()
        elif time.monotonic() - self._since >= ECHO_SECONDS:
            self.again = True
        if self._waiting:
            self._waiting = False  # a second one does not interrupt what is done about the first
            raise self.error()

    def error(self) -> SignalException:
        assert self.got is not None
        return SignalException(f"the agent got {self.got.name}", sigval=self.got)

    @contextmanager
    def interrupt(self) -> Iterator[None]:
        """A wait inside this context ends with SignalException when a signal comes, or has come."""
        self._waiting = True
        try:
            if self.got is not None:
                raise self.error()
            yield
        finally:
            self._waiting = False
