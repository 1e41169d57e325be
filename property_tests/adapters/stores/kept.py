"""Our server with a journal, in a thread of this process."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Self

from trystate.impl.host.disk import Disk
from trystate.impl.host.listening import listen
from trystate.impl.store.durable.directory import Directory
from trystate.impl.store.durable.driver import KeepingDriver
from trystate.impl.store.limits import Limits
from trystate.impl.store.server.driver import serve
from trystate.impl.store.tcp import TCPStore

HOST = "127.0.0.1"
SECONDS = 30.0


class Serving:
    """A server in a thread, with a directory and a disk of the test."""

    def __init__(self, path: Path, disk: Disk | None = None, port: int = 0, sync: float | None = None) -> None:
        self.lines: list[str] = []
        self.directory = Directory(str(path), Limits(), self.lines.append, disk)
        listener = listen(HOST, port)
        self.port: int = listener.getsockname()[1]
        make = partial(
            KeepingDriver, listener, Limits(), None, self.lines.append, directory=self.directory, sync_seconds=sync
        )
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
