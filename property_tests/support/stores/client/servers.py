"""Servers for the tests of clients: ours and torch's two, each in its own process."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ....adapters.torch_store.server import OurServer, Server, TorchLegacyServer, TorchServer

SERVERS: dict[str, type[Server]] = {kind.kind: kind for kind in (OurServer, TorchServer, TorchLegacyServer)}
KINDS = tuple(SERVERS)


@contextlib.contextmanager
def frozen(server: Server) -> Iterator[None]:
    """The server is stopped until the block ends; its connections remain open."""
    server.freeze()
    try:
        yield
    finally:
        server.thaw()
