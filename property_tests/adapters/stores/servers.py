"""torch's client for a suite, and a store that is as if new though many tests share its server."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from ...harness.stores.handles import AMPLE, Store, c10d
from ...harness.stores.operations import KEYS


def torch_client(port: int, *, libuv: bool = True) -> Store:
    """torch's client; `libuv`: the server is the one that has queues."""
    return c10d.TCPStore("127.0.0.1", port, wait_for_workers=False, timeout=AMPLE, use_libuv=libuv)


def emptied(store: Any, prefix: str = "") -> Any:
    """A store that many tests share, as if it were new: without keys, and without items in the suite's queues."""
    for key in store.list_keys():
        store.delete_key(key)
    with suppress(NotImplementedError):
        for key in ("p", "q", *KEYS):
            while store.queue_len(prefix + key):
                store.queue_pop(prefix + key, False)
    return store
