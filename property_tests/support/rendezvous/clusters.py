"""Real nodes on a real store: what every schedule of the rendezvous is made of.

Rule: torch's handler, executor, state holder and operators run unmodified. A schedule is imposed only from
below, by the backend a node talks to, and from beside, by the wall clock that dynamic_rendezvous.py reads.
Scenarios replace names of that module while they run: run one at a time in a process.
"""

import gc
import logging
import os
import pickle
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, tzinfo
from types import SimpleNamespace, TracebackType
from typing import Any, ClassVar, Generic, Self, TypeVar

import torch.distributed as dist
from torch._C._distributed_c10d import Store, TCPStore
from torch.distributed.elastic.rendezvous import dynamic_rendezvous
from torch.distributed.elastic.rendezvous.api import RendezvousConnectionError
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend

from ...adapters.garbage import set_aside
from ...adapters.replays import Say, ScheduleError
from ...adapters.torch_release import serve_on, with_heartbeats

T = TypeVar("T")

RUN_ID = "scenario"
WAIT_S_MAX = 10.0  # a scenario takes seconds; a wait this long means that its schedule failed
POLL_S = 0.01  # how often the scenario itself looks at the shared state
SHARING_OFF = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"  # read by DynamicRendezvousHandler.next_rendezvous


@dataclass(frozen=True, slots=True)
class Seat:
    """The result of `next_rendezvous` for one node."""

    node: str
    round: int
    rank: int
    world: int
    master: str

    def __str__(self) -> str:
        return f"{self.node} returned rank {self.rank} of world {self.world} in round {self.round}"


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one node, short enough for a run of seconds."""

    min_nodes: int
    max_nodes: int
    join_s: int = 10
    last_call_s: int = 1
    beat_s: int = 1
    beats_missed_max: int = 10  # so that nobody expires unless the scenario is about expiry
    store_s: int = 4

    @property
    def window_s(self) -> int:
        """The age at which a heartbeat is expired: `_BackendRendezvousStateHolder._sanitize`."""
        return self.beat_s * self.beats_missed_max


@dataclass(slots=True)
class Gate:
    """Holds one node's calls before they reach the store, until it is opened."""

    operations: frozenset[str]
    writes_before: int
    reached: threading.Event = field(default_factory=threading.Event)
    opened: threading.Event = field(default_factory=threading.Event)

    def open(self) -> None:
        self.opened.set()

    def wait_reached(self) -> None:
        if not self.reached.wait(WAIT_S_MAX):
            raise ScheduleError(f"no {' or '.join(sorted(self.operations))} reached the gate")


@dataclass(frozen=True, slots=True)
class Write:
    """One `set_state` as its caller saw it."""

    token: bytes | None
    state: bytes
    reported_won: bool


class SteeredBackend(C10dRendezvousBackend):
    """torch's backend with a gate before the store and a log of what passed it."""

    def __init__(self, store: Store, run_id: str) -> None:
        super().__init__(store, run_id)
        self._gate: Gate | None = None
        self._dead = False
        self.reads = 0
        self.writes: list[Write] = []

    @property
    def writes_won(self) -> int:
        """How many writes were reported as won."""
        return sum(write.reported_won for write in self.writes)

    def hold(self, *operations: str, after_writes: int = 0) -> Gate:
        """Stops every such call that starts once `after_writes` more writes have been won."""
        self._gate = Gate(frozenset(operations), self.writes_won + after_writes)
        return self._gate

    def kill(self) -> None:
        """From now on no call of this node reaches the store."""
        self._dead = True
        if self._gate is not None:
            self._gate.open()

    @contextmanager
    def cut(self) -> Iterator[None]:
        """In here no call of this node reaches the store."""
        self._dead = True
        try:
            yield
        finally:
            self._dead = False

    def get_state(self) -> tuple[bytes, Any] | None:
        self._pass("get")
        reply = super().get_state()
        self.reads += 1
        return reply

    def set_state(self, state: bytes, token: Any = None) -> tuple[bytes, Any, bool] | None:
        self._pass("set")
        reply = super().set_state(state, token)
        self.writes.append(Write(token, state, reply is not None and reply[2]))
        return reply

    def _pass(self, operation: str) -> None:
        gate = self._gate
        if gate is not None and operation in gate.operations and self.writes_won >= gate.writes_before:
            gate.reached.set()
            if not gate.opened.wait(WAIT_S_MAX):
                raise RendezvousConnectionError("the gate was never opened")
        if self._dead:
            raise RendezvousConnectionError("this node is dead, or cut off")


class Call(Generic[T]):
    """One call of a node, running in a thread of its own. The thread's name says whose call it is."""

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
        """The frames of an error keep alive what its functions used: handlers, stores, sockets."""
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
    """One process of the job: a handler with a store client and a backend of its own."""

    def __init__(self, name: str, number: int, port: int, settings: Settings) -> None:
        self.name = name
        self.settings = settings
        store = _client(port, settings.store_s)
        self.backend = SteeredBackend(store, RUN_ID)
        self.handler = self._handler(store, number)
        self.descriptor = self._descriptor()
        self.calls: list[Call[Any]] = []

    def _handler(self, store: Store, number: int) -> dynamic_rendezvous.DynamicRendezvousHandler:
        return with_heartbeats(self.settings.beat_s, self.settings.beats_missed_max)(
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

    def _descriptor(self) -> Any:
        return self.handler._this_node

    def __str__(self) -> str:
        return self.name

    def call(self, function: Callable[[], T]) -> Call[T]:
        """Runs a function as this node: in a thread named after it, which is how its clock is found."""
        call = Call(function, f"{self.name}_{self.descriptor.local_id}")
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
        return self.handler._state_holder.state.round

    def nodes_waiting(self) -> int:
        waiting: Call[int] = self.call(self.handler.num_nodes_waiting)
        return waiting.value()

    def is_closed(self) -> bool:
        closed: Call[bool] = self.call(self.handler.is_closed)
        return closed.value()

    @property
    def alive(self) -> bool:
        """Whether this node's keep-alive thread is running (`_start_heartbeats` names it)."""
        name = f"RendezvousKeepAliveTimer_{self.descriptor.local_id}"
        return any(thread.name == name for thread in threading.enumerate())

    def die(self) -> None:
        """The process ends: no call reaches the store any more, and the heartbeats stop."""
        self.backend.kill()
        # shutdown() would stop them too, but it also tries to close the rendezvous: the dead do not.
        self.handler._stop_heartbeats()

    def release(self) -> None:
        """Ends what is still running, then lets go of the store clients and of a server started as rank 0."""
        self.backend.kill()
        for call in self.calls:
            call.finish()
        self.die()
        for call in self.calls:
            call.forget_frames()
        del self.handler, self.backend


@dataclass(frozen=True, slots=True)
class Peek:
    """The shared state, with the nodes' names instead of their descriptors."""

    round: int
    complete: bool
    closed: bool
    has_deadline: bool
    participants: Mapping[str, int]
    waiting: frozenset[str]
    redundant: frozenset[str]
    beats: Mapping[str, datetime]


class Cluster:
    """A store server on the loopback interface and the nodes that use it. A context manager.

    Args:
        say: Prints one step.
        share_store: False sets the documented opt-out, with which rank 0 publishes a master every round.
    """

    kind: ClassVar[type[Node]] = Node

    def __init__(self, say: Say, *, share_store: bool = True) -> None:
        self.say = say
        self._share_store = share_store
        self._nodes: list[Node] = []
        self._clocks: dict[str, timedelta] | None = None

    def __enter__(self) -> Self:
        set_aside()
        with ExitStack() as undo:
            undo.enter_context(_environment(SHARING_OFF, None if self._share_store else "1"))
            undo.enter_context(replaced("dist", SimpleNamespace(**vars(dist) | {"TCPStore": _server})))
            # A dead node's failed heartbeats are expected; torch would print each of them.
            undo.enter_context(_logging_to(logging.NullHandler(), dynamic_rendezvous.logger.level))
            self._server = _server("127.0.0.1", 0, timeout=timedelta(seconds=WAIT_S_MAX))
            self.observer = C10dRendezvousBackend(_client(self._server.port, WAIT_S_MAX), RUN_ID)
            self._undo = undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node in self._nodes:
            node.backend.kill()  # all of them first, so that their threads end side by side
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
        """The bytes under the rendezvous key, without looking at them."""
        found = self.observer.get_state()
        return b"" if found is None else found[0]

    def peek(self) -> Peek:
        """The shared state as it is stored, before anyone sanitises it."""
        raw = self.raw()
        # These bytes were written by this process's own nodes, on the loopback interface.
        state = pickle.loads(raw) if raw else dynamic_rendezvous._RendezvousState()
        names = {node.descriptor: node.name for node in self._nodes}
        return Peek(
            state.round,
            state.complete,
            state.closed,
            state.deadline is not None,
            {names[node]: rank for node, rank in state.participants.items()},
            frozenset(names[node] for node in state.wait_list),
            frozenset(names[node] for node in state.redundancy_list),
            {names[node]: beat for node, beat in state.last_heartbeats.items()},
        )

    def until(
        self, holds: Callable[[Peek], bool], what: str, timeout_s: float = WAIT_S_MAX, *, tell: bool = True
    ) -> Peek:
        """Waits until the shared state is as wanted."""
        deadline_s = time.monotonic() + timeout_s
        while not holds(peek := self.peek()):
            if time.monotonic() > deadline_s:
                raise ScheduleError(f"waited {timeout_s} s for: {what}; the state is {peek}")
            time.sleep(POLL_S)
        if tell:
            self.say(what)
        return peek

    def shift_clock(self, node: Node, seconds: float) -> None:
        """Adds `seconds` to the wall clock that this one node reads from now on."""
        if self._clocks is None:
            self._clocks = {}
            self._undo.enter_context(replaced("datetime", _clock_per_node(self._clocks)))
        self._clocks[str(node.descriptor.local_id)] = timedelta(seconds=seconds)


def require(condition: bool, what: str) -> None:
    """Checks that the schedule is the wanted one; what torch makes of it is the scenario's to judge."""
    if not condition:
        raise ScheduleError(f"not so: {what}")


def _client(port: int, timeout_s: float) -> TCPStore:
    return TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=timeout_s))


def _server(host_name: str, port: int, **options: Any) -> TCPStore:
    """A TCPStore server that listens on `host_name` only.

    A handler that became rank 0 starts one, too (`_create_tcp_store_server`): the module gets this function under the
    name `dist.TCPStore`.
    """
    return serve_on(host_name, port, **{k: v for k, v in options.items() if k not in ("is_master", "wait_for_workers")})


def _clock_per_node(offsets: Mapping[str, timedelta]) -> type[datetime]:
    """A `datetime` whose now() depends on the node whose thread asks.

    Both the threads of `Node.call` and torch's keep-alive threads have names that end in the node's id.
    """

    class NodeDatetime(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Any:
            node = threading.current_thread().name.rpartition("_")[2]
            return datetime.now(tz) + offsets.get(node, timedelta(0))

    return NodeDatetime


@contextmanager
def replaced(name: str, value: object) -> Iterator[None]:
    """Replaces one global name of dynamic_rendezvous.py."""
    before = getattr(dynamic_rendezvous, name)
    setattr(dynamic_rendezvous, name, value)
    try:
        yield
    finally:
        setattr(dynamic_rendezvous, name, before)


@contextmanager
def _environment(name: str, value: str | None) -> Iterator[None]:
    before = os.environ.pop(name, None)
    if value is not None:
        os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name, None)
        if before is not None:
            os.environ[name] = before


@contextmanager
def _logging_to(handler: logging.Handler, level: int) -> Iterator[None]:
    """Sends the log of dynamic_rendezvous.py to this handler and nowhere above."""
    logger = dynamic_rendezvous.logger
    before = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(level)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        level_before, logger.propagate = before
        logger.setLevel(level_before)


def disagree_on_world(seats: Iterable[Seat]) -> bool:
    """Whether members of one round differ on its world size, share a rank, or hold a rank outside it."""
    by_round: dict[int, list[Seat]] = {}
    for seat in seats:
        by_round.setdefault(seat.round, []).append(seat)
    return any(
        len({seat.world for seat in members}) > 1
        or len({seat.rank for seat in members}) < len(members)
        or any(seat.rank >= seat.world for seat in members)
        for members in by_round.values()
    )


def disagree_on_master(seats: Iterable[Seat]) -> bool:
    """Whether members of one round would meet at different stores."""
    masters: dict[int, set[str]] = {}
    for seat in seats:
        masters.setdefault(seat.round, set()).add(seat.master)
    return any(len(addresses) > 1 for addresses in masters.values())
