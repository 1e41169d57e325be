"""Nodes of either library on one store: torch's handlers or ours on torch's own backend; nothing else differs.

Rule: torch's handler, executor, state holder and operators run unmodified. Only the backend of a node imposes a
schedule, in the same places for both libraries, and the claims are the same. A claim that fails is an AssertionError; a
schedule that was not carried out is another error. A cluster replaces names of modules while it is open: a process has
at most one.
"""

from __future__ import annotations

import gc
import math
import os
import pickle
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, ClassVar, Generic, Self, TypeVar
from unittest import mock

import torch.distributed as dist
from torch._C._distributed_c10d import Store, TCPStore
from torch.distributed.elastic.rendezvous import dynamic_rendezvous
from torch.distributed.elastic.rendezvous.api import RendezvousConnectionError
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend

from trystate.impl.rendezvous.encoding import decode
from trystate.impl.rendezvous.handler import DynamicRendezvousHandler

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
class Seat:
    """The result of `next_rendezvous` for one node."""

    node: str
    round: int
    rank: int
    world: int
    master: str


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

    @property
    def window_s(self) -> int:
        """The age at which a heartbeat is expired: `_BackendRendezvousStateHolder._sanitize`."""
        return self.beat_s * self.beats_missed_max


class SteeredBackend(C10dRendezvousBackend):
    """torch's backend with a gate before the store, and counts of what passed it."""

    def __init__(self, store: Store, run_id: str) -> None:
        super().__init__(store, run_id)
        self._held_from = math.inf
        self._released = threading.Event()
        self._dead = False
        self.reads = self.writes_won = 0

    def hold_reads(self, *, after_writes: int) -> None:
        """Stop every read that starts once `after_writes` more writes have been won, until the node is killed."""
        self._held_from = self.writes_won + after_writes

    def kill(self) -> None:
        """Let no call of this node reach the store from now on."""
        self._dead = True
        self._released.set()

    @contextmanager
    def cut(self) -> Iterator[None]:
        """Let no call of this node reach the store while the block runs."""
        self._dead = True
        try:
            yield
        finally:
            self._dead = False

    def get_state(self) -> tuple[bytes, Any] | None:
        if self.writes_won >= self._held_from:
            self._released.wait(WAIT_S_MAX)
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
        if self._dead:
            raise RendezvousConnectionError("this node is dead, or cut off")


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
    """One process of the job: a handler with its own store client and backend; torch's or ours."""

    def __init__(self, name: str, number: int, port: int, settings: Settings) -> None:
        self.name = name
        self.settings = settings
        store = _client(port, settings.store_s)
        self.backend = SteeredBackend(store, RUN_ID)
        self.handler = self._handler(store, number)
        self.descriptor = self._descriptor()
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

    def _descriptor(self) -> Any:
        return self.handler._this_node

    def call(self, function: Callable[[], T]) -> Call[T]:
        """Call a function as this node, in a thread with its name."""
        call = Call(function, self.name)
        self.calls.append(call)
        return call

    def join(self) -> Call[Seat]:
        """The call of an agent at the beginning and at every restart."""
        return self.call(self._next_rendezvous)

    def _next_rendezvous(self) -> Seat:
        info = self.handler.next_rendezvous()
        bootstrap = info.bootstrap_store_info
        assert bootstrap is not None
        master = f"{bootstrap.master_addr}:{bootstrap.master_port}"
        return Seat(self.name, self._round(), info.rank, info.world_size, master)

    def _round(self) -> int:
        number: int = self.handler._state_holder.state.round
        return number

    def nodes_waiting(self) -> int:
        waiting: Call[int] = self.call(self.handler.num_nodes_waiting)
        return waiting.value()

    @property
    def alive(self) -> bool:
        """Whether this node's keep-alive thread is running (`_start_heartbeats` names it)."""
        name = f"RendezvousKeepAliveTimer_{self.descriptor.local_id}"
        return any(thread.name == name for thread in threading.enumerate())

    def die(self) -> None:
        """The process ends: no call reaches the store any more, and the heartbeats stop."""
        self.backend.kill()
        # shutdown() would stop them too, but it also tries to close the rendezvous: a dead process does not.
        self.handler._stop_heartbeats()

    def release(self) -> None:
        """End the calls that still run, then drop the store clients and the server of rank 0."""
        self.backend.kill()
        for call in self.calls:
            call.finish()
        self.die()
        for call in self.calls:
            call.forget_frames()
        del self.handler, self.backend


class OurNode(Node):
    """A node of ours. It shares a process with other nodes, and can die alone."""

    def _handler(self, store: Any, number: int) -> Any:
        settings = self.settings
        return DynamicRendezvousHandler.from_backend(
            RUN_ID, self.backend, settings.min_nodes, settings.max_nodes, f"127.0.0.{number}",
            join_timeout=settings.join_s, last_call_timeout=settings.last_call_s, close_timeout=settings.store_s,
            read_timeout=settings.store_s, keep_alive_interval=settings.beat_s,
            keep_alive_max_attempt=settings.beats_missed_max, local_id=number,
        )  # fmt: skip

    @property
    def _part(self) -> Any:
        return self.handler._part

    def _descriptor(self) -> Any:
        return self._part.core.me.node

    def _round(self) -> int:
        number: int = self._part.joined.round
        return number

    @property
    def alive(self) -> bool:
        beating = self._part.keep_alive
        return beating is not None and beating._thread.is_alive()

    def die(self) -> None:
        self.backend.kill()
        self._part.listed = False  # a dead process does not leave
        self.handler.leave()

    def release(self) -> None:
        self.die()
        super().release()


@dataclass(frozen=True, slots=True)
class Peek:
    """The shared state, with the nodes' names instead of their descriptors: the rank of each participant."""

    participants: Mapping[str, int]


class Cluster:
    """A store server on the loopback interface, and the nodes of torch that use it. A context manager."""

    kind: ClassVar[type[Node]] = Node

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
            node.backend.kill()  # kill all first: their threads end at the same time
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
        node = self.kind(name, number, self._server.port, settings)
        self._nodes.append(node)
        return node

    def raw(self) -> bytes:
        """The bytes of the rendezvous key, not decoded."""
        found = self.observer.get_state()
        return b"" if found is None else found[0]

    def peek(self) -> Peek:
        """The shared state as it is stored, before a node sanitises it."""
        raw, names = self.raw(), {node.descriptor: node.name for node in self._nodes}
        return Peek(self._ranks(raw, names) if raw else {})

    def _ranks(self, raw: bytes, names: Mapping[Any, str]) -> dict[str, int]:
        # These bytes were written by this process's own nodes, on the loopback interface.
        return {names[node]: rank for node, rank in pickle.loads(raw).participants.items()}

    def until(self, holds: Callable[[Peek], bool], what: str) -> None:
        """Wait until this holds of the shared state."""
        if not happens(lambda: holds(self.peek())):
            raise ScheduleError(f"waited {WAIT_S_MAX} s for: {what}; the state is {self.peek()}")


class OurCluster(Cluster):
    """Our nodes on torch's store."""

    kind = OurNode

    def _ranks(self, raw: bytes, names: Mapping[Any, str]) -> dict[str, int]:
        return {names[p.node]: rank for rank, p in enumerate(decode(raw.partition(b"\n")[0]).participants)}


def cluster_of(library: str) -> Cluster:
    """An empty cluster of "torch" or "trystate"."""
    return Cluster() if library == "torch" else OurCluster()


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


def limit(library: str, ours_s: float) -> float:
    """Seconds to wait for an event that must not happen; more for torch, where it happens."""
    return ours_s if library == "trystate" else WAIT_S_MAX


def patience(library: str, torchs_s: float) -> float:
    """Seconds to wait for an event that must happen; fewer for torch, where it does not happen."""
    return torchs_s if library == "torch" else WAIT_S_MAX


def claim(what: str, holds: Callable[[], object], within_s: float = WAIT_S_MAX) -> None:
    """Assert that it holds within the time."""
    assert happens(holds, within_s), f"not within {within_s:g} s: {what}"


def seats(*calls: Call[Seat]) -> list[Seat]:
    """The seats that these calls of next_rendezvous must return."""
    claim("a round for each of them", lambda: not any(call.running for call in calls))
    errors = [repr(call.error) for call in calls if call.error is not None]
    assert not errors, errors
    return [call.value() for call in calls]


def agreed(found: list[Seat], size: int) -> None:
    """Assert that these are members of one round of that size, with the same master."""
    assert {seat.world for seat in found} == {size}, found
    assert len({(seat.round, seat.master) for seat in found}) == 1, found
    assert len({seat.rank for seat in found} & {*range(size)}) == len(found), found


@contextmanager
def outage(*nodes: Node) -> Iterator[None]:
    """Cut these nodes off from the store while the block runs."""
    with ExitStack() as stack:
        for node in nodes:
            stack.enter_context(node.backend.cut())
        yield
