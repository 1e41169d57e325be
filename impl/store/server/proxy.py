"""A proxy before any store's server, torch's too, that records what passes through it.

Theory of operation. Each client's connection has one of its own to the server (`Link`), and every byte is passed on as
it is, in its order. Requests are passed on whole. A request that reads or writes a state is passed on alone (`Gate`):
the next one, of whatever connection, follows when it is answered, or after GATE_SECONDS. So the order of the record is
the server's; it costs such requests the time of one another's answers, and no other request anything. Bytes that the
proxy cannot read are passed on as well, and not followed (`record/passage`).

A side that reads slowly makes the other wait: each side is read only while the other takes what came. A side that ends
its stream ends the other's behind the last byte; a side that breaks breaks the other.

Rule: the job never fails because of the record.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import Callable
from typing import cast

from ...host.listening import peer_name
from ..record.format import PATIENCE_SECONDS
from ..record.passage import Passage, Request
from ..record.recorder import Recorder
from .driver import ACCEPT_PAUSE_SECONDS, EXHAUSTED, LINGER_SECONDS, new_event_loop

CONNECT_SECONDS = 30.0
GATE_SECONDS = 1.0  # for the answer to a request on a state, which no server makes wait
REQUESTS_HELD = 64  # of a client that does not wait for answers, before it is not read
HELD_BYTES = 256 << 10  # that a transport may hold before the other side is not read


class Gate:
    """One request on a state at a time, in the order in which they came."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.passing: Request | None = None
        self.queue: deque[Link] = deque()  # the links whose next request waits for its turn
        self.timer: asyncio.TimerHandle | None = None

    def enter(self, link: Link, request: Request) -> bool:
        """Whether the request may be passed on now; if not, `link.proceed` is called later."""
        if self.passing is None or self.passing.answered:
            self.passing = request
            self.timer = self.loop.call_later(GATE_SECONDS, self.leave)
            return True
        if link not in self.queue:
            self.queue.append(link)
        return False

    def look(self) -> None:
        """Let the next one pass if the last one is answered."""
        if self.passing is not None and self.passing.answered:
            self.leave()

    def leave(self) -> None:
        """The request that was passed on is answered, or will not be."""
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
        self.full = False  # it holds enough that was not sent
        self.reading = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=HELD_BYTES)

    def write(self, data: bytes) -> None:
        if self.transport is not None:
            self.transport.write(data)

    def read(self, more: bool) -> None:
        """Take more bytes from the peer, or none for now."""
        if self.transport is not None and more is not self.reading:
            self.reading = more
            (self.transport.resume_reading if more else self.transport.pause_reading)()

    def close(self, *, abort: bool = False) -> None:
        """End it, behind the last bytes or at once."""
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
        self.other.write(data)
        self.link.passage.answered(data)
        self.link.proxy.settle()

    def eof_received(self) -> bool:
        self.other.close()  # behind what it was sent
        return False


class Link:
    """A client's connection, and its own to the server."""

    def __init__(self, proxy: Proxy, passage: Passage) -> None:
        self.proxy, self.passage = proxy, passage
        self.client, self.server = Client(self), Server(self)
        self.client.other, self.server.other = self.server, self.client
        self.requests: deque[Request] = deque()  # not passed on
        self.ended = False  # the client sends no more

    def proceed(self) -> None:
        """Pass on what may be passed on."""
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
            with contextlib.suppress(OSError, RuntimeError):  # it is about to be lost
                self.server.transport.write_eof()
        self.flow()
        proxy.settle()

    def flow(self) -> None:
        """Read each side only while the other takes what came."""
        self.client.read(not self.server.full and len(self.requests) < REQUESTS_HELD)
        self.server.read(not self.client.full)

    def _impatient(self, request: Request) -> None:
        self.passage.impatient(request)
        self.proxy.settle()

    def broken(self, side: Side, error: Exception | None) -> None:
        """One side is gone: so is the other, once it has its bytes, or at once if this one broke."""
        side.other.close(abort=error is not None)
        if self.proxy.links.pop(self, 0) is None:
            self.requests.clear()
            self.passage.closed()
        self.proxy.settle()


class Proxy:
    """All links through one listening socket, in the running loop."""

    def __init__(
        self, listener: socket.socket, to: tuple[str, int], recorder: Recorder, log: Callable[[str], None]
    ) -> None:
        self.listener, self.to, self.recorder, self.log = listener, to, recorder, log
        self.loop = asyncio.get_running_loop()
        self.gate = Gate(self.loop)
        self.links: dict[Link, None] = {}
        self.opening: set[asyncio.Task[None]] = set()
        self.loop.add_reader(listener, self.accept)

    def accept(self) -> None:
        try:
            sock, address = self.listener.accept()
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            if error.errno in EXHAUSTED:
                self.log(f"cannot accept: {error.strerror}, with {len(self.links)} connections: raise ulimit -n")
                self.loop.remove_reader(self.listener)
                self.loop.call_later(ACCEPT_PAUSE_SECONDS, self.resume_accepting)
            return
        sock.setblocking(False)
        task = self.loop.create_task(self.open(sock, peer_name(address)))
        self.opening.add(task)
        task.add_done_callback(self.opening.discard)

    def resume_accepting(self) -> None:
        if self.listener.fileno() >= 0:
            self.loop.add_reader(self.listener, self.accept)

    async def open(self, sock: socket.socket, peer: str) -> None:
        """Connect to the server for a client; the client is read only when that is done."""
        link = Link(self, Passage(self.recorder, peer))
        self.links[link] = None
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await self.loop.create_connection(lambda: link.server, *self.to)
            await self.loop.connect_accepted_socket(lambda: link.client, sock)
        except (OSError, TimeoutError) as error:
            why = str(error) or f"no answer within {CONNECT_SECONDS:g} s"
            self.log(f"{peer}: the store at {peer_name(self.to)} cannot be reached: {why}")
            sock.close()
            link.server.close(abort=True)
            if self.links.pop(link, 0) is None:
                link.passage.closed()
        self.settle()

    def settle(self) -> None:
        """After anything that happened: let the next request on a state pass, and give the lines to the record."""
        self.gate.look()
        if self.recorder.lines:
            self.recorder.flush()

    async def close(self) -> None:
        """Accept no more, and end all links."""
        self.loop.remove_reader(self.listener)
        self.listener.close()
        for task in self.opening:
            task.cancel()
        for link in list(self.links):
            link.client.close()
            link.server.close()
        end = self.loop.time() + LINGER_SECONDS
        while self.links and self.loop.time() < end:
            await asyncio.sleep(0.005)


def run(
    listener: socket.socket,
    to: tuple[str, int],
    recorder: Recorder,
    log: Callable[[str], None],
    started: Callable[[asyncio.AbstractEventLoop, Callable[[], None]], None],
) -> None:
    """Pass on until told to stop: `started` gets the loop, and what to call in it for that."""

    async def main() -> None:
        stop = asyncio.Event()
        proxy = Proxy(listener, to, recorder, log)
        try:
            started(proxy.loop, stop.set)
            await stop.wait()
        finally:
            await proxy.close()

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main())
