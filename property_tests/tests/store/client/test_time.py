"""The client's time limits, whatever the server does, and its waits in several threads."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from torch.distributed import DistStoreError, PrefixStore  # type: ignore[attr-defined]

from trystate.impl.host.deadlines import rounded
from trystate.impl.store.client import codec
from trystate.impl.store.client import connection as connections
from trystate.model.store.vocabulary import Query
from trystate.property_tests.support.stores.client.common import (
    AMPLE,
    HOST,
    LACKING,
    OPERATIONS,
    SHORT,
    peer,
    receive_exactly,
    within,
)
from trystate.property_tests.support.stores.client.servers import Served, frozen
from trystate.store import InvalidArgument, OutcomeUnknown, StoreTimeout, TCPStore


def test_every_operation_keeps_its_timeout_while_the_server_is_frozen(server: Served) -> None:
    names = [name for name in OPERATIONS if name not in LACKING[server.kind]]

    def attempt(name: str, store: TCPStore) -> None:
        writes, operation = OPERATIONS[name]
        with within(0.2), pytest.raises(OutcomeUnknown if writes else StoreTimeout) as raised:
            operation(store)
        assert f":{server.port}" in str(raised.value)
        assert name.split()[0].removeprefix("multi_") in str(raised.value)

    stores = [TCPStore(HOST, server.port) for _ in names]
    for store in stores:
        store.set_timeout(SHORT)
    with ThreadPoolExecutor(len(names)) as threads, frozen(server):
        for each in [threads.submit(attempt, *pair) for pair in zip(names, stores, strict=True)]:
            each.result(5)
    for store in stores:
        store.close()


def test_a_timeout_of_zero_is_kept_while_the_server_is_frozen(shared: dict[str, Served]) -> None:
    """A round trip, or the first one on a new connection: a quarter of a second each, and four seconds for all."""
    server = shared["ours"]
    with TCPStore(HOST, server.port) as store:
        store.set_timeout(timedelta(0))
        with frozen(server):
            began = time.monotonic()
            for _ in range(4):
                for look in (store.num_keys, store.list_keys, lambda: store.get("a"), lambda: store.wait(["a", "b"])):
                    with pytest.raises(StoreTimeout):
                        look()
            assert time.monotonic() - began < 10.0


def test_the_constructor_keeps_its_timeout_while_the_server_is_frozen(server: Served) -> None:
    with frozen(server), within(0.2), pytest.raises(StoreTimeout, match=r"no answer within 0\.2 s"):
        TCPStore(HOST, server.port, timeout=SHORT)


def test_clone_keeps_its_timeout_while_the_server_is_frozen(server: Served) -> None:
    with TCPStore(HOST, server.port) as store:
        store.set_timeout(SHORT)
        with frozen(server), within(0.2), pytest.raises(StoreTimeout):
            store.clone()


# Waiting.


def test_a_server_that_pauses_ends_no_wait(store: TCPStore, server: Served, key: str) -> None:
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(store.wait, [key])
        time.sleep(0.1)
        with frozen(server):
            time.sleep(1.5)  # longer than a server of torch's is left alone
        store.set(key, "1")
        waiting.result(15)


def test_a_get_of_two_requests_keeps_its_timeout() -> None:
    def legacy(connection: socket.socket) -> None:
        receive_exactly(connection, len(codec.GREETING))
        connection.sendall(struct.pack("<IB", codec.PING_NONCE, 1))
        if connection.recv(100)[0] == Query.GET:
            return  # hung up, for a missing key
        time.sleep(1)
        connection.sendall(b"\0")  # CHECK: it is there
        while connection.recv(100):
            pass

    with peer(legacy) as port, TCPStore(HOST, port, timeout=timedelta(seconds=1)) as store:
        assert not store.libuvBackend
        with within(1), pytest.raises(StoreTimeout):
            store.get("a")


def test_a_wait_that_times_out_says_when_for_what_and_where(store: TCPStore, server: Served) -> None:
    with within(0.2), pytest.raises(StoreTimeout, match=rf"wait\('nobody', 'never'\).*200ms.*:{server.port}"):
        store.wait(["nobody", "never"], SHORT)
    with pytest.raises(DistStoreError):
        store.wait(["nobody"], timedelta(0))


@pytest.mark.parametrize("longest", [connections.LONGEST_SECONDS, 0.05])
def test_a_wait_of_more_than_poll_can_count_goes_on(
    store: TCPStore, key: str, longest: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "LONGEST_SECONDS", longest)
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(store.wait, [key], timedelta(milliseconds=2**32 + 50))
        with pytest.raises(TimeoutError):
            waiting.result(0.5)
        assert not waiting.done()
        store.set(key, "1")
        waiting.result(15)


def test_the_longest_timedelta_is_a_timeout(store: TCPStore, key: str) -> None:
    store.set_timeout(timedelta.max)
    store.set(key, "1")
    store.wait([key], timedelta.max)
    assert store.multi_get([key, key]) == [b"1", b"1"]


@pytest.mark.parametrize("name", ["get", "queue_len", "set"])
def test_a_negative_timeout_is_refused_by_the_operations_name(ours: TCPStore, name: str) -> None:
    PrefixStore("p", ours).set_timeout(timedelta(seconds=-1))
    ours._idle = deque()  # the fast path finds one too late to refuse it
    with pytest.raises(InvalidArgument, match=rf"^{name}: the timeout is -1"):
        OPERATIONS[name][1](ours)


def test_times_in_texts_are_rounded_to_the_millisecond() -> None:
    assert [rounded(seconds) for seconds in (0.999995, 1.2345, 300.0, 2_000_000.0)] == [
        "1", "1.234", "300", "2000000",
    ]  # fmt: skip


def test_a_timeout_that_meets_its_answer_leaves_the_stream_in_step(store: TCPStore, key: str) -> None:
    ends = {"in time": 0, "late": 0}

    def set_later(name: str, seconds: float) -> None:
        time.sleep(seconds)
        store.set(name, "v")

    with ThreadPoolExecutor() as threads:
        for i in range(150):
            name = f"{key}-{i}"
            setting = threads.submit(set_later, name, 0.001 * (i % 5))
            try:
                store.wait([name], timedelta(milliseconds=2))
                ends["in time"] += 1
            except StoreTimeout:
                ends["late"] += 1
            setting.result()
            assert (store.add(key, 1), store.check([name])) == (i + 1, True)
    assert all(ends.values()), ends


@pytest.mark.parametrize("kind", ["ours", "libuv"])  # the legacy one can only be asked in two requests, and hangs up
def test_get_never_returns_what_nobody_set(shared: dict[str, Served], kind: str, key: str) -> None:
    """torch's own client returns b"" here nearly every time."""
    store = TCPStore(HOST, shared[kind].port, timeout=AMPLE)
    stop = threading.Event()

    def toggle() -> None:
        while not stop.is_set():
            store.set(key, "v")
            store.delete_key(key)

    with store, ThreadPoolExecutor() as threads:
        toggling = threads.submit(toggle)
        try:
            assert {store.get(key) for _ in range(200)} == {b"v"}
        finally:
            stop.set()
            toggling.result()
