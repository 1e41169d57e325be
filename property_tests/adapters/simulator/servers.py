"""The stores that simulated processes share over a network: servers, and clients whose requests take their time.

Rule: a request that was sent arrives in the end, even if its sender has ended: a cut connection delays it, as with TCP.
A client that has stopped waiting does not receive the answer.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from trystate.impl.store.errors import ConnectionLost, OutcomeUnknown, StoreTimeout

from .link import Link
from .machines import Machine
from .moments import Time
from .threads import Event, Lock, Process, living

Answer = bytes | BaseException | None
Reply = Callable[[Answer], None]
Address = tuple[str, int]
EPHEMERAL_PORT_MIN = 30_000
WRITE = "write"
OUTSIDE = "192.0.2.1"  # every socket has this address, which is not the loopback


class Server:
    """Keys and values, changed one request at a time."""

    def __init__(self, time: Time, host: Machine | None = None) -> None:
        """`host`: the machine of the server; None: a machine without faults."""
        self.time, self._host = time, host
        self.down_until = 0.0
        self.data: dict[str, bytes] = {}
        self.asked = Counter[str]()  # requests that have come, by their kind
        self._waiting: list[tuple[Sequence[str], Callable[[], None], Reply]] = []

    @property
    def busy_until(self) -> float:
        return max(self.down_until, self._host.frozen_until if self._host is not None else 0.0)

    def ask(self, who: Process, keys: Sequence[str], request: Callable[[Server], Answer], reply: Reply) -> None:
        """Answer a process when all the keys exist."""
        if self.busy_until > self.time.now:
            return self.time.at(self.busy_until, lambda: self.ask(who, keys, request, reply))
        if all(key in self.data for key in keys):
            return reply(request(self))
        self._waiting.append((keys, lambda: reply(request(self)), reply))

    def add(self, key: str, amount: int) -> bytes:
        self.set(key, b"%d" % (int(self.data.get(key, b"0")) + amount))
        return self.data[key]

    def set(self, key: str, value: bytes) -> None:
        self.data[key] = value
        ready = [one for one in self._waiting if all(key in self.data for key in one[0])]
        self._waiting = [one for one in self._waiting if one not in ready]
        for _, answer, _ in ready:
            answer()

    def compare_set(self, key: str, expected: bytes, desired: bytes) -> bytes:
        """Like torch's: an absent key has an empty value, and the answer for it is the expected value."""
        found = self.data.get(key)
        won = found == expected if found is not None else not expected
        self.asked["read" if expected == desired else "won" if won else "lost"] += 1
        if won:
            self.set(key, desired)
        return desired if won else expected if found is None else found

    def forget(self, reply: Reply) -> None:
        """The caller has given up."""
        self._waiting = [one for one in self._waiting if one[2] is not reply]

    def wipe(self) -> None:
        """It starts again, empty."""
        self.data.clear()
        self.end()

    def end(self) -> None:
        waiting, self._waiting = self._waiting, []
        for _, _, reply in waiting:
            reply(ConnectionLost("the server has gone"))


class Socket:
    """A listening port: requests queue there until a server serves it."""

    def __init__(self, server: Server | None = None) -> None:
        self.server = server
        self.queue: list[tuple[Callable[[], None], Reply]] = []


class Network:
    """The listening sockets by their addresses."""

    def __init__(self, time: Time) -> None:
        self.time = time
        self.sockets: dict[Address, Socket] = {}
        self._ports = itertools.count(EPHEMERAL_PORT_MIN)

    def listen(self, host: str, port: int, server: Server | None = None) -> Address:
        address = host, port or next(self._ports)
        self.sockets[address] = Socket(server)
        return address

    def serve(self, address: Address, server: Server) -> None:
        socket = self.sockets[address]
        socket.server, queue = server, socket.queue
        for again, _ in queue:
            self.time.at(self.time.now, again)

    def close(self, address: Address) -> None:
        socket = self.sockets.pop(address, None)
        for _, reply in socket.queue if socket is not None else ():
            reply(ConnectionLost("no server listens there any more"))
        if socket is not None and socket.server is not None:
            socket.server.end()

    def deliver(self, address: Address, ask: Callable[[Server], None], reply: Reply) -> None:
        socket = self.sockets.get(address)
        if socket is None:
            reply(ConnectionLost("no server listens there"))
        elif socket.server is None:
            socket.queue.append((lambda: self.deliver(address, ask, reply), reply))
        else:
            ask(socket.server)


class Client:
    """A connection to a store, as a `torch.distributed.Store`: one request at a time, even if several threads wait."""

    def __init__(self, address: Address, seconds: float) -> None:
        self._address, self._seconds = address, seconds
        self._lock = Lock()

    # ---- what handlers call

    @property
    def timeout(self) -> timedelta:
        return timedelta(seconds=self._seconds)

    def set_timeout(self, timeout: timedelta) -> None:
        self._seconds = timeout.total_seconds()

    def clone(self) -> Client:
        return Client(self._address, self._seconds)

    def close(self) -> None:
        pass

    def set(self, key: str, value: str | bytes) -> None:
        self._ask("told", lambda server: server.set(key, _bytes(value)))

    def get(self, key: str) -> bytes:
        found = self._ask("read", lambda server: server.data[key], keys=[key])
        assert found is not None  # it is answered when the key exists
        return found

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        self._ask("wait", lambda server: None, keys, (timeout or self.timeout).total_seconds())

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        found = self._ask(WRITE, lambda server: server.compare_set(key, _bytes(expected), _bytes(desired)))
        assert found is not None  # it always has an answer
        return found

    def add(self, key: str, amount: int) -> int:
        return int(self._ask("beat", lambda server: server.add(key, amount)) or 0)

    def delete_key(self, key: str) -> None:
        self._ask("delete", lambda server: server.data.pop(key, None))

    # ---- requests and answers

    def _ask(
        self, kind: str, request: Callable[[Server], Answer], keys: Sequence[str] = (), seconds: float | None = None
    ) -> bytes | None:
        process = living()
        with self._lock:
            return self._asked(process, kind, request, keys, self._seconds if seconds is None else seconds)

    def _asked(
        self, process: Process, kind: str, request: Callable[[Server], Answer], keys: Sequence[str], seconds: float
    ) -> bytes | None:
        link = process.machine.link
        network: Network = process.machine.network
        answers: list[Answer] = []
        heard = Event()
        asked: list[Server] = []

        def reply(answer: Answer) -> None:
            answers.append(ConnectionLost("the connection was reset") if link.loses() else answer)
            carried(link, heard.set)

        def ask(server: Server) -> None:
            asked.append(server)
            server.asked[kind] += kind != WRITE  # `compare_set` counts its result
            server.ask(process, keys, request, reply)

        if kind == WRITE:
            link.sends()
        carried(link, lambda: network.deliver(self._address, ask, reply))
        if not heard.wait(seconds):
            for server in asked:
                server.forget(reply)
            if keys and asked:
                raise StoreTimeout(f"{', '.join(keys)} was not there within {seconds:g} s")
            raise OutcomeUnknown(f"no answer within {seconds:g} s")
        if isinstance(answers[0], BaseException):
            raise answers[0]
        return answers[0]


def carried(link: Link, call: Callable[[], object]) -> None:
    """Deliver a message after the delay of the link; while the link is cut, the message waits."""

    def arrive() -> None:
        if link.cut_until > link.time.now:
            link.time.at(link.cut_until, lambda: carried(link, call))
        else:
            call()

    link.time.after(link.delay(), arrive)


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


# ---- replacements of real sockets, servers and clients


class Listener:
    """`listening.listen`: a socket that no server serves yet."""

    def __init__(self, host: str, port: int) -> None:
        process = living()
        self._network: Network = process.machine.network
        self._address: Address = self._network.listen(host, port)
        process.at_death.append(self.close)

    def getsockname(self) -> Address:
        return OUTSIDE, self._address[1]

    def detach(self) -> Address:
        return self._address

    def close(self) -> None:
        self._network.close(self._address)


class Served:
    """`TCPStoreServer` on a socket that is listening already."""

    def __init__(self, *, listen_fd: Address, **_: Any) -> None:
        machine = living().machine
        self._network: Network = machine.network
        self._address = listen_fd
        self._network.serve(listen_fd, Server(machine.time, machine))

    def close(self) -> None:
        self._network.close(self._address)


class TorchServed:
    """torch's `TCPStore` as the server of the workers."""

    def __init__(self, host_name: str, port: int, **_: Any) -> None:
        process = living()
        network: Network = process.machine.network
        address = network.listen(host_name, port, Server(process.time, process.machine))
        process.at_death.append(lambda: network.close(address))
        self.port = address[1]


class Connected(Client):
    """`TCPStore`, a client."""

    def __init__(self, host: str, port: int, *, timeout: timedelta, **_: Any) -> None:
        super().__init__((host, port), timeout.total_seconds())


class Prefixed:
    """`PrefixStore`, as far as handlers use it."""

    def __init__(self, prefix: str, store: Client) -> None:
        self._prefix, self._store = prefix, store

    def set(self, key: str, value: str | bytes) -> None:
        self._store.set(f"{self._prefix}/{key}", value)

    def get(self, key: str) -> bytes:
        return self._store.get(f"{self._prefix}/{key}")

    def close(self) -> None:
        pass
