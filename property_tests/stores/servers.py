"""Servers of stores in child processes, for suites whose clients are here.

Rule: never a server and torch's client in one process: torch's client holds the interpreter's lock while it waits for
some answers, so that a server in Python beside it could not give them.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from ..torch_store.server import TorchLegacyServer, TorchServer
from .handles import AMPLE, Store, c10d
from .operations import KEYS

LIBUV, LEGACY = "libuv", "legacy"
TORCH_SERVERS = {LIBUV: TorchServer, LEGACY: TorchLegacyServer}


def torch_client(port: int, kind: str) -> Store:
    return c10d.TCPStore("127.0.0.1", port, wait_for_workers=False, timeout=AMPLE, use_libuv=kind == LIBUV)


def emptied(store: Any, prefix: str = "") -> Any:
    """A store that many tests share, as if it were new: without keys, and without items in the suite's queues."""
    for key in store.list_keys():
        store.delete_key(key)
    with suppress(NotImplementedError):
        for key in ("p", "q", *KEYS):
            while store.queue_len(prefix + key):
                store.queue_pop(prefix + key, False)
    return store
