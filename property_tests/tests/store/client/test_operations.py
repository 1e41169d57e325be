"""The results of the client's operations, and the arguments that it refuses before anything is sent."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from torch._C._distributed_c10d import PrefixStore as TorchPrefixStore
from torch._C._distributed_c10d import TCPStore as TorchTCPStore
from torch.distributed import DistStoreError

from trystate.impl.store.client.connection import Connection
from trystate.impl.store.contents.contents import Contents
from trystate.impl.store.operations import DeleteKey
from trystate.property_tests.support.stores.client.common import AMPLE, HOST, LACKS, OPERATIONS, SHORT, within
from trystate.property_tests.support.stores.client.servers import Served
from trystate.store import (
    ConnectionLost,
    InvalidArgument,
    InvalidType,
    LimitExceeded,
    Limits,
    NotANumber,
    NotSupported,
    StoreTimeout,
    TCPStore,
    TCPStoreServer,
    WrongWorld,
)


@pytest.mark.parametrize(("kind", "name"), LACKS)
def test_what_a_server_lacks_is_refused_with_the_one_that_has_it(
    shared: dict[str, Served], kind: str, name: str
) -> None:
    with TCPStore(HOST, shared[kind].port) as store:
        with pytest.raises(NotSupported, match="trystate store serve"):
            OPERATIONS[name][1](store)
        assert store.check([])


# Results of operations.


def test_a_barrier_of_another_size_is_refused(ours: TCPStore, key: str) -> None:
    with ThreadPoolExecutor() as threads:
        first = threads.submit(ours.barrier, key, 2)
        time.sleep(0.1)
        with pytest.raises(WrongWorld):
            ours.barrier(key, 3)
        ours.barrier(key, 2)
        first.result(5)


def test_many_keys_are_read_in_one_request(store: TCPStore, key: str) -> None:
    names = [f"{key}{i}" for i in range(3000)]
    store.multi_set(names, names)
    assert store.multi_get(names) == [name.encode() for name in names]
    for name in names:
        store.delete_key(name)


# Arguments that are refused before anything is sent.


def test_misuse_is_refused_and_changes_nothing(store: TCPStore, key: str) -> None:
    store.set(key, "v")
    wrong: list[tuple[type[Exception], Callable[[], object]]] = [
        (LimitExceeded, lambda: store.set(key, bytes((8 << 20) + 1))),
        (LimitExceeded, lambda: store.set("k" * 8192, "v")),
        (LimitExceeded, lambda: store.check([key] * (128 * 1024 + 1))),
        (InvalidType, lambda: store.set(key, 5)),  # type: ignore[arg-type]
        (InvalidType, lambda: store.check(key)),
        (InvalidType, lambda: store.wait([key], 3)),  # type: ignore[arg-type]
        (InvalidType, lambda: store.watch_key(key, None)),  # type: ignore[arg-type]
        (InvalidArgument, lambda: store.wait([key], timedelta(seconds=-1))),
        (InvalidArgument, lambda: store.set_timeout(timedelta(seconds=-1))),
        (InvalidArgument, lambda: store.multi_set([key], [])),
        (InvalidArgument, lambda: store.add(key, 2**63)),
        (InvalidArgument, lambda: store.barrier(key, 0)),
        (InvalidType, lambda: pickle.dumps(store)),
    ]
    for expected, call in wrong:
        with pytest.raises(expected):
            call()
    assert store.get(key) == b"v"


@pytest.mark.parametrize("arguments", [("", 1), (HOST, -1), (HOST, 65536), (HOST, 0), (HOST, 1, 0)])
def test_wrong_arguments_of_the_constructor_are_refused(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidArgument):
        TCPStore(*arguments)


# The object itself.


def test_it_lives_on_in_torchs_hands(server: Served) -> None:
    prefixed: Any = TorchPrefixStore("outer", TCPStore(HOST, server.port, timeout=AMPLE))
    gc.collect()
    prefixed.set("k", b"v")
    assert prefixed.get("k") == b"v"
    assert prefixed.add("n", 2) == 2 and prefixed.num_keys() >= 2
    assert prefixed.delete_key("k") and not prefixed.check(["k"])
    assert prefixed.multi_get(["n"]) == [b"2"]
    prefixed.set_timeout(SHORT)
    with within(0.2), pytest.raises(DistStoreError):
        prefixed.get("nobody")


def test_a_clone_has_its_own_timeout_and_its_own_end(store: TCPStore, key: str) -> None:
    clone = store.clone()
    clone.set_timeout(SHORT)
    assert store.timeout == AMPLE
    clone.close()
    store.set(key, "v")


def test_a_forked_child_has_connections_of_its_own(store: TCPStore, key: str) -> None:
    store.set(key, "parent")
    pid = os.fork()
    if not pid:
        try:
            ok = [store.add(key + "n", 1) for _ in range(100)][-1] >= 100 and store.get(key) == b"parent"
            os._exit(0 if ok else 1)
        except BaseException:
            os._exit(2)
    for _ in range(100):
        store.add(key + "n", 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert store.add(key + "n", 0) == 200


def test_the_package_is_imported_without_torch() -> None:
    code = "import sys, trystate.store as s; s.TCPStoreServer; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("keys", [{"nobody"}, {"nobody": 1}, (key for key in ["nobody"]), iter(["nobody"])])
def test_any_collection_of_keys_will_do(ours: TCPStore, keys: Any) -> None:
    with pytest.raises(StoreTimeout, match=r"wait\('nobody'\)"):
        ours.wait(keys, timedelta(0))


@pytest.mark.parametrize("name", ["wait", "multi_get", "check"])
def test_what_is_no_collection_of_keys_is_refused(ours: TCPStore, name: str) -> None:
    with pytest.raises(InvalidType, match=f"{name}: keys is a int"):
        getattr(ours, name)(5)


def test_a_servers_refusal_names_the_key_as_the_user_does(ours: TCPStore, key: str) -> None:
    ours.set(key, "five")
    with pytest.raises(NotANumber) as raised:
        ours.add(key, 1)
    assert f"the value of '{key}' is" in str(raised.value)
    assert "b'/" not in str(raised.value)


def test_many_of_the_largest_values_are_read_at_once_as_from_torchs_server(server: Served) -> None:
    value, keys = os.urandom(8 << 20), [f"large{n}" for n in range(9)]
    torchs = TorchTCPStore(HOST, server.port, is_master=False, timeout=AMPLE)
    with TCPStore(HOST, server.port, timeout=AMPLE) as store:
        for key in keys:
            store.set(key, value)
        for reader in (store, torchs):
            assert set(reader.multi_get(keys)) == {value}
        for key in keys:
            store.delete_key(key)


def test_more_than_a_server_answers_at_once_is_refused_with_the_remedy() -> None:
    limits = Limits(key_bytes=64, value_bytes=1024, frame_bytes=4096)
    with TCPStoreServer(limits=limits) as server, TCPStore(HOST, server.port, timeout=AMPLE) as store:
        keys = [f"k{n}" for n in range(5)]
        for key in keys:
            store.set(key, bytes(1000))
        with pytest.raises(LimitExceeded, match="5040 bytes > 4096: ask in several, or raise frame_bytes"):
            store.multi_get(keys)
        assert store.multi_get(keys[:4]) == [bytes(1000)] * 4


def test_a_delete_changes_only_what_has_a_value() -> None:
    contents = Contents(Limits())
    assert not DeleteKey(b"k").changes(contents)
    contents.push(b"k", b"an element")
    assert not DeleteKey(b"k").changes(contents)
    contents.set(b"k", b"")
    assert DeleteKey(b"k").changes(contents)


@pytest.mark.parametrize("names", [["a", "b"], []])
def test_the_texts_of_a_multi_get_name_it(server: Served, names: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with TCPStore(HOST, server.port, timeout=AMPLE) as store:

        def break_off(self: Connection, *asked: Any, **more: Any) -> None:
            raise ConnectionResetError

        monkeypatch.setattr(Connection, "ask", break_off)
        with pytest.raises(ConnectionLost, match=rf"^multi_get\({', '.join(map(repr, names))}\): ConnectionResetError"):
            store.multi_get(names)
