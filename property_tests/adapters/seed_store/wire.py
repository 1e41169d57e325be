"""The protocol of torch 1.9: the numbers of its requests, and blocking reads and writes of a socket.

Rule: as in torch 1.9, no byte is read ahead, and no byte of an incomplete request is kept (4.2.6.4).
Integers, blobs and lists are written as in `impl/store/wire.py`; the protocol has no VALIDATE and no PING.
"""

from __future__ import annotations

import enum
import os
import socket

from trystate.impl.store.wire import I64, U64

from ..our_store.wire import received


class Query(enum.IntEnum):
    """The requests (TCPStore.cpp of 1.9: QueryType); ddp-initialisation 4.2.6.4 names them."""

    SET = 0
    COMPARE_SET = 1
    GET = 2
    ADD = 3
    CHECK = 4
    WAIT = 5
    GETNUMKEYS = 6
    WATCH_KEY = 7
    DELETE_KEY = 8


class Gone(ConnectionError):
    """The other end has closed the connection."""


def recv(connection: socket.socket, size: int) -> bytes:
    """Receive exactly `size` bytes; blocks until they have arrived.

    Raises:
        Gone: the connection ends first.
        TimeoutError: the receive timeout of the socket (SO_RCVTIMEO) has passed.
    """
    try:
        data = received(connection, size)
    except BlockingIOError as late:
        raise TimeoutError("the receive timeout of the socket is over") from late
    if len(data) < size:
        raise Gone(f"closed after {len(data)} of {size} bytes")
    return data


def recv_blob(connection: socket.socket) -> bytes:
    return recv(connection, U64.unpack(recv(connection, 8))[0])


def recv_list(connection: socket.socket) -> list[bytes]:
    return [recv_blob(connection) for _ in range(U64.unpack(recv(connection, 8))[0])]


def recv_number(connection: socket.socket) -> int:
    return int(I64.unpack(recv(connection, 8))[0])


def send(number: int, data: bytes) -> None:
    """Write to the connection that has this file descriptor now; blocks until all bytes are written.

    Raises:
        OSError: no connection has this descriptor, or the other end has closed.
    """
    while data:
        data = data[os.write(number, data) :]
