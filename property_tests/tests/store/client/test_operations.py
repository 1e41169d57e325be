"""The results of the client's operations, the arguments that it refuses before anything is sent, and
its processes and threads."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from trystate.impl.store.client import client
from trystate.property_tests.adapters.torch_store.server import Server
from trystate.property_tests.support.stores.client.common import HOST, LACKS, OPERATIONS, SHORT, until, within
from trystate.store import (
    InvalidArgument,
    InvalidType,
    LimitExceeded,
    NotSupported,
    StoreTimeout,
    TCPStore,
)


@pytest.mark.parametrize(("kind", "name"), LACKS)
def test_an_operation_that_a_server_lacks_is_refused_with_the_remedy(
    shared: dict[str, Server], kind: str, name: str
) -> None:
    with TCPStore(HOST, shared[kind].port) as store:
        with pytest.raises(NotSupported, match="trystate store serve"):
            OPERATIONS[name][1](store)
        assert store.check([])


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


# The store as an object.


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


@pytest.mark.parametrize("name", ["wait", "multi_get", "check"])
def test_a_wrong_collection_of_keys_is_refused(ours: TCPStore, name: str) -> None:
    with pytest.raises(InvalidType, match=f"{name}: keys is a int"):
        getattr(ours, name)(5)


# ---- the pool of connections


def test_a_thread_without_a_free_connection_waits_until_its_timeout(
    shared: dict[str, Server], key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "CONNECTIONS_MAX", 1)
    with TCPStore(HOST, shared["ours"].port) as store, ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(store.get, key)
        until(lambda: not store._client.idle)
        store.set_timeout(SHORT)
        with within(SHORT.total_seconds()), pytest.raises(StoreTimeout, match="1 operations are under way"):
            store.set("other", "1")
        with TCPStore(HOST, shared["ours"].port, timeout=timedelta(seconds=20)) as other:
            other.set(key, "1")
        assert waiting.result(20) == b"1"
