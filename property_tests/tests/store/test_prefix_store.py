"""Stores in memory and under prefixes.

Two prefixes never name one key, a change wakes exactly the threads that wait for it, and C++ finds the methods of the
store below.
"""

from __future__ import annotations

import gc
import multiprocessing
import queue
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
import torch.distributed
from hypothesis import example, given
from hypothesis import strategies as st
from torch.distributed import PrefixStore as TorchPrefixStore  # type: ignore[attr-defined]
from torch.distributed import Store as TorchStore  # type: ignore[attr-defined]

from trystate import store as ours
from trystate.impl.store.base import Event
from trystate.impl.store.errors import ConnectionLost, LimitExceeded, NotANumber, StoreClosed
from trystate.impl.store.hash import HashStore
from trystate.impl.store.prefix import PrefixStore, escaped
from trystate.impl.store.tcp import TCPStore
from trystate.impl.store.tcp_server import TCPStoreServer
from trystate.model.errors import UsageError
from trystate.property_tests.support.stores.client.common import until
from trystate.property_tests.support.stores.defects import defective, sound

HOST = "127.0.0.1"
AMPLE, SHORT = timedelta(seconds=30), timedelta(milliseconds=50)
TEXTS = st.text(alphabet="a/%25F", max_size=5)

dist: Any = torch.distributed  # its stubs lack most stores
KINDS: dict[str, Callable[[], Any]] = {  # each makes a store
    "HashStore": lambda: HashStore(AMPLE),
    "PrefixStore": lambda: PrefixStore.owning("p", HashStore(AMPLE)),
    "TCPStore": lambda: TCPStore(HOST, 0, is_master=True, timeout=AMPLE),
}


@given(TEXTS, TEXTS, TEXTS, TEXTS)
@example("a", "a/a", "a/a", "a")
@example("a/a", "a", "a%2Fa", "a")
def test_two_names_are_one_key_only_if_prefix_and_key_are_equal(p: str, k: str, q: str, m: str) -> None:
    same = (p.removesuffix("/"), k) == (q.removesuffix("/"), m)
    assert (f"{escaped(p)}/{k}" == f"{escaped(q)}/{m}") == same


def test_a_timeout_of_less_than_a_millisecond_ends_on_torchs_store() -> None:
    for seconds in (timedelta(microseconds=500), timedelta.max):
        store = PrefixStore("p", dist.HashStore(), timeout=seconds)
        if seconds < AMPLE:
            with pytest.raises(Exception, match="timed out"):
                store.wait(["k"], seconds)
        store.set("k", "v")
        assert store.get("k") == b"v"


def test_a_thread_that_waits_as_the_store_closes_is_not_left() -> None:
    """`close()` may come between the look whether the store is open and the wait."""
    store = HashStore(AMPLE)
    clone: Any = store.clone()
    with clone._memory.lock:
        waiting = ThreadPoolExecutor(1).submit(clone.get, "k")
        until(lambda: not waiting.done() and waiting.running())
        clone._closed = True
    with pytest.raises(StoreClosed):
        waiting.result(10)


def test_it_and_torchs_name_the_same_keys_where_the_prefix_has_no_slash(below: HashStore) -> None:
    PrefixStore("default_pg", below).set("k/0", "v")
    assert dist.PrefixStore("default_pg", below).get("k/0") == b"v"


def test_closing_it_leaves_the_store_below_open_and_its_clone_too(below: HashStore) -> None:
    store = PrefixStore("a", below)
    clone = store.clone()
    clone.set("k", "v")
    store.close()
    with pytest.raises(StoreClosed):
        store.check(["k"])
    assert (clone.get("k"), below.get("a/k")) == (b"v", b"v")
    clone.close()
    assert below.check(["a/k"])


@pytest.mark.parametrize("below_kind", ["TCPStore", "HashStore"])
def test_an_error_of_the_inner_store_has_the_callers_key(below_kind: str) -> None:
    """A refusal by the store below names the caller's key and the prefixes."""
    with KINDS[below_kind]() as below:
        store = PrefixStore("in/ner", PrefixStore("outer", below))
        store.set("text", "five")
        with pytest.raises(NotANumber) as refused:
            store.add("text", 1)
        assert "'text' is " in str(refused.value) and "five" in str(refused.value)
        assert f"prefix 'in/ner' in prefix 'outer' in {below._where()}" in str(refused.value)
        assert [shown for shown in ("outer/", "%2F", "/text", "b'text") if shown in str(refused.value)] == []
        watch = store.watch_key("text", lambda event: None)
        assert (watch.key, repr(watch)) == ("text", "<Watch of 'text', active>")
        watch.cancel()


def test_a_lost_server_is_told_with_the_callers_key() -> None:
    with TCPStoreServer() as server, TCPStore(HOST, server.port, timeout=AMPLE) as below:
        store = PrefixStore("a", below)
        store.set("k", "v")
        server.close()
        for call, said in (
            (lambda: store.set("k", "w"), "set('k'): "),
            (lambda: store.multi_get(["k", "l"]), "multi_get('k', 'l'): "),
            (lambda: store.list_keys("k"), "list_keys('k'): "),
            (lambda: store.watch_key("k", print), "watch_key('k'): "),
        ):  # fmt: skip
            with pytest.raises(ConnectionLost) as lost:
                call()
            assert str(lost.value).startswith(said)
            assert f"(prefix 'a' in server {HOST}:{server.port})" in str(lost.value)


@pytest.mark.parametrize("store", ["b", None])
def test_a_wrong_store_is_refused_as_by_torch(store: Any) -> None:
    kind = ValueError if store is None else TypeError
    with pytest.raises(kind):
        dist.PrefixStore("a", store)
    with pytest.raises(kind, match=r"pass a torch.distributed.Store") as raised:
        PrefixStore("a", store)
    assert isinstance(raised.value, UsageError)


def test_a_key_that_is_too_long_with_its_prefix_is_refused(below: HashStore) -> None:
    store = PrefixStore("prefix", below)
    assert below.key_bytes is not None
    with pytest.raises(LimitExceeded):
        store.set("k" * below.key_bytes, "v")


# ---- stores written in Python, used by C++


class Plain(TorchStore):
    """A store as a user would write it: only the methods that Python code calls."""

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[str, bytes] = {}

    def set(self, key: str, value: bytes | str) -> None:
        self.values[key] = value if isinstance(value, bytes) else value.encode()

    def get(self, key: str) -> bytes:
        return self.values[key]

    def num_keys(self) -> int:
        return len(self.values)

    def delete_key(self, key: str) -> bool:
        return self.values.pop(key, None) is not None


NOT_IMPLEMENTED = (RuntimeError, NotImplementedError)


@pytest.mark.parametrize("kind", [
    sound(ours.HashStore),
    defective(Plain, "C++ keeps its own half alone: the methods are gone (pytorch/pytorch#120843)", *NOT_IMPLEMENTED),
])  # fmt: skip
def test_a_store_lives_as_long_as_cpp_has_it(kind: type[Any]) -> None:
    held = TorchPrefixStore("p", kind())
    gc.collect()
    held.set("k", "v")
    assert held.get("k") == b"v"


@pytest.mark.parametrize("kind", [
    sound(ours.HashStore),
    defective(Plain, "C++ looks up deleteKey and getNumKeys", *NOT_IMPLEMENTED),
])  # fmt: skip
def test_cpp_finds_all_that_it_calls(kind: type[Any]) -> None:
    store = kind()
    held = TorchPrefixStore("p", store)
    held.set("k", "v")
    assert held.num_keys() == 1
    assert held.delete_key("k")


def test_close_sends_home_who_waits_and_only_in_its_own_store(below: HashStore) -> None:
    clone, memory = below.clone(), below._memory
    with ThreadPoolExecutor() as pool:
        waiting, arrived = pool.submit(clone.wait, ["k"], AMPLE), pool.submit(clone.barrier, "b", 2)
        staying = pool.submit(below.get, "k")
        until(lambda: memory.contents.waiting.keys_waited == 2 and bool(memory.barriers.table))
        clone.close()
        for future in (waiting, arrived):
            with pytest.raises(StoreClosed):
                future.result(20)
        assert memory.barriers.table == {}
        below.set("k", "v")
        assert staying.result(20) == b"v"
    with pytest.raises(StoreClosed):
        clone.get("k")


def test_cpp_sets_the_timeout_that_python_uses(below: HashStore) -> None:
    dist.PrefixStore("p", below).set_timeout(SHORT)
    assert below.timeout == SHORT
    below.set_timeout(timedelta(microseconds=1))
    assert below.timeout == timedelta(milliseconds=1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_callback_that_raises_is_logged_and_the_watch_goes_on(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    told: list[bytes | None] = []

    def callback(event: Event) -> None:
        told.append(event.new)
        if len(told) == 1:
            raise ValueError("the first one")

    with KINDS[kind]() as store:
        store.watch_key("k", callback)
        store.set("k", "1")
        store.set("k", "2")
        until(lambda: len(told) == 2)
    assert told == [b"1", b"2"]
    assert "the first one" in caplog.text


@pytest.mark.parametrize("kind", KINDS)
def test_watches_are_lost_in_a_forked_child_and_new_ones_work(kind: str) -> None:
    with KINDS[kind]() as watched:
        told: queue.SimpleQueue[object] = queue.SimpleQueue()
        watch = watched.watch_key("k", told.put, on_lost=told.put)

        def look() -> None:
            reason = told.get(timeout=AMPLE.total_seconds())
            watched.watch_key("j", told.put)
            watched.set("j", "1")
            event = told.get(timeout=AMPLE.total_seconds())
            assert watch.lost and isinstance(reason, ConnectionLost) and isinstance(event, Event) and event.new == b"1"

        child = multiprocessing.get_context("fork").Process(target=look)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns because other threads run
            child.start()
        child.join(20)
        child.kill()
        assert child.exitcode == 0
        watched.set("k", "1")
        event = told.get(timeout=AMPLE.total_seconds())
        assert isinstance(event, Event)
        assert not watch.lost
