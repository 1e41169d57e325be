"""`Waits`, `Watches`, `Registers` and `StartUps` (edition SEED) on the daemons of torch 1.9, over TCP.

Rule: the bytes of a step are sent when the model's server takes it, as on the other servers (`adapters/our_store`).
Left out: half a request, which `frames` has; a stopped process, after which a daemon answers no client. If the model's
daemon blocks in a send (`get_stuck`), the request is kept until it continues; `scenarios` has a real blocked daemon.
"""

from __future__ import annotations

import math
import socket
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from trystate.impl.store.wire import COUNTER_KEY, I64, READY, U64, blob, counted
from trystate.model.language.sorts import ordinal
from trystate.model.store.startup import StartUps
from trystate.model.store.vocabulary import Change, Extension, StartUp
from trystate.model.store.vocabulary import Query as Query213
from trystate.model.store.waits import Waits
from trystate.model.store.watches import Watches
from trystate.model.store.watches.fields import Message

from ..our_store.lines import OverTcp, Server
from ..our_store.peers import Message as Record
from ..our_store.peers import Others
from ..our_store.registers import RegistersSubject
from ..our_store.startups import StartUpsOn
from ..our_store.waits import WaitsSubject
from ..our_store.watches import Watcher, WatchesSubject, change
from ..our_store.wire import request
from ..torch_rendezvous.simulation import Operation, stop
from ..torch_store.isolated import Child
from .daemons import MasterDaemon
from .store import HOST, Clock, Store, listen
from .wire import Query, recv, recv_blob

TIMEOUT_S = 300.0  # timeout of a constructor; its clock moves only when the model's constructor times out
START_S = 60.0  # limit for the start of a process, on a busy machine
NUMBERS = {Query213[query.name]: query for query in Query if query is not Query.WATCH_KEY}
UNHEARD_OF = b"no key holds this"
NUMBERS_OF_OURS = {Extension.WATCH: Query.WATCH_KEY}


def is_known(data: bytes) -> bool:
    """Whether torch 1.9 has this request."""
    return data[0] in NUMBERS or data[0] in NUMBERS_OF_OURS


def held(others: Others, key: bytes) -> bytes:
    """The value of a key, or b"". A failing COMPARE_SET reads it, since a GET of a missing key ends the connection."""
    found = others.ask(request(Query213.COMPARE_SET, blob(key), blob(UNHEARD_OF), blob(b"")))[8:]
    return b"" if found == UNHEARD_OF else found


class MasterProcess(Child):
    """A master daemon in its own process, so the numbers of its connections are its own."""

    def __init__(self) -> None:
        super().__init__(_serve)
        self.port = self.hear(START_S)
        assert isinstance(self.port, int), f"the daemon did not start: {self.port}"


def _serve(line: Connection) -> None:
    """In the child: serve until the other end of the line is closed."""
    listener = listen()
    MasterDaemon(listener).start()
    line.send(listener.getsockname()[1])
    with suppress(EOFError):
        line.recv()


class OverTcp19(OverTcp):
    """A connection to a master daemon, which has no VALIDATE and no PING, and other numbers of requests."""

    greeting, question, answer = b"", bytes([Query.GETNUMKEYS]), I64.pack(0)

    def is_answer(self, data: bytes) -> bool:
        """Whether it is a number of keys."""
        return len(data) == len(self.answer)

    def encode(self, request: bytes) -> bytes:
        number = NUMBERS.get(request[0], NUMBERS_OF_OURS.get(request[0]))  # type: ignore[call-overload]
        assert number is not None, f"torch 1.9 has no request like {request!r}"
        return bytes([number]) + request[1:]


# ---- waits


class SeedWaits(WaitsSubject):
    """`WaitsSubject`, with the steps of torch 1.9's client; a GET is sent only for a key that exists."""

    def __init__(self, system: Waits, server: Server) -> None:
        super().__init__(system, server)
        self._steps |= {"time_out_silently": self._go_on}

    def _read_out_of_step(self, client: int) -> None:
        if self._peers[client].line.is_cut:
            self._closed.add(client)  # the server closed it first
        self._read(client)
        self._lose(client)

    def _stored(self) -> dict[str, int]:
        return {f"holds[{number}]": int(held(self._others, key) or b"0") for number, key in enumerate(self._keys)}

    def _is_known(self, request: bytes) -> bool:
        return is_known(request)


# ---- registers


class SeedRegisters(RegistersSubject):
    """`RegistersSubject` on torch 1.9's daemon."""

    def _value(self, name: bytes) -> int:
        return int(held(self._others, name) or b"0")


# ---- watches


class SeedWatcher(Watcher):
    """The connection of a watch, on which torch 1.9 writes a change's number, the key and both values."""

    def message(self, keys: list[bytes], data: bytes) -> tuple[Record, int] | None:
        kind, at = Change(data[0]), 1
        if kind is Change.REGISTERED:
            return {"kind": Message.REGISTERED, "key": 0, "old": 0, "new": 0}, at
        texts = []
        for _ in range(3):
            end = at + 8 + U64.unpack_from(data, at)[0]
            texts.append(data[at + 8 : end])
            at = end
        key, old, new = keys.index(texts[0]) + 1, change(texts[1]), change(texts[2])
        return {"kind": Message[kind.name], "key": key, "old": old, "new": new}, at


class SeedWatches(WatchesSubject):
    """`WatchesSubject` on torch 1.9's daemon; a new connection gets the free number."""

    watcher = SeedWatcher

    def __init__(self, system: Watches, server: Server) -> None:
        super().__init__(system, server)
        self._steps = {
            **self._steps, **dict.fromkeys(("notify_nobody", "run_callback_early"), self._read),
            "get_stuck": self._nothing,
        }  # fmt: skip

    def _terminate(self, client: int) -> None:
        self._read(client)
        self._leave(client)

    def _value(self, key: bytes) -> bytes:
        return held(self._others, key)

    def _is_known(self, request: bytes) -> bool:
        return is_known(request)


# ---- start-ups


class _Owned(Store):
    """A store; its owner has a reference to it before the constructor returns."""

    def __init__(self, owner: _Constructor, *given: Any, **more: Any) -> None:
        owner.store = self
        super().__init__(*given, **more)


class _Constructor:
    """A client's constructor in a greenlet, which stops before it connects, counts, polls, and connects again."""

    def __init__(self, port: int, world: int, is_master: bool) -> None:
        self._port, self._world, self._is_master = port, world, is_master
        self.store: Store | None = None
        self.has_crashed = False
        self.timeout_s, self._now = TIMEOUT_S, 0.0
        self._begin()

    def _begin(self) -> None:
        self._has_connected = False
        self.operation = Operation(self._run)
        if not self._is_master:
            self.operation.resume()

    def _run(self) -> None:
        clock = Clock(lambda: self._now, lambda seconds: None)
        _Owned(self, self._port, self._world, self._is_master, self.timeout_s, clock=clock, pause=self._pause)

    def _pause(self, where: str) -> None:
        stop("watch" if where == "connect" and self._has_connected else where)
        self._has_connected |= where == "count"

    @property
    def phase(self) -> StartUp:
        if self.has_crashed:
            return StartUp.FAILED
        if self.operation.over:
            return StartUp.FAILED if self.operation.error else StartUp.STARTED
        phases = {"count": StartUp.COUNTING, "poll": StartUp.WAITING, "watch": StartUp.WATCHING}
        return phases.get(self.operation.at, StartUp.CONNECTING)

    @property
    def connections(self) -> tuple[bool, bool]:
        """Whether the connection for requests is open, and whether the connection for watches is."""
        if self.store is None:
            return False, False
        return self.store._requests is not None, self.store.worker is not None

    def go_on(self, *, late: bool = False) -> None:
        if late:
            self._now += 2 * TIMEOUT_S  # more than the timeout, unless it is infinite
        self.operation.resume()

    def wait_without_end(self) -> None:
        self.timeout_s = math.inf
        self.come_again()

    def crash(self) -> None:
        self.close()
        self.has_crashed = True

    def come_again(self) -> None:
        self.close()
        self._begin()

    def close(self) -> None:
        self.operation.abandon()
        if self.store is not None:
            self.store.close()


class SeedStartUps(StartUpsOn):
    """Subject for `StartUps`: the constructors of torch 1.9's client, and the master's daemon."""

    HOST = HOST

    def __init__(self, system: StartUps) -> None:
        super().__init__(system)
        self._steps = {
            **dict.fromkeys(("connect", "count_in", "see_all", "lose_the_server"), _Constructor.go_on),
            "connect_for_watches": _Constructor.go_on, "wait_without_end": self._wait_without_end,
            **dict.fromkeys(
                ("connecting_times_out", "waiting_gives_up", "connecting_for_watches_times_out"),
                partial(_Constructor.go_on, late=True),
            ),
            "crash": _Constructor.crash, "come_again": _Constructor.come_again, "listen": self._listen,
            "stop": self._stop, "overwrite_low": partial(self._overwrite, 0),
            "overwrite_high": partial(self._overwrite, self._world),
        }  # fmt: skip

    def _client(self, number: int) -> _Constructor:
        return _Constructor(self._port, self._world, number == 0)

    def perform(self, step: str, indices: tuple[int, ...]) -> None:
        self._steps[step](*(self._clients[k] for k in indices))

    def observe(self) -> Mapping[str, int]:
        """The phase of each constructor, its open connections, and, while a server answers, the counter.

        A waiting master polls once more if not all clients are counted; it must then continue to wait.
        """
        counter = None if self._stranger is None else min(self._counter(self._stranger), self._world)
        if counter is not None and counter < self._world and self._clients[0].phase is StartUp.WAITING:
            self._clients[0].go_on(late=math.isinf(self._clients[0].timeout_s))
        seen = {f"phase[{k}]": ordinal(client.phase) for k, client in enumerate(self._clients)}
        for k, client in enumerate(self._clients):
            seen[f"connected[{k}]"], seen[f"listens[{k}]"] = map(int, client.connections)
        return seen if counter is None else {**seen, "counter": counter}

    def _wait_without_end(self) -> None:
        for client in self._clients:
            client.wait_without_end()

    def _listen(self) -> None:
        self._clients[0].go_on()
        self._stranger = socket.create_connection((HOST, self._port))

    def _stop(self) -> None:
        self._hang_up()
        master = self._clients[0].store
        assert master is not None
        assert master.master is not None
        master.master.stop()

    def _overwrite(self, number: int) -> None:
        self._stranger.sendall(bytes([Query.SET]) + blob(COUNTER_KEY) + blob(b"%d" % number))

    def _counter(self, stranger: socket.socket) -> int:
        stranger.sendall(bytes([Query.CHECK]) + counted([COUNTER_KEY]))
        if recv(stranger, 1) != READY:
            return 0
        stranger.sendall(bytes([Query.GET]) + blob(COUNTER_KEY))
        return int(recv_blob(stranger))
