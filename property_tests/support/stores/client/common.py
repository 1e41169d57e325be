"""Shared by the tests of clients: time limits, servers, a peer that is not a store, and every operation once."""

from __future__ import annotations

import socket
import socketserver
import struct
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta

from trystate.impl.store.client import codec
from trystate.store import TCPStore

from ....adapters.our_store.wire import received
from ....adapters.torch_store.server import OurServer, Server, TorchLegacyServer, TorchServer

SHORT = timedelta(milliseconds=200)
# torch's servers look up the name of each new peer; a lost datagram of the look-up delays every client by 5 s.
AMPLE = timedelta(seconds=20)
LATE_SECONDS = 3.0  # delay after a timeout on a busy machine, including the grace of 0.25 s
HOST = "127.0.0.1"
SERVERS: dict[str, type[Server]] = {kind.kind: kind for kind in (OurServer, TorchServer, TorchLegacyServer)}
KINDS = tuple(SERVERS)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < seconds + LATE_SECONDS


def until(reached: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.005)


# Each operation, once: whether it may have happened if no answer arrives, and the call.

OPERATIONS: dict[str, tuple[bool, Callable[[TCPStore], object]]] = {
    "add": (True, lambda s: s.add("n", 1)),
    "append": (True, lambda s: s.append("a", "x")),
    "barrier": (True, lambda s: s.barrier("b", 2)),
    "check": (False, lambda s: s.check(["a"])),
    "compare_set": (True, lambda s: s.compare_set("a", "x", "y")),
    "delete_key": (True, lambda s: s.delete_key("a")),
    "get": (False, lambda s: s.get("a")),
    "list_keys": (False, lambda s: s.list_keys()),
    "multi_get": (False, lambda s: s.multi_get(["a", "b"])),
    "multi_set": (True, lambda s: s.multi_set(["a", "b"], ["1", "2"])),
    "num_keys": (False, lambda s: s.num_keys()),
    "queue_len": (False, lambda s: s.queue_len("q")),
    "queue_pop": (True, lambda s: s.queue_pop("q")),
    "queue_pop at once": (True, lambda s: s.queue_pop("q", block=False)),
    "queue_push": (True, lambda s: s.queue_push("q", "1")),
    "set": (True, lambda s: s.set("a", "1")),
    "take": (True, lambda s: s.take("a")),
    "wait": (False, lambda s: s.wait(["a"])),
    "watch_key": (False, lambda s: s.watch_key("a", lambda event: None)),
}
LACKING: dict[str, set[str]] = {
    "ours": set(),
    "libuv": {"take", "watch_key"},
    "legacy": {"take", "watch_key", "queue_len", "queue_pop", "queue_pop at once", "queue_push"},
}


LACKS = [(kind, name) for kind in KINDS for name in OPERATIONS if name in LACKING[kind]]


@contextmanager
def peer(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """A peer that calls `serve` for each connection, one after the other."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):
                serve(self.request)

    with ThreadPoolExecutor(1) as thread, socketserver.TCPServer((HOST, 0), Handler) as server:
        thread.submit(server.serve_forever, 0.01)
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()


GREETED = struct.pack("<IB", codec.PING_NONCE, 0)
AGREED = struct.pack("<BBQ32sQQQQ16s", 0, 0, 32, bytes(32), 8192, 8 << 20, 1 << 17, 16, bytes(range(16)))


def greet(connection: socket.socket, answer: bytes = AGREED) -> None:
    """Greet a client as our server does; `answer` is the answer to HELLO."""
    received(connection, len(codec.GREETING))
    connection.sendall(GREETED)
    received(connection, len(codec.HELLO))
    connection.sendall(answer)


@contextmanager
def frozen(server: Server) -> Iterator[None]:
    """The server is stopped until the block ends; its connections remain open."""
    server.freeze()
    try:
        yield
    finally:
        server.thaw()
