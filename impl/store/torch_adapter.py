"""Any torch store, with the hooks of ours, so that what is built on our stores runs on torch's as well.

Rule: it adds no guarantee. Where torch takes two requests this takes two, and what torch cannot do is refused.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from torch.distributed import QueueEmptyError

from .base import Event, OnLost, Store, Watch
from .errors import NotSupported

RETRY_SECONDS = 0.005  # of a pop that found nothing; a value of the queue's name would make it spin


class Borrowed(Store):
    """A view of somebody else's store, which stays theirs to end."""

    _has_barrier_tokens = False

    def __init__(self, store: Any) -> None:  # torch's stub lacks half of the methods, and bytes as values
        self._store = store
        super().__init__(store.timeout)

    def _set(self, name: bytes, value: bytes) -> None:
        self._store.set(name.decode(), value)

    def _get(self, names: list[bytes], seconds: float) -> list[bytes] | None:
        if not self._wait(names, seconds):
            return None
        keys = [name.decode() for name in names]
        if self._store.has_extended_api():
            values: list[bytes] = self._store.multi_get(keys)
            return values
        return [self._store.get(key) for key in keys]

    def _multi_set(self, pairs: list[tuple[bytes, bytes]]) -> None:
        self._store.multi_set([name.decode() for name, _ in pairs], [value for _, value in pairs])

    def _add(self, name: bytes, amount: int) -> int:
        return int(self._store.add(name.decode(), amount))

    def _compare_set(self, name: bytes, expected: bytes, desired: bytes) -> bytes:
        return bytes(self._store.compare_set(name.decode(), expected, desired))

    def _append(self, name: bytes, value: bytes) -> None:
        self._store.append(name.decode(), value)

    def _delete(self, name: bytes) -> bool:
        return bool(self._store.delete_key(name.decode()))

    def _take(self, name: bytes) -> bytes | None:
        raise NotSupported(f"take: {self._where()} cannot delete and read in one step; use a store of this package")

    def _check(self, names: list[bytes]) -> bool:
        return bool(self._store.check([name.decode() for name in names]))

    def _wait(self, names: list[bytes], seconds: float) -> bool:
        if seconds <= 0:  # which is for ever to torch's HashStore and FileStore
            return self._check(names)
        return _in_time(seconds, lambda left: self._store.wait([name.decode() for name in names], left))

    def _list_keys(self, prefix: bytes) -> list[bytes]:
        names = [key.encode() for key in self._store.list_keys()]
        return [name for name in names if name.startswith(prefix)]

    def _queue_push(self, name: bytes, value: bytes) -> None:
        self._store.queue_push(name.decode(), value)

    def _queue_pop(self, name: bytes, seconds: float) -> bytes | None:
        deadline = time.monotonic() + seconds
        while True:
            try:
                return bytes(self._store.queue_pop(name.decode(), False))
            except QueueEmptyError:  # or another one was faster
                left = deadline - time.monotonic()
                if left <= 0 or not self._wait([name], left):
                    return None
                time.sleep(min(left, RETRY_SECONDS))

    def _queue_len(self, name: bytes) -> int:
        return int(self._store.queue_len(name.decode()))

    def _barrier(self, name: bytes, world_size: int, seconds: float, token: bytes = b"") -> bool:
        return _in_time(max(seconds, 0.001), lambda left: self._store.barrier(name.decode(), world_size, left))

    def _watch(self, name: bytes, callback: Callable[[Event], None], on_lost: OnLost | None = None) -> Watch:
        raise NotSupported(f"watch_key: {self._where()} cannot; use a store of this package")

    def _where(self) -> str:
        return f"torch's {type(self._store).__name__}"


def _in_time(seconds: float, call: Callable[[timedelta], object]) -> bool:
    """False if torch's call says that its time is over: a RuntimeError whose text alone tells it from others."""
    try:
        call(timedelta(seconds=seconds))
    except RuntimeError as error:
        if "timeout" in str(error).lower():
            return False
        raise
    return True
