"""HashStore under threads: a change wakes exactly the threads that wait for it."""

from __future__ import annotations

import os
import queue
import signal
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch.distributed

from trystate.impl.store.base import Event
from trystate.impl.store.errors import ConnectionLost, StoreClosed
from trystate.impl.store.hash import HashStore
from trystate.property_tests.support.stores.client.common import until
from trystate.property_tests.support.stores.files import AMPLE, SHORT, opened

dist: Any = torch.distributed  # its stubs lack most stores


@pytest.fixture
def store() -> Iterator[HashStore]:
    with HashStore(AMPLE) as made:
        yield made


def waiters(store: HashStore) -> int:
    with store._memory.lock:
        return store._memory.contents.waiting.keys_waited


def test_close_sends_home_who_waits_and_only_in_its_own_store(store: HashStore) -> None:
    clone = store.clone()
    with ThreadPoolExecutor() as pool:
        waiting, arrived = pool.submit(clone.wait, ["k"], AMPLE), pool.submit(clone.barrier, "b", 2)
        staying = pool.submit(store.get, "k")
        until(lambda: waiters(store) == 2 and bool(store._memory.barriers.table))
        clone.close()
        for future in (waiting, arrived):
            with pytest.raises(StoreClosed):
                future.result(20)
        assert store._memory.barriers.table == {}
        store.set("k", "v")
        assert staying.result(20) == b"v"
    with pytest.raises(StoreClosed):
        clone.get("k")


def test_cpp_sets_the_timeout_that_python_uses(store: HashStore) -> None:
    dist.PrefixStore("p", store).set_timeout(SHORT)
    assert store.timeout == SHORT
    store.set_timeout(timedelta(microseconds=1))
    assert store.timeout == timedelta(milliseconds=1)


KINDS = ("HashStore", "FileStore", "PrefixStore", "TCPStore")


@pytest.mark.parametrize("kind", KINDS)
def test_a_callback_that_raises_is_logged_and_the_watch_goes_on(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[bytes | None] = []

    def callback(event: Event) -> None:
        told.append(event.new)
        if len(told) == 1:
            raise ValueError("the first one")

    with opened(kind, tmp_path) as store:
        store.watch_key("k", callback)
        store.set("k", "1")
        store.set("k", "2")
        until(lambda: len(told) == 2)
    assert told == [b"1", b"2"]
    assert "the first one" in caplog.text


def in_child(body: Callable[[], bool]) -> bool:
    """Run the body in a forked child; returns whether it returns True in time."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns because other threads run
        child = os.fork()
    if child == 0:
        os._exit(0 if body() else 1)
    try:
        until(lambda: os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None)
    finally:
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_watches_are_lost_in_a_forked_child_and_new_ones_work(kind: str, tmp_path: Path) -> None:
    with opened(kind, tmp_path) as watched:
        told: queue.SimpleQueue[object] = queue.SimpleQueue()
        watch = watched.watch_key("k", told.put, on_lost=told.put)

        def look() -> bool:
            reason = told.get(timeout=AMPLE.total_seconds())
            watched.watch_key("j", told.put)
            watched.set("j", "1")
            event = told.get(timeout=AMPLE.total_seconds())
            return watch.lost and isinstance(reason, ConnectionLost) and isinstance(event, Event) and event.new == b"1"

        assert in_child(look)
        watched.set("k", "1")
        event = told.get(timeout=AMPLE.total_seconds())
        assert isinstance(event, Event)
        assert not watch.lost
