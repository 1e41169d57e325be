"""A store with a planted bug, and the test class that finds it: `pytest docs/examples/planted_bug_store.py`.

Its counters are in a separate table. That is faster, but wrong: `set` on a counter changes the other table.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from datetime import timedelta

import torch.distributed as dist

from trystate.testing import Deviation, StoreConformance

INT64 = range(-(1 << 63), 1 << 63)


def whole(value: bytes) -> int:
    if not re.fullmatch(rb"-?[0-9]+", value) or len(value) > 20 or int(value) not in INT64:
        raise ValueError(f"{value!r} is not a 64-bit integer")
    return int(value)


class CountingStore(dist.Store):
    """Values and counters, for the threads of one process."""

    def __init__(self) -> None:
        super().__init__()
        self._values: dict[str, bytes] = {}
        self._counters: dict[str, int] = {}
        self._changed = threading.Condition()

    def _look(self, key: str) -> bytes | None:
        if key in self._counters:
            return b"%d" % self._counters[key]
        return self._values.get(key)

    def set(self, key: str, value: bytes) -> None:
        with self._changed:
            self._values[key] = value  # the bug: a counter of that name keeps its old value
            self._changed.notify_all()

    def get(self, key: str) -> bytes:
        return self.multi_get([key])[0]

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        with self._changed:
            self._wait(keys, self.timeout)
            return [self._look(key) or b"" for key in keys]

    def multi_set(self, keys: Sequence[str], values: Sequence[bytes]) -> None:
        if len(keys) != len(values):
            raise ValueError(f"{len(keys)} keys, {len(values)} values")
        with self._changed:
            for key, value in zip(keys, values, strict=True):
                self.set(key, value)

    def add(self, key: str, amount: int) -> int:
        with self._changed:
            value = self._look(key)
            number = 0 if value is None else whole(value)
            if number + amount not in INT64:
                raise OverflowError(f"{number} + {amount} has more than 64 bits")
            self._counters[key] = number = number + amount
            self._changed.notify_all()
            return number

    def compare_set(self, key: str, expected: bytes, desired: bytes) -> bytes:
        with self._changed:
            value = self._look(key)
            if (value or b"") != expected:
                return expected if value is None else value
            self.set(key, desired)
            return desired

    def append(self, key: str, value: bytes) -> None:
        with self._changed:
            self.set(key, (self._look(key) or b"") + value)

    def delete_key(self, key: str) -> bool:
        with self._changed:
            return [self._values.pop(key, None), self._counters.pop(key, None)] != [None, None]

    def check(self, keys: Sequence[str]) -> bool:
        with self._changed:
            return all(self._look(key) is not None for key in keys)

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        with self._changed:
            self._wait(keys, self.timeout if timeout is None else timeout)

    def _wait(self, keys: Sequence[str], timeout: timedelta) -> None:
        if timeout < timedelta(0):
            raise ValueError(f"a timeout of {timeout}")
        if not self._changed.wait_for(lambda: self.check(keys), timeout.total_seconds()):
            raise dist.DistStoreError(f"timed out after {timeout}: {keys}")

    def num_keys(self) -> int:
        with self._changed:
            return len(self._values.keys() | self._counters.keys())

    # C++ looks these two up under its own names.
    deleteKey, getNumKeys = delete_key, num_keys

    def clone(self) -> CountingStore:
        return self


class TestCountingStore(StoreConformance):
    # Known deviations, which the suite does not report: no queues, no listing, a shared timeout in clones, and the
    # barrier that torch.distributed.Store builds on add, set and wait.
    deviations = frozenset({
        Deviation.LACKS_QUEUES, Deviation.LACKS_LIST_KEYS, Deviation.BARRIER_COUNTS_IN_TWO_KEYS,
        Deviation.CLONE_SHARES_THE_TIMEOUT,
    })  # fmt: skip

    def make_store(self) -> CountingStore:
        return CountingStore()
