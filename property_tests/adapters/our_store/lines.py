"""Connections to a server under test, over TCP or to a service in this process, and connections of models' clients.

Rule: after `settle`, a line has everything that the server has sent, so a step can be compared. A server serves a
request when it arrives, so a request is sent when the model's server takes it. Until then the adapter keeps the
request. It also keeps the messages that the model's client has not read.
"""

from __future__ import annotations

import enum
import socket
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import count
from typing import Any

from trystate.impl.store.limits import Limits
from trystate.impl.store.server.service import Service
from trystate.impl.store.wire import U64
from trystate.model.language.sorts import ordinal
from trystate.model.store.vocabulary import Status

from ...harness.subjects import Disagreement
from ..steps import Steps
from .wire import NONCE, PING, VALIDATE, check, get, received

SILENT_S = 60.0  # torch looks up the name of every peer; a resolver that does not answer delays it by 5 s or more


class Settling(Steps):
    """Steps that return when the server has carried out all requests."""

    _server: Server

    def perform(self, step: str, indices: tuple[int, ...]) -> None:
        super().perform(step, indices)
        self._server.settle()


class InProcessLine:
    """A connection to a service in this process; `is_cut`: the server has closed it."""

    def __init__(self, server: InProcess, name: str) -> None:
        self._server, self._inbox, self.is_cut = server, b"", False
        self.session = server.service.connected(name, server.now)

    def send(self, data: bytes) -> None:
        if self.session is not None and not self.is_cut:
            self._server.service.received(self.session, data, self._server.now)
            self._server.deliver()

    def read(self) -> bytes:
        data, self._inbox = self._inbox, b""
        return data

    def take(self) -> None:
        """Move the service's bytes for this line to its inbox."""
        assert self.session is not None
        while piece := self.session.take_outgoing():
            self._inbox += piece
        if self.session.closing:
            self.is_cut = True
            self._server.service.disconnected(self.session)

    def hang_up(self) -> None:
        if self.session is not None and not self.is_cut:
            self._server.service.disconnected(self.session)
            self._server.deliver()
            self.is_cut = True


class InProcess:
    """Our sans-I/O service, driven without a socket; `now` is its clock."""

    def __init__(
        self, limits: Limits | None = None, kind: Callable[..., Service] = Service, now: float = 0.0, **more: Any
    ) -> None:
        self.log: list[str] = []
        self.now = now
        self.service = kind(limits=limits, log=self.log.append, **{"random_bytes": bytes, **more})
        self._lines: dict[object, InProcessLine] = {}

    def connect(self) -> InProcessLine:
        line = InProcessLine(self, f"peer{len(self._lines)}")
        self._lines[line.session] = line
        return line

    def deliver(self) -> None:
        for session in self.service.take_pending():
            self._lines[session].take()

    def hold(self, line: Line, size: int) -> None:
        """Report that the transport holds `size` bytes that were sent on a line and are unread."""
        assert isinstance(line, InProcessLine)
        if line.session is not None:
            self.service.unsent(line.session, size)

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and wake the service only if its alarm is due."""
        self.now += seconds
        if (due := self.service.alarm.at) is not None and due <= self.now:
            self.service.tick(self.now)
        self.deliver()

    def settle(self) -> None:
        """Do nothing: the service handles bytes when they are sent."""

    def close(self) -> None:
        """End all lines.

        Raises:
            Disagreement: a table of the service still has an entry of a connection that has ended.
        """
        for line in self._lines.values():
            line.hang_up()
        self._lines.clear()
        left = sorted(held(self.service))
        if left:
            raise Disagreement(f"all connections of the last run have ended, and something is left: {', '.join(left)}")


def held(service: Service) -> dict[str, int]:
    """The size of each table that still has entries of connections; there is none when no connection is left."""
    waiting, promises = service.contents.waiting, service.promises
    sizes = {
        "barriers": len(service.blocking.barriers.table), "deadlines": len(service.blocking.deadlines.due),
        "half_sent": len(service.half_sent.deadlines.due) + service.half_sent.bytes,
        "handshakes": len(service.handshakes.due), "kept": promises.bytes,
        "reservations": len(promises.reservations.due), "rooms": len(service.rooms.peers),
        "sessions": len(service.sessions), "unsent": service.replies.held.bytes,
        "waits": len(waiting.waits) + waiting.keys_waited,
        "watches": len(service.contents.watching.watchers),
    }  # fmt: skip
    return {name: size for name, size in sizes.items() if size}


class _TcpLine:
    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), SILENT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setblocking(False)
        self.port: int = self._socket.getsockname()[1]  # the port of this end of the connection
        self.is_cut = False

    def send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            self.is_cut = True

    def read(self) -> bytes:
        data = b""
        while not self.is_cut:
            try:
                more = self._socket.recv(1 << 16)
            except BlockingIOError:
                break
            except ConnectionResetError:
                more = b""
            self.is_cut = not more
            data += more
        return data

    def hang_up(self) -> None:
        self.is_cut = True
        self._socket.close()

    def ask(self, data: bytes, size: int) -> bytes:
        """Send, and wait for an answer of `size` bytes."""
        self._socket.settimeout(SILENT_S)
        self._socket.sendall(data)
        answer = received(self._socket, size)
        self._socket.setblocking(False)
        return answer


class OverTcp(AbstractContextManager["OverTcp"]):
    """Any server on a port of 127.0.0.1 that serves its connections in the order in which their bytes arrive."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._lines: list[_TcpLine] = []
        self._control = _TcpLine(port)
        self._control.send(VALIDATE)

    def connect(self) -> Line:
        line = _TcpLine(self.port)
        self._lines.append(line)
        # asyncio reads from a new connection three rounds of its loop after it has accepted the connection.
        self.settle()
        self.settle()
        return line

    def settle(self) -> None:
        # The server may read the first PING in the same round of its loop as earlier bytes. It reads the second PING,
        # which is sent when the first is answered, in a later round.
        for _ in range(2):
            if self._control.ask(PING, len(NONCE)) != NONCE:
                raise ConnectionError(f"the server on port {self.port} does not answer")

    def close(self) -> None:
        for line in self._lines:
            line.hang_up()
        self._lines.clear()
        self.settle()

    def __exit__(self, *_: object) -> None:
        for line in (*self._lines, self._control):
            line.hang_up()


# A connection to the server. The server has handled what was sent on it when `settle` of its server returns.
Line = InProcessLine | _TcpLine
Server = InProcess | OverTcp
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

    def tell(self, request: bytes) -> bytes:
        """Send a request; returns what has been answered at once."""
        self._line.send(request)
        self._server.settle()
        return self._line.read()

    @property
    def is_cut(self) -> bool:
        """Whether the server has closed the connection."""
        return self._line.is_cut

    def ask(self, request: bytes) -> bytes:
        """Send a request that is answered at once; returns the answer."""
        if not (answer := self.tell(request)):
            raise Disagreement(f"the server does not answer {request!r}")
        return answer

    def number(self, key: bytes) -> int:
        """The number that a key has; 0 if it has no value."""
        answer = self.ask(check(key) + get(key))
        missing, size, text = answer[0], answer[1:9], answer[9:]
        if size != U64.pack(len(text)) or bool(text) is bool(missing):
            raise Disagreement(f"CHECK and GET of {key!r} are answered with {answer!r}")
        return int(text or b"0")

    def begin(self, request: bytes) -> None:
        """Send a request that is answered later."""
        self._line.send(request)

    def is_answered(self) -> bool:
        """Whether the answer to the begun request has arrived."""
        return bool(self._line.read())
