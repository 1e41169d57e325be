"""`StartUps` on real servers: each constructor runs in a thread, and reaches the master's server through a relay.

The relay holds a constructor's connection and bytes until the model takes the step: the connection until `connect`, the
first ADD until `count_in`, and all later bytes until `see_all`. The server listens on a separate address, so the
master's constructor, which starts the server, also connects through the relay.
Rule: the relay changes no message. A timeout of the model is a timeout in real time.
Left out: `freeze`; and `stop` for torch's server, which runs in the process of its master.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from datetime import timedelta
from multiprocessing.connection import wait as readable
from typing import Any

from trystate.impl.store.tcp import TCPStore
from trystate.impl.store.wire import COUNTER_KEY, I64, blob
from trystate.model.language.sorts import ordinal
from trystate.model.store.startup import StartUps
from trystate.model.store.vocabulary import Edition, Extension, Query, StartUp

from ...harness.subjects import Disagreement
from ..steps import Steps
from .wire import Peer, add, set_

SERVED = "127.0.0.2"  # where the server listens; the relay of client k listens on RELAYED % k
RELAYED = "127.0.1.%d"
TIMEOUT_S = 1.0  # timeout of a constructor, which otherwise takes some 20 ms
REFUSED_S = 0.05  # timeout of a constructor that finds no server
LOOK_S = 0.02  # time in which a waiting master must not return
GONE_S = 1.0  # limit for the end of a server
HANG_S = 20.0
ADDS = (Query.ADD, Extension.ADD)
OVER = (StartUp.STARTED, StartUp.FAILED)


class Constructor:
    """A client's constructor in a thread, and the relay between it and the server."""

    def __init__(self, make: Callable[..., Any], number: int, port: int, world: int) -> None:
        self._make, self.host, self._port, self._world = make, RELAYED % (number + 1), port, world
        self._listener: socket.socket | None = None
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._held: list[socket.socket] = []
        self._thread: threading.Thread | None = None
        self.store: Any = None
        self.error: Exception | None = None
        self.phase = StartUp.CONNECTING

    def begin(self, timeout_s: float = TIMEOUT_S, **of_master: Any) -> None:
        """Call the constructor."""
        timeout = timedelta(seconds=timeout_s)

        def construct() -> None:
            try:
                self._make(self, self.host, self._port, self._world, bool(of_master), timeout, True, **of_master)
            except Exception as error:
                self.error = error

        self._thread = threading.Thread(target=construct, daemon=True)
        self._thread.start()

    def listen(self) -> None:
        """Accept the constructor's connections at the relay."""
        self._listener = socket.create_server((self.host, self._port))

    @property
    def is_over(self) -> bool:
        return self._thread is not None and not self._thread.is_alive()

    def pump(self, until: Callable[[], bool], *, first_add: bool, seconds: float = HANG_S) -> bool:
        """Carry bytes both ways until the condition holds; returns whether it holds in time.

        Without `first_add`, hold the first request that adds to init/.
        """
        ends = time.monotonic() + seconds
        if first_add:
            self._held.clear()
        while not until():
            if time.monotonic() > ends:
                return False
            ready = [end for end in (self._listener, *self._pairs) if end is not None and end not in self._held]
            for end in readable(ready, 0.002):
                if end is self._listener:
                    self._accept()
                elif end in self._pairs:
                    self._carry(end, first_add)
        return True

    def _accept(self) -> None:
        assert self._listener is not None
        near = self._listener.accept()[0]
        try:
            far = socket.create_connection((SERVED, self._port), HANG_S)
        except ConnectionRefusedError:
            near.close()
            return
        for end in (near, far):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._pairs |= {near: far, far: near}

    def _carry(self, end: socket.socket, first_add: bool) -> None:
        other = self._pairs[end]
        if not first_add:
            ahead = end.recv(1 << 16, socket.MSG_PEEK)
            if ahead[:1] and ahead[0] in ADDS and ahead[1:].startswith(blob(COUNTER_KEY)):
                self._held.append(end)
                return
        try:
            data = end.recv(1 << 16)
            if data:
                other.sendall(data)
        except (ConnectionResetError, BrokenPipeError):
            data = b""
        if not data:
            for each in (end, other):
                del self._pairs[each]
                each.close()

    @property
    def is_connected(self) -> bool:
        """Whether a connection of the constructor, or of its store, is open at its end."""
        return any(_is_open(near) for near in self._pairs if near.getsockname()[0] == self.host)

    @property
    def has_added(self) -> bool:
        return bool(self._held)

    def cut(self) -> None:
        """Close both sides of the connections, and accept no other connection."""
        for end in (*self._pairs, *((self._listener,) if self._listener else ())):
            end.close()
        self._listener = None
        self._pairs.clear()
        self._held.clear()

    def ended(self, what: str) -> None:
        """Wait until the constructor returns or raises, and record which."""
        if not self.pump(lambda: self.is_over, first_add=True):
            raise Disagreement(f"{what}: the constructor on {self.host} neither returns nor raises")
        self.phase = StartUp.STARTED if self.error is None else StartUp.FAILED

    def close(self) -> None:
        """End the constructor, in any state, and close its store."""
        self.cut()
        if self._thread is not None:
            self._thread.join(HANG_S)
        if self.store is not None and hasattr(self.store, "close"):
            self.store.close()
        self.store = None


def _is_open(near: socket.socket) -> bool:
    """Whether the other end has not closed the connection."""
    try:
        return near.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) != b""
    except BlockingIOError:
        return True
    except ConnectionResetError:
        return False


class _Owned(TCPStore):
    """Our store; its owner has a reference to it before the constructor returns."""

    def __init__(self, owner: Constructor, *given: Any, **more: Any) -> None:
        owner.store = self
        super().__init__(*given, **more)


class StartUpsSubject(Steps):
    """Subject for `StartUps`: the constructors of all clients, and the master's server.

    Shows the phase of each constructor, whether it is connected, the counter while the server runs, which a stranger
    reads, and whether the server refused a stranger.
    """

    def __init__(self, system: StartUps, stack: ExitStack) -> None:
        """The end of `stack` closes the subject."""
        self._world = system.sizes["client"]
        self._clients: list[Constructor] = []
        self._stranger: Any = None  # a peer, while a server listens
        self._is_torchs = system.edition is Edition.TORCH
        stack.callback(self.close)
        self._steps = {
            "overwrite_low": lambda: self._overwrite(0), "overwrite_high": lambda: self._overwrite(self._world),
        }  # fmt: skip

    def reset(self) -> None:
        self._is_refused = self._has_listened = False
        self.close()
        self._bound = socket.socket()  # it does not listen: a client is refused, and the master can bind the address
        self._bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._bound.bind((SERVED, 0))
        self._port: int = self._bound.getsockname()[1]
        self._clients = [self._client(number) for number in range(self._world)]

    def close(self) -> None:
        """End all constructors, stores and the server."""
        if self._clients:
            self._hang_up()
            for client in self._clients[::-1]:
                client.close()
            self._clients = []
            self._bound.close()

    def _hang_up(self) -> None:
        if self._stranger is not None:
            self._stranger.close()
        self._stranger = None

    def _maker(self) -> Callable[..., Any]:
        if not self._is_torchs:
            return _Owned
        from torch._C._distributed_c10d import TCPStore as Torchs

        return lambda owner, *given, **more: setattr(owner, "store", Torchs(*given, **more))

    def _client(self, number: int) -> Constructor:
        return Constructor(self._maker(), number, self._port, self._world)

    def observe(self) -> Mapping[str, int]:
        """The visible state. A master that waits for others gets a short time, in which it must not return."""
        seen: dict[str, int] = {}
        if self._clients[0].phase is StartUp.FAILED:
            self._hang_up()
        if self._has_listened:
            seen["stopped"] = int(not self._is_served())
        if self._stranger is not None:
            seen["counter"] = counter = min(self._count(), self._world)
            master = self._clients[0]
            waits = counter < self._world and master.phase is StartUp.WAITING
            if waits and master.pump(lambda: master.is_over, first_add=True, seconds=LOOK_S):
                master.ended("the master waits")
        seen["refused"] = int(self._is_refused)
        for k, client in enumerate(self._clients):
            seen |= {f"phase[{k}]": ordinal(client.phase), f"connected[{k}]": int(client.is_connected)}
        return seen

    def _is_served(self) -> bool:
        """Whether a server answers new connections. A killed process may still answer for a short time."""
        wanted = self._stranger is not None
        ends = time.monotonic() + GONE_S
        while True:
            try:
                with Peer(self._port, host=SERVED) as somebody:
                    served = somebody.answers()
            except (OSError, EOFError):
                served = False
            if served == wanted or time.monotonic() > ends:
                return served

    # ---- steps

    def _listen(self) -> None:
        master = self._clients[0]
        self._bound.listen(64)
        master.listen()
        master.begin(master_listen_fd=self._bound.detach())
        self._has_listened = True
        self._stranger = Peer(self._port, host=SERVED)
        if not self._stranger.answers():
            raise Disagreement("the master's server does not answer")

    def _connect(self, number: int) -> None:
        client = self._clients[number]
        if number:
            client.listen()
            client.begin()
        if not client.pump(lambda: client.has_added or client.is_over, first_add=False):
            raise Disagreement(f"client {number} has connected, and does not count itself in")
        if client.is_over:
            client.ended("connect")
        else:
            client.phase = StartUp.COUNTING

    def _count_in(self, number: int) -> None:
        client = self._clients[number]
        if number:
            client.ended("count_in")
            return
        before = self._count()
        client.pump(lambda: self._count() > before or client.is_over, first_add=True)
        client.phase = StartUp.WAITING

    def _count(self) -> int:
        return int(I64.unpack(self._stranger.ask(add(COUNTER_KEY, 0), 8))[0])

    def _see_all(self, number: int) -> None:
        self._clients[number].ended("all are counted")

    def _waiting_times_out(self, number: int) -> None:
        self._clients[number].ended("the time is over")

    def _connecting_times_out(self, number: int) -> None:
        client = self._clients[number]
        client.cut()
        if number:
            client.begin(REFUSED_S)
        client.ended("there is no server")

    def _lose_the_server(self, number: int) -> None:
        client = self._clients[number]
        client.cut()  # an answer on its way is lost with the server
        client.ended("the server is lost")

    # ---- faults

    def _crash(self, number: int) -> None:
        self._clients[number].close()
        self._clients[number].phase = StartUp.FAILED

    def _come_again(self, number: int) -> None:
        self._clients[number].close()
        self._clients[number] = self._client(number)

    def _stop(self) -> None:
        self._hang_up()
        master = self._clients[0].store._master
        os.kill(master._held.server.pid, signal.SIGKILL)

    def _overwrite(self, number: int) -> None:
        """A stranger sends a SET of init/, and records whether the server refuses it."""
        with Peer(self._port, host=SERVED) as somebody:
            somebody.send(set_(COUNTER_KEY, b"%d" % number))
            with suppress(EOFError, ConnectionError):
                if somebody.answers():
                    return
        self._is_refused = True
