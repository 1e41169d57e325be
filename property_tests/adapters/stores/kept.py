"""Our server with a journal, in a thread of this process, and a disk that a test holds up."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path

from trystate.impl.host.disk import Disk
from trystate.impl.host.listening import listen
from trystate.impl.host.tls import Tls
from trystate.impl.store.durable.directory import Directory
from trystate.impl.store.durable.driver import KeepingDriver
from trystate.impl.store.limits import Limits
from trystate.impl.store.server.driver import serve
from trystate.impl.store.tcp import TCPStore

from ..our_store.wire import Peer

HOST = "127.0.0.1"
SECONDS = 30.0


class Serving(contextlib.AbstractContextManager["Serving"]):
    """A server in a thread, with a directory and a disk of the test."""

    def __init__(self, path: Path, disk: Disk | None = None, sync: float | None = None, tls: Tls | None = None) -> None:
        self.lines: list[str] = []
        self.directory = Directory(str(path), Limits(), self.lines.append, disk)
        listener = listen(HOST, 0)
        self.port: int = listener.getsockname()[1]
        arguments = listener, Limits(), None, self.lines.append, None, tls
        make = partial(KeepingDriver, *arguments, directory=self.directory, sync_seconds=sync)
        begun = threading.Event()

        def started(loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
            self._stop = partial(loop.call_soon_threadsafe, stop)
            begun.set()

        self._thread = threading.Thread(target=serve, args=(make, started), daemon=True)
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

    def __exit__(self, *exception: object) -> None:
        self.close()


class PlantedDisk(Disk):
    """A disk whose syncs wait while the test holds them, and fail with the error `failing`, if it is set."""

    failing: int | None = None
    room = 1 << 40

    def __init__(self) -> None:
        self.let = threading.Event()
        self.let.set()
        self.syncs = 0

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        self.let.clear()
        try:
            yield
        finally:
            self.let.set()

    def free(self, directory: str) -> int:
        return self.room

    def sync(self, fd: int) -> None:
        self.let.wait(SECONDS)
        if self.failing is not None:
            raise OSError(self.failing, os.strerror(self.failing))
        super().sync(fd)
        self.syncs += 1


def silent(peer: Peer) -> bool:
    """Whether no byte arrives for 0.1 s."""
    peer.socket.settimeout(0.1)
    try:
        peer.socket.recv(1)
    except TimeoutError:
        return True
    finally:
        peer.socket.settimeout(SECONDS)
    return False
