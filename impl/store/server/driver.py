"""The driver moves bytes between the sockets and the service, and calls the service at its deadlines.

Theory of operation. One `Driver` serves one listening socket and runs on the thread of the loop (uvloop or asyncio).
After each event (bytes, a lost peer, a timer) it sends the pending replies of the service (`flush`). Then it sets its
only timer to the service's next deadline (`settle`). A connection is in one of these states:

    opening   accepted and registered with the service; the loop makes its transport (`open`)
    open      replies are written to the socket; the transport gets only the bytes that the socket does not accept
    held      the transport still has such bytes, because the peer reads slowly; the service queues further replies
    leaving   closed by the service: with `abort` at once, else after its last bytes, or after LINGER_SECONDS

`flush` sends one piece to each pending peer in turn, and at most TURN_BYTES in all. Then the loop reads requests again.

Rule: the driver decides nothing about requests. The loop never stops, never spins, and never waits for a peer.

Failures:

- A socket fails. Only its connection ends.
- The process has no descriptor left for a new connection. The driver accepts the connection with a spare descriptor,
  closes it at once, and pauses accepting (`turn_away`).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import importlib
import os
import secrets
import socket
from collections.abc import Callable, Coroutine
from time import monotonic
from typing import Any, cast

from ...host.forking import let_go_after_fork
from ...host.listening import peer_name
from ...host.tls import Tls
from ..limits import MIB, Limits
from ..record.recorder import Recorder
from .guarding import guarded
from .recording import RecordingService
from .service import Service
from .session import Session

ACCEPTS_IN_A_ROW = 64  # then the connected peers get their turn
TURN_BYTES = 2 * MIB  # a millisecond of sending; then requests get their turn
ACCEPT_PAUSE_SECONDS = 0.1  # when the system has neither a descriptor nor memory for another connection
LINGER_SECONDS = 2.0  # the time for a peer to take its last bytes

EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class Connection(asyncio.Protocol):
    """A peer: its socket and its session with the service."""

    __slots__ = ("driver", "held", "leaving", "service", "session", "sock", "transport")
    transport: asyncio.Transport

    def __init__(self, driver: Driver, session: Session, sock: socket.socket) -> None:
        self.driver, self.service, self.session, self.sock = driver, driver.service, session, sock
        self.held = False  # the transport has something to send: the peer reads slowly
        self.leaving = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's own is not derived from it
        self.transport.set_write_buffer_limits(high=0)  # `pause_writing` is called whenever it has bytes to send
        self.driver.connections[self.session] = self
        if self.session.closing:  # the service was stopped while the transport was made
            self.leave()

    def data_received(self, data: bytes) -> None:
        driver, service, session = self.driver, self.service, self.session
        service.take(session, data)
        outgoing = session.outgoing
        if len(outgoing) == 1 and not (session.counted or session.pending or self.held):
            self.transmit(outgoing.pop())
        elif outgoing:
            self.send()
        if driver.pending:
            driver.flush()
        if driver.alarm.at is not driver.timer_at:  # the same float, or None
            driver.set_timer()

    def pause_writing(self) -> None:
        self.held = True

    def resume_writing(self) -> None:
        self.held = False
        self.service.unsent(self.session, 0)
        if self.session.queued:
            self.service.pend(self.session)
        self.driver.flush()  # also for sessions that `unsent` has closed

    def send(self) -> int:
        """Send a piece of the replies for this peer, close the connection if the service did, and return the size."""
        session, size = self.session, 0
        if self.held:
            self.service.unsent(session, self.transport.get_write_buffer_size())
        elif parts := session.take_parts():
            size = self.transmit_parts(parts)
        elif piece := session.take_outgoing():
            size = len(piece)
            self.transmit(piece)
            if not self.held:
                self.service.pend(session)
        if session.closing:
            self.leave()
        return size

    def transmit(self, data: bytes | memoryview) -> None:
        """Send when nothing is queued. Nearly always all of it fits, and the transport is not used."""
        try:
            sent = self.sock.send(data)
        except OSError:  # the transport meets the same error, and waits or ends
            sent = 0
        if sent < len(data):
            # The transport sends the rest when the peer reads. With a copy it does not keep a large value in memory.
            self._leave_to_transport(bytes(memoryview(data)[sent:]))

    def transmit_parts(self, parts: list[bytes]) -> int:
        """Like `transmit`, for several parts, which are not copied. Returns their size."""
        size = sum(map(len, parts))
        if len(parts) == 1:
            self.transmit(parts[0])
            return size
        try:
            sent = self.sock.sendmsg(parts)
        except OSError:
            sent = 0
        if sent < size:
            self._leave_to_transport(b"".join(parts)[sent:])
        return size

    def _leave_to_transport(self, rest: bytes) -> None:
        self.transport.write(rest)
        left = self.transport.get_write_buffer_size()
        if left:
            self.service.unsent(self.session, left)

    def leave(self) -> None:
        """Close when the last bytes are sent, after LINGER_SECONDS at the latest."""
        transport, queued = self.transport, self.session.queued
        if self.session.abort:
            transport.abort()
        elif not transport.is_closing():
            if not self.leaving and (queued or transport.get_write_buffer_size()):
                self.leaving = True
                self.driver.loop.call_later(LINGER_SECONDS, transport.abort)
            if not queued:
                transport.close()

    def eof_received(self) -> bool:
        """End the connection: a peer that sends no more counts as gone, even if it still reads."""
        self.connection_lost(None)
        self.transport.abort()
        return True  # the transport is closed already

    def connection_lost(self, exc: Exception | None) -> None:
        self.driver.forget(self.session)


class Acceptor:
    """Accepts the connections of one listening socket, in the running loop."""

    REMEDY = "raise the limit of open files (ulimit -n)"  # if no descriptor is left

    def __init__(self, listener: socket.socket, log: Callable[[str], None]) -> None:
        self.listener, self.log = listener, log
        self.loop = asyncio.get_running_loop()
        self.give_up: Callable[[], None] = lambda: None  # ends the serving
        self.connections: dict[Any, Any] = {}
        self.opening: set[asyncio.Task[None]] = set()
        self.exhausted = False
        self.spare = os.open(os.devnull, os.O_RDONLY)  # closed to accept and turn away a peer without a descriptor
        self.loop.add_reader(listener, self.accept)

    def accept(self) -> None:
        for _ in range(ACCEPTS_IN_A_ROW):
            try:
                sock, address = self.listener.accept()
            except BlockingIOError:
                self.exhausted = False
                return
            except OSError as error:
                if error.errno in EXHAUSTED:
                    return self.turn_away(error)
                continue  # the peer gave up before it was accepted (accept(2): ECONNABORTED and network errors)
            sock.setblocking(False)
            if (opening := self.accepted(sock, peer_name(address))) is not None:
                task = self.loop.create_task(opening)
                self.opening.add(task)
                task.add_done_callback(self.opening.discard)

    def accepted(self, sock: socket.socket, peer: str) -> Coroutine[Any, Any, None] | None:
        """Return a coroutine that opens the connection; None refuses it."""
        raise NotImplementedError

    def turn_away(self, error: OSError) -> None:
        """Close the connection that waits for a descriptor when none is left, and accept again a little later."""
        if not self.exhausted:  # logged once, until each peer that waited is accepted
            self.exhausted = True
            count = len(self.connections) + len(self.opening)
            self.log(f"cannot accept: {error.strerror}, with {count} connections; newcomers are turned away: "
                     f"{self.REMEDY}")  # fmt: skip
        if self.spare >= 0:
            os.close(self.spare)
            self.spare = -1
        with contextlib.suppress(OSError):
            self.listener.accept()[0].close()
        with contextlib.suppress(OSError):
            self.spare = os.open(os.devnull, os.O_RDONLY)
        self.loop.remove_reader(self.listener)
        self.loop.call_later(ACCEPT_PAUSE_SECONDS, self.resume_accepting)

    def resume_accepting(self) -> None:
        if self.listener.fileno() >= 0:
            self.loop.add_reader(self.listener, self.accept)

    def stop_accepting(self) -> None:
        self.loop.remove_reader(self.listener)
        self.listener.close()
        if self.spare >= 0:
            os.close(self.spare)

    async def close(self) -> None:
        """Stop accepting, close all connections, and end within `LINGER_SECONDS`."""
        raise NotImplementedError


class Driver(Acceptor):
    """One service on one listening socket."""

    CONNECTION = Connection
    REMEDY = f"{Acceptor.REMEDY}, or lower `connections`"

    def __init__(
        self,
        listener: socket.socket,
        limits: Limits,
        secret: bytes | None,
        log: Callable[[str], None],
        recorder: Recorder | None = None,
        tls: Tls | None = None,
    ) -> None:
        self.recorder, self.tls = recorder, tls
        if secret is not None or tls is not None:
            self.CONNECTION = guarded(self.CONNECTION)
        self.service = self.make_service(
            limits=limits,
            secret=secret,
            random_bytes=secrets.token_bytes,
            log=log,
            clock=monotonic,
            binds=secret is not None and tls is None,
        )
        super().__init__(listener, self.service.log)
        self.alarm, self.pending = self.service.alarm, self.service.replies.pending
        self.connections: dict[Session, Connection] = {}
        let_go_after_fork(self)
        self.timer: asyncio.TimerHandle | None = None
        self.timer_at: float | None = None
        self.turn: asyncio.Handle | None = None

    def make_service(self, **arguments: Any) -> Service:
        return Service(**arguments) if self.recorder is None else RecordingService(self.recorder, **arguments)

    def forked(self) -> None:
        """In a child: let go of the port and the connections. Their objects close the same descriptors again later."""
        sockets = [self.listener, *(c.transport.get_extra_info("socket") for c in self.connections.values())]
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (one.fileno() for one in sockets if one is not None):
            if descriptor >= 0:
                os.dup2(null, descriptor, inheritable=False)
        os.close(null)

    # ---- connections

    def accepted(self, sock: socket.socket, peer: str) -> Coroutine[Any, Any, None] | None:
        session = self.service.connected(peer, monotonic())
        if session is None:
            sock.close()
            return None
        self.settle()  # a session has a deadline from the start
        return self.open(session, sock)

    async def open(self, session: Session, sock: socket.socket) -> None:
        try:
            await self.loop.connect_accepted_socket(lambda: self.CONNECTION(self, session, sock), sock)
        except OSError as error:
            self.log(f"{session.peer}: could not be connected: {error}")
            sock.close()
            self.service.disconnected(session)

    def forget(self, session: Session) -> None:
        if self.connections.pop(session, None) is not None:
            self.service.disconnected(session)
            self.settle()

    # ---- sending and timers

    def flush(self) -> None:
        """Send the pending replies, a piece to each peer in turn, and continue in the next round of the loop."""
        if self.turn is None:
            room = TURN_BYTES
            for session in self.service.take_pending():
                connection = self.connections.get(session)
                if connection is not None:
                    room -= connection.send()
                if room <= 0:
                    break
            if self.pending:
                self.turn = self.loop.call_soon(self.go_on)

    def go_on(self) -> None:
        self.turn = None
        self.flush()

    def settle(self) -> None:
        """Send replies and set the timer. Called after every event of the service."""
        self.flush()
        if self.alarm.at != self.timer_at:
            self.set_timer()

    def set_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        due = self.timer_at = self.alarm.at
        if due is not None:
            self.timer = self.loop.call_later(max(0.0, due - monotonic()), self.ring)

    def ring(self) -> None:
        self.timer = self.timer_at = None
        self.service.tick(monotonic())
        self.settle()

    async def close(self) -> None:
        self.stop_accepting()
        await asyncio.gather(*self.opening)
        self.service.stop()
        self.flush()
        end = monotonic() + LINGER_SECONDS
        while self.connections and monotonic() < end:
            await asyncio.sleep(0.005)
        for connection in list(self.connections.values()):
            connection.transport.abort()
        if self.timer is not None:
            self.timer.cancel()
        await asyncio.sleep(0)  # the loop calls `connection_lost` of the aborted connections


def new_event_loop() -> asyncio.AbstractEventLoop:
    """The loop of uvloop if it is installed, else of asyncio."""
    try:
        uvloop = importlib.import_module("uvloop")
    except ImportError:
        return asyncio.SelectorEventLoop()
    return cast(asyncio.AbstractEventLoop, uvloop.new_event_loop())


def serve(
    make: Callable[[], Acceptor], started: Callable[[asyncio.AbstractEventLoop, Callable[[], None]], None]
) -> None:  # fmt: skip
    """Serve until stopped. `started` gets the loop and a function that stops it there. `make` makes the server."""

    async def main() -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        acceptor = make()
        acceptor.give_up = stop.set
        loop.set_exception_handler(lambda _, context: acceptor.log(f"internal error: {_described(context)}"))
        try:
            started(loop, stop.set)
            await stop.wait()
        finally:
            await acceptor.close()

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main())


def _described(context: dict[str, object]) -> str:
    error = context.get("exception")
    return f"{context.get('message')}: {error!r}" if error is not None else str(context.get("message"))
