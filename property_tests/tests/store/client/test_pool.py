"""The pool of connections, while threads race for idle connections."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from trystate.impl.store.client import client
from trystate.impl.store.client.connection import Connection
from trystate.property_tests.adapters.torch_store.server import Server
from trystate.property_tests.support.stores.client.common import HOST, SHORT, until, within
from trystate.store import ConnectionLost, StoreTimeout, TCPStore


def test_connections_that_are_being_opened_count(
    shared: dict[str, Server], key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    most, users, opened = 3, 12, []
    monkeypatch.setattr(client, "CONNECTIONS_MAX", most)
    connect = client.Client.open

    def slowly(self: client.Client, seconds: float) -> Connection:
        opened.append(seconds)
        time.sleep(0.05)
        return connect(self, seconds)

    with TCPStore(HOST, shared["ours"].port) as store, ThreadPoolExecutor(users) as threads:
        monkeypatch.setattr(client.Client, "open", slowly)
        for each in [threads.submit(store.add, key, 1) for _ in range(users)]:
            each.result(30)
        assert store.get(key) == str(users).encode()
        assert len(opened) <= most - 1  # the constructor has opened one


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


def test_a_connection_that_could_not_be_opened_leaves_room_for_another(
    ours: TCPStore, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "CONNECTIONS_MAX", 1)

    def broken(self: client.Client, seconds: float) -> Connection:
        raise ConnectionRefusedError

    ours._client._drop(ours._client.idle.pop())
    with monkeypatch.context() as patch, pytest.raises(ConnectionLost):
        patch.setattr(client.Client, "open", broken)
        ours.add(key, 1)
    assert ours.add(key, 1) == 1
