"""Signals that are handled otherwise for a while."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

STOPS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def handled(handlers: Mapping[signal.Signals, Callable[[int, Any], Any]]) -> Iterator[None]:
    """These functions handle the signals in this block. In another thread than the main one no handler runs."""
    here = handlers if threading.current_thread() is threading.main_thread() else {}
    before = {number: signal.signal(number, handler) for number, handler in here.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
