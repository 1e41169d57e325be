"""How a node hears that the state changed, on any store: it waits for a key, or it looks.

Rule: whoever hears nothing looks after the time that it was told to wait; news makes it faster, never right.
"""

from __future__ import annotations

import random
import threading
import time
from datetime import timedelta
from typing import Any, Protocol

import torch.distributed as dist

from ..store.base import Store

ABSENT = b"\x00absent"  # no value of ours; compared with an absent key, a store answers with what it was given
SLICE_SECONDS_MIN = 0.005  # torch's stores count whole milliseconds, and wait for ever if there are none
SLICE_SECONDS = 0.5  # a wait of torch's stores cannot be ended from outside: it takes no longer than this
WAIT_SECONDS = 5.0  # one of ours ends when the store is closed, but whether a server still lives is seen after it
LOOK_SECONDS_MIN, LOOK_SECONDS_MAX = 0.001, 0.25  # between two looks: the first and the last
KEPT = 64  # keys of older news that are left, for those who are late


class Notifier(Protocol):
    """What `Backend.wait` and `tell` come to on one kind of store; no wait begins once `ended` is set."""

    def wait(self, news: int, seconds: float) -> None: ...
    def tell(self, news: int) -> None: ...


def look(store: Any, key: str) -> bytes | None:
    """The value of a key, in one request that never waits; None: it has none."""
    found = bytes(store.compare_set(key, ABSENT, ABSENT))
    return None if found == ABSENT else found


def listen(store: Any, key: str, ended: threading.Event) -> Notifier:
    """The best that this store has."""
    base = store
    while hasattr(base, "underlying_store"):
        base = base.underlying_store
    if isinstance(base, POLLED):
        return PollingNotifier(ended)
    return KeyNotifier(store, key, ended, WAIT_SECONDS if isinstance(base, Store) else SLICE_SECONDS)


# torch's FileStore polls while it waits, its TCPStore writes a warning whenever a wait ends without the key.
POLLED = (dist.FileStore, dist.TCPStore)  # type: ignore[attr-defined]


class KeyNotifier:
    """A store in which a key can be waited for has a key for each news: no thread and no connection beside the own."""

    def __init__(self, store: Any, key: str, ended: threading.Event, most: float) -> None:
        """`most`: seconds that one wait may take."""
        self._store, self._key, self._ended, self._most = store, key, ended, most

    def wait(self, news: int, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._ended.is_set() and (left := until - time.monotonic()) > 0:
            began, most = time.monotonic(), min(max(left, SLICE_SECONDS_MIN), self._most)
            try:
                self._store.wait([f"{self._key}/{news + 1}"], timedelta(seconds=most))
                return
            except (RuntimeError, ValueError, OSError):  # late, or the store is not there: whoever reads next will see
                if time.monotonic() - began < most / 2:
                    self._ended.wait(min(most, SLICE_SECONDS))
                    return

    def tell(self, news: int) -> None:
        self._store.set(f"{self._key}/{news}", "")
        if news > KEPT:
            self._store.delete_key(f"{self._key}/{news - KEPT}")


class PollingNotifier:
    """Elsewhere a node looks, at first often; `wait` returns before there is news, so that its caller looks."""

    def __init__(self, ended: threading.Event) -> None:
        self._ended = ended
        self._known, self._pause = -1, LOOK_SECONDS_MIN

    def wait(self, news: int, seconds: float) -> None:
        self._pause = min(2 * self._pause, LOOK_SECONDS_MAX) if news == self._known else LOOK_SECONDS_MIN
        self._known = news
        self._ended.wait(min(seconds, self._pause * random.uniform(0.5, 1.0)))

    def tell(self, news: int) -> None:
        pass
