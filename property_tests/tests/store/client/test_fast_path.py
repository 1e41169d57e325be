"""The fast paths of `client.fast_path` have the results of the slow paths, and keep timeouts if no server answers."""

from __future__ import annotations

import gc
import signal
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed import PrefixStore  # type: ignore[attr-defined]

from trystate.impl.store.client.client import IDLE_CONNECTIONS_MAX
from trystate.impl.store.client.connection import Connection
from trystate.property_tests.adapters.torch_store.server import Server
from trystate.property_tests.support.stores.client.common import HOST, OPERATIONS, SHORT, frozen, within
from trystate.store import OutcomeUnknown, StoreTimeout, TCPStore

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


class Ctrl(KeyboardInterrupt):
    """The exception of a signal's handler."""


class Interrupted(deque[Connection]):
    """Idle connections; an exception is raised once, after the step `after`."""

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
            raise Ctrl


@pytest.mark.parametrize("after", ["pop", "append"])
def test_an_exception_during_an_operation_loses_no_connection(ours: TCPStore, key: str, after: str) -> None:
    connections = Interrupted(ours._client.idle, after)
    ours._client.idle = ours._idle = connections
    with pytest.raises(Ctrl):
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


@contextmanager
def alarms(seconds: float) -> Iterator[list[int]]:
    """Send a signal to this thread every `seconds`; yields the received signals."""
    heard: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, frame: heard.append(number))
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
    try:
        yield heard
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("name", ["get", "set"])
def test_signals_do_not_stretch_the_timeout(shared: dict[str, Server], name: str) -> None:
    """With a timeout of the socket, the kernel would begin a new timeout after each signal."""
    server, (_, operation) = shared["ours"], OPERATIONS[name]
    with TCPStore(HOST, server.port) as store:
        store.set_timeout(SHORT)
        with frozen(server), alarms(0.001) as heard, within(0.2), pytest.raises((OutcomeUnknown, StoreTimeout)):
            operation(store)
        assert len(heard) > 10
