"""A connection to one room, for a loop that selects: it sends requests, and receives answers and notices.

Rule: only `open` and `send` wait. A connection that has ended raises the reason at each call. One thread uses it. A
fork closes it in the child.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Self

from trystate.model.store.vocabulary import Status

from ...host.forking import let_go_after_fork
from ..errors import ConnectionLost
from . import codec
from .client import CallText, Client
from .codec import Garbled, Reply
from .connection import Connection, HungUp

if TYPE_CHECKING:
    from ..tcp import TCPStore


# A path is dead if sent bytes are not acknowledged for this time: a slow server acknowledges them at once. A lease of
# the default settings takes 12.5 s.
UNACKNOWLEDGED_SECONDS = 10.0


class Message(NamedTuple):
    """A message of a room: an answer (OK), a notice (NOTICE), or a refusal (any other status), whose data is its text.

    Answers and refusals come in the order of the requests.
    """

    status: Status
    data: bytes


def message() -> Reply[Message]:
    byte = yield from codec.byte()
    try:
        status = Status(byte)
    except ValueError:
        raise Garbled(f"it sent the unknown status {byte}") from None
    if status is Status.NOTICE:
        yield from codec.a_blob()  # the run id
    return Message(status, (yield from codec.a_blob()))


class RoomConnection:
    """A connection to one room."""

    def __init__(self, client: Client, call: CallText, connection: Connection) -> None:
        self._client, self._call, self._connection = client, call, connection
        self._lost: Exception | None = None
        self._bytes = bytearray()
        self._begin()
        let_go_after_fork(self)

    @classmethod
    def open(cls, store: TCPStore, run_id: str, seconds: float) -> Self:
        """A connection to the room of `run_id`. `seconds` is the limit of this call and of each `send`.

        Raises:
            NotSupported: the server has no rooms.
            StoreTimeout, ConnectionLost, SecretRefused: as the constructor of a `TCPStore`.
        """
        # A separate client accepts a server that was restarted without its contents: the room then has another life.
        client = Client(store.host, store.port, store.secret, store.tls)
        call = CallText("room", [run_id.encode()], seconds)
        connection = client.dedicated(call, seconds)
        try:
            connection.limit_unacknowledged(UNACKNOWLEDGED_SECONDS)
            client.need_rooms(call)
        except BaseException:
            connection.close()
            raise
        return cls(client, call, connection)

    def fileno(self) -> int:
        """The descriptor, which is readable when messages have come or the connection has ended; -1: it is closed."""
        return self._connection.fd

    def send(self, data: bytes) -> None:
        """Send a request. Raises StoreTimeout or ConnectionLost."""
        if self._lost is None:
            try:
                self._connection.send(codec.room(self._call.names[0], data), self._call.seconds)
            except OSError as error:
                self._end(error)
        if self._lost is not None:
            raise self._lost

    def receive(self) -> list[Message]:
        """All whole messages that have come; never waits. Raises ConnectionLost after the last of them."""
        found: list[Message] = []
        while self._lost is None:
            try:
                data = self._connection.receive_now()
                if not data:
                    raise HungUp
                self._bytes += data
                self._read(found)
            except BlockingIOError:
                return found
            except (OSError, HungUp, Garbled) as error:
                self._end(error)
        if not found:
            raise self._lost
        return found

    def close(self) -> None:
        """Close the connection; may be called twice."""
        self._connection.close()

    def forked(self) -> None:
        """Close the copy of the connection in the child."""
        self._lost = ConnectionLost(f"{self._call}: a room's connection ends with a fork ({self._client.where}); open "
                                    "another one in the child")  # fmt: skip
        self.close()

    def _begin(self) -> None:
        self._message = message()
        self._needed = next(self._message)

    def _read(self, found: list[Message]) -> None:
        while len(self._bytes) >= self._needed:
            piece = bytes(self._bytes[: self._needed])
            del self._bytes[: self._needed]
            try:
                self._needed = self._message.send(piece)
            except StopIteration as whole:
                found.append(whole.value)
                self._begin()

    def _end(self, error: Exception) -> None:
        self.close()
        self._lost = self._client.failed(self._call, error)
