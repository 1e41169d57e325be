"""Requests as bytes, and a peer of a store's server that sends them: what the tests that work below a client use."""

from __future__ import annotations

import socket
from types import TracebackType
from typing import Self

from trystate.impl.store.wire import I64, MAGIC, U32, blob, counted
from trystate.model.store.vocabulary import Extension, Query

SECONDS = 10.0  # for an answer on a busy machine; a hang is what fails


def request(query: Query | Extension, *parts: bytes) -> bytes:
    return bytes((query, *b"".join(parts)))


VALIDATE = request(Query.VALIDATE, U32.pack(MAGIC))
NONCE = U32.pack(7)
PING = request(Query.PING, NONCE)


def set_(key: bytes, value: bytes) -> bytes:
    return request(Query.SET, blob(key), blob(value))


def get(key: bytes) -> bytes:
    return request(Query.GET, blob(key))


def check(*keys: bytes) -> bytes:
    return request(Query.CHECK, counted(list(keys)))


def wait(*keys: bytes) -> bytes:
    return request(Query.WAIT, counted(list(keys)))


def add(key: bytes, delta: int) -> bytes:
    return request(Query.ADD, blob(key), I64.pack(delta))


def received(connection: socket.socket, size: int) -> bytes:
    """`size` bytes; fewer where the connection ends before. Raises TimeoutError if the bytes do not come in time."""
    data = bytearray()
    while len(data) < size and (more := connection.recv(size - len(data))):
        data += more
    return bytes(data)


class Connection:
    """A connection to a server: what is sent leaves at once, and the connection ends with the block."""

    def __init__(self, port: int, host: str = "127.0.0.1", timeout_s: float = SECONDS) -> None:
        self.socket = socket.create_connection((host, port), timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class Peer(Connection):
    """A connection that sends VALIDATE first, unless `validated` is False."""

    def __init__(self, port: int, *, host: str = "127.0.0.1", validated: bool = True) -> None:
        super().__init__(port, host)
        if validated:
            self.send(VALIDATE)

    def read(self, size: int) -> bytes:
        """Exactly so many bytes. Raises EOFError if the server closed before."""
        data = received(self.socket, size)
        if len(data) < size:
            raise EOFError(f"closed after {len(data)} of {size} bytes")
        return data

    def ask(self, data: bytes, size: int) -> bytes:
        self.send(data)
        return self.read(size)

    def answers(self) -> bool:
        return self.ask(PING, 4) == NONCE

    def closed(self) -> bool:
        """Wait for the server to close the connection; what it still sends is read and dropped."""
        try:
            while self.socket.recv(1 << 16):
                pass
        except TimeoutError:
            return False
        except ConnectionError:
            return True
        return True
