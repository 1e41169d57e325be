"""The servers that these tests share, and a store on each kind of server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from trystate.property_tests.adapters.torch_store.server import OurServer, Server, TorchLegacyServer, TorchServer
from trystate.property_tests.support.stores.client.common import AMPLE, HOST, KINDS
from trystate.store import TCPStore


@pytest.fixture(scope="session")
def shared() -> Iterator[dict[str, Server]]:
    with OurServer() as ours, TorchServer() as libuv, TorchLegacyServer() as legacy:
        yield {"ours": ours, "libuv": libuv, "legacy": legacy}


@pytest.fixture(params=KINDS)
def server(request: pytest.FixtureRequest, shared: dict[str, Server]) -> Server:
    return shared[request.param]


@pytest.fixture
def store(server: Server) -> Iterator[TCPStore]:
    with TCPStore(HOST, server.port, timeout=AMPLE) as made:
        yield made


@pytest.fixture
def ours(shared: dict[str, Server]) -> Iterator[TCPStore]:
    with TCPStore(HOST, shared["ours"].port, timeout=AMPLE) as made:
        yield made


@pytest.fixture
def key(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)
