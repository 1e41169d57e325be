"""Connections to a server under test, of the same shape over TCP and to a service in this process.

Rule: what a line shows after `settle` is all that the server has to say so far, so that a step can be compared.
"""

from __future__ import annotations

import socket
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Protocol

from trystate.impl.store.limits import Limits
from trystate.impl.store.server.service import Service

from ...harness.subjects import Disagreement
from .wire import NONCE, PING, VALIDATE, received

SILENT_S = 60.0  # torch looks up the name of every peer, and a resolver that does not answer costs it 5 s and more


class Line(Protocol):
    """One connection to the server."""

    def send(self, data: bytes) -> None:
        """Give it bytes; what the server does with them is done after `settle`."""

    def read(self) -> bytes:
        """All that has come since the last read."""

    @property
    def is_cut(self) -> bool:
        """Has the server closed it?"""

    def hang_up(self) -> None:
        """Close it from this side."""


class Server(Protocol):
    """Something that speaks TCPStore's protocol."""

    greeting: bytes  # the first request on a connection

    def encode(self, request: bytes) -> bytes:
        """A request of torch 2.13, or of ours, as this server knows it."""

    def connect(self) -> Line:
        """A new connection, on which nothing has been sent."""

    def settle(self) -> None:
        """Return when the server has done all that was asked of it on any line."""

    def close(self) -> None:
        """End all lines."""


class _InProcessLine:
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
        """Take the service's bytes for this line."""
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

    greeting = VALIDATE

    def __init__(self, limits: Limits | None = None) -> None:
        self.log: list[str] = []
        self.now = 0.0
        self.service = Service(limits=limits, random_bytes=bytes, log=self.log.append)
        self._lines: dict[object, _InProcessLine] = {}

    def connect(self) -> Line:
        line = _InProcessLine(self, f"line {len(self._lines)}")
        self._lines[line.session] = line
        return line

    def encode(self, request: bytes) -> bytes:
        return request

    def deliver(self) -> None:
        for session in self.service.take_pending():
            self._lines[session].take()

    def hold(self, line: Line, size: int) -> None:
        """So many bytes of what was sent on a line are unread, and the transport holds them."""
        assert isinstance(line, _InProcessLine)
        if line.session is not None:
            self.service.unsent(line.session, size)

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and let the service do what is due."""
        self.now += seconds
        self.service.tick(self.now)
        self.deliver()

    def settle(self) -> None:
        """It is always settled: a piece is done when it is given."""

    def close(self) -> None:
        """End all lines.

        Raises:
            Disagreement: the service keeps something of a connection that has ended.
        """
        for line in self._lines.values():
            line.hang_up()
        self._lines.clear()
        left = sorted(name for name, size in self.service.tables().items() if size)
        if left:
            raise Disagreement(f"all connections of the last run have ended, and something is left: {', '.join(left)}")


class _TcpLine:
    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), SILENT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setblocking(False)
        self.port: int = self._socket.getsockname()[1]  # of this end
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
        """Send, and wait for an answer of so many bytes."""
        self._socket.settimeout(SILENT_S)
        self._socket.sendall(data)
        answer = received(self._socket, size)
        self._socket.setblocking(False)
        return answer


class OverTcp(AbstractContextManager["OverTcp"]):
    """Any server on a port of 127.0.0.1 that serves its connections in the order in which they have something.

    `question` is answered at once, with `answer`.
    """

    greeting, question, answer = VALIDATE, PING, NONCE

    def __init__(self, port: int) -> None:
        self.port = port
        self._lines: list[_TcpLine] = []
        self._control = _TcpLine(port)
        self._control.send(self.greeting)

    def encode(self, request: bytes) -> bytes:
        return request

    def connect(self) -> Line:
        line = _TcpLine(self.port)
        self._lines.append(line)
        # asyncio reads from a new connection in the third round of its loop after that in which it came.
        self.settle()
        self.settle()
        return line

    def settle(self) -> None:
        # The first PING may be read in the same round of the server's loop as what was sent before it, but not
        # the second, which is sent when the first was answered.
        for _ in range(2):
            if not self.is_answer(self._control.ask(self.question, len(self.answer))):
                raise ConnectionError(f"the server on port {self.port} does not answer")

    def is_answer(self, data: bytes) -> bool:
        return data == self.answer

    def close(self) -> None:
        for line in self._lines:
            line.hang_up()
        self._lines.clear()
        self.settle()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for line in (*self._lines, self._control):
            line.hang_up()
