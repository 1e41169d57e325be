"""How a node hears that the state changed, on any store: it is told, it waits for a key, or it looks.

Rule: whoever hears nothing looks after the time that it was told to wait; news makes it faster, never right.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from datetime import timedelta
from typing import Any, Protocol

import torch.distributed as dist

from ..store.base import Event
from ..store.errors import NotSupported

ABSENT = b"\x00absent"  # no value of ours; compared with an absent key, a store answers with what it was given
SLICE_SECONDS = 0.5  # a wait of a store cannot be ended from outside: it takes no longer than this
SLICE_SECONDS_MIN = 0.005  # torch's stores count whole milliseconds, and wait for ever if there are none
LOOK_SECONDS_MIN, LOOK_SECONDS_MAX = 0.001, 0.25  # between two looks: the first and the last
KEPT = 64  # keys of older news that are left, for those who are late


class News(Protocol):
    """What `Backend.wait`, `tell` and `interrupt` come to on one kind of store."""

    lost: bool  # nothing will be heard any more

    def wait(self, news: int, seconds: float) -> None: ...
    def tell(self, news: int) -> None: ...
    def interrupt(self) -> None: ...
    def resume(self) -> None: ...


def look(store: Any, key: str) -> bytes | None:
    """The value of a key, in one request that never waits; None: it has none."""
    found = bytes(store.compare_set(key, ABSENT, ABSENT))
    return None if found == ABSENT else found


def listen(store: Any, key: str) -> News:
    """The best that this store has."""
    if hasattr(store, "watch_key"):
        with contextlib.suppress(NotSupported):
            return Told(store, key)
    return Looked() if isinstance(_base(store), POLLED) else Awaited(store, key)


# torch's FileStore polls while it waits, its TCPStore writes a warning whenever a wait ends without the key.
POLLED = (dist.FileStore, dist.TCPStore)  # type: ignore[attr-defined]


def _base(store: Any) -> Any:
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    return store


class Told:
    """A store that has watches tells each change of one key."""

    def __init__(self, store: Any, key: str) -> None:
        self._store, self._key = store, key
        self._heard = threading.Condition()
        self._news, self._ended = -1, False
        self.lost = False
        store.watch_key(key, self._hear, self._lose)
        self._learn(look(store, key))  # what was told before the watch

    def _hear(self, event: Event) -> None:
        self._learn(event.new)

    def _learn(self, value: bytes | None) -> None:
        if value is not None and value.isdigit():
            with self._heard:
                self._news = max(self._news, int(value))
                self._heard.notify_all()

    def _lose(self, _: Exception) -> None:
        with self._heard:
            self.lost = True
            self._heard.notify_all()

    def wait(self, news: int, seconds: float) -> None:
        with self._heard:
            self._heard.wait_for(lambda: self._news > news or self.lost or self._ended, seconds)

    def tell(self, news: int) -> None:
        self._store.set(self._key, str(news))

    def interrupt(self) -> None:
        with self._heard:
            self._ended = True
            self._heard.notify_all()

    def resume(self) -> None:
        with self._heard:
            self._ended = False


class Awaited:
    """A store in which a key can be waited for has a key for each news."""

    lost = False

    def __init__(self, store: Any, key: str) -> None:
        self._store, self._key = store, key
        self._ended = threading.Event()

    def wait(self, news: int, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._ended.is_set() and (left := until - time.monotonic()) > 0:
            began, most = time.monotonic(), min(max(left, SLICE_SECONDS_MIN), SLICE_SECONDS)
            try:
                self._store.wait([f"{self._key}/{news + 1}"], timedelta(seconds=most))
                return
            except (RuntimeError, ValueError, OSError):  # late, or the store is not there: whoever reads next will see
                if time.monotonic() - began < most / 2:
                    self._ended.wait(most)
                    return

    def tell(self, news: int) -> None:
        self._store.set(f"{self._key}/{news}", "")
        self._store.delete_key(f"{self._key}/{news - KEPT}")

    def interrupt(self) -> None:
        self._ended.set()

    def resume(self) -> None:
        self._ended.clear()


class Looked:
    """Elsewhere a node looks, at first often; `wait` returns before there is news, so that its caller looks."""

    lost = False

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._known, self._pause = -1, LOOK_SECONDS_MIN

    def wait(self, news: int, seconds: float) -> None:
        self._pause = min(2 * self._pause, LOOK_SECONDS_MAX) if news == self._known else LOOK_SECONDS_MIN
        self._known = news
        self._ended.wait(min(seconds, self._pause * random.uniform(0.5, 1.0)))

    def tell(self, news: int) -> None:
        pass

    def interrupt(self) -> None:
        self._ended.set()

    def resume(self) -> None:
        self._ended.clear()
