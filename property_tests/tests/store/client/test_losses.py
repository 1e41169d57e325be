"""The client's server is lost, is late, or is not a store."""

from __future__ import annotations

import socket
import struct
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed import DistNetworkError, DistStoreError, PrefixStore  # type: ignore[attr-defined]

from trystate.impl.host.deadlines import rounded
from trystate.impl.store.client import codec
from trystate.impl.store.client import connection as connections
from trystate.impl.store.client.connection import Connection
from trystate.impl.store.wire import blob
from trystate.model.store.vocabulary import Query
from trystate.property_tests.adapters.our_store.wire import received
from trystate.property_tests.adapters.torch_store.server import Server
from trystate.property_tests.support.stores.client.common import HOST, LACKING, OPERATIONS, SHORT, greet, peer, within
from trystate.property_tests.support.stores.client.servers import KINDS, SERVERS, frozen
from trystate.store import (
    ConnectionLost,
    InvalidArgument,
    OutcomeUnknown,
    StoreClosed,
    StoreTimeout,
    TCPStore,
    TCPStoreServer,
)

# Lost servers.


@pytest.mark.parametrize("kind", KINDS)
def test_after_the_server_died_the_next_operation_raises(kind: str) -> None:
    with SERVERS[kind]() as server, TCPStore(HOST, server.port, timeout=timedelta(seconds=5)) as store:
        store.set("a", "1")
        server.kill()
        with within(0), pytest.raises(OutcomeUnknown, match="may have happened"):
            store.set("a", "2")
        with within(0), pytest.raises(ConnectionLost) as raised:
            store.set("a", "3")
        assert not isinstance(raised.value, OutcomeUnknown)
        assert isinstance(raised.value, DistNetworkError)


def test_a_server_that_was_restarted_is_empty_and_says_so() -> None:
    with TCPStoreServer(HOST) as first, TCPStore(HOST, first.port, timeout=timedelta(seconds=5)) as store:
        store.set("a", "1")
        first.close()
        with TCPStoreServer(HOST, first.port), pytest.raises(OutcomeUnknown):
            store.set("a", "2")
        with TCPStoreServer(HOST, first.port):
            for operation in (lambda: store.add("a", 1), lambda: store.check(["a"]), store.clone):
                with within(0), pytest.raises(ConnectionLost, match="restarted and is empty; make a new store"):
                    operation()
            with TCPStore(HOST, first.port) as anew:
                assert anew.num_keys() == 0


def test_close_ends_a_wait_in_another_thread(server: Server) -> None:
    with ThreadPoolExecutor() as threads:
        store = TCPStore(HOST, server.port)
        waiting = threads.submit(store.wait, ["nobody"])
        time.sleep(0.1)
        store.close()
        with within(0), pytest.raises(StoreClosed, match="nobody"):
            waiting.result(5)
        for _, operation in OPERATIONS.values():
            with pytest.raises(StoreClosed):
                operation(store)
        store.close()


@pytest.mark.parametrize(("kind", "name"), [
    ("ours", "add"),  # has a fast path
    ("ours", "append"),
    ("libuv", "add"),  # afterwards the client tries to read the key
])  # fmt: skip
def test_a_write_during_which_the_store_is_closed_may_have_happened(
    shared: dict[str, Server], kind: str, name: str
) -> None:
    server, (_, operation) = shared[kind], OPERATIONS[name]
    store = TCPStore(HOST, server.port)
    with ThreadPoolExecutor() as threads, frozen(server):
        writing = threads.submit(operation, store)
        time.sleep(0.1)
        store.close()
        with within(0), pytest.raises(OutcomeUnknown, match=rf"{name}\('.'\): .* closed meanwhile .* may have"):
            writing.result(5)


def test_a_socket_that_met_itself_has_found_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    met = socket.socket()
    met.bind((HOST, 0))
    monkeypatch.setattr(socket, "socket", lambda *arguments: met)  # the kernel may choose this port
    with pytest.raises(ConnectionRefusedError):
        Connection((socket.AF_INET, met.getsockname()), 5)
    assert met.fileno() == -1


def test_a_port_of_another_program_is_named_as_such() -> None:
    def web(connection: socket.socket) -> None:
        connection.recv(100)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with peer(web) as port, within(0), pytest.raises(ConnectionLost, match="not a TCPStore"):
        TCPStore(HOST, port, timeout=timedelta(seconds=5))


def test_an_absurd_length_is_not_believed() -> None:
    def boast(connection: socket.socket) -> None:
        greet(connection)
        connection.recv(100)
        connection.sendall(struct.pack("<BQ", 0, 1_300_000_000_000))
        connection.recv(100)

    with (
        peer(boast) as port,
        TCPStore(HOST, port, timeout=timedelta(seconds=5)) as store,
        within(0),
        pytest.raises(ConnectionLost, match="1300000000000"),
    ):
        store.get("a")


def read_from(reply: Any, data: bytes) -> tuple[object, int]:
    """The result of a reply, and the number of bytes that it took."""
    at, need = 0, next(reply)
    while True:
        piece = data[at : at + need]
        at += need
        try:
            need = reply.send(piece)
        except StopIteration as end:
            return end.value, at


@given(st.lists(st.binary(max_size=20), max_size=5), st.binary(max_size=9))
def test_a_reply_takes_exactly_its_own_bytes(values: list[bytes], rest: bytes) -> None:
    data = struct.pack("<q", len(values)) + b"".join(map(blob, values))
    assert read_from(codec.counted_blobs(), data + rest) == (values, len(data))


@given(st.binary(max_size=30))
def test_a_decoder_says_what_the_whole_reading_says(data: bytes) -> None:
    for decode, whole in (
        (codec.decode_ready, codec.ready),
        (codec.decode_done, codec.granted(codec.done)),
        (codec.decode_flag, codec.granted(codec.flag)),
        (codec.decode_number, codec.granted(codec.number)),
        (codec.decode_blob, codec.granted(codec.a_blob)),
    ):
        for candidate in (data, b"\0" + data, b"\0" + data[:1], b"\0" + data[:8], b"\0" + blob(data)):
            seen = decode(candidate)
            if seen is not None:
                assert (seen, len(candidate)) == read_from(whole(), candidate)


def test_no_server_is_reported_in_time() -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
    with within(0.2), pytest.raises(ConnectionLost, match=r"not reached within 0\.2 s"):
        TCPStore(HOST, port, timeout=SHORT)


def test_an_answer_in_single_bytes_does_not_stretch_the_timeout() -> None:
    def answer_in_single_bytes(connection: socket.socket) -> None:
        greet(connection)
        connection.recv(100)
        for byte in struct.pack("<BQ", 0, 100) + bytes(100):
            connection.sendall(bytes([byte]))
            time.sleep(0.02)

    with (
        peer(answer_in_single_bytes) as port,
        TCPStore(HOST, port, timeout=timedelta(milliseconds=300)) as store,
        within(0.3),
        pytest.raises(StoreTimeout),
    ):
        store.get("a")


@pytest.mark.parametrize("kind", KINDS)
def test_a_wait_ends_when_the_server_dies(kind: str) -> None:
    with SERVERS[kind]() as server, TCPStore(HOST, server.port) as store, ThreadPoolExecutor() as threads:
        waiting = threads.submit(store.wait, ["a"])
        time.sleep(0.2)
        server.kill()
        with within(0), pytest.raises(ConnectionLost, match=r"wait\('a'\)"):
            waiting.result(5)


# Timeouts.


def test_every_operation_keeps_its_timeout_while_the_server_is_frozen(server: Server) -> None:
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


def test_the_constructor_keeps_its_timeout_while_the_server_is_frozen(server: Server) -> None:
    with frozen(server), within(0.2), pytest.raises(StoreTimeout, match=r"no answer within 0\.2 s"):
        TCPStore(HOST, server.port, timeout=SHORT)


def test_a_get_of_two_requests_keeps_its_timeout() -> None:
    def legacy(connection: socket.socket) -> None:
        received(connection, len(codec.GREETING))
        connection.sendall(struct.pack("<IB", codec.PING_NONCE, 1))
        if connection.recv(100)[0] == Query.GET:
            return  # closes the connection, as for a missing key
        time.sleep(1)
        connection.sendall(b"\0")  # CHECK: the key exists
        while connection.recv(100):
            pass

    with peer(legacy) as port, TCPStore(HOST, port, timeout=timedelta(seconds=1)) as store:
        assert not store.libuvBackend
        with within(1), pytest.raises(StoreTimeout):
            store.get("a")


def test_a_wait_that_times_out_says_when_for_what_and_where(store: TCPStore, server: Server) -> None:
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


@pytest.mark.parametrize("name", ["get", "queue_len", "set"])
def test_a_negative_timeout_is_refused_by_the_operations_name(ours: TCPStore, name: str) -> None:
    PrefixStore("p", ours).set_timeout(timedelta(seconds=-1))
    ours._idle = deque()  # the fast path would notice a negative timeout too late
    with pytest.raises(InvalidArgument, match=rf"^{name}: the timeout is -1"):
        OPERATIONS[name][1](ours)


def test_times_in_texts_are_rounded_to_the_millisecond() -> None:
    assert [rounded(seconds) for seconds in (0.999995, 1.2345, 300.0, 2_000_000.0)] == [
        "1", "1.234", "300", "2000000",
    ]  # fmt: skip


def test_the_longest_timedelta_is_a_timeout(store: TCPStore, key: str) -> None:
    store.set_timeout(timedelta.max)
    store.set(key, "1")
    store.wait([key], timedelta.max)
    assert store.multi_get([key, key]) == [b"1", b"1"]


def test_clone_keeps_its_timeout_while_the_server_is_frozen(server: Server) -> None:
    with TCPStore(HOST, server.port) as store:
        store.set_timeout(SHORT)
        with frozen(server), within(0.2), pytest.raises(StoreTimeout):
            store.clone()
