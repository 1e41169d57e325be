"""The client of torch 1.9, written from the description in ddp-initialisation 4.2; no line is copied.

A store has a connection for its requests, and a connection for its watches, which its `WorkerDaemon` reads. The
master's store also has the `MasterDaemon`. An answer has no number, so the client takes each answer for its last
request's.

    Store               4.2.3 (requests), 4.2.4 (constructor and waitForWorkers), 4.2.5.1 (watchKey)

Rule: before the constructor connects, counts or polls, it calls `pause` with "connect", "count" or "poll", so other
clients can act in between. A `Clock` is passed in.
"""

from __future__ import annotations

import math
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from trystate.impl.store.wire import COUNTER_KEY, I64, READY, STOP_WAITING, blob, counted

from .daemons import Callback, MasterDaemon, Pause, WorkerDaemon
from .wire import Query, recv, recv_blob, recv_number, send

HOST = "127.0.0.1"
POLL_S, RETRY_S = 0.01, 0.01
BACKLOG = 128


def no_pause(where: str) -> None:
    """Do nothing, so no other client acts in between."""


@dataclass(frozen=True, slots=True)
class Clock:
    """The time of a constructor."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def listen(port: int = 0) -> socket.socket:
    """A listening socket of the master; port 0 is a free port."""
    return socket.create_server((HOST, port), backlog=BACKLOG)


class Store(AbstractContextManager["Store"]):
    """A client of a store, and its server with `is_server`.

    `world`: the number of clients for which the constructor waits. `timeout_s`: infinity is kNoTimeout.

    Raises:
        TimeoutError: no server listened in time.
        ConnectionError: the connection was lost.
    """

    def __init__(
        self, port: int = 0, world: int | None = None, is_server: bool = False, timeout_s: float = 300.0, *,
        clock: Clock | None = None, pause: Pause = no_pause,
    ) -> None:  # fmt: skip
        self._timeout_s, self._clock, self._pause = timeout_s, clock or Clock(), pause
        self._watch_lock = threading.Lock()
        self.master: MasterDaemon | None = None
        self.worker: WorkerDaemon | None = None
        self._requests: socket.socket | None = None
        self.port = port
        try:
            if is_server:
                listener = listen(port)
                self.port = listener.getsockname()[1]
                self.master = MasterDaemon(listener)
                self.master.start()
            self._requests = self._connect()
            if world is not None:
                self._count_in(world)
            self.worker = WorkerDaemon(self._connect(), pause)
            self.worker.start()
        except BaseException:
            self.close()
            raise

    def _connect(self) -> socket.socket:
        """Connect; while no server listens, try again until the timeout."""
        began = self._clock.now()
        while True:
            self._pause("connect")
            try:
                connection = socket.create_connection((HOST, self.port))
            except ConnectionRefusedError:
                if self._clock.now() - began > self._timeout_s:
                    raise TimeoutError(f"no server listens on port {self.port}") from None
                self._clock.sleep(RETRY_S)
            else:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return connection

    def _count_in(self, world: int) -> None:
        """4.2.4: the master waits until `world` clients are counted or until its timeout, and does not report which."""
        self._pause("count")
        self._add(COUNTER_KEY, 1)
        if self.master is None:
            return
        began = self._clock.now()
        while True:
            self._pause("poll")
            counted_in = int(self._get(COUNTER_KEY))
            if counted_in >= world or self._clock.now() - began > self._timeout_s:
                return
            self._clock.sleep(POLL_S)

    @property
    def requests(self) -> socket.socket:
        assert self._requests is not None
        return self._requests

    # ---- the requests

    def set(self, key: str, value: bytes) -> None:
        """Not answered."""
        self._send(Query.SET, blob(_regular(key)), blob(value))

    def compare_set(self, key: str, expected: bytes, desired: bytes) -> bytes:
        self._send(Query.COMPARE_SET, blob(_regular(key)), blob(expected), blob(desired))
        return recv_blob(self.requests)

    def get(self, key: str) -> bytes:
        """Wait for the key, and then request its value."""
        return self._get(_regular(key))

    def add(self, key: str, delta: int) -> int:
        return self._add(_regular(key), delta)

    def delete_key(self, key: str) -> bool:
        self._send(Query.DELETE_KEY, blob(_regular(key)))
        return recv_number(self.requests) == 1

    def check(self, keys: Sequence[str]) -> bool:
        self._send(Query.CHECK, counted([_regular(key) for key in keys]))
        return recv(self.requests, 1) == READY

    def num_keys(self) -> int:
        self._send(Query.GETNUMKEYS)
        return recv_number(self.requests)

    def wait(self, keys: Sequence[str], timeout_s: float | None = None) -> None:
        """Return when the keys exist.

        Raises:
            TimeoutError: they did not exist in time. The server is not notified, and the connection remains in use.
        """
        self._wait([_regular(key) for key in keys], self._timeout_s if timeout_s is None else timeout_s)

    def watch_key(self, key: str, callback: Callback) -> None:
        """4.2.5.1: record the callback, send the request, and wait without a timeout for the acknowledgement."""
        assert self.worker is not None
        with self._watch_lock:
            name = _regular(key)
            self.worker.set_callback(name, callback)
            send(self.worker.number, bytes([Query.WATCH_KEY]) + blob(name))
            self.worker.registration.wait()

    def _send(self, query: Query, *parts: bytes) -> None:
        send(self.requests.fileno(), bytes([query]) + b"".join(parts))

    def _add(self, name: bytes, delta: int) -> int:
        self._send(Query.ADD, blob(name), I64.pack(delta))
        return recv_number(self.requests)

    def _get(self, name: bytes) -> bytes:
        self._wait([name], self._timeout_s)
        self._send(Query.GET, blob(name))
        return recv_blob(self.requests)

    def _wait(self, names: list[bytes], timeout_s: float) -> None:
        # {0, 0} means no receive timeout: kNoTimeout.
        seconds, rest = (0, 0) if timeout_s == math.inf else divmod(round(timeout_s * 1_000_000), 1_000_000)
        self.requests.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", seconds, rest))
        self._send(Query.WAIT, counted(names))
        if recv(self.requests, 1) != STOP_WAITING:
            raise RuntimeError("the answer to a WAIT is not STOP_WAITING")

    # ---- the end

    def close(self) -> None:
        """End the daemons, the master's first, and close the connections."""
        if self.master is not None:
            self.master.stop()
        if self.worker is not None:
            self.worker.stop()
        if self._requests is not None:
            self._requests.close()
        self.master = self.worker = self._requests = None

    def __exit__(self, *_: object) -> None:
        self.close()


def _regular(key: str) -> bytes:
    """The name of a key on the wire: all keys but init/ begin with a slash."""
    return b"/" + key.encode()
