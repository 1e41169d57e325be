"""Requests as bytes, and a peer of a store's server that sends them, for tests without a client."""

from __future__ import annotations

import socket
from contextlib import AbstractContextManager

from trystate.impl.store.wire import I64, MAGIC, U32, U64, blob, counted
from trystate.model.store.vocabulary import Extension, Query

SECONDS = 10.0  # limit for an answer on a busy machine; only a hang exceeds it


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


# Every way to make one change: torch's requests, and ours.


def put(key: bytes, old: int, new: int) -> list[bytes]:
    """Give a key another number; `old` is 0 if the key has no value."""
    text, change = blob(b"%d" % new), new - old
    pair = U64.pack(1) + blob(key) + text
    return [
        set_(key, b"%d" % new), request(Extension.SET, blob(key), text), request(Query.MULTI_SET, pair),
        add(key, change), request(Extension.ADD, blob(key), I64.pack(change)), request(Extension.MULTI_SET, pair),
    ]  # fmt: skip


def append(key: bytes, text: bytes) -> list[bytes]:
    return [request(way, blob(key), blob(text)) for way in (Query.APPEND, Extension.APPEND)]


def compare_set(key: bytes, expected: bytes, desired: bytes) -> list[bytes]:
    body = blob(key) + blob(expected) + blob(desired)
    return [request(way, body) for way in (Query.COMPARE_SET, Extension.COMPARE_SET)]


def delete(key: bytes) -> list[bytes]:
    return [request(way, blob(key)) for way in (Query.DELETE_KEY, Extension.DELETE, Extension.TAKE)]


def received(connection: socket.socket, size: int) -> bytes:
    """Receive `size` bytes, or fewer if the connection ends. Raises TimeoutError if the bytes do not come in time."""
    data = bytearray()
    while len(data) < size and (more := connection.recv(size - len(data))):
        data += more
    return bytes(data)


class Peer(AbstractContextManager["Peer"]):
    """A connection to a server, without Nagle's delay; it sends VALIDATE first, unless `validated` is False."""

    def __init__(self, port: int, *, host: str = "127.0.0.1", validated: bool = True) -> None:
        self.socket = socket.create_connection((host, port), SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if validated:
            self.send(VALIDATE)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def close(self) -> None:
        self.socket.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, size: int) -> bytes:
        """Exactly `size` bytes. Raises EOFError if the server closed before."""
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
        """Wait until the server closes the connection, and drop the bytes that it sends before."""
        try:
            while self.socket.recv(1 << 16):
                pass
        except TimeoutError:
            return False
        except ConnectionError:
            return True
        return True
