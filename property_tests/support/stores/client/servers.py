"""Servers of each kind for the tests of clients: torch's two, and ours, each in a process of its own.

Rule: a server is ended by whoever made it, frozen or not.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Mapping
from multiprocessing.connection import wait as readable

from ....adapters.torch_store.server import START_S, OurServer, Server, TorchLegacyServer, TorchServer, freeze

_MAKE: Mapping[str, type[Server]] = {"ours": OurServer, "libuv": TorchServer, "legacy": TorchLegacyServer}
KINDS = tuple(_MAKE)


class Served:
    """A server that can be frozen and killed."""

    def __init__(self, kind: str, server: Server) -> None:
        self.kind, self.port, self.pid = kind, server.port, server.pid


@contextlib.contextmanager
def serving(kind: str) -> Iterator[Served]:
    """A server of this kind until the block ends."""
    with _MAKE[kind]() as server:
        yield Served(kind, server)


@contextlib.contextmanager
def frozen(server: Served) -> Iterator[None]:
    """The server does nothing at all, and its connections stay open, until the block ends."""
    freeze(server.pid)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


def kill(server: Served) -> None:
    """Returns when it is over, and the kernel has closed its connections."""
    descriptor = os.pidfd_open(server.pid)
    try:
        os.kill(server.pid, signal.SIGKILL)
        assert readable([descriptor], START_S), f"process {server.pid} was killed, and still runs after {START_S:g} s"
    finally:
        os.close(descriptor)
