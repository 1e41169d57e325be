"""The store of a round, in which agents exchange their numbers of workers: a wait ends with the round."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import torch.distributed as dist

from ..rendezvous.bootstrap import BATCH, ROUND_POLL_SECONDS


class RoundOver(Exception):
    """The round ended before its members had exchanged their numbers of workers."""


class Exchange:
    """A store whose operations are tried again until they succeed, or the round is over."""

    def __init__(self, store: Any, look: Callable[[], None], poll_seconds: float = ROUND_POLL_SECONDS) -> None:
        """`look` raises when waiting has become pointless; it is called every `poll_seconds`."""
        self._store, self._look, self._poll_seconds = store, look, poll_seconds

    def _try(self, operation: Callable[[], Any]) -> Any:
        while True:
            self._look()
            began = time.monotonic()
            try:
                return operation()
            except dist.DistError:  # the key is absent, or the store is away
                time.sleep(max(0.0, self._poll_seconds - (time.monotonic() - began)))

    def set(self, key: str, value: Any) -> None:
        self._try(lambda: self._store.set(key, value))

    def multi_set(self, keys: Sequence[str], values: Sequence[Any]) -> None:
        self._try(lambda: self._store.multi_set(list(keys), list(values)))

    def get(self, key: str) -> bytes:
        return self.multi_get([key])[0]

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        found: list[bytes] = []
        for first in range(0, len(keys), BATCH):  # a poll names few keys, however many agents there are
            wanted = list(keys[first : first + BATCH])
            self._try(partial(self._store.wait, wanted, timedelta(seconds=self._poll_seconds)))
            found += self._try(partial(self._store.multi_get, wanted))
        return found
