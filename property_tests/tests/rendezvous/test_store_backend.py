"""The promises of a backend, tested on every store: no long waits, no lost write, and notifications."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from trystate.impl.rendezvous.backend import Backend
from trystate.impl.rendezvous.errors import RendezvousConnectionError
from trystate.impl.rendezvous.store_backend import OPERATION_SECONDS, StoreBackend
from trystate.property_tests.support.rendezvous import nodes
from trystate.property_tests.support.rendezvous.nodes import at_most
from trystate.store import HashStore, TCPStore, TCPStoreServer


@pytest.fixture(params=nodes.BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    with nodes.backend(request.param, tmp_path) as found:
        yield found


def test_a_written_state_is_read_and_never_overwritten_unseen(backend: Backend) -> None:
    with at_most(OPERATION_SECONDS):
        assert backend.read() is None
    assert backend.write(b"one", None) == b"one"
    other = backend.clone()
    assert other.write(b"two", None) == b"one"
    assert other.write(b"two", b"zero") == b"one"
    assert other.write(b"two", b"one") == b"two"
    assert backend.write(b"three", b"one") == b"two"
    assert backend.read() == b"two"
    other.close()


def test_no_heartbeat_is_lost_and_no_counter_is_waited_for(backend: Backend) -> None:
    with at_most(OPERATION_SECONDS):
        assert not any(backend.counters(["a", "b"]).values())
    assert backend.write(b"a b", None) == b"a b"
    others = {token: backend.clone() for token in "ab"}

    def beats(token: str) -> None:
        for _ in range(10):
            others[token].beat(token)

    assert nodes.together([partial(beats, token) for token in "ab"]) == [None, None]
    for more in (1, 2):
        backend.beat("a")
        with at_most(OPERATION_SECONDS):
            found = backend.counters(["a", "b", "c"])
            assert (found["a"], found["b"], found["c"] or b"") == (b"%d" % (10 + more), b"10", b"")
            assert backend.counters(["a", "b"]) == {"a": found["a"], "b": b"10"}
    assert backend.write(b"b", b"a b") == b"b", "a heartbeat is no write"
    for other in others.values():
        other.close()


def test_a_waiting_node_is_woken_by_a_change(backend: Backend) -> None:
    other = backend.clone()
    assert backend.write(b"one", None) == b"one"
    timer = threading.Timer(0.2, other.notify, [1])
    timer.start()
    with at_most(5.0):
        backend.wait(0, 10.0)  # may return earlier if no client can wake it
    timer.join(10.0)
    with at_most(5.0):
        backend.wait(0, 10.0)  # it was notified before
    other.close()


def test_a_write_to_a_store_that_lost_its_contents_finds_nothing() -> None:
    """If the key does not exist, a store returns the expected value, which is not its contents."""
    with HashStore() as store:
        backend = StoreBackend(store, "job")
        assert backend.write(b"one", None) == b"one"
        store.delete_key("trystate/job/state")
        assert backend.write(b"two", b"one") is None
        assert backend.read() is None
        backend.close()


def test_a_server_that_is_gone_is_named_and_one_that_comes_back_is_found() -> None:
    with TCPStoreServer() as server, TCPStore("127.0.0.1", server.port) as store:
        backend = StoreBackend(store, "job-7")
        assert backend.write(b"one", None) == b"one"
        backend.wait(0, 0.01)
        server.close()
        for operation in (backend.read, lambda: backend.write(b"two", b"one"), lambda: backend.wait(0, 5.0)):
            with pytest.raises(RendezvousConnectionError) as raised:
                operation()
            for text in ("job-7", f"127.0.0.1:{server.port}"):
                assert text in str(raised.value)
            assert str(raised.value).count("server still runs") == 1
        with TCPStoreServer(port=server.port):
            assert backend.read() is None
            assert backend.write(b"two", None) == b"two"
            backend.close()


def test_news_of_a_life_that_is_over_is_not_news() -> None:
    with TCPStoreServer() as server, TCPStore("127.0.0.1", server.port) as store:
        backend = StoreBackend(store, "job")
        backend.notify(57)
        backend.wait(56, 5.0)
        server.close()
        with TCPStoreServer(port=server.port):
            with pytest.raises(RendezvousConnectionError):
                backend.notify(1)
                backend.notify(1)
            began = time.monotonic()
            backend.wait(1, 0.3)
            assert time.monotonic() - began > 0.25
            backend.close()


def test_a_server_that_dies_ends_the_wait() -> None:
    with TCPStoreServer() as server, TCPStore("127.0.0.1", server.port) as store:
        backend = StoreBackend(store, "job")
        threading.Timer(0.3, server.close).start()
        with at_most(10.0):
            backend.wait(0, 15.0)
        backend.close()


def test_a_closed_backend_does_not_hang(backend: Backend) -> None:
    backend.close()
    backend.close()
    with at_most(5.0):
        backend.wait(0, 30.0)
