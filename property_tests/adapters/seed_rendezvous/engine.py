"""The rendezvous of torch 1.10: a program written from the description in rendezvous-engine; no line is copied.

Theory of operation. The shared state is one value of a store, pickled; a node changes a copy of it, and writes the copy
by compare-and-set on the bytes that it read (`Backend`, `StateHolder`). An operator looks at a copy and decides an
action; the `Executor` syncs, calls the operator, changes the copy as decided, and begins again, until the action is
FINISH or an error. A sync drops from the copy each node whose heartbeat is too old, by this node's wall clock.

    Node, State, Settings, Context      2.1, 2.2.1
    Executor.run                        2.2.3.1; its changes of the copy: 4.1 to 4.6
    StateHolder, Backend                2.2.3.2
    KeepAlive, Close, Exit, Join        3.2.1 to 3.2.4
    Handler                             2.2.2, 3.2.1.2

Rule: time, the store and all pauses are passed in. `pause` is called with "get", "set", "decide" or "act" before the
executor does that: other nodes can act in a pause.
"""

from __future__ import annotations

import pickle
from base64 import b64decode, b64encode
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol

from trystate.model.rendezvous.vocabulary import Action

ROLLBACK_SECONDS = 5.0
POLL_SECONDS = 1.0
CACHE_SECONDS = 1.0
KEY = "torch.rendezvous.seed"
NOTHING = "nothing"  # the value of the key before the first state, with which compare_set compares


class Clock(Protocol):
    """A node's sources of time."""

    def now(self) -> datetime:
        """The wall clock: heartbeats and the last call are compared with it."""

    def monotonic(self) -> float:
        """Seconds: the deadlines of operations and the age of the cache are compared with them."""


class Store(Protocol):
    """The part of a store that a rendezvous uses."""

    def get(self, key: str) -> bytes:
        """The value of a key."""

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        """Set a key if it holds `expected`, or if it is missing and `expected` is empty. Returns its new value."""


class RendezvousError(Exception):
    """An operation of a rendezvous has failed."""


class ClosedError(RendezvousError):
    """The rendezvous is closed."""


class LateError(RendezvousError):
    """The operation's deadline has passed."""


class StateError(RendezvousError):
    """The shared state cannot be unpickled."""


@dataclass(frozen=True, order=True)
class Node:
    """A process that takes part; ranks follow the order of nodes."""

    name: str
    pid: int
    local_id: int


@dataclass
class State:
    """The shared state."""

    round: int = 0
    complete: bool = False
    deadline: datetime | None = None  # the end of the last call
    closed: bool = False
    participants: dict[Node, int] = field(default_factory=dict)  # with their ranks, 0 until the round is complete
    wait_list: set[Node] = field(default_factory=set)
    last_heartbeats: dict[Node, datetime] = field(default_factory=dict)


@dataclass(frozen=True)
class Settings:
    """The settings of a node. Two nodes may have different settings."""

    min_nodes: int
    max_nodes: int
    last_call: timedelta
    keep_alive_interval: timedelta
    keep_alive_max_attempt: int


@dataclass(frozen=True)
class Context:
    """The view of an operator."""

    node: Node
    state: State
    settings: Settings


# ---- the operators


class _Operator:
    """An operator, with the clock that it reads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def _is_late(self, deadline: float) -> bool:
        return self._clock.monotonic() > deadline

    def _is_beat_due(self, at: Context) -> bool:
        """Whether the heartbeat of the node is due; a node without a heartbeat renews nothing."""
        stamp = at.state.last_heartbeats.get(at.node)
        return stamp is not None and stamp <= self._clock.now() - at.settings.keep_alive_interval


class KeepAlive(_Operator):
    """Renews the heartbeat when that is due (3.2.1.1)."""

    def __call__(self, at: Context, deadline: float) -> Action:
        if not self._is_beat_due(at):
            return Action.FINISH
        return Action.ERROR_TIMEOUT if self._is_late(deadline) else Action.KEEP_ALIVE


class Close(_Operator):
    """Closes the rendezvous, once (3.2.2)."""

    def __call__(self, at: Context, deadline: float) -> Action:
        if at.state.closed:
            return Action.FINISH
        return Action.ERROR_TIMEOUT if self._is_late(deadline) else Action.MARK_RENDEZVOUS_CLOSED


class Exit(_Operator):
    """Leaves the participants (3.2.3)."""

    def __call__(self, at: Context, deadline: float) -> Action:
        if at.node not in at.state.participants:
            return Action.FINISH
        return Action.ERROR_TIMEOUT if self._is_late(deadline) else Action.REMOVE_FROM_PARTICIPANTS


class Join(_Operator):
    """Joins a round, or waits for the next (3.2.4)."""

    def __call__(self, at: Context, deadline: float) -> Action:
        state = at.state
        member = at.node in state.participants
        if state.closed:
            return Action.ERROR_CLOSED
        if member and state.complete:
            return Action.FINISH
        if self._is_late(deadline):
            return self._too_late(at, deadline)
        if not state.complete and not member:
            return Action.ADD_TO_PARTICIPANTS
        if state.complete and len(state.participants) < at.settings.max_nodes and at.node not in state.wait_list:
            return Action.ADD_TO_WAIT_LIST
        if member and len(state.participants) >= at.settings.min_nodes and self._is_last_call_over(state):
            return Action.MARK_RENDEZVOUS_COMPLETE
        return Action.KEEP_ALIVE if self._is_beat_due(at) else Action.SYNC

    def _is_last_call_over(self, state: State) -> bool:
        """As in the article, the deadline is compared even if it is None, which raises TypeError."""
        return state.deadline < self._clock.now()  # type: ignore[operator]

    def _too_late(self, at: Context, deadline: float) -> Action:
        """Take the join back, if there is time for that."""
        if self._clock.monotonic() <= deadline + ROLLBACK_SECONDS:
            if at.node in at.state.participants:
                return Action.REMOVE_FROM_PARTICIPANTS
            if at.node in at.state.wait_list:
                return Action.REMOVE_FROM_WAIT_LIST
        return Action.ERROR_TIMEOUT


# ---- the holder of a copy


def after_a_removal(state: State, settings: Settings) -> None:
    """An empty round is replaced. An incomplete round that has fallen below min loses its last call (4.2)."""
    if not state.complete:
        if len(state.participants) < settings.min_nodes:
            state.deadline = None
    elif not state.participants:
        state.complete = False
        state.round += 1


class Backend:
    """The shared state in a store; the token of a state is its text there (2.2.3.2: back-end)."""

    def __init__(self, store: Store) -> None:
        self._store = store
        store.compare_set(KEY, "", NOTHING)

    def get_state(self) -> tuple[bytes, bytes] | None:
        """The state and its token, or None before the first."""
        return self._decoded(self._store.get(KEY))

    def set_state(self, bits: bytes, token: bytes | None) -> tuple[bytes, bytes, bool] | None:
        """Write the state if the store still holds `token`. Returns the state in the store, its token, and who won.

        The write counts as won if the store holds the same bytes: another node's write of an equal state counts too.
        """
        text = b64encode(bits).decode()
        found = self._decoded(self._store.compare_set(KEY, token.decode() if token else NOTHING, text))
        return None if found is None else (*found, found[0] == bits)

    def _decoded(self, text: bytes) -> tuple[bytes, bytes] | None:
        return None if text == NOTHING.encode() else (b64decode(text), text)


class StateHolder:
    """A node's copy of the shared state (2.2.3.2)."""

    def __init__(self, backend: Backend, settings: Settings, clock: Clock, pause: Callable[[str], None]) -> None:
        self._backend, self._settings, self._clock, self._pause = backend, settings, clock, pause
        self.state = State()
        self.token: bytes | None = None
        self.dirty = False
        self.synced_at = -1.0  # monotonic; below 0: never

    def sync(self) -> bool | None:
        """Write a dirty copy, or read the state. Returns whether the write was won, or None after a read."""
        won: bool | None = None
        found: tuple[bytes, bytes] | None
        if self.dirty:
            self._pause("set")
            answer = self._backend.set_state(pickle.dumps(self.state), self.token)
            won = answer is not None and answer[2]
            found = answer[:2] if answer else None
        else:
            if self.synced_at >= max(self._clock.monotonic() - CACHE_SECONDS, 0):
                return None
            self._pause("get")
            found = self._backend.get_state()
        try:
            self.state = pickle.loads(found[0]) if found else State()
        except pickle.PickleError as error:
            raise StateError from error
        self.token = found[1] if found else None
        self.dirty = False
        self.synced_at = self._clock.monotonic()
        self._drop_the_dead()
        return won

    def _drop_the_dead(self) -> None:
        state, settings = self.state, self._settings
        oldest = self._clock.now() - settings.keep_alive_interval * settings.keep_alive_max_attempt
        dead = {node for node, stamp in state.last_heartbeats.items() if stamp < oldest}
        lost_one = not dead.isdisjoint(state.participants)
        for node in dead:
            del state.last_heartbeats[node]
            state.participants.pop(node, None)
        state.wait_list -= dead
        if lost_one:
            after_a_removal(state, settings)


# ---- the executor


class Executor:
    """Runs one operation after the other for a node (2.2.1)."""

    def __init__(
        self, node: Node, holder: StateHolder, settings: Settings, clock: Clock,
        delay: Callable[[float], None], pause: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._node, self._holder, self._settings, self._clock = node, holder, settings, clock
        self._delay, self._pause = delay, pause
        self._changes: dict[Action, Callable[[State], None]] = {
            Action.KEEP_ALIVE: self._keep_alive,
            Action.ADD_TO_PARTICIPANTS: self._add_to_participants,
            Action.ADD_TO_WAIT_LIST: self._add_to_wait_list,
            Action.REMOVE_FROM_PARTICIPANTS: self._remove_from_participants,
            Action.REMOVE_FROM_WAIT_LIST: self._remove_from_wait_list,
            Action.MARK_RENDEZVOUS_COMPLETE: self._mark_complete,
            Action.MARK_RENDEZVOUS_CLOSED: self._mark_closed,
        }

    def run(self, operator: Callable[[Context, float], Action], deadline: float) -> None:
        """Run an operation until it ends; `deadline` is monotonic.

        Raises:
            ClosedError: the operator decides ERROR_CLOSED.
            LateError: the operator decides ERROR_TIMEOUT.
        """
        while True:
            self._holder.sync()
            state = self._holder.state
            self._pause("decide")
            action = operator(Context(self._node, state, self._settings), deadline)
            if action is Action.FINISH:
                return
            if action is Action.ERROR_CLOSED:
                raise ClosedError
            if action is Action.ERROR_TIMEOUT:
                raise LateError
            if action is Action.SYNC:
                self._delay(POLL_SECONDS)
            else:
                self._pause("act")
                self._changes[action](state)
                self._holder.dirty = True

    def _keep_alive(self, state: State) -> None:
        """4.6."""
        state.last_heartbeats[self._node] = self._clock.now()

    def _add_to_participants(self, state: State) -> None:
        """4.1."""
        state.wait_list.discard(self._node)
        state.participants[self._node] = 0
        self._keep_alive(state)
        if len(state.participants) == self._settings.min_nodes:
            state.deadline = self._clock.now() + self._settings.last_call
        if len(state.participants) == self._settings.max_nodes:
            self._mark_complete(state)

    def _remove_from_participants(self, state: State) -> None:
        """4.2."""
        del state.participants[self._node]
        del state.last_heartbeats[self._node]
        after_a_removal(state, self._settings)

    def _add_to_wait_list(self, state: State) -> None:
        """4.3."""
        state.wait_list.add(self._node)
        self._keep_alive(state)

    def _remove_from_wait_list(self, state: State) -> None:
        """4.4."""
        state.wait_list.remove(self._node)
        del state.last_heartbeats[self._node]

    def _mark_complete(self, state: State) -> None:
        """4.5."""
        state.complete, state.deadline = True, None
        state.participants.update((node, rank) for rank, node in enumerate(sorted(state.participants)))

    def _mark_closed(self, state: State) -> None:
        """4.5."""
        state.closed = True


# ---- the calls of a node


@dataclass(frozen=True)
class Seconds:
    """The time limits of the calls, in seconds."""

    join: float  # also for its exit
    close: float
    heartbeat: float


class Lock(Protocol):
    """The heartbeat lock."""

    def __enter__(self) -> None:
        """Wait until no call has the lock, and take it."""

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        """Release the lock, also after an error."""


class Timer(Protocol):
    """The thread that calls `keep_alive` once an interval."""

    def start(self) -> None:
        """Start the thread."""

    def cancel(self) -> None:
        """End the thread after its current call."""


class Handler:
    """The calls of an agent, and of the thread that beats (2.2.2, 3.2.1.2, elastic-node-change 2.3.1).

    The article prints no caller of `_close`: `set_closed` and `shutdown` are as in torch 1.10.
    """

    def __init__(
        self, holder: StateHolder, executor: Executor, clock: Clock, seconds: Seconds, lock: Lock, timer: Timer
    ) -> None:
        self.holder, self.executor = holder, executor
        self._clock, self._seconds, self._lock, self._timer = clock, seconds, lock, timer

    def next_rendezvous(self) -> None:
        """Leave the round, and join the next; both have the deadline of a join."""
        self._timer.cancel()
        deadline = self._clock.monotonic() + self._seconds.join
        self.executor.run(Exit(self._clock), deadline)
        self.executor.run(Join(self._clock), deadline)
        self._timer.start()

    def num_nodes_waiting(self) -> int:
        """The number of nodes on the wait list."""
        with self._lock:
            self.holder.sync()
            return len(self.holder.state.wait_list)

    def set_closed(self) -> None:
        """Close the rendezvous while the timer runs."""
        with self._lock:
            self._close()

    def shutdown(self) -> bool:
        """Close the rendezvous. Returns whether that succeeded."""
        self._timer.cancel()
        try:
            self._close()
        except RendezvousError:
            return False
        return True

    def keep_alive(self) -> None:
        """Write a heartbeat if it is due. An error of the rendezvous is only recorded."""
        with self._lock:
            deadline = self._clock.monotonic() + self._seconds.heartbeat
            with suppress(RendezvousError):
                self.executor.run(KeepAlive(self._clock), deadline)

    def _close(self) -> None:
        self.executor.run(Close(self._clock), self._clock.monotonic() + self._seconds.close)


OPERATORS: dict[str, Callable[[Clock], Any]] = {"join": Join, "exit": Exit, "close": Close, "keep-alive": KeepAlive}
