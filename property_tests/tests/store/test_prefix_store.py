"""PrefixStore: two prefixes never name one key, and one shows nothing of the other."""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch.distributed
from hypothesis import given
from hypothesis import strategies as st

from trystate.impl.store.base import Event, Store
from trystate.impl.store.errors import ConnectionLost, LimitExceeded, NotANumber, StoreClosed, StoreTimeout
from trystate.impl.store.file.store import FileStore
from trystate.impl.store.hash import HashStore
from trystate.impl.store.prefix import PrefixStore, escaped
from trystate.impl.store.tcp import TCPStore
from trystate.impl.store.tcp_server import TCPStoreServer
from trystate.model.errors import UsageError
from trystate.property_tests.adapters.torch_release import require

AMPLE = timedelta(seconds=20)
HOST = "127.0.0.1"
TEXTS = st.text(alphabet="a/%25F", max_size=5)

dist: Any = torch.distributed  # its stubs leave most of its stores out


@pytest.fixture
def below() -> Iterator[HashStore]:
    with HashStore(AMPLE) as made:
        yield made


@given(TEXTS, TEXTS, TEXTS, TEXTS)
def test_two_names_are_one_key_only_if_prefix_and_key_are_equal(p: str, k: str, q: str, m: str) -> None:
    same = (p.removesuffix("/"), k) == (q.removesuffix("/"), m)
    assert (f"{escaped(p)}/{k}" == f"{escaped(q)}/{m}") == same


@pytest.mark.parametrize("prefix", ["job", "job/"])
def test_the_store_below_lists_the_keys_of_a_prefix(below: HashStore, prefix: str) -> None:
    with PrefixStore(prefix, below) as store:
        store.set("k", "v")
        assert below.list_keys("job/") == ["job/k"]
        assert store.list_keys() == ["k"]


def test_only_its_own_keys_are_listed_and_counted(below: HashStore) -> None:
    store = PrefixStore("a", below)
    below.multi_set(["a", "ab/x", "z"], ["", "", ""])
    store.multi_set(["x", "y/z", ""], ["1", "2", "3"])
    store.queue_push("queue", "no key")
    assert store.list_keys() == ["", "x", "y/z"]
    assert store.list_keys("y") == ["y/z"]
    assert (store.num_keys(), below.num_keys()) == (3, 6)


def test_its_timeout_is_its_own(below: HashStore) -> None:
    store = PrefixStore("a", below)
    assert store.timeout == AMPLE
    store.set_timeout(timedelta(milliseconds=30))
    assert below.timeout == AMPLE
    with pytest.raises(StoreTimeout, match=r"get\('k'\): timed out after 30ms.*prefix 'a' in HashStore"):
        store.get("k")


def test_it_nests(below: HashStore) -> None:
    outer, other = PrefixStore("out", below), PrefixStore("in", below)
    inner = PrefixStore("in", outer)
    inner.set("k", "v")
    assert (below.list_keys(), outer.list_keys(), inner.list_keys()) == (["out/in/k"], ["in/k"], ["k"])
    assert other.num_keys() == 0


def test_barriers_queues_and_watches_are_those_of_the_store_below(below: HashStore) -> None:
    store, told = PrefixStore("a", below), queue.SimpleQueue[Event]()
    watch = store.watch_key("k", told.put)
    with ThreadPoolExecutor() as pool:
        arrived = pool.submit(store.barrier, "b", 2)
        below.barrier("a/b", 2)
        arrived.result(20)
        popped = pool.submit(store.queue_pop, "q")
        below.queue_push("a/q", "v")
        assert popped.result(20) == b"v"
    below.set("a/k", "1")
    event = told.get(timeout=20)
    assert (event.key, event.old, event.new) == ("k", None, b"1")
    watch.cancel()


def test_it_and_torchs_name_the_same_keys_where_the_prefix_has_no_slash(below: HashStore) -> None:
    PrefixStore("default_pg", below).set("k/0", "v")
    assert dist.PrefixStore("default_pg", below).get("k/0") == b"v"


@pytest.mark.parametrize("kind", ["HashStore", "PrefixStore"])
def test_it_stands_on_torchs_stores(kind: str) -> None:
    require("barrier")
    torchs = dist.HashStore() if kind == "HashStore" else dist.PrefixStore("p", dist.HashStore())
    with PrefixStore("a", torchs, timeout=timedelta(milliseconds=30)) as store:
        store.set("k", b"\x00\xff")
        assert (store.get("k"), store.add("n", 3), store.list_keys()) == (b"\x00\xff", 3, ["k", "n"])
        assert store.compare_set("n", "3", "4") == b"4"
        store.queue_push("q", "v")
        assert (store.queue_pop("q"), store.queue_len("q")) == (b"v", 0)
        for call in (lambda: store.get("no"), lambda: store.queue_pop("q"), lambda: store.barrier("b", 2)):
            with pytest.raises(StoreTimeout):
                call()
        with pytest.raises(StoreTimeout):
            store.wait(["no"], timedelta(0))


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


def test_one_that_owns_the_store_below_closes_it(below: HashStore) -> None:
    PrefixStore.owning("a", below).close()
    with pytest.raises(StoreClosed):
        below.check([])


def test_a_closed_store_below_is_said_so(below: HashStore) -> None:
    store = PrefixStore("a", below)
    below.close()
    with pytest.raises(StoreClosed, match="HashStore was closed"):
        store.set("k", "v")


@pytest.mark.parametrize("below_kind", ["TCPStore", "FileStore", "HashStore"])
def test_what_goes_wrong_below_is_told_with_the_callers_key(tmp_path: Path, below_kind: str) -> None:
    """Each refusal of the store below names the key that the caller gave, and where it is."""
    with contextlib.ExitStack() as stack:
        match below_kind:
            case "TCPStore":
                below: Store = stack.enter_context(TCPStore(HOST, 0, is_master=True, timeout=AMPLE))
            case "FileStore":
                below = stack.enter_context(FileStore(tmp_path / "store", timeout=AMPLE))
            case _:
                below = stack.enter_context(HashStore(AMPLE))
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


def test_a_key_that_is_too_long_with_its_prefix_is_refused(below: HashStore) -> None:
    store = PrefixStore("prefix", below)
    assert below.key_bytes is not None
    with pytest.raises(LimitExceeded):
        store.set("k" * below.key_bytes, "v")


@pytest.mark.parametrize("store", ["b", None])
def test_what_is_no_store_is_refused_as_torch_refuses_it(store: Any) -> None:
    kind = ValueError if store is None else TypeError
    with pytest.raises(kind):
        dist.PrefixStore("a", store)
    with pytest.raises(kind, match=r"pass a torch.distributed.Store") as raised:
        PrefixStore("a", store)
    assert isinstance(raised.value, UsageError)


class Least(torch.distributed.Store):  # type: ignore[name-defined, misc]
    """A store that has no more than torch's PrefixStore needs to get and set."""

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[str, bytes] = {}

    def set(self, key: str, value: str | bytes) -> None:
        self.values[key] = value if isinstance(value, bytes) else value.encode()

    def get(self, key: str) -> bytes:
        if key not in self.values:
            raise RuntimeError("a timeout")
        return self.values[key]


@pytest.mark.parametrize("prefix", [PrefixStore, dist.PrefixStore])
def test_it_stands_on_a_store_that_gets_and_sets_alone(prefix: Any) -> None:
    least = Least()  # torch's keeps its C++ half only
    store = prefix("a", least)
    store.set("k", "v")
    store.multi_set(["l", "m"], ["1", "2"])
    assert (store.get("k"), store.multi_get(["l", "m"])) == (b"v", [b"1", b"2"])
    with pytest.raises(StoreTimeout if prefix is PrefixStore else RuntimeError):
        store.get("none")
