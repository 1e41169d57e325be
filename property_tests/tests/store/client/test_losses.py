"""The client's server is lost, late, or none of a store."""

from __future__ import annotations

import socket
import struct
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed import DistNetworkError

from trystate.impl.host.resolver import Address
from trystate.impl.store.client import client, codec
from trystate.impl.store.client.connection import Connection
from trystate.impl.store.wire import blob
from trystate.property_tests.support.stores.client.common import HOST, OPERATIONS, SHORT, greet, peer, within
from trystate.property_tests.support.stores.client.servers import KINDS, Served, frozen, kill, serving
from trystate.store import ConnectionLost, OutcomeUnknown, StoreClosed, StoreTimeout, TCPStore, TCPStoreServer

# Loss.


@pytest.mark.parametrize("kind", KINDS)
def test_after_the_server_died_the_next_operation_raises(kind: str) -> None:
    with serving(kind) as server, TCPStore(HOST, server.port, timeout=timedelta(seconds=5)) as store:
        store.set("a", "1")
        kill(server)
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
                with within(0), pytest.raises(ConnectionLost, match="restarted and is empty: make a new store"):
                    operation()
            with TCPStore(HOST, first.port) as anew:
                assert anew.num_keys() == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_wait_ends_when_the_server_dies(kind: str) -> None:
    with serving(kind) as server, TCPStore(HOST, server.port) as store, ThreadPoolExecutor() as threads:
        waiting = threads.submit(store.wait, ["a"])
        time.sleep(0.2)
        kill(server)
        with within(0), pytest.raises(ConnectionLost, match=r"wait\('a'\)"):
            waiting.result(5)


def test_close_ends_a_wait_in_another_thread(server: Served) -> None:
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
    ("libuv", "add"),  # afterwards a look at what the key holds is tried
])  # fmt: skip
def test_a_write_during_which_the_store_is_closed_may_have_happened(
    shared: dict[str, Served], kind: str, name: str
) -> None:
    server, (_, operation) = shared[kind], OPERATIONS[name]
    store = TCPStore(HOST, server.port)
    with ThreadPoolExecutor() as threads, frozen(server):
        writing = threads.submit(operation, store)
        time.sleep(0.1)
        store.close()
        with within(0), pytest.raises(OutcomeUnknown, match=rf"{name}\('.'\): .* closed meanwhile .* may have"):
            writing.result(5)


def test_an_address_that_swallows_everything_leaves_time_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as sockets, TCPStoreServer() as server:
        silent = sockets.enter_context(socket.create_server((HOST, 0), backlog=0))
        for _ in range(4):  # its queue of connections is full
            waiting = sockets.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(silent.getsockname())
        addresses = [(socket.AF_INET, at) for at in (silent.getsockname(), (HOST, server.port))]
        monkeypatch.setattr(client, "resolve", lambda host, port, seconds: addresses)
        with within(0.5), TCPStore("two-addresses", server.port, timeout=timedelta(seconds=1)) as store:
            store.set("a", "1")


def test_a_name_is_looked_up_again_after_its_address_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server((HOST, 0)) as taken:
        gone: Address = socket.AF_INET, taken.getsockname()
    with TCPStoreServer() as server, TCPStore(HOST, server.port, timeout=timedelta(seconds=5)) as store:
        monkeypatch.setattr(store._client, "_addresses", [gone])  # where it was before it moved
        store._client._close_idle()
        with pytest.raises(ConnectionLost):
            store.set("a", "1")
        store.set("a", "1")


def test_a_socket_that_met_itself_has_found_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    met = socket.socket()
    met.bind((HOST, 0))
    monkeypatch.setattr(socket, "socket", lambda *arguments: met)  # as the kernel may choose its port
    with pytest.raises(ConnectionRefusedError):
        Connection((socket.AF_INET, met.getsockname()), 5)
    assert met.fileno() == -1


def test_no_server_is_reported_in_time() -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
    with within(0.2), pytest.raises(ConnectionLost, match=r"not reached within 0\.2 s"):
        TCPStore(HOST, port, timeout=SHORT)


def test_a_server_that_starts_later_is_found() -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
    with ThreadPoolExecutor() as threads:
        connecting = threads.submit(TCPStore, HOST, port, timeout=timedelta(seconds=10))
        time.sleep(0.3)
        with TCPStoreServer(HOST, port), connecting.result(10) as store:
            store.set("a", "1")


def test_a_port_of_another_program_is_named_as_such() -> None:
    def web(connection: socket.socket) -> None:
        connection.recv(100)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with peer(web) as port, within(0), pytest.raises(ConnectionLost, match="no TCPStore"):
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


def test_a_server_that_dribbles_does_not_stretch_the_timeout() -> None:
    def dribble(connection: socket.socket) -> None:
        greet(connection)
        connection.recv(100)
        for byte in struct.pack("<BQ", 0, 100) + bytes(100):
            connection.sendall(bytes([byte]))
            time.sleep(0.02)

    with (
        peer(dribble) as port,
        TCPStore(HOST, port, timeout=timedelta(milliseconds=300)) as store,
        within(0.3),
        pytest.raises(StoreTimeout),
    ):
        store.get("a")


def test_a_reply_in_pieces_is_read_whole() -> None:
    def crumble(connection: socket.socket) -> None:
        greet(connection)
        connection.recv(100)
        for byte in struct.pack("<BQ", 0, 5) + b"value":
            connection.sendall(bytes([byte]))
            time.sleep(0.002)
        connection.recv(100)

    with peer(crumble) as port, TCPStore(HOST, port, timeout=timedelta(seconds=5)) as store:
        assert store.get("a") == b"value"


def read_from(reply: Any, data: bytes) -> tuple[object, int]:
    """The result of a reply, and how many bytes it took."""
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
