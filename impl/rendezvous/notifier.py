"""Notifications that the state has changed, on any store: a node waits for a key, or polls.

Rule: correctness never depends on notifications; they only shorten the wait. A node without a notification reads the
state at the end of the engine's wait.
"""

from __future__ import annotations

import random
import threading
import time
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from ..store.base import Store
from ..store.contents.rooms import FORMAT
from ..store.tcp import TCPStore
from .rooms.messages import LOOK, Intent

ABSENT = b"\x00absent"  # not a value of ours; a store returns it from a comparison with an absent key
SLICE_SECONDS_MIN = 0.005  # torch's stores count whole milliseconds, and wait for ever on 0 milliseconds
SLICE_SECONDS = 0.5  # limit of a wait of torch's stores, which cannot be ended from outside
WAIT_SECONDS = 5.0  # limit of a wait of ours: closing the store ends it, a dead server is noticed only after it
POLL_SECONDS_MIN, POLL_SECONDS_MAX = 0.001, 0.25  # the first pause between two reads, and the longest
KEPT = 64  # keys of older revisions that are kept for late nodes


def look(store: Any, key: str) -> bytes | None:
    """The value of a key, in one request that never waits; None: the key is absent.

    For the key of a room: the state, which its server encodes.
    """
    found = bytes(store.compare_set(key, ABSENT, ABSENT))
    if found == FORMAT and isinstance(store, TCPStore) and store.rooms:
        run_id = key.removeprefix("trystate/").removesuffix("/state")
        return store.ask_room(run_id, Intent(LOOK, "operator").encode()) or None
    return None if found == ABSENT else found


def has_room(store: Any, key: str) -> bool:
    """Whether the store's server has a room in place of the state with this key."""
    return bytes(store.compare_set(key, ABSENT, ABSENT)) == FORMAT


def listen(store: Any, key: str, ended: threading.Event) -> Notifier:
    """The notifier for this store: a key that is waited for, or polling. No wait begins once `ended` is set."""
    base = store
    while hasattr(base, "underlying_store"):
        base = base.underlying_store
    if isinstance(base, POLLED):
        return PollingNotifier(ended)
    return KeyNotifier(store, key, ended, WAIT_SECONDS if isinstance(base, Store) else SLICE_SECONDS)


# torch's FileStore polls while it waits, its TCPStore writes a warning whenever a wait ends without the key.
POLLED = (dist.FileStore, dist.TCPStore)  # type: ignore[attr-defined]


class KeyNotifier:
    """Each revision has a key, which is set when the revision is written and waited for before."""

    def __init__(self, store: Any, key: str, ended: threading.Event, most: float) -> None:
        """`most`: seconds that one wait in the store may take; a longer wait is split."""
        self._store, self._key, self._ended, self._most = store, key, ended, most

    def wait(self, revision: int, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._ended.is_set() and (left := until - time.monotonic()) > 0:
            began, most = time.monotonic(), min(max(left, SLICE_SECONDS_MIN), self._most)
            try:
                self._store.wait([f"{self._key}/{revision + 1}"], timedelta(seconds=most))
                return
            except (RuntimeError, ValueError, OSError):  # a timeout, or the store is away: the next read shows which
                if time.monotonic() - began < most / 2:
                    self._ended.wait(min(most, SLICE_SECONDS))
                    return

    def notify(self, revision: int) -> None:
        self._store.set(f"{self._key}/{revision}", "")
        if revision > KEPT:
            self._store.delete_key(f"{self._key}/{revision - KEPT}")


class PollingNotifier:
    """Polling: `wait` returns after a pause, and its caller reads. The pause doubles while nothing changes."""

    def __init__(self, ended: threading.Event) -> None:
        self._ended = ended
        self._known, self._pause = -1, POLL_SECONDS_MIN

    def wait(self, revision: int, seconds: float) -> None:
        self._pause = min(2 * self._pause, POLL_SECONDS_MAX) if revision == self._known else POLL_SECONDS_MIN
        self._known = revision
        self._ended.wait(min(seconds, self._pause * random.uniform(0.5, 1.0)))

    def notify(self, revision: int) -> None:
        pass


Notifier = KeyNotifier | PollingNotifier
