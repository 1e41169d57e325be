"""Any torch store with the hooks of our stores, so programs for our stores also run on torch's.

Rule: it adds no guarantee. If torch needs two requests, this also sends two. Operations that torch lacks are refused.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import torch.distributed as dist
from torch.distributed import Store as TorchStore  # type: ignore[attr-defined]

from .. import torch_release
from .base import Event, OnLost, Store, Watch
from .errors import NotSupported
from .operations import Barrier, Check, CompareSet, Get, ListKeys, MultiSet, NumKeys, Operation, QueuePop, Take, Wait

T = TypeVar("T")

_QueueEmptyError = torch_release.queue_empty_error()
BUILT_IN: Any = (dist.FileStore, dist.HashStore, dist.PrefixStore, dist.TCPStore)  # type: ignore[attr-defined]
LONGEST_MS = 1000 * 60 * 60 * 24 * 365
RETRY_SECONDS = 0.005  # the pause of a pop that found nothing; without it a value with the queue's name makes it spin


class Borrowed(Store):
    """A view of another owner's store, which this view never closes."""

    _has_barrier_tokens = False

    def __init__(self, store: Any) -> None:  # Any: torch's stub lacks half of the methods, and bytes as values
        self._store = store
        # A user's store in Python may have no `wait`. Then its own `get` decides whether to wait or to raise.
        self._waits = isinstance(store, BUILT_IN) or type(store).wait is not TorchStore.wait
        super().__init__(store.timeout)

    def _do(self, operation: Operation[T]) -> T:
        result: Any = self._called(operation)
        return result  # type: ignore[no-any-return]

    def _called(self, operation: Operation[Any]) -> Any:
        """The result of torch's method of the same name."""
        store = self._store
        match operation:
            case Take():
                raise NotSupported(
                    f"take: {self._where()} cannot delete and read in one step; use a store of this package"
                )
            case ListKeys(prefix):
                names = [key.encode() for key in self.method("list_keys")()]
                return [name for name in names if name.startswith(prefix)]
            case NumKeys():  # torch's PrefixStore would also count the keys of all other prefixes
                return len(self.method("list_keys")())
            case MultiSet(pairs):
                return store.multi_set([name.decode() for name in pairs[::2]], list(pairs[1::2]))
            case Check(names):
                return bool(store.check([name.decode() for name in names]))
        key, *rest = operation.fields
        result = self.method(operation.SPEC.name)(key.decode(), *rest)
        return bytes(result) if isinstance(operation, CompareSet) else result

    def method(self, name: str) -> Callable[..., Any]:
        """A method of torch's store. Raises NotSupported if the installed torch has none of this name."""
        if lacking := torch_release.lacks(self._store, name):
            raise NotSupported(f"{name}: {self._where()} does not support this: {lacking}; use a store of this package")
        found: Callable[..., Any] = getattr(self._store, name)
        return found

    def _await(self, operation: Operation[T], seconds: float) -> T | None:
        result: Any = None
        match operation:
            case Get(names) if not self._waits:  # a user's store without `wait`: its `get` waits as it likes
                result = _or_none_in_time(lambda: self._read([name.decode() for name in names]))
            case Get(names):
                result = self._read([name.decode() for name in names]) if self._present(names, seconds) else None
            case Wait(names):
                result = self._present(names, seconds)
            case QueuePop(key):
                result = self._popped(key, seconds)
            case Barrier(key, world_size):
                barrier = self.method("barrier")
                result = _in_time(max(seconds, 0.001), lambda left: barrier(key.decode(), world_size, left))
        return result  # type: ignore[no-any-return]

    def _read(self, keys: list[str]) -> list[bytes]:
        if self._store.has_extended_api():
            values: list[bytes] = self._store.multi_get(keys)
            return values
        return [self._store.get(key) for key in keys]

    def _present(self, names: Sequence[bytes], seconds: float) -> bool:
        if seconds <= 0:  # torch's HashStore and FileStore would wait forever with a timeout of 0
            return self._do(Check(names))
        return _in_time(seconds, lambda left: self._store.wait([name.decode() for name in names], left))

    def _popped(self, key: bytes, seconds: float) -> bytes | None:
        deadline, pop = time.monotonic() + seconds, self.method("queue_pop")
        while True:
            try:
                return bytes(pop(key.decode(), False))
            except _QueueEmptyError:  # the queue is empty, or another client took the element first
                left = deadline - time.monotonic()
                if left <= 0 or not self._present([key], left):
                    return None
                time.sleep(min(left, RETRY_SECONDS))

    def _watch(self, name: bytes, callback: Callable[[Event], None], on_lost: OnLost | None = None) -> Watch:
        raise NotSupported(f"watch_key: {self._where()} has no watches; use a store of this package")

    def _where(self) -> str:
        return f"torch's {type(self._store).__name__}"


def _or_none_in_time(call: Callable[[], T]) -> T | None:
    """The result of torch's call; None after a timeout, which is a RuntimeError with "timeout" in its text."""
    try:
        return call()
    except RuntimeError as error:
        if "timeout" in str(error).lower():
            return None
        raise


def _in_time(seconds: float, call: Callable[[timedelta], object]) -> bool:
    """Whether torch's call ends before its time is over."""
    # torch counts whole milliseconds, takes 0 for ever, and overflows at the longest times.
    left = timedelta(milliseconds=min(math.ceil(seconds * 1000), LONGEST_MS))
    return _or_none_in_time(lambda: (call(left),)) is not None
