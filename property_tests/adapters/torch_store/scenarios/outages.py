"""S14 to S16: servers that stop, die, or are told that all have come."""

from __future__ import annotations

import importlib
import socket
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from multiprocessing.connection import Connection
from types import TracebackType

import torch.distributed as dist

from trystate.impl.store.wire import blob
from trystate.model.store.vocabulary import Query

from ...replays import Observation, Say, ScheduleError, finish, judge
from ..isolated import Child, silence
from ..server import HOST, START_S, Server, TorchServer
from ..wire import Peer

TIMEOUT_S = 1.0
PATIENCE_S = 3.0  # longer than the timeout by a good deal


class Master(AbstractContextManager["Master"]):
    """A process whose constructor serves a store and waits for its world."""

    def __init__(self, library: str, world_size: int, timeout_s: float) -> None:
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            self.port = probe.getsockname()[1]
        self._child = Child(_be_master, library, self.port, world_size, timeout_s)

    def peer(self) -> Peer:
        """A connection, as soon as the server listens."""
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            try:
                return Peer(self.port)
            except OSError:
                time.sleep(0.02)
        raise ScheduleError("the master's server does not listen")

    def outcome(self) -> str:
        """The outcome of its constructor: `started` or `raised`."""
        said = self._child.hear(START_S)
        if not isinstance(said, str):
            raise ScheduleError(f"the master's constructor is not done after {START_S:g} s: {said}")
        return said

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._child.__exit__(kind, error, at)


def _be_master(line: Connection, library: str, port: int, world_size: int, timeout_s: float) -> None:
    """In the child."""
    silence()
    try:
        importlib.import_module(library).TCPStore(HOST, port, world_size, True, timedelta(seconds=timeout_s))
    except dist.DistStoreError:
        line.send("raised")
    else:
        line.send("started")


def init_overwritten(say: Say, *, benign: bool = False, serve: type[Server] = TorchServer) -> Observation:
    """S16. A master waits for three; a peer writes init/, and the master starts alone. Benign: another key."""
    with Master(serve.library, world_size=3, timeout_s=TIMEOUT_S * 2) as master, master.peer() as peer:
        peer.send(bytes([Query.SET]) + blob(b"/other" if benign else b"init/") + blob(b"3"))
        peer.is_served()
        said = master.outcome()
    say(f"the master of a world of three, alone: {said}")
    return judge(said == "started", "the master starts only when all are counted in", [f"its constructor {said}"])


def frozen_server(say: Say, *, benign: bool = False, serve: type[Server] = TorchServer) -> Observation:
    """S14. The server's process is stopped; an add with a timeout of 1 s does not return. Benign: it is not."""
    with serve() as server:
        client = server.client(TIMEOUT_S)
        if not benign:
            server.freeze()
        thread = threading.Thread(target=_returns, args=(client.add, "n", 1), daemon=True)
        thread.start()
        thread.join(PATIENCE_S)
        hangs = thread.is_alive()
        server.thaw()
        finish(thread)
    say(f"add with a timeout of {TIMEOUT_S:g} s: {f'not back after {PATIENCE_S:g} s' if hangs else 'returned'}")
    return judge(hangs, "every operation honours its timeout", [f"still waiting after {PATIENCE_S:g} s: {hangs}"])


def write_lost_silently(say: Say, *, benign: bool = False, serve: type[Server] = TorchServer) -> Observation:
    """S15. The server has died; a set returns all the same. Benign: it has not."""
    with serve() as server:
        client = server.client(TIMEOUT_S)
        client.set("before", "1")
        client.check(["before"])
        if not benign:
            server.kill()
        returned = _returns(client.set, "after", "1")
        kept = benign and client.check(["after"])
    say(f"a set {'of a living server' if benign else 'after the server died'}: {'returned' if returned else 'raised'}")
    return judge(returned and not kept, "a set that returns has happened", [f"returned: {returned}", f"kept: {kept}"])


def _returns(operation: Callable[..., object], *arguments: object) -> bool:
    try:
        operation(*arguments)
    except dist.DistNetworkError:
        return False
    return True
