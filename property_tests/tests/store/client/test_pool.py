"""The pool of connections, while threads race for idle connections."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from trystate.impl.store.client import client
from trystate.property_tests.adapters.torch_store.server import Server
from trystate.property_tests.support.stores.client.common import HOST, SHORT, until, within
from trystate.store import StoreTimeout, TCPStore


def test_a_thread_without_a_free_connection_waits_until_its_timeout(
    shared: dict[str, Server], key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "CONNECTIONS_MAX", 1)
    with TCPStore(HOST, shared["ours"].port) as store, ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(store.get, key)
        until(lambda: not store._client.idle)
        store.set_timeout(SHORT)
        with within(SHORT.total_seconds()), pytest.raises(StoreTimeout, match="1 operations are under way"):
            store.set("other", "1")
        with TCPStore(HOST, shared["ours"].port, timeout=timedelta(seconds=20)) as other:
            other.set(key, "1")
        assert waiting.result(20) == b"1"
