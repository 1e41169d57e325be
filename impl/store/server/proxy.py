"""A proxy in front of a store's server, ours or torch's, that records the requests and answers.

Theory of operation. Each client's connection has its own connection to the server (`Link`). Every byte is passed on
unchanged and in order, except for one bit: the flag ROOMS of a server of ours is hidden. The messages of a room do not
contain its state, and without rooms the nodes keep the state in a value. With TLS both connections have their own keys,
and the proxy reads what passes. Without TLS a server with a secret refuses each client behind the proxy, as it refuses
any relay that alters the connection. Requests are passed on as a whole. A request that reads or writes a state is
passed on alone (`Gate`): the next such request of any connection follows when it is answered, or after GATE_SECONDS. So
the record has the order of the server. These requests wait for each other's answers; all other requests lose no time.
Bytes that the proxy cannot read are passed on but not recorded (`record/passage`).

If a side reads slowly, the other waits: each side is read only while the other takes the bytes. If a side ends its
stream, the other's stream ends after the last byte. If a side breaks, the proxy breaks the other.

Rule: the job never fails because of the record.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import Callable
from typing import cast

from trystate.model.errors import UsageError

from ...host.listening import peer_name
from ...host.tls import Tls, latest
from ..record.format import PATIENCE_SECONDS
from ..record.passage import ClientRequest, Passage
from ..record.recorder import Recorder
from .driver import LINGER_SECONDS, Acceptor

CONNECT_SECONDS = 30.0
GATE_SECONDS = 1.0  # the time for the answer to a request on a state, which a server answers at once
REQUESTS_HELD = 64  # a client with more requests that wait here is not read
HELD_BYTES = 256 << 10  # while a transport holds more, the other side is not read


class Gate:
    """Passes on one request on a state at a time, in the order of their arrival."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.passing: ClientRequest | None = None
        self.queue: deque[Link] = deque()  # the links whose next request waits for its turn
        self.timer: asyncio.TimerHandle | None = None

    def enter(self, link: Link, request: ClientRequest) -> bool:
        """Whether the request may be passed on now; if not, `link.proceed` is called later."""
        if self.passing is None or self.passing.answered:
            self.passing = request
            self.timer = self.loop.call_later(GATE_SECONDS, self.leave)
            return True
        if link not in self.queue:
            self.queue.append(link)
        return False

    def look(self) -> None:
        """Let the next request pass if the last one is answered."""
        if self.passing is not None and self.passing.answered:
            self.leave()

    def leave(self) -> None:
        """Let the next requests pass: the last one is answered, or was not answered within GATE_SECONDS."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        self.passing = None
        while self.queue and self.passing is None:
            self.queue.popleft().proceed()


class Side(asyncio.Protocol):
    """One end of a link."""

    other: Side

    def __init__(self, link: Link) -> None:
        self.link = link
        self.transport: asyncio.Transport | None = None  # before it is connected, and when it is closed or lost
        self.full = False  # True: it holds HELD_BYTES that were not sent
        self.reading = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=HELD_BYTES)

    def write(self, data: bytes) -> None:
        if self.transport is not None:
            self.transport.write(data)

    def read(self, more: bool) -> None:
        """Start or stop to read from the peer."""
        if self.transport is not None and more is not self.reading:
            self.reading = more
            (self.transport.resume_reading if more else self.transport.pause_reading)()

    def close(self, *, abort: bool = False) -> None:
        """Close this end after the last bytes, or at once with `abort`."""
        transport, self.transport = self.transport, None
        if transport is not None:
            (transport.abort if abort else transport.close)()

    def pause_writing(self) -> None:
        self.full = True
        self.link.flow()

    def resume_writing(self) -> None:
        self.full = False
        self.link.flow()

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self.link.broken(self, exc)


class Client(Side):
    """The client's end."""

    def data_received(self, data: bytes) -> None:
        self.link.requests.extend(self.link.passage.sent(data))
        self.link.proceed()

    def eof_received(self) -> bool:
        self.link.ended = True
        self.link.proceed()
        return True  # the server may still answer


class Server(Side):
    """The server's end."""

    def data_received(self, data: bytes) -> None:
        self.other.write(self.link.passage.passed(data))
        self.link.passage.answered(data)
        self.link.proxy.settle()

    def eof_received(self) -> bool:
        self.other.close()  # after the bytes that were passed on to it
        return False


class Link:
    """A client's connection, and its connection to the server."""

    def __init__(self, proxy: Proxy, passage: Passage) -> None:
        self.proxy, self.passage = proxy, passage
        self.client, self.server = Client(self), Server(self)
        self.client.other, self.server.other = self.server, self.client
        self.requests: deque[ClientRequest] = deque()  # requests that are not passed on yet
        self.ended = False  # True: the client sends no more

    def proceed(self) -> None:
        """Pass on the requests that may be passed on."""
        proxy = self.proxy
        while self.requests and self.server.transport is not None:
            request = self.requests[0]
            if self.passage.followed and request.ordered and not proxy.gate.enter(self, request):
                break
            self.requests.popleft()
            self.passage.forwarded(request)
            self.server.write(request.data)
            if request.blocks and self.passage.followed:
                proxy.loop.call_later(PATIENCE_SECONDS, self._impatient, request)
        if self.ended and not self.requests and self.server.transport is not None:
            with contextlib.suppress(OSError, RuntimeError):  # the server's connection is breaking
                self.server.transport.write_eof()
        self.flow()
        proxy.settle()

    def flow(self) -> None:
        """Read each side only while the other takes the bytes."""
        self.client.read(not self.server.full and len(self.requests) < REQUESTS_HELD)
        self.server.read(not self.client.full)

    def _impatient(self, request: ClientRequest) -> None:
        self.passage.impatient(request)
        self.proxy.settle()

    def broken(self, side: Side, error: Exception | None) -> None:
        """Close the other side when one side has ended: after its last bytes, or at once if this side broke."""
        side.other.close(abort=error is not None)
        if self.proxy.connections.pop(self, 0) is None:
            self.requests.clear()
            self.passage.closed()
        self.proxy.settle()


class Proxy(Acceptor):
    """All links through one listening socket."""

    def __init__(
        self, listener: socket.socket, to: tuple[str, int], recorder: Recorder, log: Callable[[str], None],
        tls: Tls | None = None,
    ) -> None:  # fmt: skip
        super().__init__(listener, log)
        self.to, self.recorder, self.tls = to, recorder, tls
        self.gate = Gate(self.loop)
        self.connections: dict[Link, None] = {}

    async def accepted(self, sock: socket.socket, peer: str) -> None:
        """Connect to the server for a client. The client is read only after that."""
        link = Link(self, Passage(self.recorder, peer))
        self.connections[link] = None
        failed = f"the store at {peer_name(self.to)} cannot be reached"
        try:
            tls = None if self.tls is None else latest(self.tls)
            async with asyncio.timeout(CONNECT_SECONDS):
                await self.loop.create_connection(lambda: link.server, *self.to, ssl=tls and tls.client)
                failed = "this client cannot be connected"
                await self.loop.connect_accepted_socket(lambda: link.client, sock, ssl=tls and tls.server)
        except (OSError, TimeoutError, UsageError) as error:
            why = str(error) or f"no answer within {CONNECT_SECONDS:g} s"
            self.log(f"{peer}: {failed} ({why}); see whether it runs, and whether it has the same `tls`")
            sock.close()
            link.server.close(abort=True)
            if self.connections.pop(link, 0) is None:
                link.passage.closed()
        self.settle()

    def settle(self) -> None:
        """Let the next request on a state pass, and flush the record. Called after every event."""
        self.gate.look()
        if self.recorder.lines:
            self.recorder.flush()

    async def close(self) -> None:
        self.stop_accepting()
        for task in self.opening:
            task.cancel()
        for link in list(self.connections):
            link.client.close()
            link.server.close()
        end = self.loop.time() + LINGER_SECONDS
        while self.connections and self.loop.time() < end:
            await asyncio.sleep(0.005)
