"""The two daemons of torch 1.9, written from the description in ddp-initialisation 4.2; no line is copied.

Theory of operation. Each daemon is a thread that sleeps in `poll`. The master's daemon (`MasterDaemon`, 4.2.6) owns the
keys. In each round it accepts at most one connection, and it reads the whole request of a readable connection before
the next connection. Its tables identify a connection by a number, which the kernel later gives to a new connection. If
a request raises, its connection is closed and removed from the table of waiters, but not from the table of watchers. A
worker's daemon (`WorkerDaemon`, 4.2.5) reads one connection, on which the master writes the changes of watched keys,
and runs the callbacks. A daemon ends when the write end of its control pipe is closed.

    Daemon              4.2.5.2, 4.2.6.1: the control pipe and the loop around poll
    MasterDaemon        4.2.6.1 to 4.2.6.4; handlers that the text only names: TCPStore.cpp of 1.9
    WorkerDaemon        4.2.5.2
    Registration        4.2.5: waitForCallbackRegistration, setCallbackRegistered
"""

from __future__ import annotations

import os
import select
import socket
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Set

from trystate.impl.store.wire import I64, NOT_READY, READY, STOP_WAITING, blob
from trystate.model.store.vocabulary import Change

from .wire import Query, recv, recv_blob, recv_list, recv_number, send

Callback = Callable[[bytes | None, bytes | None], None]
Pause = Callable[[str], None]
COUNTER_VALUES = 1 << 64  # size_t: 0 - 1 is the largest number


def expect(revents: int, wanted: int, where: str) -> None:
    """Raise ConnectionAbortedError if poll reports other events of the descriptor than `wanted`."""
    if revents ^ wanted:
        raise ConnectionAbortedError(f"Unexpected poll revent on {where}: {revents}")


class Daemon:
    """A thread that waits for sockets, until its control pipe is closed.

    If the thread of torch 1.9 throws, its process ends. Here only the thread ends, and `thrown` has the error.
    """

    def __init__(self, name: str) -> None:
        self._is_stopped = False
        self.thrown: Exception | None = None
        self._read_end, self._write_end = os.pipe()
        self._poll = select.poll()
        self._poll.register(self._read_end, select.POLLHUP)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        """End the thread and close its sockets. A thread that blocks in a send or a receive does not end."""
        if self._is_stopped:
            return
        self._is_stopped = True
        os.close(self._write_end)
        self._thread.join()
        os.close(self._read_end)
        self._close()

    def _run(self) -> None:
        try:
            while True:
                happened = dict(self._poll.poll())
                self._welcome(happened)
                if revents := happened.pop(self._read_end, 0):
                    expect(revents, select.POLLHUP, "the control pipe's reading fd")
                    return
                if not self._round(happened.keys()):
                    return
        except ConnectionAbortedError as unexpected:
            self.thrown = unexpected

    def _welcome(self, happened: dict[int, int]) -> None:
        """Accept a new connection, before the control pipe is read."""

    def _round(self, happened: Set[int]) -> bool:
        """Serve the sockets with these numbers; False ends the thread."""
        raise NotImplementedError

    def _close(self) -> None:
        raise NotImplementedError


class MasterDaemon(Daemon):
    """The server of a store on a listening socket."""

    def __init__(self, listener: socket.socket) -> None:
        super().__init__("master daemon")
        self._listener = listener
        self._poll.register(listener.fileno(), select.POLLIN)
        self._connections: list[socket.socket] = []
        self.keys: dict[bytes, bytes] = {}
        self.reading: socket.socket | None = None  # the connection whose request is being read or carried out
        self._waiting: defaultdict[bytes, list[int]] = defaultdict(list)
        self._awaited: Counter[int] = Counter()
        self._watching: defaultdict[bytes, list[int]] = defaultdict(list)
        self._handlers: dict[Query, Callable[[socket.socket], None]] = {
            Query.SET: self._set, Query.COMPARE_SET: self._compare_set, Query.GET: self._get, Query.ADD: self._add,
            Query.CHECK: self._check, Query.WAIT: self._wait, Query.GETNUMKEYS: self._num_keys,
            Query.WATCH_KEY: self._watch, Query.DELETE_KEY: self._delete,
        }  # fmt: skip

    @property
    def listens_at(self) -> tuple[str, int]:
        """Host and port."""
        host, port = self._listener.getsockname()
        return host, port

    def _welcome(self, happened: dict[int, int]) -> None:
        if revents := happened.pop(self._listener.fileno(), 0):
            expect(revents, select.POLLIN, "the master's listening socket")
            newcomer, _ = self._listener.accept()
            newcomer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._connections.append(newcomer)
            self._poll.register(newcomer.fileno(), select.POLLIN)

    def _round(self, happened: Set[int]) -> bool:
        ready = [each for each in self._connections if each.fileno() in happened]
        for connection in ready:
            try:
                self._query(connection)
            except Exception:
                # Even if the send to another connection failed, the requesting connection is closed (4.2.6.2).
                self._forget(connection)
        return True

    def _query(self, connection: socket.socket) -> None:
        self.reading = connection
        try:
            self._handlers[Query(recv(connection, 1)[0])](connection)
        finally:
            self.reading = None

    @property
    def connections(self) -> int:
        """The number of connections in the daemon's table."""
        return len(self._connections)

    def _forget(self, connection: socket.socket) -> None:
        """Close a connection. Its number is removed from the tables of waiters, but not from the table of watchers."""
        number = connection.fileno()
        self._poll.unregister(number)
        self._connections.remove(connection)
        connection.close()
        for key, numbers in list(self._waiting.items()):
            self._waiting[key] = [each for each in numbers if each != number]
        self._awaited.pop(number, None)

    def _close(self) -> None:
        for connection in (*self._connections, self._listener):
            connection.close()

    # ---- the requests

    def _set(self, connection: socket.socket) -> None:
        key, new = recv_blob(connection), recv_blob(connection)
        old = self.keys.get(key)
        self.keys[key] = new
        self._wake(key)
        self._announce(key, Change.CREATED if old is None else Change.UPDATED, old, new)

    def _compare_set(self, connection: socket.socket) -> None:
        """Does not wake waiters: as in torch 1.9, it does not call `_wake`."""
        key, expected, desired = recv_blob(connection), recv_blob(connection), recv_blob(connection)
        old = self.keys.get(key)
        if old is None and not expected:
            self.keys[key] = desired
            self._announce(key, Change.CREATED, None, desired)
        elif old == expected:
            self.keys[key] = desired
            self._announce(key, Change.UPDATED, old, desired)
        send(connection.fileno(), blob(self.keys.get(key, expected)))

    def _add(self, connection: socket.socket) -> None:
        key, delta = recv_blob(connection), recv_number(connection)
        old = self.keys.get(key)
        total = delta + int(old or b"0")
        self.keys[key] = new = b"%d" % total
        send(connection.fileno(), I64.pack(total))
        self._wake(key)
        self._announce(key, Change.CREATED if old is None else Change.UPDATED, old, new)

    def _get(self, connection: socket.socket) -> None:
        """Raises for a missing key, so the connection is closed."""
        send(connection.fileno(), blob(self.keys[recv_blob(connection)]))

    def _check(self, connection: socket.socket) -> None:
        there = all(key in self.keys for key in recv_list(connection))
        send(connection.fileno(), READY if there else NOT_READY)

    def _num_keys(self, connection: socket.socket) -> None:
        send(connection.fileno(), I64.pack(len(self.keys)))

    def _delete(self, connection: socket.socket) -> None:
        key = recv_blob(connection)
        old = self.keys.get(key)
        if old is not None:
            self._announce(key, Change.DELETED, old, None)
            del self.keys[key]
        send(connection.fileno(), I64.pack(int(old is not None)))

    def _wait(self, connection: socket.socket) -> None:
        keys, number = recv_list(connection), connection.fileno()
        missing = [key for key in keys if key not in self.keys]
        if not missing:
            send(number, STOP_WAITING)
            return
        for key in missing:
            self._waiting[key].append(number)
        self._awaited[number] = len(missing)

    def _wake(self, key: bytes) -> None:
        for number in self._waiting.pop(key, []):
            self._awaited[number] = (self._awaited[number] - 1) % COUNTER_VALUES
            if self._awaited[number] == 0:
                send(number, STOP_WAITING)

    def _watch(self, connection: socket.socket) -> None:
        self._watching[recv_blob(connection)].append(connection.fileno())
        send(connection.fileno(), bytes([Change.REGISTERED]))

    def _announce(self, key: bytes, change: Change, old: bytes | None, new: bytes | None) -> None:
        """Notify the watchers one after the other. The first send that fails ends the loop and the request."""
        for number in self._watching[key]:
            send(number, bytes([change]) + blob(key) + blob(old or b"") + blob(new or b""))


class Registration:
    """A flag that one thread waits for. Another thread sets and announces it without the waiting thread's lock."""

    def __init__(self, pause: Pause) -> None:
        self._lock = threading.Lock()
        self._is_set = False
        self.announcements = 0
        self._sleepers: list[threading.Lock] = []
        self._pause = pause

    def wait(self) -> None:
        """Wait until the flag is set, and clear it. Each time that it is not set, `pause("sleep")` is called."""
        with self._lock:
            while not self._is_set:
                self._pause("sleep")
                bell = threading.Lock()
                bell.acquire()
                self._sleepers.append(bell)
                self._lock.release()
                try:
                    bell.acquire()
                finally:
                    self._lock.acquire()
            self._is_set = False

    def set(self) -> None:
        """Call `pause("announce")`, set the flag, and wake one thread that already sleeps."""
        self._pause("announce")
        self._is_set = True
        if self._sleepers:
            self._sleepers.pop(0).release()
        self.announcements += 1


class WorkerDaemon(Daemon):
    """Reads the changes of watched keys from the master, and runs the callbacks."""

    def __init__(self, connection: socket.socket, pause: Pause) -> None:
        super().__init__("worker daemon")
        self._connection = connection
        self._poll.register(connection.fileno(), select.POLLIN)
        self._callbacks: dict[bytes, Callback] = {}
        self._lock = threading.Lock()
        self.registration = Registration(pause)
        self.empty_rounds = 0  # rounds in which the connection had ended and the thread continued

    @property
    def number(self) -> int:
        """The connection's number."""
        return self._connection.fileno()

    def set_callback(self, key: bytes, callback: Callback) -> None:
        with self._lock:
            self._callbacks[key] = callback

    def _round(self, happened: Set[int]) -> bool:
        if self._connection.fileno() in happened:
            try:
                if self._connection.recv(1, socket.MSG_PEEK) == b"":
                    self.empty_rounds += 1  # the printed code has `continue`: poll then always returns at once
                else:
                    self._handle()
            except (OSError, KeyError) as error:
                self.thrown = error
                return False
        return True

    def _handle(self) -> None:
        change = Change(recv(self._connection, 1)[0])
        if change is Change.REGISTERED:
            self.registration.set()
            return
        key, old, new = recv_blob(self._connection), recv_blob(self._connection), recv_blob(self._connection)
        with self._lock:
            self._callbacks[key](None if change is Change.CREATED else old, None if change is Change.DELETED else new)

    def _close(self) -> None:
        self._connection.close()
