"""torch's stores for a suite, on every release: a client, a clone, the missing operations, and an emptied store."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from trystate.impl.torch_release import lacks

from ...harness.stores.deviations import Deviation
from ...harness.stores.handles import AMPLE, Store, c10d
from ...harness.stores.sequences import KEYS


def torch_client(port: int, *, libuv: bool = True) -> Store:
    """torch's client; `libuv`: whether the server is torch's libuv server, which has queues."""
    return c10d.TCPStore("127.0.0.1", port, wait_for_workers=False, timeout=AMPLE, use_libuv=libuv)


def missing() -> frozenset[Deviation]:
    """The deviations of the installed torch's stores, which lack operations of later releases."""
    since = {
        "queue_push": Deviation.LACKS_QUEUES, "list_keys": Deviation.LACKS_LIST_KEYS,
        "barrier": Deviation.LACKS_BARRIER,
    }  # fmt: skip
    found = frozenset(deviation for method, deviation in since.items() if lacks(c10d.TCPStore, method))
    return found | {Deviation.UNKNOWN_REQUESTS_CLOSE} if found else found


def cloned(store: Any) -> Any:
    """`store.clone()`; before torch 2.8, which introduced the method, a store with the same data."""
    if not lacks(store, "clone"):
        return store.clone()
    if isinstance(store, c10d.PrefixStore):  # torch does not return the prefix, which is P in each suite
        return c10d.PrefixStore("P", cloned(store.underlying_store))
    if isinstance(store, c10d.FileStore):
        return c10d.FileStore(store.path, 1)
    if isinstance(store, c10d.TCPStore):
        other = torch_client(store.port, libuv=store.libuvBackend)
        other.set_timeout(store.timeout)
        return other
    return store


def emptied(store: Any, prefix: str = "") -> Any:
    """A store that many tests share, without its keys and without the items of the suite's queues."""
    for key in store.list_keys():
        store.delete_key(key)
    with suppress(NotImplementedError):
        for key in ("p", "q", *KEYS):
            while store.queue_len(prefix + key):
                store.queue_pop(prefix + key, False)
    return store
