"""Proxies of a store's server on 127.0.0.1: one loses answers, the other cuts connections at any byte.

Rule: a proxy changes no byte and no order. It forwards a prefix of the bytes of each connection.
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
from collections.abc import Callable
from multiprocessing.connection import wait as readable
from typing import Self

from trystate.impl.store.client.codec import GREETING, HELLO

HOST = "127.0.0.1"
HANDSHAKE_BYTES = len(GREETING) + len(HELLO)  # sent by a client of ours before its first operation
BYTES_MAX = 6_000  # limit of a connection, in both directions, until it is cut: some hundred operations
DELAY_SECONDS_MAX = 0.02
ALIVE_SECONDS = 0.1  # a pump notices within this time that the proxy ends

Carry = Callable[[bool, bytes], tuple[bytes, bool]]


class Proxy:
    """Forwards connections to a server, each in its own thread."""

    def __init__(self, target: int) -> None:
        self._target, self._over = target, threading.Event()
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def carry(self, *ends: socket.socket) -> Carry:
        """The function of a new connection: (is it from the client, bytes) -> (forwarded bytes, does it continue)."""
        raise NotImplementedError

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # it is closed
            while True:
                client, _ = self._listener.accept()
                self._threads.append(threading.Thread(target=self._pump, args=(client,), daemon=True))
                self._threads[-1].start()

    def _pump(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client, socket.create_connection((HOST, self._target), timeout=5) as server:
            other = {client: server, server: client}
            for sock in other:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            carry = self.carry(client, server)
            while not self._over.is_set():
                ready = readable([client, server], ALIVE_SECONDS)
                for sock in (end for end in other if end in ready):
                    data = sock.recv(1 << 16)
                    passed, goes_on = carry(sock is client, data)
                    other[sock].sendall(passed)
                    if not data or not goes_on:
                        return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(30)


class Losing(Proxy):
    """While `loses` is set, the next answer to an operation is lost and its connection is cut."""

    def __init__(self, target: int) -> None:
        self.loses = threading.Event()
        super().__init__(target)

    def carry(self, *ends: socket.socket) -> Carry:
        asked = 0

        def carry(is_asked: bool, data: bytes) -> tuple[bytes, bool]:
            nonlocal asked
            asked += len(data) * is_asked
            if is_asked or asked <= HANDSHAKE_BYTES or not self.loses.is_set():
                return data, True
            self.loses.clear()
            return b"", False

        return carry


class CuttingProxy(Proxy):
    """Cuts connections at any byte, and holds bytes back, until it is `calm`."""

    def __init__(self, target: int, seed: int) -> None:
        self._chance = random.Random(seed)
        self.cuts, self.calm = 0, False
        super().__init__(target)

    def carry(self, *ends: socket.socket) -> Carry:
        chance = random.Random(self._chance.random())
        room = chance.randrange(1, BYTES_MAX)

        def carry(is_asked: bool, data: bytes) -> tuple[bytes, bool]:
            nonlocal room
            if chance.random() < 0.05:
                self._over.wait(chance.uniform(0, DELAY_SECONDS_MAX))
            if self.calm:
                return data, True
            passed, room = data[:room], room - len(data)
            if data and room <= 0:
                self.cuts += 1
                for sock in ends:  # closed in order, or with a reset, which drops the bytes on their way
                    if chance.random() < 0.5:
                        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return passed, room > 0

        return carry
