"""The client's watches: every change once and in order, and a notice if a change may be missed."""

from __future__ import annotations

import queue
import threading
from datetime import timedelta
from typing import Any

import pytest

from trystate.property_tests.adapters.torch_store.server import OurServer, Server
from trystate.property_tests.support.stores.client.common import HOST, frozen, until, within
from trystate.store import ConnectionLost, StoreTimeout, TCPStore


def test_a_callback_may_use_the_store_watch_and_cancel(ours: TCPStore, key: str) -> None:
    seen: list[str] = []

    def second(event: Any) -> None:
        seen.append(f"second {event.kind.name}")

    def first(event: Any) -> None:
        seen.append(f"first {ours.get(key).decode()}")
        watch.cancel()
        ours.watch_key(key, second)
        seen.append("done")

    watch = ours.watch_key(key, first)
    ours.set(key, "1")
    until(lambda: "done" in seen)
    ours.set(key, "2")
    ours.append(key, "2")
    ours.delete_key(key)
    until(lambda: len(seen) == 5)
    assert seen == ["first 1", "done", "second UPDATED", "second APPENDED", "second DELETED"]


@pytest.mark.parametrize("end", ["killed", "frozen"])
def test_a_watch_is_told_that_its_server_is_lost(end: str) -> None:
    told: list[Any] = []
    with OurServer() as server, TCPStore(HOST, server.port, timeout=timedelta(seconds=0.6)) as store:
        watch = store.watch_key("a", told.append, told.append)
        store.set("a", "1")
        until(lambda: len(told) == 1)
        if end == "killed":
            server.kill()
        else:
            server.freeze()
        until(lambda: watch.lost)
        until(lambda: len(told) == 2)
    assert isinstance(told[1], ConnectionLost)


def test_a_watch_that_times_out_leaves_the_others(shared: dict[str, Server], key: str) -> None:
    """Its key is already watched, or is not. Its late answers are not taken for answers to later requests."""
    told: list[tuple[str, bytes]] = []
    server = shared["ours"]

    def hear(event: Any) -> None:
        told.append((event.key, event.new))

    with TCPStore(HOST, server.port) as store, TCPStore(HOST, server.port) as writer:
        watches = [store.watch_key(f"{key}-{n}", hear) for n in range(2)]
        store.set_timeout(timedelta(seconds=0.2))
        with frozen(server):
            for late in (f"{key}-0", f"{key}-late"):
                with within(0.2), pytest.raises(StoreTimeout, match=rf"watch_key\('{late}'\): no answer within 0\.2 s"):
                    store.watch_key(late, hear)
        store.set_timeout(timedelta(seconds=20))
        writer.set(f"{key}-late", "of no watch")
        watches.append(store.watch_key(f"{key}-2", hear))
        for n in range(3):
            writer.set(f"{key}-{n}", str(n))
        until(lambda: len(told) >= 3)
        store.watch_key(f"{key}-late", hear)
        writer.set(f"{key}-late", "of a later one")
        until(lambda: len(told) >= 4)
        assert told == [*((f"{key}-{n}", str(n).encode()) for n in range(3)), (f"{key}-late", b"of a later one")]
        assert not any(watch.lost for watch in watches)


def test_our_threads_watch_at_once_and_each_is_told_of_its_key() -> None:
    told: queue.SimpleQueue[str] = queue.SimpleQueue()
    with OurServer() as server, TCPStore(HOST, server.port) as ours:

        def watch(key: str) -> None:
            ours.watch_key(key, lambda event: told.put(event.key))
            ours.set(key, "1")

        keys = [f"k{number}" for number in range(8)]
        threads = [threading.Thread(target=watch, args=(key,)) for key in keys]
        for thread in threads:
            thread.start()
        assert sorted(told.get(timeout=30) for _ in keys) == keys
        for thread in threads:
            thread.join(10)
