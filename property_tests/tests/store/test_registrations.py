"""Threads that call watch_key at once: torch 1.9's mutex keeps their acknowledgements apart."""

from __future__ import annotations

import queue
import threading

import pytest

from trystate.impl.store.tcp import TCPStore
from trystate.impl.store.tcp_server import TCPStoreServer
from trystate.model.store import registrations
from trystate.model.store.registrations import Registrations
from trystate.model.store.vocabulary import Edition, Registration
from trystate.property_tests.support.mutants import altered
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
