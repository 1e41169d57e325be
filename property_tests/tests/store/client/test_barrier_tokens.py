"""The tokens of a client at barriers: whose call raised has its token again, and nobody else has it meanwhile."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from multiprocessing.connection import wait as readable

import pytest

from trystate.impl.store.client.barrier_tokens import LEFT_MAX, BarrierTokens
from trystate.impl.store.client.client import Client
from trystate.impl.store.wire import TOKEN_BYTES
from trystate.model.store.vocabulary import Extension
from trystate.property_tests.support.stores.client.common import HOST, peer
from trystate.store import OutcomeUnknown, TCPStore


def left(tokens: BarrierTokens, name: bytes) -> bytes:
    """The token of a call that raises."""
    with pytest.raises(KeyboardInterrupt), tokens.held(name) as token:
        raise KeyboardInterrupt
    return token


def held(tokens: BarrierTokens, name: bytes) -> bytes:
    """The token of a call that returns."""
    with tokens.held(name) as token:
        return token


def test_a_call_that_returned_leaves_its_token_to_nobody() -> None:
    tokens = BarrierTokens()
    found = {held(tokens, b"a") for _ in range(100)}
    assert (len(found), set(map(len, found))) == (100, {TOKEN_BYTES})


def test_the_next_call_after_one_that_raised_has_its_token() -> None:
    tokens = BarrierTokens()
    first = left(tokens, b"a")
    assert held(tokens, b"b") != first
    assert left(tokens, b"a") == first
    assert held(tokens, b"a") == first
    assert held(tokens, b"a") != first


def test_calls_at_one_time_have_tokens_of_their_own() -> None:
    tokens = BarrierTokens()
    with pytest.raises(KeyboardInterrupt), tokens.held(b"a") as one, tokens.held(b"a") as other:
        raise KeyboardInterrupt
    with ExitStack() as calls:
        found = [calls.enter_context(tokens.held(b"a")) for _ in range(3)]
    assert len(set(found)) == 3
    assert set(found) >= {one, other}


def test_tokens_that_are_never_taken_again_do_not_pile_up() -> None:
    tokens = BarrierTokens()
    first = left(tokens, b"first")
    for number in range(LEFT_MAX):
        left(tokens, b"%d" % number)
    assert len(tokens._left) == LEFT_MAX
    assert held(tokens, b"first") != first


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_has_none_of_its_parents_tokens() -> None:
    client = Client(HOST, 1, None)
    token = left(client.barrier_tokens, b"a")
    pid = os.fork()
    if not pid:
        os._exit(held(client.barrier_tokens, b"a") == token)
    assert os.waitpid(pid, 0)[1] == 0
    assert held(client.barrier_tokens, b"a") == token


@contextmanager
def losing_the_first_barrier(port: int) -> Iterator[int]:
    """A way to the server that breaks for the client once a BARRIER has passed, and for the server never."""
    ways: list[socket.socket] = []

    def carry(connection: socket.socket) -> None:
        ways.append(way := socket.create_connection((HOST, port)))
        while True:
            ready = readable([connection, way])
            for source, other in ((connection, way), (way, connection)):
                data = source.recv(1 << 16) if source in ready else None
                if data is not None:
                    other.sendall(data)
                    if not data or (len(ways) == 1 and source is connection and data[0] == Extension.BARRIER):
                        return

    try:
        with peer(carry) as lossy_port:
            yield lossy_port
    finally:
        for way in ways:
            way.close()


def test_a_barrier_that_is_tried_again_over_a_lost_connection_counts_once(ours: TCPStore, key: str) -> None:
    with (
        ThreadPoolExecutor() as threads,
        losing_the_first_barrier(ours.port) as port,
        TCPStore(HOST, port, timeout=timedelta(seconds=5)) as store,
    ):
        with pytest.raises(OutcomeUnknown):
            store.barrier(key, 2)
        again = threads.submit(store.barrier, key, 2)
        with pytest.raises(TimeoutError):
            again.result(0.3)
        ours.barrier(key, 2)
        again.result(5)
