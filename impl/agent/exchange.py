"""The store of a round, in which agents exchange their numbers of workers: a wait ends with the round."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch.distributed as dist

ROUND_POLL_SECONDS = 0.2  # polling interval of the round's standing


class RoundOver(Exception):
    """The round ended before its members had exchanged their numbers of workers."""


class Exchange:
    """A store whose operations are tried again until they succeed, or the round is over."""

    def __init__(self, store: Any, look: Callable[[], None]) -> None:
        """`look` raises when waiting has become pointless."""
        self._store, self._look = store, look

    def _try(self, operation: Callable[[], Any]) -> Any:
        while True:
            self._look()
            began = time.monotonic()
            try:
                return operation()
            except dist.DistError:  # the key is absent, or the store is away
                time.sleep(max(0.0, ROUND_POLL_SECONDS - (time.monotonic() - began)))

    def set(self, key: str, value: Any) -> None:
        self._try(lambda: self._store.set(key, value))

    def multi_set(self, keys: Sequence[str], values: Sequence[Any]) -> None:
        self._try(lambda: self._store.multi_set(list(keys), list(values)))

    def get(self, key: str) -> bytes:
        return self.multi_get([key])[0]

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        wanted, soon = list(keys), timedelta(seconds=ROUND_POLL_SECONDS)
        self._try(lambda: self._store.wait(wanted, soon))
        found: list[bytes] = self._try(lambda: self._store.multi_get(wanted))
        return found
