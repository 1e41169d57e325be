"""The deadlines with which tests open a FileStore, and the contents of one."""

from __future__ import annotations

from datetime import timedelta

from trystate.impl.store.file.store import FileStore

AMPLE = timedelta(seconds=30)
SHORT = timedelta(milliseconds=50)


def state(store: FileStore) -> dict[str, bytes]:
    keys = store.list_keys()
    return dict(zip(keys, store.multi_get(keys), strict=True))
