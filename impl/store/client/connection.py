"""One connection of a client: a socket on which one request at a time is sent and its reply is read.

Theory of operation. One thread at a time uses a connection. Only `hang_up` may be called by any thread. After a request
is sent, a generator of `codec` requests bytes until the reply is complete (`read`). A connection is *in step* if no
byte is left over then. Only then may another request follow. A connection with a `layer` seals its requests and opens
its replies (`host/sealing`).

Rule: no method waits longer than its arguments allow. Any error leaves the connection unusable, except a `Refusal`,
after which it is in step.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import select
import socket
from collections.abc import Callable
from time import monotonic
from typing import TypeVar

from ...host import tls
from ...host.resolver import SHORTEST_SECONDS, Address
from ...host.sealing import Layer
from .codec import CANCEL_WAIT, Reply, byte, undecoded

T = TypeVar("T")
RECEIVE_BYTES = 1 << 16
RECEIVE_BYTES_MAX = 1 << 20
FIRST_POLL_MS = 10  # an answer is expected within this time; a shorter timeout is not kept more exactly
SMALL_REQUEST_BYTES = 1 << 12  # always fits into the socket's buffer, which is empty before a request
LONGEST_SECONDS = 2_000_000.0  # the longest timeout of the socket: poll(2) takes an int of ms, and more would wrap


class HungUp(Exception):
    """The peer closed the connection before it had answered."""


class Connection:
    """A connected socket."""

    __slots__ = ("__weakref__", "_at", "_buffer", "_seconds", "_socket", "answered", "fd", "layer")

    def __init__(self, address: Address, seconds: float) -> None:
        """Connect. Raises OSError, TimeoutError included."""
        family, where = address
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._socket.settimeout(_allowed(seconds))
            self._socket.connect(where)
            if self._socket.getsockname() == self._socket.getpeername():
                # No process listens on the port, and the kernel chose the same port for this socket. TCP then connects
                # the socket to itself.
                raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        except BaseException:
            self._socket.close()
            raise
        self.layer: Layer | None = None
        self._buffer, self._at = b"", 0
        self._seconds = -1.0  # the socket's timeout: changing it costs a system call
        # Direct reads and writes use it: the socket's object would wait before each of them (see `fast_path`).
        self.fd = self._socket.fileno()
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        self.answered: Callable[[int], object] = poll.poll  # the argument is in ms

    def shake(self, layer: tls.Layer, seconds: float) -> None:
        """Do the handshake of TLS. Raises OSError, SSLError included."""
        layer.shake(self._socket, monotonic() + seconds)
        self._seconds = -1.0
        self.layer = layer

    def limit_unacknowledged(self, seconds: float) -> None:
        """Let the kernel end the connection if it has sent bytes that were not acknowledged for this time."""
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(seconds * 1000))

    def ask(
        self,
        request: bytes,
        reply: Callable[[], Reply[T]],
        seconds: float,
        decode: Callable[[bytes], T | None] = undecoded,
    ) -> T:
        """Send a request and return its whole reply within `seconds`. `decode` may decode a small reply directly.

        Raises TimeoutError, HungUp, Garbled, Refusal, OSError.
        """
        deadline = monotonic() + seconds
        data = None
        if len(request) <= SMALL_REQUEST_BYTES and seconds > 0:
            # Not with the socket's object, which would also wait before the write. This saves a system call.
            if self.layer is not None:
                request = self.layer.sealed(request)
            sent = os.write(self.fd, request)
            if sent < len(request):  # a socket with hardly a buffer
                self._allow(seconds)
                self._socket.sendall(request[sent:])
            if self.answered(FIRST_POLL_MS if seconds >= FIRST_POLL_MS / 1000 else math.ceil(seconds * 1000)):
                data = os.read(self.fd, RECEIVE_BYTES)
                if self.layer is not None and data:
                    data = self.layer.opened(data) or None
        else:
            self.send(request, seconds)
        if data is None:
            self._allow(deadline - monotonic())
            data = self._receive(RECEIVE_BYTES, deadline)
        if not data:
            raise HungUp
        result = decode(data)
        if result is not None:
            return result
        self._buffer, self._at = data, 0
        return self.read(reply(), deadline)

    def ask_or_cancel(self, request: bytes, seconds: float, grace_seconds: float) -> bool:
        """Send a WAIT or BARRIER of torch's protocol. Returns whether it was satisfied in time; else it is withdrawn.

        If `seconds` is 0 it is withdrawn in the same write. `grace_seconds` is the time for the answer to that.
        """
        if not seconds:
            cancelled = self.ask(request + CANCEL_WAIT, byte, grace_seconds)
        else:
            try:
                self.ask(request, byte, seconds)
                return True
            except TimeoutError:
                cancelled = self.ask(CANCEL_WAIT, byte, grace_seconds)
        if not cancelled:
            # TCPStore.cpp: the wait was satisfied before CANCEL_WAIT arrived. This byte was the answer to the wait, and
            # the answer to the cancellation follows.
            self.read(byte(), monotonic() + grace_seconds)
        return not cancelled

    def finish(self, data: bytes | None, reply: Callable[[], Reply[T]], seconds: float) -> T:
        """Read the rest of a reply that begins with `data`; b"" is the end of the stream."""
        if data == b"":
            raise HungUp
        self._buffer, self._at = data or b"", 0
        return self.read(reply(), monotonic() + seconds)

    def send(self, request: bytes, seconds: float) -> None:
        self._allow(seconds)
        self._socket.sendall(request if self.layer is None else self.layer.sealed(request))

    def receive_now(self) -> bytes:
        """The bytes that have arrived; b"" is the end of the stream. Raises BlockingIOError if none have."""
        while True:
            data = os.read(self.fd, RECEIVE_BYTES)
            if self.layer is None or not data or (data := self.layer.opened(data)):
                return data

    def read(self, reply: Reply[T], deadline: float | None) -> T:
        """Read the next reply. Without a deadline each piece may take as long as the last `ask` or `send` allowed."""
        try:
            need = next(reply)
            while True:
                end = self._at + need
                if end <= len(self._buffer):
                    piece = self._buffer[self._at : end]
                    self._at = end
                else:
                    piece = self._fetch(need, deadline)
                need = reply.send(piece)
        except StopIteration as end_of_reply:
            result: T = end_of_reply.value
            return result

    @property
    def in_step(self) -> bool:
        """Whether no unread byte is left over after the last reply."""
        return self._at == len(self._buffer)

    @property
    def stale(self) -> bool:
        """Whether the peer of an idle connection has closed it, as far as this host can see."""
        return bool(self.answered(0))

    def hang_up(self) -> None:
        """Wake a thread that is blocked on the connection. Any thread may call this."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError):  # the constructor could not make a socket
            self.close()

    def close(self) -> None:
        self.fd = -1
        self._socket.close()

    def _fetch(self, need: int, deadline: float | None) -> bytes:
        """The next `need` bytes, if the buffer has fewer."""
        whole = bytearray(memoryview(self._buffer)[self._at :])
        while len(whole) < need:
            if deadline is not None:
                self._allow(deadline - monotonic())
            data = self._receive(min(max(need - len(whole), RECEIVE_BYTES), RECEIVE_BYTES_MAX), deadline)
            if not data:
                raise HungUp
            whole += data
        self._buffer, self._at = bytes(memoryview(whole)[need:]), 0
        return bytes(memoryview(whole)[:need])

    def _receive(self, size: int, deadline: float | None) -> bytes:
        """The bytes that have arrived. Waits until at least one has."""
        while True:
            try:
                data = self._socket.recv(size)
                if self.layer is None or not data or (data := self.layer.opened(data)):
                    return data
            except TimeoutError:
                if deadline is None:
                    raise
            if deadline is not None:
                self._allow(deadline - monotonic())  # a wait of more than LONGEST_SECONDS is done in pieces

    def _allow(self, seconds: float) -> None:
        if seconds <= 0:
            raise TimeoutError
        if seconds != self._seconds:
            self._seconds = seconds
            self._socket.settimeout(_allowed(seconds))


def _allowed(seconds: float) -> float:
    return min(max(seconds, SHORTEST_SECONDS), LONGEST_SECONDS)
