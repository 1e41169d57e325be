"""Shared by the adapters: the connection of a model's client, and the others, which write to the server and look.

Rule: a server serves a request as it arrives, so a request is sent when the model's server takes it. Until then the
adapter keeps it, as it keeps what the model's client has not read yet.
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

Message = Mapping[str, "enum.Enum | int"]  # the components of a record on its way to a client
Reader = Callable[[bytes], "tuple[Message, int] | None"]  # the first message and its size; None: it is not whole

_numbers = count(1)


def fresh_name(what: str) -> bytes:
    """A key as torch's client would send it, that nobody has used: so nothing has to be cleaned between runs."""
    return b"/%s %d" % (what.encode(), next(_numbers))


def cells(name: str, places: int, messages: Sequence[Message], member: int | None = None) -> dict[str, int]:
    """A sequence of a model as it is seen: its length, and what stands at each place that is taken."""
    at = "" if member is None else f"[{member}]"
    seen = {f"{name}_length{at}": len(messages)}
    for place, message in enumerate(messages[:places]):
        for component, value in message.items():
            number = ordinal(value) if isinstance(value, enum.Enum) else value
            seen[f"{name}_{place}_{component}{at}"] = number
    return seen


def accepted(reader: Reader) -> Reader:
    """The answer to an extension: a status, and then the result."""

    def read(data: bytes) -> tuple[Message, int] | None:
        found = reader(data[1:]) if data[0] == Status.OK else None
        return None if found is None else (found[0], found[1] + 1)

    return read


def length(data: bytes) -> int:
    """The length with which a reply begins; 0 while it is not whole."""
    return int(U64.unpack(data[:8])[0]) if len(data) >= 8 else 0


class Replies:
    """The readers of replies for a model whose answers have a kind and a number.

    `kinds`: the model's answers; `number`: the name of their number; `nothing`: the kind of a GET's empty value.
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
        """The answer to a GET: a value is known by its last digit, which all that writes can set."""
        size = 8 + length(data)
        if len(data) < size:
            return None
        return self._message("VALUE", int(data[size - 1 : size])) if size > 8 else self._message(self._nothing), size

    def popped(self, data: bytes) -> tuple[Message, int] | None:
        """The answer to a QUEUE_POP: how many there were, and the first."""
        if not length(data):
            return (self._message("EMPTY"), 8) if len(data) >= 8 else None
        end = 16 + length(data[8:])
        return (self._message("ELEMENT", int(data[16:end])), end) if 16 < end <= len(data) else None

    def released(self, data: bytes) -> tuple[Message, int]:
        """The answer to a wait of our client, behind its status: nothing."""
        return self._message("STOP_WAITING"), 0

    def in_one(self, reader: Reader) -> Reader:
        """The answer to a request of our client that waits: a status, and then as `reader`, but never empty."""

        def read(data: bytes) -> tuple[Message, int] | None:
            if data[0] == Status.TIMED_OUT:
                return self._message("TIMED_OUT"), 1
            found = accepted(reader)(data)
            return None if found is None or found[0]["kind"] is self._kinds["EMPTY"] else found

        return read


class Peer:
    """A client's end of a connection, validated: requests not sent yet, and messages not read yet."""

    def __init__(self, server: Server, reader: Reader) -> None:
        self.line: Line = server.connect()
        self._encode = server.encode
        self.line.send(server.greeting)
        self.unsent: deque[tuple[bytes, Reader]] = deque()
        self.unread: list[Message] = []
        self.is_lost = False  # the client's end is gone, and the server has not been told
        self._byte_reader, self._readers, self._inbox = reader, deque[Reader](), b""
        self._sent = 0

    def ask(self, request: bytes, reader: Reader | None = None) -> None:
        """Keep a request until it is served; `reader`: its answer is not the usual byte, and comes in its turn."""
        self.unsent.append((self._encode(request), reader or self._byte_reader))

    def send(self) -> None:
        """The next request goes to the server, every other one in two pieces; on a lost connection it goes nowhere."""
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
        """Take what has come. A lost client reads nothing any more."""
        self._inbox += self.line.read()
        if self.is_lost:
            self._inbox = b""
        while self._inbox:
            reader = self._readers[0] if self._readers else self._byte_reader
            found = reader(self._inbox)
            if found is None:
                raise Disagreement(f"the server sent {self._inbox!r}, which is no answer to what was asked")
            if self._readers:
                self._readers.popleft()
            self.unread.append(found[0])
            self._inbox = self._inbox[found[1] :]

    def take(self) -> None:
        """The client reads its next message; on a lost connection there is none."""
        if not self.is_lost:
            del self.unread[0]

    def lose(self) -> None:
        """The connection breaks: what was on its way is lost, and the server does not know."""
        self.is_lost = True
        self.unsent.clear()
        self.unread.clear()

    def end(self) -> None:
        """The server finds out that the connection is gone."""
        self.line.hang_up()


class Others:
    """A connection without a model: whoever writes and looks, and may begin a wait."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._line: Line = server.connect()
        self._line.send(server.greeting)

    def tell(self, request: bytes) -> None:
        """Send a request; its answer, if it has one, is dropped."""
        self._line.send(self._server.encode(request))
        self._server.settle()
        self._line.read()

    @property
    def is_cut(self) -> bool:
        """Has the server closed the connection?"""
        return self._line.is_cut

    def ask(self, request: bytes) -> bytes:
        """The answer to a request that is answered at once."""
        self._line.send(self._server.encode(request))
        self._server.settle()
        answer = self._line.read()
        if not answer:
            raise Disagreement(f"the server does not answer {request!r}")
        return answer

    def begin(self, request: bytes) -> None:
        """Send a request that is answered later."""
        self._line.send(self._server.encode(request))

    def is_answered(self) -> bool:
        """Has the answer come to what was begun?"""
        return bool(self._line.read())
