"""Timeouts of the stores in tests, a store of each kind, and the contents of a FileStore."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from trystate.impl.store.base import Store
from trystate.impl.store.file.store import FileStore
from trystate.impl.store.hash import HashStore
from trystate.impl.store.prefix import PrefixStore
from trystate.impl.store.tcp import TCPStore

AMPLE = timedelta(seconds=30)
SHORT = timedelta(milliseconds=50)


def opened(kind: str, folder: Path) -> Store:
    """A new store of this kind."""
    match kind:
        case "HashStore":
            return HashStore(AMPLE)
        case "TCPStore":
            return TCPStore("127.0.0.1", 0, is_master=True, timeout=AMPLE)
        case "PrefixStore":
            return PrefixStore.owning("p", opened("FileStore", folder))
        case _:
            return FileStore(folder / "store", timeout=AMPLE)


def state(store: FileStore) -> dict[str, bytes]:
    keys = store.list_keys()
    return dict(zip(keys, store.multi_get(keys), strict=True))
