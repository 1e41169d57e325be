"""Connections to a server under test, with one interface for TCP and for a service in this process.

Rule: after `settle`, a line has everything that the server has sent, so a step can be compared.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from trystate.impl.store.limits import Limits
from trystate.impl.store.server.service import Service

from ...harness.subjects import Disagreement
from ..steps import Steps
from .wire import NONCE, PING, VALIDATE, received

SILENT_S = 60.0  # torch looks up the name of every peer; a resolver that does not answer delays it by 5 s or more


class Line(Protocol):
    """One connection to the server."""

    def send(self, data: bytes) -> None:
        """Send bytes; the server has handled them after `settle`."""

    def read(self) -> bytes:
        """The bytes that have arrived since the last read."""

    @property
    def is_cut(self) -> bool:
        """Whether the server has closed it."""

    def hang_up(self) -> None:
        """Close it from this side."""


class Server(Protocol):
    """A server with TCPStore's protocol."""

    def connect(self) -> Line:
        """A new connection, on which nothing has been sent."""

    def settle(self) -> None:
        """Return when the server has carried out all requests on all lines."""

    def close(self) -> None:
        """End all lines."""


class Settling(Steps):
    """Steps that return when the server has carried out all requests."""

    _server: Server

    def perform(self, step: str, indices: tuple[int, ...]) -> None:
        super().perform(step, indices)
        self._server.settle()


class InProcessLine:
    """A connection to a service in this process."""

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
