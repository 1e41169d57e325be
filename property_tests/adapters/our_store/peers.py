"""Shared by the adapters: the connection of a model's client, and a connection outside the model.

Rule: a server serves a request when it arrives, so a request is sent when the model's server takes it. Until then the
adapter keeps the request. It also keeps the messages that the model's client has not read.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import count

from trystate.impl.store.wire import U64
from trystate.model.language.sorts import ordinal
from trystate.model.store.vocabulary import Status

from ...harness.subjects import Disagreement
from .lines import Line, Server
from .wire import VALIDATE

Message = Mapping[str, "enum.Enum | int"]  # the components of a record on its way to a client
Reader = Callable[[bytes], "tuple[Message, int] | None"]  # -> the first message and its size, or None

_numbers = count(1)


def fresh_name(what: str) -> bytes:
    """A new key, as torch's client would send it: no run has to remove the keys of an earlier run."""
    return b"/%s %d" % (what.encode(), next(_numbers))


def cells(name: str, places: int, messages: Sequence[Message], member: int | None = None) -> dict[str, int]:
    """The cells of a model's sequence: its length, and the content of each place that has a message."""
    at = "" if member is None else f"[{member}]"
    seen = {f"{name}_length{at}": len(messages)}
    for place, message in enumerate(messages[:places]):
        for component, value in message.items():
            number = ordinal(value) if isinstance(value, enum.Enum) else value
            seen[f"{name}_{place}_{component}{at}"] = number
    return seen


def accepted(reader: Reader) -> Reader:
    """A reader of the answer to an extension: a status, and then the result."""

    def read(data: bytes) -> tuple[Message, int] | None:
        found = reader(data[1:]) if data[0] == Status.OK else None
        return None if found is None else (found[0], found[1] + 1)

    return read


def length(data: bytes) -> int:
    """The length at the beginning of a reply; 0 if fewer than 8 bytes have arrived."""
    return int(U64.unpack(data[:8])[0]) if len(data) >= 8 else 0


class Replies:
    """The readers of replies for a model whose answers have a kind and a number.

    `kinds`: the model's answers. `number`: the component for a number. `nothing`: the kind of an empty value.
    """

    def __init__(self, kinds: type[enum.Enum], number: str, nothing: str) -> None:
        self._kinds, self._number, self._nothing = kinds, number, nothing

    def _message(self, kind: str, number: int = 0) -> Message:
        return {"kind": self._kinds[kind], self._number: number}

    def waited(self, data: bytes) -> tuple[Message, int] | None:
        """The answer to a WAIT or to a CANCEL_WAIT."""
        kind = {0: "STOP_WAITING", 1: "WAIT_CANCELED"}.get(data[0])
        return (self._message(kind), 1) if kind is not None else None

    def got(self, data: bytes) -> tuple[Message, int] | None:
        """The answer to a GET. The last digit identifies a value, since every kind of write can set it."""
        size = 8 + length(data)
        if len(data) < size:
            return None
        return self._message("VALUE", int(data[size - 1 : size])) if size > 8 else self._message(self._nothing), size

    def popped(self, data: bytes) -> tuple[Message, int] | None:
        """The answer to a QUEUE_POP: the number of elements, and the first element."""
        if not length(data):
            return (self._message("EMPTY"), 8) if len(data) >= 8 else None
        end = 16 + length(data[8:])
        return (self._message("ELEMENT", int(data[16:end])), end) if 16 < end <= len(data) else None

    def released(self, data: bytes) -> tuple[Message, int]:
        """The answer to a wait of our client: nothing follows its status."""
        return self._message("STOP_WAITING"), 0

    def in_one(self, reader: Reader) -> Reader:
        """The answer to a blocking request of our client: a status, and a result for `reader` that is not empty."""

        def read(data: bytes) -> tuple[Message, int] | None:
            if data[0] == Status.TIMED_OUT:
                return self._message("TIMED_OUT"), 1
            found = accepted(reader)(data)
            return None if found is None or found[0]["kind"] is self._kinds["EMPTY"] else found

        return read


class Peer:
    """A client's end of a validated connection, with its unsent requests and its unread messages."""

    def __init__(self, server: Server, reader: Reader) -> None:
        self.line: Line = server.connect()
        self.line.send(VALIDATE)
        self.unsent: deque[tuple[bytes, Reader]] = deque()
        self.unread: list[Message] = []
        self.is_lost = False  # the client's end is closed, and the server has not noticed
        self._byte_reader, self._readers, self._inbox = reader, deque[Reader](), b""
        self._sent = 0

    def ask(self, request: bytes, reader: Reader | None = None) -> None:
        """Keep a request until it is served. `reader` reads its answer, if this is not the usual byte."""
        self.unsent.append((request, reader or self._byte_reader))

    def send(self) -> None:
        """Send the next request, every second one in two pieces; drop it if the connection is lost."""
        request, reader = self.unsent.popleft()
        if self.is_lost:
            return
        self._sent += 1
        middle = len(request) // 2 if self._sent % 2 else 0
        for piece in filter(None, (request[:middle], request[middle:])):
            self.line.send(piece)
        if reader is not self._byte_reader:
            self._readers.append(reader)

    def look(self) -> None:
        """Read the messages that have arrived. A lost client reads none."""
        self._inbox += self.line.read()
        if self.is_lost:
            self._inbox = b""
        while self._inbox:
            reader = self._readers[0] if self._readers else self._byte_reader
            found = reader(self._inbox)
            if found is None:
                raise Disagreement(f"the server sent {self._inbox!r}, which does not answer the request")
            if self._readers:
                self._readers.popleft()
            self.unread.append(found[0])
            self._inbox = self._inbox[found[1] :]

    def take(self) -> None:
        """The client reads its next message, unless its connection is lost."""
        if not self.is_lost:
            del self.unread[0]

    def lose(self) -> None:
        """The connection breaks: its messages are lost, and the server has not noticed."""
        self.is_lost = True
        self.unsent.clear()
        self.unread.clear()

    def end(self) -> None:
        """The server notices that the connection has closed."""
        self.line.hang_up()


class Others:
    """A connection outside the model: it writes, reads, and can begin a wait."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._line: Line = server.connect()
        self._line.send(VALIDATE)

    def tell(self, request: bytes) -> None:
        """Send a request and drop its answer."""
        self._line.send(request)
        self._server.settle()
        self._line.read()

    @property
    def is_cut(self) -> bool:
        """Whether the server has closed the connection."""
        return self._line.is_cut

    def ask(self, request: bytes) -> bytes:
        """Send a request that is answered at once; returns the answer."""
        self._line.send(request)
        self._server.settle()
        answer = self._line.read()
        if not answer:
            raise Disagreement(f"the server does not answer {request!r}")
        return answer

    def begin(self, request: bytes) -> None:
        """Send a request that is answered later."""
        self._line.send(request)

    def is_answered(self) -> bool:
        """Whether the answer to the begun request has arrived."""
        return bool(self._line.read())
