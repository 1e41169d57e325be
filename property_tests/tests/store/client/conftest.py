"""The servers that these tests share, and a store on each kind of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from trystate.property_tests.support.stores.client.common import AMPLE, HOST
from trystate.property_tests.support.stores.client.servers import KINDS, Served, serving
from trystate.store import TCPStore


@pytest.fixture(scope="session")
def shared() -> Iterator[dict[str, Served]]:
    with serving("ours") as ours, serving("libuv") as libuv, serving("legacy") as legacy:
        yield {"ours": ours, "libuv": libuv, "legacy": legacy}


@pytest.fixture(params=KINDS)
def server(request: pytest.FixtureRequest, shared: dict[str, Served]) -> Served:
    return shared[request.param]


@pytest.fixture
def store(server: Served) -> Iterator[TCPStore]:
    with TCPStore(HOST, server.port, timeout=AMPLE) as made:
        yield made


@pytest.fixture
def ours(shared: dict[str, Served]) -> Iterator[TCPStore]:
    with TCPStore(HOST, shared["ours"].port, timeout=AMPLE) as made:
        yield made


@pytest.fixture
def key(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)
