"""The fast paths of `client.fast_path` have the results of the slow paths, and keep timeouts if no server answers.

The client's watches report every change once and in order, and give a notice if a change may be missed.
"""

from __future__ import annotations

import gc
import queue
import signal
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed import PrefixStore  # type: ignore[attr-defined]

from trystate.impl.store.client import client
from trystate.impl.store.client.calls import GRACE_SECONDS
from trystate.impl.store.client.client import IDLE_CONNECTIONS_MAX, CallText
from trystate.impl.store.client.connection import Connection
from trystate.property_tests.adapters.torch_store.server import OurServer, Server
from trystate.property_tests.support.stores.client.common import HOST, OPERATIONS, SHORT, frozen, until, within
from trystate.store import ConnectionLost, OutcomeUnknown, StoreClosed, StoreTimeout, TCPStore

MISUSED: list[Any] = [None, 1.5, b"bytes", "\ud800", "k" * 9000, 1 << 63, bytearray(b"v")]
KEYS = st.sampled_from(["", "a", "b", "\u00e9", "/", "init/"]) | st.sampled_from(MISUSED)
VALUES = st.sampled_from(["", "7", "x", b"7", b"x" * 5000, str((1 << 63) - 1)]) | st.sampled_from(MISUSED)
NUMBERS = st.sampled_from([0, 1, -5, True, (1 << 63) - 1]) | st.sampled_from(MISUSED)
CALLS = st.one_of(
    st.tuples(st.just("set"), KEYS, VALUES),
    st.tuples(st.just("get"), KEYS),
    st.tuples(st.just("add"), KEYS, NUMBERS),
    st.tuples(st.just("compare_set"), KEYS, VALUES, VALUES),
    st.tuples(st.just("append"), KEYS, VALUES),
    st.tuples(st.just("delete_key"), KEYS),
    st.tuples(st.just("queue_len"), KEYS),
    st.tuples(st.just("check"), st.lists(KEYS, max_size=2) | st.tuples(KEYS) | KEYS),
)


class Long(TCPStore):
    """A store that does not use the fast paths."""

    def _use_fast_paths(self) -> None:
        pass


def outcome(store: TCPStore, call: tuple[Any, ...]) -> object:
    name, *arguments = call
    try:
        return getattr(store, name)(*arguments)
    except Exception as error:
        return type(error), str(error).replace(f":{store.port}", "")


@given(st.lists(CALLS, max_size=12))
def test_the_short_ways_say_what_the_long_ones_say(shared: dict[str, Server], calls: list[tuple[Any, ...]]) -> None:
    seen = []
    for kind in (TCPStore, Long):
        with kind(HOST, shared["ours"].port) as store:
            store.set_timeout(timedelta(0))
            for key in store.list_keys():
                store.delete_key(key)
            seen.append([outcome(store, call) for call in calls] + [store.multi_get(store.list_keys())])
            assert len(store._client._connections) == 1  # a refusal does not break the connection
    assert seen[0] == seen[1]


def test_get_honours_the_timeout_that_torch_has_set(ours: TCPStore) -> None:
    ours.set("k", "1")
    assert ours.get("k") == b"1"
    PrefixStore("p", ours).set_timeout(SHORT)
    with within(0.2), pytest.raises(StoreTimeout, match="200ms"):
        ours.get("nobody")


class Interrupted(deque[Connection]):
    """Idle connections; an exception, as of a signal's handler, is raised once, after the step `after`."""

    def __init__(self, connections: deque[Connection], after: str) -> None:
        super().__init__(connections)
        self.after = after

    def pop(self) -> Connection:  # type: ignore[override]
        connection = super().pop()
        self._raise("pop")
        return connection

    def append(self, connection: Connection) -> None:
        super().append(connection)
        self._raise("append")

    def _raise(self, step: str) -> None:
        if self.after == step:
            self.after = ""
            raise KeyboardInterrupt


@pytest.mark.parametrize("after", ["pop", "append"])
def test_an_exception_during_an_operation_loses_no_connection(ours: TCPStore, key: str, after: str) -> None:
    connections = Interrupted(ours._client.idle, after)
    ours._client.idle = ours._idle = connections
    with pytest.raises(KeyboardInterrupt):
        ours.add(key, 1)
    gc.collect()
    assert set(connections) == set(ours._client._connections)  # after "pop" the connection was closed and removed
    assert ours.add(key, 1) == (2 if after == "append" else 1)


def test_many_threads_share_the_lines_and_leave_few_idle(ours: TCPStore, key: str) -> None:
    def count() -> None:
        for _ in range(200):
            ours.add(key, 1)
            assert ours.check([key])

    users = 2 * IDLE_CONNECTIONS_MAX
    with ThreadPoolExecutor(users) as threads:
        for each in [threads.submit(count) for _ in range(users)]:
            each.result(30)
    assert ours.get(key) == str(200 * users).encode()
    assert len(ours._client.idle) <= IDLE_CONNECTIONS_MAX
    assert set(ours._client.idle) == set(ours._client._connections)


@pytest.mark.parametrize("name", ["get", "set"])
def test_signals_do_not_stretch_the_timeout(shared: dict[str, Server], name: str) -> None:
    """With a timeout of the socket, the kernel would begin a new timeout after each signal."""
    server, (_, operation), heard = shared["ours"], OPERATIONS[name], list[int]()
    before = signal.signal(signal.SIGALRM, lambda number, frame: heard.append(number))
    with TCPStore(HOST, server.port) as store, frozen(server):
        store.set_timeout(SHORT)
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        try:
            with within(0.2), pytest.raises((OutcomeUnknown, StoreTimeout)):
                operation(store)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
    assert len(heard) > 10


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


def test_a_watch_that_begins_while_its_store_is_closed_ends_with_it(
    ours: TCPStore, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store: Any = ours.clone()
    dedicated = store._client.dedicated

    def closing(*given: Any) -> Any:
        connection = dedicated(*given)
        store.close()
        return connection

    monkeypatch.setattr(store._client, "dedicated", closing)
    with pytest.raises(StoreClosed):
        store.watch_key(key, print)


def test_an_operation_has_the_time_that_its_connection_took_less(
    ours: TCPStore, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ours.clone() as store:
        pool, clock = store._client, iter([0.0, 1.5])  # type: ignore[attr-defined]
        pool._close_idle()
        connection = pool._another(CallText("wait", [b"/a"], 2.0))
        monkeypatch.setattr(pool, "_another", lambda call: connection)
        monkeypatch.setattr(pool, "ask", Mock(return_value=True))
        monkeypatch.setattr(client, "monotonic", lambda: next(clock))
        store.wait([key], timedelta(seconds=2))
        _, request, _, within, _ = pool.ask.call_args.args
        monkeypatch.undo()
    assert (500).to_bytes(8, "little") in request and within == 0.5 + GRACE_SECONDS


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
    keys = [f"k{number}" for number in range(8)]
    with OurServer() as server, TCPStore(HOST, server.port) as ours, ThreadPoolExecutor(len(keys)) as threads:

        def watch(key: str) -> None:
            ours.watch_key(key, lambda event: told.put(event.key))
            ours.set(key, "1")

        threads.map(watch, keys)
        assert sorted(told.get(timeout=30) for _ in keys) == keys
