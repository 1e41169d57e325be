"""Threads that call watch_key at once: torch 1.9's mutex keeps their acknowledgements apart, also in the program."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

import pytest

from trystate.impl.store.tcp import TCPStore
from trystate.impl.store.tcp_server import TCPStoreServer
from trystate.model.store import registrations
from trystate.model.store.registrations import Registrations
from trystate.model.store.vocabulary import Change, Edition, Registration
from trystate.property_tests.adapters.seed_store.scenarios import until
from trystate.property_tests.adapters.seed_store.store import Store, listen
from trystate.property_tests.adapters.seed_store.wire import Query, recv, recv_blob
from trystate.property_tests.support.mutants import altered, planted, rewritten
from trystate.property_tests.support.pinned import Asked, bare, model_tests, report, violated
from trystate.property_tests.support.systems.changed import changed, puts

SEED, TRYSTATE = Edition.SEED, Edition.TRYSTATE
# fmt: off
ASKED = (
    Asked(Registrations, TRYSTATE, "thread=2", 27),
    Asked(Registrations, TRYSTATE, "thread=3", 159),
    Asked(Registrations, SEED, "thread=2", 33),
    Asked(Registrations, SEED, "thread=3", 135),
)
# fmt: on
DEPTHS = {SEED: (44, 12), TRYSTATE: (40, 8)}  # edges and depth with two threads


WakesAny = altered("WakesAny", registrations.Ours, "acknowledge", "s.answers.head.thread == ord_(thread) + 1",
    "s.call[thread] == Call.SENT")  # fmt: skip
WithoutTheMutex = changed(registrations.Seed, "WithoutTheMutex", take_the_mutex=None, may_send=Registrations.may_send)
KeepsTheMutex = changed(registrations.Seed, "KeepsTheMutex", returns=puts(call=Registration.RETURNED))
# fmt: off
MUTANTS = (
    ("returned_means_registered", WithoutTheMutex, "thread=2", ()),
    ("one_is_between", WithoutTheMutex, "thread=2", ()),
    ("calls_return", KeepsTheMutex, "thread=2", ()),
    ("deadlock_freedom", KeepsTheMutex, "thread=2", ()),
)
# fmt: on

TestModel = model_tests(ASKED, MUTANTS, ASKED)


@pytest.mark.parametrize("edition", DEPTHS)
def test_the_graph_is_of_this_size(edition: Edition) -> None:
    found = report(Asked(Registrations, edition, "thread=2", 0)).exploration
    assert (found.edges, found.depth) == DEPTHS[edition]


def test_an_acknowledgement_of_ours_for_any_thread_is_caught() -> None:
    assert "returned_means_registered" in violated(report(Asked(bare(WakesAny), TRYSTATE, "thread=2", 0)))


# ---- the program of torch 1.9


def returned_after_one_acknowledgement() -> tuple[list[bytes], str]:
    """Two threads watch a and b, and the server acknowledges the first request, which is for a.

    Returns the requests, and the first thread whose call returns. Thread a begins its wait only when thread b sleeps or
    cannot send its request.
    """
    back: queue.SimpleQueue[str] = queue.SimpleQueue()
    goes_on = threading.Event()
    with listen() as listener, Store(listener.getsockname()[1]) as store, listener.accept()[0], _line(listener) as line:
        assert store.worker is not None
        registration = store.worker.registration
        wait: Callable[[], None] = registration.wait

        def late() -> None:
            if threading.current_thread().name == "a":
                goes_on.wait(10)
            wait()

        registration.wait = late  # type: ignore[method-assign]
        threads = [threading.Thread(target=_watch, args=(store, name, back), name=name) for name in "ab"]
        threads[0].start()
        asked = [_request(line)]
        threads[1].start()
        line.settimeout(0.3)
        with suppress(TimeoutError):
            asked.append(_request(line))
            assert until(lambda: registration._sleepers)
        line.settimeout(10)
        line.sendall(bytes([Change.REGISTERED]))
        assert until(lambda: registration.announcements)
        if len(asked) == 1:
            goes_on.set()
        returned = back.get(timeout=10)
        goes_on.set()
        if len(asked) == 1:
            asked.append(_request(line))
        line.sendall(bytes([Change.REGISTERED]))
        for thread in threads:
            thread.join(10)
    return asked, returned


def _line(listener: socket.socket) -> socket.socket:
    return listener.accept()[0]


def _watch(store: Store, name: str, back: queue.SimpleQueue[str]) -> None:
    store.watch_key(name, lambda old, new: None)
    back.put(name)


def _request(line: socket.socket) -> bytes:
    assert recv(line, 1) == bytes([Query.WATCH_KEY])
    return recv_blob(line)


def test_with_the_mutex_the_thread_returns_whose_request_was_acknowledged() -> None:
    assert returned_after_one_acknowledgement() == ([b"/a", b"/b"], "a")


def test_without_the_mutex_another_thread_returns() -> None:
    with planted(rewritten(Store.watch_key, "with self._watch_lock:", "if True:")):
        assert returned_after_one_acknowledgement() == ([b"/a", b"/b"], "b")


def test_our_threads_watch_at_once_and_each_is_told_of_its_key() -> None:
    told: queue.SimpleQueue[str] = queue.SimpleQueue()
    with TCPStoreServer() as server, TCPStore(server.host, server.port) as ours:

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
