"""The client's start, its results, refused arguments; a server that is lost, is late, or is not a store; and forks."""

from __future__ import annotations

import contextlib
import inspect
import os
import pickle
import re
import socket
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore as TorchTCPStore
from torch.distributed import DistNetworkError, PrefixStore  # type: ignore[attr-defined]

from trystate.impl.store.client import client
from trystate.impl.store.client.client import Client
from trystate.impl.store.server import embedding
from trystate.impl.store.wire import blob
from trystate.model.errors import UsageError
from trystate.property_tests.adapters.torch_store.server import Server, free_port
from trystate.property_tests.support.stores.client.common import (
    AGREED,
    HOST,
    KINDS,
    LACKING,
    LACKS,
    OPERATIONS,
    SERVERS,
    SHORT,
    frozen,
    greet,
    peer,
    until,
    within,
)
from trystate.store import (
    AddressRefused,
    ConnectionLost,
    InvalidArgument,
    InvalidType,
    LimitExceeded,
    Limits,
    NotSupported,
    OutcomeUnknown,
    SecretRefused,
    StoreTimeout,
    TCPStore,
    TCPStoreServer,
)

# Lost servers.


@pytest.mark.parametrize("kind", KINDS)
def test_after_the_server_died_the_next_operation_raises(kind: str) -> None:
    with SERVERS[kind]() as server, TCPStore(HOST, server.port, timeout=timedelta(seconds=5)) as store:
        store.set("a", "1")
        server.kill()
        with within(0), pytest.raises(OutcomeUnknown, match="may have happened"):
            store.set("a", "2")
        with within(0), pytest.raises(ConnectionLost) as raised:
            store.set("a", "3")
        assert not isinstance(raised.value, OutcomeUnknown)
        assert isinstance(raised.value, DistNetworkError)


def test_a_server_that_was_restarted_is_empty_and_says_so() -> None:
    with TCPStoreServer(HOST) as first, TCPStore(HOST, first.port, timeout=timedelta(seconds=5)) as store:
        store.set("a", "1")
        first.close()
        with TCPStoreServer(HOST, first.port), pytest.raises(OutcomeUnknown):
            store.set("a", "2")
        with TCPStoreServer(HOST, first.port):
            for operation in (lambda: store.add("a", 1), lambda: store.check(["a"]), store.clone):
                with within(0), pytest.raises(ConnectionLost, match="restarted and is empty; make a new store"):
                    operation()
            with TCPStore(HOST, first.port) as anew:
                assert anew.num_keys() == 0


@pytest.mark.parametrize(("kind", "name"), [
    ("ours", "add"),  # has a fast path
    ("ours", "append"),
    ("libuv", "add"),  # afterwards the client tries to read the key
])  # fmt: skip
def test_a_write_during_which_the_store_is_closed_may_have_happened(
    shared: dict[str, Server], kind: str, name: str
) -> None:
    server, (_, operation) = shared[kind], OPERATIONS[name]
    store = TCPStore(HOST, server.port)
    with ThreadPoolExecutor() as threads, frozen(server):
        writing = threads.submit(operation, store)
        time.sleep(0.1)
        store.close()
        with within(0), pytest.raises(OutcomeUnknown, match=rf"{name}\('.'\): .* closed meanwhile .* may have"):
            writing.result(5)


def test_a_port_of_another_program_is_named_as_such() -> None:
    def web(connection: socket.socket) -> None:
        connection.recv(100)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with peer(web) as port, within(0), pytest.raises(ConnectionLost, match="not a TCPStore"):
        TCPStore(HOST, port, timeout=timedelta(seconds=5))


def boast(connection: socket.socket) -> None:
    connection.sendall(struct.pack("<BQ", 0, 1_300_000_000_000))
    connection.recv(100)


def answer_in_single_bytes(connection: socket.socket) -> None:
    for byte in struct.pack("<BQ", 0, 100) + bytes(100):
        connection.sendall(bytes([byte]))
        time.sleep(0.02)


@pytest.mark.parametrize(("answer", "error", "why"), [
    (boast, ConnectionLost, "1300000000000"), (answer_in_single_bytes, StoreTimeout, r"0\.3 s"),
])  # fmt: skip
def test_absurd_lengths_and_single_bytes_stretch_no_timeout(
    answer: Callable[[socket.socket], None], error: type[Exception], why: str
) -> None:
    def serve(connection: socket.socket) -> None:
        greet(connection)
        connection.recv(100)
        answer(connection)

    with (
        peer(serve) as port,
        TCPStore(HOST, port, timeout=timedelta(milliseconds=300)) as store,
        within(0.3),
        pytest.raises(error, match=why),
    ):
        store.get("a")


def test_no_server_is_reported_in_time() -> None:
    with within(0.2), pytest.raises(ConnectionLost, match=r"not reached within 0\.2 s"):
        TCPStore(HOST, free_port(), timeout=SHORT)


# Timeouts.


def test_every_operation_keeps_its_timeout_while_the_server_is_frozen(server: Server) -> None:
    names = [name for name in OPERATIONS if name not in LACKING[server.kind]]

    def attempt(name: str, store: TCPStore) -> None:
        writes, operation = OPERATIONS[name]
        with within(0.2), pytest.raises(OutcomeUnknown if writes else StoreTimeout) as raised:
            operation(store)
        assert f":{server.port}" in str(raised.value)
        assert name.split()[0].removeprefix("multi_") in str(raised.value)

    stores = [TCPStore(HOST, server.port) for _ in names]
    for store in stores:
        store.set_timeout(SHORT)
    with ThreadPoolExecutor(len(names)) as threads, frozen(server):
        for each in [threads.submit(attempt, *pair) for pair in zip(names, stores, strict=True)]:
            each.result(5)
    for store in stores:
        store.close()


@pytest.mark.parametrize("name", ["get", "queue_len", "set"])
def test_a_negative_timeout_is_refused_by_the_operations_name(ours: TCPStore, name: str) -> None:
    PrefixStore("p", ours).set_timeout(timedelta(seconds=-1))
    ours._idle = deque()  # the fast path would notice a negative timeout too late
    with pytest.raises(InvalidArgument, match=rf"^{name}: the timeout is -1"):
        OPERATIONS[name][1](ours)


# ---- the tokens of barriers


def test_a_forked_child_has_none_of_its_parents_tokens() -> None:
    client = Client(HOST, 1, None)
    with pytest.raises(KeyboardInterrupt), client.barrier_tokens.held(b"a") as token:  # so it is used again
        raise KeyboardInterrupt
    pid = os.fork()
    with client.barrier_tokens.held(b"a") as now:
        if not pid:
            os._exit(now == token)
        assert os.waitpid(pid, 0)[1] == 0
        assert now == token


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


def test_the_defaults_of_the_constructor_are_torchs() -> None:
    """pybind11 writes the signature of torch's constructor into its docstring."""
    read = dict(
        re.findall(
            r"(\w+): [^=(),]+ = (None|True|False|datetime\.timedelta\(seconds=\d+\))",
            str(TorchTCPStore.__init__.__doc__),
        )
    )
    ours = {name: p.default for name, p in inspect.signature(TCPStore.__init__).parameters.items() if name in read}
    shown = {name: repr(value) for name, value in ours.items()}
    assert shown.keys() >= {"is_master", "wait_for_workers", "timeout"}
    assert shown == read


# Secrets.


def test_a_secret_is_proved_both_ways(shared: dict[str, Server]) -> None:
    with TCPStoreServer(secret=b"s3cret") as guarded:
        with TCPStore(HOST, guarded.port, secret=b"s3cret", timeout=timedelta(seconds=5)) as store:
            store.set("a", "1")
            with store.clone() as clone:
                assert clone.get("a") == b"1"
        for secret, why in ((None, "requires a secret"), (b"other", "secret")):
            with pytest.raises(SecretRefused, match=why):
                TCPStore(HOST, guarded.port, secret=secret, timeout=timedelta(seconds=5))
    for served in shared.values():
        with pytest.raises(SecretRefused, match="leave out the secret"):
            TCPStore(HOST, served.port, secret=b"s3cret", timeout=timedelta(seconds=5))


def test_a_server_that_cannot_prove_the_secret_is_refused() -> None:
    def impostor(connection: socket.socket) -> None:
        greet(connection, AGREED[:1] + b"\1" + AGREED[2:])
        connection.recv(1000)
        connection.sendall(b"\0" + blob(bytes(32)))
        connection.recv(1000)

    with peer(impostor) as port, pytest.raises(SecretRefused, match="does not know the secret"):
        TCPStore(HOST, port, secret=b"s3cret", timeout=timedelta(seconds=5))


@pytest.mark.parametrize("size", [0, 33])
def test_nothing_is_proved_to_a_challenge_of_another_length(size: int) -> None:
    received: list[bytes] = []

    def impostor(connection: socket.socket) -> None:
        greet(connection, b"\0\1" + blob(bytes(size)) + bytes(24))
        received.append(connection.recv(1000))

    with peer(impostor) as port:
        with pytest.raises(ConnectionLost, match=str(size)):
            TCPStore(HOST, port, secret=b"s3cret", timeout=timedelta(seconds=5))
        until(lambda: bool(received))
    assert received == [b""]


# Masters and workers.


def test_a_failed_master_reports_its_workers_and_leaves_no_server() -> None:
    port = free_port()
    with within(5), pytest.raises(StoreTimeout, match=r"after 5 seconds waiting for clients\. 1/3 clients joined"):
        TCPStore(HOST, port, 3, True, timedelta(seconds=5))  # includes the start of its server's process
    with pytest.raises(ConnectionLost):
        TCPStore(HOST, port, timeout=SHORT)


@pytest.mark.parametrize("make", [TCPStore, TorchTCPStore])
def test_a_store_has_its_host_and_of_port_0_the_port_that_was_found(make: Any) -> None:
    with (
        closed_at_end(make(HOST, 0, None, True, wait_for_workers=False)) as master,
        closed_at_end(make(HOST, master.port)) as worker,
    ):
        worker.set("key", "value")
        assert master.get("key") == b"value"
        assert (master.host, worker.host) == (HOST, HOST)
        assert master.port == worker.port != 0


@contextlib.contextmanager
def closed_at_end(store: Any) -> Iterator[Any]:
    """Close our store at the end of the block; torch's store ends with its last reference."""
    with store if isinstance(store, TCPStore) else contextlib.nullcontext(store):
        yield store


@pytest.mark.parametrize("make", [TCPStore, TorchTCPStore])
def test_a_master_returns_when_all_have_come_and_each_counts_once(make: Any) -> None:
    def come(is_master: bool) -> Any:
        return make(HOST, port, 3, is_master, timedelta(seconds=30))

    port = free_port()
    with ThreadPoolExecutor(1) as threads, contextlib.ExitStack() as stores:
        starting = threads.submit(come, True)
        stores.enter_context(closed_at_end(come(False)))
        with pytest.raises(TimeoutError):
            starting.result(0.3)
        stores.enter_context(closed_at_end(come(False)))
        stores.enter_context(closed_at_end(starting.result(30)))


def test_masters_of_one_process_share_a_port_if_told() -> None:
    with TCPStore(HOST, 0, is_master=True, multi_tenant=True) as first:
        with TCPStore(HOST, first.port, is_master=True, multi_tenant=True) as second:
            second.set("a", "1")
        assert first.get("a") == b"1"
        with pytest.raises(UsageError, match=str(first.port)):
            TCPStore(HOST, first.port, is_master=True)


@pytest.mark.parametrize("multi_tenant", [False, True])
@pytest.mark.parametrize("make", [TCPStore, TorchTCPStore])
def test_a_master_in_a_worker_uses_the_server_of_its_agent(
    monkeypatch: pytest.MonkeyPatch, make: Any, multi_tenant: bool
) -> None:
    with TCPStoreServer() as agent, ThreadPoolExecutor() as threads:
        monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
        monkeypatch.setenv("MASTER_PORT", str(agent.port))
        other = threads.submit(TCPStore, HOST, agent.port, 2, False, timedelta(seconds=30))
        with closed_at_end(make(HOST, agent.port, 2, True, timedelta(seconds=30), multi_tenant=multi_tenant)) as master:
            master.set("a", "1")
            with other.result(30) as worker:
                assert worker.get("a") == b"1"
        assert agent.running


def test_a_master_that_cannot_listen_raises_torchs_error_too() -> None:
    with socket.create_server((HOST, 0)) as taken:
        for kind in (AddressRefused, UsageError, dist.DistNetworkError):
            with pytest.raises(kind, match="Address already in use; stop the process that uses it"):
                TCPStore(HOST, taken.getsockname()[1], 1, True, timedelta(seconds=5))
        with pytest.raises(dist.DistNetworkError):
            TorchTCPStore(HOST, taken.getsockname()[1], 1, True, timedelta(seconds=1))


@pytest.mark.parametrize(("wish", "said"), [
    ({"bind_host": "0.0.0.0"},             r"127\.0\.0\.1, not on 0\.0\.0\.0"),
    ({"limits": Limits(value_bytes=1024)}, r"value_bytes=8388608.* not .*value_bytes=1024"),
    ({"secret": b"s3cret"},                r"no secret, but a secret"),
])  # fmt: skip
def test_masters_that_want_different_servers_do_not_share_one(wish: dict[str, Any], said: str) -> None:
    with TCPStore(HOST, 0, is_master=True, multi_tenant=True) as first:
        with pytest.raises(UsageError, match=said) as raised:
            TCPStore(HOST, first.port, is_master=True, multi_tenant=True, **wish)
        assert "s3cret" not in str(raised.value)
        first.set("a", "1")


@pytest.mark.parametrize("shared_port", [False, True])
def test_the_timeout_covers_the_start_of_the_masters_server(monkeypatch: pytest.MonkeyPatch, shared_port: bool) -> None:
    monkeypatch.setattr(embedding, "ENTRY", "import time; time.sleep(20)")
    with ThreadPoolExecutor() as threads:
        starting = [
            threads.submit(TCPStore, HOST, 0, 1, True, timedelta(seconds=0.5), multi_tenant=shared_port)
            for _ in range(2)
        ]
        with within(0.5):
            for each in starting:
                with pytest.raises(StoreTimeout, match=r"after 0\.5 s"):
                    each.result(10)
