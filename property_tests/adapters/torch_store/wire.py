"""A peer that speaks TCPStore's protocol by hand, so that a scenario decides which bytes go out when.

Rule: it knows only how requests are written; what the answers mean is for the scenario to say.
Source: torch/csrc/distributed/c10d/TCPStoreBackend.hpp (numbers), TCPStore.cpp (layout).
"""

from __future__ import annotations

from multiprocessing.connection import wait as readable

from trystate.impl.store.wire import I64, STOP_WAITING, U64, blob, blobs, counted
from trystate.model.store.vocabulary import Query

from ..our_store.wire import NONCE, PING, Connection, received
from ..our_store.wire import VALIDATE as VALIDATE

ANSWER_S = 5.0  # a live server answers in milliseconds


def request(query: Query, *keys: str) -> bytes:
    """A request of one key, or of a list of keys where the protocol wants one; torch's client puts a `/` in front."""
    sent = [b"/" + key.encode() for key in keys]
    many = query in (Query.WAIT, Query.CHECK, Query.MULTI_GET)
    return bytes([query]) + (counted(sent) if many else blobs(sent))


def set_request(key: str, value: bytes) -> bytes:
    return request(Query.SET, key) + blob(value)


class Peer(Connection):
    """One connection; with `greet` it validates at once, as torch's client does."""

    def __init__(self, port: int, *, greet: bool = True) -> None:
        super().__init__(port, timeout_s=ANSWER_S)
        self._port = port
        if greet:
            self.send(VALIDATE)
            self.sync()

    def send(self, data: bytes, timeout_s: float = ANSWER_S) -> None:
        """Raises TimeoutError if the server does not take it in time."""
        self.socket.settimeout(timeout_s)
        super().send(data)

    def read(self, size: int, timeout_s: float = ANSWER_S) -> bytes | None:
        """`size` bytes; None if they do not come in time; fewer where the connection ends."""
        self.socket.settimeout(timeout_s)
        try:
            return received(self.socket, size)
        except TimeoutError:
            return None
        except ConnectionResetError:
            return b""

    def read_blob(self) -> bytes | None:
        head = self.read(8)
        return self.read(U64.unpack(head)[0]) if head is not None and len(head) == 8 else None

    def read_number(self) -> int | None:
        data = self.read(8)
        return int(I64.unpack(data)[0]) if data is not None and len(data) == 8 else None

    def sync(self) -> bool:
        """Whether the server has read and answered everything sent so far."""
        self.send(PING)
        return self.read(len(NONCE)) == NONCE

    def is_served(self) -> bool:
        """`sync`, and False for a connection that the server has ended."""
        try:
            return self.sync()
        except (BrokenPipeError, ConnectionResetError):
            return False

    def block(self, data: bytes) -> None:
        """Send a request that is not answered yet; returns when the server has taken note of it.

        That is when a later connection has been served: an event loop reads what came first no later.
        """
        self.send(data)
        with Peer(self._port) as later:
            later.sync()
        if readable([self.socket], 0):
            raise AssertionError("the server answered at once, or hung up")

    def wait(self, *keys: str) -> None:
        """Wait for keys that are not there; returns when the server has taken note of it."""
        self.block(request(Query.WAIT, *keys))

    def is_released(self, timeout_s: float = ANSWER_S) -> bool:
        """Whether the answer to the wait comes, within the time."""
        return self.read(1, timeout_s) == STOP_WAITING
