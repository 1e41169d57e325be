"""`Waits`, `Watches`, `Registers` and `StartUps` (edition SEED) on the daemons of torch 1.9, over TCP.

Rule: the bytes of a step are sent when the model's server takes it, as on the other servers (`adapters/our_store`).
Left out: half a request, which `frames` has; a stopped process, after which a daemon answers nobody; and a daemon that
blocks in a send (`get_stuck`): its request is kept until the model's daemon goes on, and `scenarios` has the real one.
"""

from __future__ import annotations

import math
import socket
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from functools import partial
from multiprocessing.connection import Connection
from types import TracebackType
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
from ..our_store.waits import WaitsSubject
from ..our_store.watches import Watcher, WatchesSubject, change
from ..our_store.wire import request
from ..torch_rendezvous.simulation import Operation, stop
from ..torch_store.isolated import Child
from .daemons import MasterDaemon
from .store import HOST, Clock, Store, listen
from .wire import Query, recv, recv_blob

TIMEOUT_S = 300.0  # of a constructor, by a clock that stands still but where the model says that it is late
START_S = 60.0  # for a process, on a busy machine
NUMBERS = {Query213[query.name]: query for query in Query if query is not Query.WATCH_KEY}
UNHEARD_OF = b"no key holds this"
NUMBERS_OF_OURS = {Extension.WATCH: Query.WATCH_KEY}


def is_known(data: bytes) -> bool:
    """Has torch 1.9 this request?"""
    return data[0] in NUMBERS or data[0] in NUMBERS_OF_OURS


def held(others: Others, key: bytes) -> bytes:
    """The value of a key, or nothing: by a COMPARE_SET that fails, since a GET of a missing key ends the connection."""
    found = others.ask(request(Query213.COMPARE_SET, blob(key), blob(UNHEARD_OF), blob(b"")))[8:]
    return b"" if found == UNHEARD_OF else found


class MasterProcess(AbstractContextManager["MasterProcess"]):
    """A master daemon in a process of its own, so that the numbers of its connections are its own too."""

    def __init__(self) -> None:
        self._child = Child(_serve)
        self.port = self._child.hear(START_S)
        assert isinstance(self.port, int), f"the daemon did not start: {self.port}"

    def kill(self) -> None:
        self._child.kill()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._child.__exit__(kind, error, at)


def _serve(line: Connection) -> None:
    """In the child: serve until the other end of the line is closed."""
    listener = listen()
    MasterDaemon(listener).start()
    line.send(listener.getsockname()[1])
    with suppress(EOFError):
        line.recv()


class OverTcp19(OverTcp):
    """A master daemon: it knows no VALIDATE and no PING, and the requests have other numbers."""

    greeting, question, answer = b"", bytes([Query.GETNUMKEYS]), I64.pack(0)

    def is_answer(self, data: bytes) -> bool:
        """Any number of keys."""
        return len(data) == len(self.answer)

    def encode(self, request: bytes) -> bytes:
        number = NUMBERS.get(request[0], NUMBERS_OF_OURS.get(request[0]))  # type: ignore[call-overload]
        assert number is not None, f"torch 1.9 has no request like {request!r}"
        return bytes([number]) + request[1:]


# ---- waits


class SeedWaits(WaitsSubject):
    """`WaitsSubject`, with the steps of torch 1.9's client; a GET is sent only for a key that is there."""

    def __init__(self, system: Waits, server: Server) -> None:
        super().__init__(system, server)
        self._steps |= {"time_out_silently": self._go_on, "read_out_of_step": self._read_out_of_step}

    def _read_out_of_step(self, client: int) -> None:
        if self._peers[client].line.is_cut:
            self._closed.add(client)  # the server was first
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
    """`WatchesSubject` on torch 1.9's daemon; the connection of a newcomer gets the number that is free."""

    watcher = SeedWatcher

    def __init__(self, system: Watches, server: Server) -> None:
        super().__init__(system, server)
        self._steps = {
            **self._steps, **dict.fromkeys(("notify_nobody", "run_callback_early"), self._read),
            "terminate": self._terminate, "get_stuck": self._nothing,
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
    """A store that its owner has before the constructor has returned."""

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
        """Is that of its requests open, and that of its watches?"""
        if self.store is None:
            return False, False
        return self.store._requests is not None, self.store.worker is not None

    def go_on(self, *, late: bool = False) -> None:
        if late:
            self._now += 2 * TIMEOUT_S  # with no timeout, nothing is late
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


class SeedStartUps:
    """Subject for `StartUps`: the constructors of torch 1.9's client, and the daemon of the master's."""

    def __init__(self, system: StartUps) -> None:
        self._world = system.sizes["client"]
        self._clients: list[_Constructor] = []
        self._stranger: socket.socket | None = None
        self._steps: Mapping[str, Callable[..., None]] = {
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

    def reset(self) -> None:
        self.close()
        self._has_listened = self._has_stopped = False
        # Bound, and not listening: a client is refused, and the master may bind it too.
        self._reserved = socket.socket()
        self._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._reserved.bind((HOST, 0))
        self._port: int = self._reserved.getsockname()[1]
        self._clients = [_Constructor(self._port, self._world, number == 0) for number in range(self._world)]

    def close(self) -> None:
        """End all constructors, stores and the daemon."""
        if self._clients:
            self._hang_up()
            for client in self._clients[::-1]:
                client.close()
            self._reserved.close()
            self._clients = []

    def can_refuse(self, step: str) -> bool:
        return False  # a constructor does what comes next, and refuses nothing

    def perform(self, step: str, indices: tuple[int, ...]) -> None:
        self._steps[step](*(self._clients[k] for k in indices))

    def observe(self) -> Mapping[str, int]:
        """Where each constructor is, what it has open, and the counter, while there is a server to ask.

        A master that waits polls once more, if not all are counted: it must go on waiting, without a timeout for ever.
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

    def _hang_up(self) -> None:
        if self._stranger is not None:
            self._stranger.close()
        self._stranger = None

    def _overwrite(self, number: int) -> None:
        assert self._stranger is not None
        self._stranger.sendall(bytes([Query.SET]) + blob(COUNTER_KEY) + blob(b"%d" % number))

    def _counter(self, stranger: socket.socket) -> int:
        stranger.sendall(bytes([Query.CHECK]) + counted([COUNTER_KEY]))
        if recv(stranger, 1) != READY:
            return 0
        stranger.sendall(bytes([Query.GET]) + blob(COUNTER_KEY))
        return int(recv_blob(stranger))
