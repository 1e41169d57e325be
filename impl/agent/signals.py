"""Signals that end an agent, or that it forwards to its workers.

A signal that ends the agent acts at once while the agent waits, and later while it must not be interrupted.

The first signal ends the agent in order; a second one means that its user does not want to wait for that.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from torch.distributed.elastic.multiprocessing import SignalException

ECHO_SECONDS = 0.1  # a terminal and a program in between may both send the signal of one Ctrl-C


def numbers(names: str) -> list[signal.Signals]:
    """The signals of `SIGUSR1,SIGUSR2` that this system has."""
    return [getattr(signal, name.strip()) for name in names.split(",") if hasattr(signal, name.strip())]


class Signals:
    """The handlers of some signals, from `install` to `restore`; only a main thread can have any."""

    def __init__(self, names: str, forwarded: str = "", forward: Callable[[int], None] = lambda number: None) -> None:
        """`names`: `SIGTERM,SIGINT`; signals that this system lacks are left out.

        `forwarded`: other signals, which do not end the agent: `forward` is called with each, at once.
        """
        self.got: signal.Signals | None = None
        self.again = False  # a second one came
        self._since = 0.0
        self._forwarded, self._forward = numbers(forwarded), forward
        self._numbers = [*numbers(names), *self._forwarded]
        self._before: dict[int, Any] = {}
        self._waiting = False

    def install(self) -> None:
        """Install the handlers, also again after other code has replaced them."""
        if threading.current_thread() is threading.main_thread():
            for number in self._numbers:
                before = signal.signal(number, self._hear)
                self._before.setdefault(number, before)

    def restore(self) -> None:
        for number, before in self._before.items():
            signal.signal(number, before if before is not None else signal.SIG_DFL)
        self._before = {}

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if number in self._forwarded:
            self._forward(number)
            return
        if self.got is None:
            self.note(signal.Signals(number))
        elif time.monotonic() - self._since >= ECHO_SECONDS:
            self.again = True
        if self._waiting:
            self._waiting = False  # a second signal does not interrupt the reaction to the first
            raise self.error()

    def note(self, number: signal.Signals) -> None:
        """Take the first signal, also if torch's own handler had it, as while workers start."""
        if self.got is None:
            self.got, self._since = number, time.monotonic()

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
