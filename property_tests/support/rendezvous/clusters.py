"""Nodes of torch's rendezvous on one store, which can die alone.

Rule: torch's handler, executor, state holder and operators run unmodified. A claim that fails is an AssertionError; a
schedule that was not carried out is another error. A cluster replaces names of modules while it is open: a process has
at most one.
"""

from __future__ import annotations

import gc
import os
import pickle
import random
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, Generic, Self, TypeVar
from unittest import mock

import torch.distributed as dist
from torch._C._distributed_c10d import Store, TCPStore
from torch.distributed.elastic.rendezvous import dynamic_rendezvous
from torch.distributed.elastic.rendezvous.api import RendezvousConnectionError
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend

from ...adapters.garbage import set_aside
from ...adapters.replays import ScheduleError
from ...adapters.torch_release import serve_on, with_heartbeats

T = TypeVar("T")

RUN_ID = "scenario"
WAIT_S_MAX = 10.0  # a scenario takes seconds; a wait this long means that its schedule failed
POLL_S = 0.01  # pause of the scenario between two reads of the shared state
DELAY = 0.2  # share of torch's delays: its handlers poll five times as often, which can only help them
SHARING_OFF = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"  # read by DynamicRendezvousHandler.next_rendezvous


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one node, short enough for a run of seconds."""

    min_nodes: int
    max_nodes: int
    join_s: int = 10
    last_call_s: int = 1
    beat_s: int = 1
    beats_missed_max: int = 10  # no node expires unless the scenario is about expiry
    store_s: int = 4


class MortalBackend(C10dRendezvousBackend):
    """torch's backend, which may be dead, and counts of what passed it."""

    def __init__(self, store: Store, run_id: str) -> None:
        super().__init__(store, run_id)
        self.dead = False
        self.reads = self.writes_won = 0

    def get_state(self) -> tuple[bytes, Any] | None:
        self._require_alive()
        reply = super().get_state()
        self.reads += 1
        return reply

    def set_state(self, state: bytes, token: Any = None) -> tuple[bytes, Any, bool] | None:
        self._require_alive()
        reply = super().set_state(state, token)
        self.writes_won += reply is not None and reply[2]
        return reply

    def _require_alive(self) -> None:
        if self.dead:
            raise RendezvousConnectionError("this node is dead")


class Call(Generic[T]):
    """One call of a node, running in its own thread, which has the node's name."""

    def __init__(self, function: Callable[[], T], thread_name: str) -> None:
        self._values: list[T] = []
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run, args=(function,), name=thread_name, daemon=True)
        self._thread.start()

    def _run(self, function: Callable[[], T]) -> None:
        try:
            self._values.append(function())
        except Exception as error:
            self.error = error

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def finish(self, timeout_s: float = WAIT_S_MAX) -> Exception | None:
        """Waits for the end of the call; returns what it raised, if anything."""
        self._thread.join(timeout_s)
        if self.running:
            raise ScheduleError(f"{self._thread.name} did not return within {timeout_s} s")
        return self.error

    def forget_frames(self) -> None:
        """Drop the frames of the error, which keep handlers, stores and sockets alive."""
        error: BaseException | None = self.error
        while error is not None:
            error.__traceback__ = None
            error = error.__cause__ or error.__context__

    def value(self, timeout_s: float = WAIT_S_MAX) -> T:
        """Waits for the end of the call; returns its value."""
        error = self.finish(timeout_s)
        if error is not None:
            raise ScheduleError(f"{self._thread.name} failed: {error!r}") from error
        return self._values[0]


class Node:
    """One process of the job: a handler of torch's with its own store client and backend."""

    def __init__(self, name: str, number: int, port: int, settings: Settings) -> None:
        self.name = name
        self.settings = settings
        store = _client(port, settings.store_s)
        self.backend = MortalBackend(store, RUN_ID)
        self.handler = self._handler(store, number)
        self.descriptor = self.handler._this_node
        self.calls: list[Call[Any]] = []

    def _handler(self, store: Store, number: int) -> Any:
        made: Any = with_heartbeats(self.settings.beat_s, self.settings.beats_missed_max)(
            RUN_ID,
            store,
            self.backend,
            self.settings.min_nodes,
            self.settings.max_nodes,
            local_addr=f"127.0.0.{number}",  # ranks follow the sort order of the addresses
            timeout=dynamic_rendezvous.RendezvousTimeout(
                join=timedelta(seconds=self.settings.join_s),
                last_call=timedelta(seconds=self.settings.last_call_s),
                close=timedelta(seconds=self.settings.store_s),
                heartbeat=timedelta(seconds=self.settings.store_s),
            ),
        )
        made._state_holder._cache_duration = DELAY
        return made

    def call(self, function: Callable[[], T]) -> Call[T]:
        """Call a function as this node, in a thread with its name."""
        call = Call(function, self.name)
        self.calls.append(call)
        return call

    def join(self) -> Call[Any]:
        """The call of an agent at the beginning and at every restart."""
        return self.call(self.handler.next_rendezvous)

    @property
    def alive(self) -> bool:
        """Whether this node's keep-alive thread is running (`_start_heartbeats` names it)."""
        name = f"RendezvousKeepAliveTimer_{self.descriptor.local_id}"
        return any(thread.name == name for thread in threading.enumerate())

    def die(self) -> None:
        """The process ends: no call reaches the store any more, and the heartbeats stop."""
        self.backend.dead = True
        # shutdown() would stop them too, but it also tries to close the rendezvous: a dead process does not.
        self.handler._stop_heartbeats()

    def release(self) -> None:
        """End the calls that still run, then drop the store clients and the server of rank 0."""
        self.backend.dead = True
        for call in self.calls:
            call.finish()
        self.die()
        for call in self.calls:
            call.forget_frames()
        del self.handler, self.backend


class Cluster:
    """A store server on the loopback interface, and the nodes of torch that use it. A context manager."""

    def __init__(self) -> None:
        self._nodes: list[Node] = []

    def __enter__(self) -> Self:
        set_aside()
        with ExitStack() as undo:
            undo.enter_context(mock.patch.dict(os.environ))
            os.environ.pop(SHARING_OFF, None)
            stores = SimpleNamespace(**vars(dist) | {"TCPStore": _server})
            undo.enter_context(mock.patch.multiple(dynamic_rendezvous, dist=stores, _delay=_delay))
            # A dead node's failed heartbeats are expected; torch would print each of them.
            undo.enter_context(mock.patch.object(dynamic_rendezvous.logger, "disabled", True))
            self._server = _server("127.0.0.1", 0, timeout=timedelta(seconds=WAIT_S_MAX))
            self.observer = C10dRendezvousBackend(_client(self._server.port, WAIT_S_MAX), RUN_ID)
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        for node in self._nodes:
            node.backend.dead = True  # kill all first: their threads end at the same time
        try:
            for node in self._nodes:
                node.release()
        finally:
            self._nodes.clear()
            self._undo.close()
            del self.observer, self._server
            gc.collect()  # the stores' sockets and threads end with their last reference

    def node(self, name: str, number: int, settings: Settings) -> Node:
        """A new process at address 127.0.0.`number`."""
        node = Node(name, number, self._server.port, settings)
        self._nodes.append(node)
        return node

    def raw(self) -> bytes:
        """The bytes of the rendezvous key, not decoded."""
        found = self.observer.get_state()
        return b"" if found is None else found[0]

    def participants(self) -> set[str]:
        """The names of the participants in the shared state, before a node sanitises it."""
        # These bytes were written by this process's own nodes, on the loopback interface.
        raw, names = self.raw(), {node.descriptor: node.name for node in self._nodes}
        return {names[node] for node in pickle.loads(raw).participants} if raw else set()

    def until(self, *names: str) -> None:
        """Wait until these are participants."""
        if not happens(lambda: self.participants() >= set(names)):
            raise ScheduleError(f"waited {WAIT_S_MAX} s for {names}; there are {self.participants()}")

    def round(self, *nodes: Node) -> list[Any]:
        """The results of `next_rendezvous` of these nodes, which are a round."""
        return [call.value() for call in [node.join() for node in nodes]]


def _delay(seconds: float | tuple[float, float]) -> None:
    time.sleep(DELAY * (random.uniform(*seconds) if isinstance(seconds, tuple) else seconds))


def _client(port: int, timeout_s: float) -> TCPStore:
    return TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=timeout_s))


def _server(host_name: str, port: int, **options: Any) -> TCPStore:
    """A TCPStore server that listens on `host_name` only.

    A handler that became rank 0 starts one, too (`_create_tcp_store_server`): the module gets this function under the
    name `dist.TCPStore`.
    """
    return serve_on(host_name, port, **{k: v for k, v in options.items() if k not in ("is_master", "wait_for_workers")})


def happens(holds: Callable[[], object], within_s: float = WAIT_S_MAX) -> bool:
    """Whether it holds within the time."""
    ends = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > ends:
            return False
        time.sleep(POLL_S)
    return True


def claim(what: str, holds: Callable[[], object], within_s: float = WAIT_S_MAX) -> None:
    """Assert that it holds within the time."""
    assert happens(holds, within_s), f"not within {within_s:g} s: {what}"
