"""The promises of a backend, asked of every store: one that never waits, loses no write, and hears of notifications."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from trystate.impl.rendezvous import store_backend
from trystate.impl.rendezvous.backend import Backend
from trystate.impl.rendezvous.errors import RendezvousConnectionError
from trystate.impl.rendezvous.store_backend import OPERATION_SECONDS, StoreBackend, connection
from trystate.impl.store.errors import StoreClosed
from trystate.property_tests.adapters.torch_release import require
from trystate.property_tests.support.rendezvous import nodes
from trystate.store import HashStore, TCPStore, TCPStoreServer


@pytest.fixture(params=nodes.BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    with nodes.backend(request.param, tmp_path) as found:
        yield found


def test_what_is_written_is_read_and_nothing_is_overwritten_unseen(backend: Backend) -> None:
    began = time.monotonic()
    assert backend.read() is None
    assert time.monotonic() - began < OPERATION_SECONDS
    assert backend.write(b"one", None) == b"one"
    other = backend.clone()
    assert other.write(b"two", None) == b"one"
    assert other.write(b"two", b"zero") == b"one"
    assert other.write(b"two", b"one") == b"two"
    assert backend.write(b"three", b"one") == b"two"
    assert backend.read() == b"two"
    other.close()


def test_whoever_waits_is_woken_by_news(backend: Backend) -> None:
    other = backend.clone()
    assert backend.write(b"one", None) == b"one"
    timer = threading.Timer(0.2, other.notify, [1])
    timer.start()
    began = time.monotonic()
    backend.wait(0, 10.0)  # may return earlier, where there is nobody to wake it
    assert time.monotonic() - began < 5.0
    timer.join(10.0)
    began = time.monotonic()
    backend.wait(0, 10.0)  # it was told already
    assert time.monotonic() - began < 5.0
    other.close()


def test_without_news_a_wait_ends_in_time(backend: Backend) -> None:
    began = time.monotonic()
    backend.wait(0, 0.2)
    assert time.monotonic() - began < 3.0


@pytest.mark.parametrize("seconds", [0.0, 1e-9, 0.0004, 0.0011])
def test_a_wait_of_next_to_nothing_is_not_one_for_ever(backend: Backend, seconds: float) -> None:
    """torch's stores take a timeout of 0 ms, which is what is left of 0.4 ms, for none."""
    assert nodes.together([lambda: backend.wait(0, seconds)], 5.0) == [None]


def test_a_wait_is_interrupted_and_no_later_one_begins(backend: Backend) -> None:
    backend.read()
    timer = threading.Timer(0.2, backend.interrupt)
    timer.start()
    began = time.monotonic()
    backend.wait(0, 30.0)
    timer.join(10.0)
    backend.wait(0, 30.0)
    assert time.monotonic() - began < 5.0


def test_a_store_that_can_wait_is_not_asked_again_and_again(tmp_path: Path) -> None:
    """With nothing but looking a node would have to look every few milliseconds to be as fast."""
    for kind in ("ours in memory", "ours in a file", "ours on a server", "torch's on our server", "torch's in memory"):
        (tmp_path / kind).mkdir()
        with nodes.backend(kind, tmp_path / kind) as one:
            one.read()
            began = time.monotonic()
            one.wait(0, 0.3)
            assert time.monotonic() - began > 0.25, kind


def test_a_write_to_a_store_that_lost_its_contents_finds_nothing() -> None:
    """A store answers with what was expected if the key is not there: that is not what it holds."""
    with HashStore() as store:
        backend = StoreBackend(store, "job")
        assert backend.write(b"one", None) == b"one"
        store.delete_key("trystate/job/state")
        assert backend.write(b"two", b"one") is None
        assert backend.read() is None
        backend.close()


def test_two_jobs_on_one_store_do_not_see_each_other() -> None:
    with HashStore() as store:
        one, two = StoreBackend(store, "one"), StoreBackend(store, "two")
        assert one.write(b"one", None) == b"one"
        assert two.read() is None
        one.close()
        two.close()


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


def test_a_server_that_dies_ends_the_wait() -> None:
    with TCPStoreServer() as server, TCPStore("127.0.0.1", server.port) as store:
        backend = StoreBackend(store, "job")
        threading.Timer(0.3, server.close).start()
        began = time.monotonic()
        backend.wait(0, 15.0)
        assert time.monotonic() - began < 10.0
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


def test_a_connection_that_is_made_while_the_backend_is_closed_is_closed_as_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, goes_on = threading.Event(), threading.Event()
    made: list[TCPStore] = []

    def slowly(store: TCPStore) -> TCPStore:
        begun.set()
        goes_on.wait(20.0)
        made.append(connection(store))
        return made[-1]

    monkeypatch.setattr(store_backend, "connection", slowly)
    with TCPStoreServer() as server, TCPStore("127.0.0.1", server.port) as store:
        backend = StoreBackend(store, "job")

        def closes() -> None:
            begun.wait(20.0)
            backend.close()
            goes_on.set()

        found, _ = nodes.together([backend.read, closes])
        assert isinstance(found, RendezvousConnectionError)
        with pytest.raises(StoreClosed):
            made[0].num_keys()
        assert backend.read() is None, "who goes on connects anew"
        backend.close()


def test_a_prefix_of_torchs_does_not_keep_our_connection_open() -> None:
    require("clone")
    with TCPStoreServer() as server, TCPStore("127.0.0.1", server.port) as store:
        backend = StoreBackend(nodes.TorchStores.PrefixStore("p", store), "job")
        before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
        for _ in range(5):
            other = backend.clone()
            assert other.read() is None
            other.close()
        assert before == 0 or len(os.listdir("/proc/self/fd")) < before + 5
        backend.read()
        threading.Timer(0.2, backend.interrupt).start()
        began = time.monotonic()
        backend.wait(0, 5.0)
        assert time.monotonic() - began < 4.0
        assert store.num_keys() >= 0, "the origin is its owner's to close"


def test_a_closed_backend_says_so_or_connects_anew_but_never_hangs(backend: Backend) -> None:
    backend.close()
    backend.close()
    began = time.monotonic()
    backend.wait(0, 30.0)
    assert time.monotonic() - began < 5.0
