"""Our server of a store that is kept, in a thread of this process, and a proxy that loses answers of it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from multiprocessing.connection import wait as readable
from pathlib import Path
from typing import Self

from trystate.impl.host.disk import Disk
from trystate.impl.host.listening import listen
from trystate.impl.store.client.codec import GREETING, HELLO
from trystate.impl.store.durable.directory import Directory
from trystate.impl.store.durable.driver import KeepingDriver
from trystate.impl.store.limits import Limits
from trystate.impl.store.server.driver import serve
from trystate.impl.store.tcp import TCPStore

HOST = "127.0.0.1"
SECONDS = 30.0
HANDSHAKE_BYTES = len(GREETING) + len(HELLO)  # of a client of ours, before its first operation


class Serving:
    """A server in a thread, on a directory and a disk of the test's."""

    def __init__(self, path: Path, disk: Disk | None = None, port: int = 0, sync: float | None = None) -> None:
        self.lines: list[str] = []
        self.directory = Directory(str(path), Limits(), self.lines.append, disk)
        listener = listen(HOST, port)
        self.port: int = listener.getsockname()[1]
        make = partial(KeepingDriver, directory=self.directory, sync_seconds=sync)
        begun = threading.Event()

        def started(loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
            self._stop = partial(loop.call_soon_threadsafe, stop)
            begun.set()

        self._thread = threading.Thread(
            target=serve, args=(listener, Limits(), None, self.lines.append, started, None, make), daemon=True
        )
        self._thread.start()
        assert begun.wait(SECONDS)

    def store(self, seconds: float = SECONDS) -> TCPStore:
        return TCPStore(HOST, self.port, timeout=timedelta(seconds=seconds))

    def close(self) -> None:
        with contextlib.suppress(RuntimeError):  # it has ended by itself
            self._stop()
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()
        self.directory.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class Losing:
    """A proxy of one server; while `loses` is set it loses the next answer to an operation, and cuts the connection."""

    def __init__(self, target: int) -> None:
        self._target, self._over, self.loses = target, threading.Event(), threading.Event()
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # it is closed
            while True:
                client, _ = self._listener.accept()
                self._threads.append(threading.Thread(target=self._pump, args=(client,), daemon=True))
                self._threads[-1].start()

    def _pump(self, client: socket.socket) -> None:
        asked = 0
        with client, socket.create_connection((HOST, self._target)) as server, contextlib.suppress(OSError):
            for sock in (client, server):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while not self._over.is_set():
                for ready in readable([client, server], 0.1):
                    assert isinstance(ready, socket.socket)
                    data = ready.recv(1 << 16)
                    if not data:
                        return
                    if ready is client:
                        asked += len(data)
                        server.sendall(data)
                    elif asked > HANDSHAKE_BYTES and self.loses.is_set():
                        self.loses.clear()
                        return
                    else:
                        client.sendall(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(SECONDS)
