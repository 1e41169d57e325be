"""The start of the client: secrets, and masters with their workers."""

from __future__ import annotations

import contextlib
import inspect
import re
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore as TorchTCPStore

from trystate.impl.store.server import embedding
from trystate.impl.store.wire import blob
from trystate.model.errors import UsageError
from trystate.property_tests.adapters.torch_store.server import Server
from trystate.property_tests.support.stores.client.common import (
    AGREED,
    HOST,
    SHORT,
    greet,
    peer,
    until,
    within,
)
from trystate.store import (
    AddressRefused,
    ConnectionLost,
    Limits,
    SecretRefused,
    StoreTimeout,
    TCPStore,
    TCPStoreServer,
)


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
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
    with within(5), pytest.raises(StoreTimeout, match=r"after 5 seconds waiting for clients\. 1/3 clients joined"):
        TCPStore(HOST, port, 3, True, timedelta(seconds=5))  # includes the start of its server's process
    with pytest.raises(ConnectionLost):
        TCPStore(HOST, port, timeout=SHORT)


@pytest.mark.parametrize("make", [TCPStore, TorchTCPStore])
def test_a_store_has_its_host_and_of_port_0_the_port_that_was_found(make: Any) -> None:
    with contextlib.ExitStack() as stack:
        master = stack.enter_context(closed_at_end(make(HOST, 0, None, True, wait_for_workers=False)))
        worker = stack.enter_context(closed_at_end(make(HOST, master.port)))
        worker.set("key", "value")
        assert master.get("key") == b"value"
        assert (master.host, worker.host) == (HOST, HOST)
        assert master.port == worker.port != 0


@contextlib.contextmanager
def closed_at_end(store: Any) -> Iterator[Any]:
    """Close our store at the end of the block; torch's store ends with its last reference."""
    with store if isinstance(store, TCPStore) else contextlib.nullcontext(store):
        yield store


def test_masters_of_one_process_share_a_port_if_told() -> None:
    with TCPStore(HOST, 0, is_master=True, multi_tenant=True) as first:
        with TCPStore(HOST, first.port, is_master=True, multi_tenant=True) as second:
            second.set("a", "1")
        assert first.get("a") == b"1"
        with pytest.raises(UsageError, match=str(first.port)):
            TCPStore(HOST, first.port, is_master=True)


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> Iterator[TCPStoreServer]:
    """The server of this worker's agent."""
    with TCPStoreServer() as server:
        monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
        monkeypatch.setenv("MASTER_PORT", str(server.port))
        yield server


@pytest.mark.parametrize("multi_tenant", [False, True])
@pytest.mark.parametrize("make", [TCPStore, TorchTCPStore])
def test_a_master_in_a_worker_uses_the_server_of_its_agent(
    agent: TCPStoreServer, make: Any, multi_tenant: bool
) -> None:
    with ThreadPoolExecutor() as threads:
        other = threads.submit(TCPStore, HOST, agent.port, 2, False, timedelta(seconds=30))
        with closed_at_end(make(HOST, agent.port, 2, True, timedelta(seconds=30), multi_tenant=multi_tenant)) as master:
            master.set("a", "1")
            with other.result(30) as worker:
                assert worker.get("a") == b"1"
    assert agent.running


@pytest.mark.parametrize(("host", "why"), [
    (HOST, "Address already in use; stop the process that uses it"),
    ("nosuch.invalid", "unknown host 'nosuch.invalid'"),
    ("192.0.2.1", "give an address of this machine"),
])  # fmt: skip
def test_a_master_that_cannot_listen_raises_torchs_error_too(host: str, why: str) -> None:
    with socket.create_server((HOST, 0)) as taken:
        for kind in (AddressRefused, UsageError, dist.DistNetworkError):
            with pytest.raises(kind, match=why):
                TCPStore(host, taken.getsockname()[1], 1, True, timedelta(seconds=5))
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
