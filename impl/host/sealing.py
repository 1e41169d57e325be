"""Layers between a socket and a protocol: what is sent is sealed, what arrives is opened, and an altered byte ends all.

Theory of operation. A layer belongs to one connection and owns no socket. `sealed` and `opened` return bytes for the
socket and for the protocol. Each direction is a sequence of records: a head of HEAD_BYTES, which gives the size of the
body, and the body. There are two layers: TLS (`tls.Layer`), and `Bound`, where both sides have the same secret and no
certificates. The records of `Bound` are not encrypted. Each has a MAC, whose key follows from both nonces of the proof
of the secret (`secret.py`), so it is valid in this connection and this direction only. The MAC covers the number of the
record, so a record that is altered, left out, repeated, or moved is refused.

A connection may end after any record: protocols find by the lengths in their own messages that a message is not whole.

Rule: no byte is returned before its whole record is checked, and no record follows a refused one. One thread may seal
while another opens.
"""

from __future__ import annotations

import hashlib
import hmac
import socket
from itertools import count
from struct import Struct
from time import monotonic
from typing import Any, Protocol

RECORD_BYTES_MAX = 1 << 16  # the body of a record, which is kept in memory until its MAC is checked
MAC_BYTES = 16  # an HMAC-SHA256, cut: each of its bits is as hard to guess (RFC 2104)
_HEAD = Struct(f"<I{MAC_BYTES}s")
_NUMBER = Struct("<Q")


class Altered(ConnectionError):
    """Bytes of the peer are not its bytes: they were altered on the way, or the peer does not speak the protocol."""


class Layer(Protocol):
    """The records of one connection."""

    HEAD_BYTES: int

    def body_bytes(self, head: bytes) -> int:
        """The size of the body after a head."""

    def sealed(self, data: Any) -> bytes:
        """The records that contain these bytes."""

    def opened(self, data: bytes) -> bytes:
        """The contents of the records that are complete with these bytes. Raises OSError."""

    def answer(self) -> bytes:
        """Bytes of a handshake, which must be sent although no data was given."""


class Bound:
    """Records with a MAC. `sends` and `receives` are the keys of the two directions."""

    HEAD_BYTES = _HEAD.size

    def __init__(self, sends: bytes, receives: bytes) -> None:
        self._sends, self._receives = sends, receives
        self._sent, self._received = count(), count()
        self._rest = b""

    def body_bytes(self, head: bytes) -> int:
        size, _ = _HEAD.unpack(head)
        if not 0 < size <= RECORD_BYTES_MAX:
            raise Altered(f"a record of {size} bytes, not 1 to {RECORD_BYTES_MAX}: a relay has altered the connection")
        return int(size)

    def sealed(self, data: Any) -> bytes:
        if 0 < len(data) <= RECORD_BYTES_MAX:
            return self._record(data)
        view = memoryview(data).cast("B")
        return b"".join(self._record(view[at : at + RECORD_BYTES_MAX]) for at in range(0, len(view), RECORD_BYTES_MAX))

    def _record(self, data: Any) -> bytes:
        body = bytes(data)
        mac = hmac.digest(self._sends, _NUMBER.pack(next(self._sent)) + body, "sha256")
        return _HEAD.pack(len(body), mac[:MAC_BYTES]) + body

    def opened(self, data: bytes) -> bytes:
        data = self._rest + data if self._rest else data
        found, at = [], 0
        while len(data) - at >= _HEAD.size:
            head = data[at : at + _HEAD.size]
            begin = at + _HEAD.size
            end = begin + self.body_bytes(head)
            if end > len(data):
                break
            body = data[begin:end]
            mac = hmac.digest(self._receives, _NUMBER.pack(next(self._received)) + body, "sha256")
            if not hmac.compare_digest(mac[:MAC_BYTES], head[-MAC_BYTES:]):
                raise Altered("a record was altered, left out, or repeated: a relay between the two sides did that")
            found.append(body)
            at = end
        self._rest = data[at:]
        return found[0] if len(found) == 1 else b"".join(found)

    def answer(self) -> bytes:
        return b""

    @property
    def half(self) -> bool:
        """A part of a record has arrived."""
        return bool(self._rest)


def bound(secret: bytes, server_nonce: bytes, client_nonce: bytes, agreed: bytes = b"", *, server: bool) -> Bound:
    """The layer after a proof of the secret. `agreed`: the bytes that the two sides exchanged before it."""
    keys = [
        hmac.digest(secret, b"trystate records of the " + side + server_nonce + client_nonce + agreed, hashlib.sha256)
        for side in (b"server", b"client")
    ]
    return Bound(*keys) if server else Bound(*reversed(keys))


def exactly(sock: socket.socket, size: int, deadline: float) -> bytes:
    """Read `size` bytes. Raises TimeoutError, and ConnectionResetError if the peer closes."""
    data = b""
    while len(data) < size:
        limit(sock, deadline)
        more = sock.recv(size - len(data))
        if not more:
            raise ConnectionResetError("closed by the peer")
        data += more
    return data


def limit(sock: socket.socket, deadline: float) -> None:
    """Limit the next operation of the socket to the deadline. Raises TimeoutError."""
    left = deadline - monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    sock.settimeout(left)


def read_record(sock: socket.socket, layer: Layer, deadline: float) -> bytes:
    """The next record, with its head; no byte behind it is taken from the socket."""
    head = exactly(sock, layer.HEAD_BYTES, deadline)
    return head + exactly(sock, layer.body_bytes(head), deadline)
