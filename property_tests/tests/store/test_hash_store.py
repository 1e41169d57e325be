"""HashStore under threads: who waits is woken, alone, and by the change that it waited for."""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch.distributed

from trystate.impl.host import forking
from trystate.impl.store.base import Event, Store
from trystate.impl.store.client import startup as masters
from trystate.impl.store.contents.contents import Contents
from trystate.impl.store.errors import ConnectionLost, LimitExceeded, StoreClosed, StoreTimeout
from trystate.impl.store.file.store import FileStore
from trystate.impl.store.hash import HashStore
from trystate.impl.store.limits import Limits
from trystate.impl.store.memory import LOCAL, Blocked, Memory
from trystate.impl.store.operations import Wait
from trystate.impl.store.prefix import PrefixStore
from trystate.impl.store.tcp import TCPStore
from trystate.property_tests.support.stores.client.common import until

AMPLE = timedelta(seconds=20)
SHORT = timedelta(milliseconds=50)

dist: Any = torch.distributed  # its stubs leave most of its stores out


@pytest.fixture
def store() -> Iterator[HashStore]:
    with HashStore(AMPLE) as made:
        yield made


def waiters(store: HashStore) -> int:
    with store._memory.lock:
        return store._memory.contents.waiting.keys_waited


def test_a_change_rings_only_the_bells_of_those_it_satisfies() -> None:
    contents = Contents(LOCAL)
    one, other = Blocked(contents, Wait([b"a"])), Blocked(contents, Wait([b"a", b"b"]))
    for wait in (one, other):
        assert not contents.waiting.look(wait)
        contents.waiting.begin(wait)
    contents.set(b"a", b"")
    assert (one.done, other.done) == (True, False)
    assert other.bell.locked()


def test_as_many_pushes_as_poppers_leave_nobody_waiting(store: HashStore) -> None:
    poppers = 16
    with ThreadPoolExecutor(2 * poppers) as pool:
        pops = [pool.submit(store.queue_pop, "q") for _ in range(poppers)]
        others = [pool.submit(store.wait, ["q", "never"], SHORT) for _ in range(4)]
        until(lambda: waiters(store) >= poppers)
        for number in range(poppers):
            store.queue_push("q", str(number))
        assert sorted(int(pop.result(20)) for pop in pops) == list(range(poppers))
        for other in others:
            with pytest.raises(StoreTimeout):
                other.result(20)
    assert store.queue_len("q") == 0
    assert waiters(store) == 0


def test_a_wait_that_timed_out_leaves_nothing(store: HashStore) -> None:
    with pytest.raises(StoreTimeout, match=r"wait\('a', 'b'\): timed out after 50ms"):
        store.wait(["a", "b"], SHORT)
    with pytest.raises(StoreTimeout):
        store.barrier("b", 2, SHORT)
    assert waiters(store) == 0
    assert store._memory.barriers.table == {}
    assert not store._blocked


def test_get_of_a_queue_waits_for_a_value(store: HashStore) -> None:
    store.queue_push("k", "element")
    with ThreadPoolExecutor() as pool:
        read = pool.submit(store.get, "k")
        until(lambda: waiters(store) == 1)
        store.queue_push("k", "another")
        assert store.queue_pop("k") == b"element"
        store.set("k", "value")
        assert read.result(20) == b"value"


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


def test_a_callback_that_raises_does_not_end_the_watch(store: HashStore, caplog: pytest.LogCaptureFixture) -> None:
    told: list[bytes | None] = []
    done = threading.Event()

    def callback(event: object) -> None:
        told.append(getattr(event, "new", None))
        if len(told) == 1:
            raise ValueError("the first one")
        done.set()

    store.watch_key("k", callback)
    store.set("k", "1")
    store.set("k", "2")
    assert done.wait(20)
    assert told == [b"1", b"2"]
    assert "the first one" in caplog.text


def test_a_value_over_the_limit_is_refused_and_changes_nothing() -> None:
    with HashStore(limits=Limits(value_bytes=4)) as small:
        small.append("k", "1234")
        for change, value in ((small.append, "5"), (small.set, "12345")):
            with pytest.raises(LimitExceeded):
                change("k", value)
        assert small.get("k") == b"1234"


def in_child(body: Callable[[], bool]) -> bool:
    """Whether it says True, in a forked child, in time."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12: other threads run, which is the point
        child = os.fork()
    if child == 0:
        os._exit(0 if body() else 1)
    try:
        until(lambda: os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None)
    finally:
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) == 0


def test_a_forked_child_may_change_its_copy_whatever_threads_of_the_parent_do(store: HashStore) -> None:
    over = threading.Event()

    def keep_setting() -> None:
        while not over.is_set():
            store.multi_set(["a", "b"], ["1" * 100, "2"])

    threads = [threading.Thread(target=keep_setting) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(10):
            assert in_child(lambda: store.add("n", 1) == 1 and store.check(["a"]) == store.check(["b"]))
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_stores_may_be_made_while_a_process_forks(store: HashStore) -> None:
    over, others = threading.Event(), [Memory(LOCAL) for _ in range(100)]

    def keep_making() -> None:
        while not over.is_set():
            Memory(LOCAL)

    pause = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread = threading.Thread(target=keep_making)
    thread.start()
    try:
        for _ in range(2000):
            forking._before()
            assert store._memory.lock.locked() and all(each.lock.locked() for each in others)
            forking._in_parent()
    finally:
        over.set()
        thread.join()
        sys.setswitchinterval(pause)


def test_a_master_of_a_forked_child_does_not_wait_for_one_of_the_parent() -> None:
    def close_one() -> bool:
        with TCPStore("127.0.0.1", 0, 1, True, AMPLE, multi_tenant=True) as store:
            store.set("k", "v")
        return True

    with masters._lock, masters._starting:
        assert in_child(close_one)


def test_who_waits_in_the_parent_takes_nothing_in_a_forked_child(store: HashStore) -> None:
    def push_and_pop() -> bool:
        store.queue_push("q", "child's")
        return store.queue_pop("q", block=False) == b"child's"

    with ThreadPoolExecutor() as pool:
        popping = pool.submit(store.queue_pop, "q")
        until(lambda: waiters(store) == 1)
        assert in_child(push_and_pop)
        store.queue_push("q", "parent's")
        assert popping.result(AMPLE.total_seconds()) == b"parent's"


@pytest.mark.parametrize("kind", ["HashStore", "FileStore", "PrefixStore", "TCPStore"])
def test_watches_are_lost_in_a_forked_child_and_new_ones_work(kind: str, tmp_path: Path) -> None:
    makes: dict[str, Callable[[], Store]] = {
        "HashStore": lambda: HashStore(AMPLE),
        "TCPStore": lambda: TCPStore("127.0.0.1", 0, is_master=True, timeout=AMPLE),
    }
    with makes.get(kind, lambda: FileStore(tmp_path / "f", timeout=AMPLE))() as below:
        watched: Store = PrefixStore("p", below) if kind == "PrefixStore" else below
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
        watched.close()
