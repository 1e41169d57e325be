"""The seats of a client at barriers: whose call raised has its seat again, and nobody else has it meanwhile."""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import timedelta

import pytest
from trystate.impl.store.client import Client
from trystate.impl.store.seats import LEFT_MAX, Seats
from trystate.impl.store.wire import SEAT_BYTES
from trystate.model.store.vocabulary import Extension
from trystate.property_tests.support.stores.client.common import HOST, peer

from trystate.store import OutcomeUnknown, TCPStore


def left(seats: Seats, name: bytes) -> bytes:
    """The seat of a call that raises."""
    with pytest.raises(KeyboardInterrupt), seats.taken(name) as seat:
        raise KeyboardInterrupt
    return seat


def taken(seats: Seats, name: bytes) -> bytes:
    """The seat of a call that returns."""
    with seats.taken(name) as seat:
        return seat


def test_a_call_that_returned_leaves_its_seat_to_nobody() -> None:
    seats = Seats()
    found = {taken(seats, b"a") for _ in range(100)}
    assert (len(found), set(map(len, found))) == (100, {SEAT_BYTES})


def test_the_next_call_after_one_that_raised_has_its_seat() -> None:
    seats = Seats()
    first = left(seats, b"a")
    assert taken(seats, b"b") != first
    assert left(seats, b"a") == first
    assert taken(seats, b"a") == first
    assert taken(seats, b"a") != first


def test_calls_at_one_time_have_seats_of_their_own() -> None:
    seats = Seats()
    with pytest.raises(KeyboardInterrupt), seats.taken(b"a") as one, seats.taken(b"a") as other:
        raise KeyboardInterrupt
    with ExitStack() as calls:
        found = [calls.enter_context(seats.taken(b"a")) for _ in range(3)]
    assert len(set(found)) == 3
    assert set(found) >= {one, other}


def test_seats_that_are_never_taken_again_do_not_pile_up() -> None:
    seats = Seats()
    first = left(seats, b"first")
    for number in range(LEFT_MAX):
        left(seats, b"%d" % number)
    assert len(seats._left) == LEFT_MAX
    assert taken(seats, b"first") != first


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_has_none_of_its_parents_seats() -> None:
    client = Client(HOST, 1, None)
    seat = left(client.seats, b"a")
    pid = os.fork()
    if not pid:
        os._exit(taken(client.seats, b"a") == seat)
    assert os.waitpid(pid, 0)[1] == 0
    assert taken(client.seats, b"a") == seat


@contextmanager
def losing_the_first_barrier(port: int) -> Iterator[int]:
    """A way to the server that breaks for the client once a BARRIER has passed, and for the server never."""
    ways: list[socket.socket] = []

    def carry(connection: socket.socket) -> None:
        ways.append(way := socket.create_connection((HOST, port)))
        while True:
            readable, _, _ = select.select([connection, way], [], [])
            for source, other in ((connection, way), (way, connection)):
                data = source.recv(1 << 16) if source in readable else None
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
