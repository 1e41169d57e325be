"""An operator's actions in a rendezvous, from a process that is not a node: close it, drain a node, and wait.

Rule: an outsider is not listed and sends no heartbeat. It sends a request to the room of the job, or its writes use the
same engine and the same compare-and-set as a node's.
"""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import socket
import time
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Self, TypeVar

from trystate.model.errors import TrystateError, UsageError
from trystate.model.rendezvous.vocabulary import Action

from .driver import run
from .encoding import TEXT_LENGTH_MAX, encode_settings
from .engine import Effect, Engine, Seen, Sync, look
from .errors import RendezvousConnectionError, RendezvousStateError
from .jobs import OURS, keys
from .notifier import has_room
from .observer import Counter
from .rooms.messages import ANYWAY, CLOSE, DRAIN, Intent, read_summary
from .state import REASON_LENGTH_MAX, Node, Participant, State, named
from .state_holder import StateHolder
from .store_backend import StoreBackend, unreachable

T = TypeVar("T")
WRITE_SECONDS = 10.0  # limit of a write, for a slow store or many concurrent writers
OUTAGE_SECONDS_MAX = 2.0
LOOK_SECONDS = 1.0  # reading interval without notifications


class Outsider:
    """A command's access to the shared state of a running job, on a store that the caller closes."""

    def __init__(self, store: Any, job: str) -> None:
        """Raises RendezvousStateError: the store has no state of this job, or one of another version."""
        self._holder = StateHolder(StoreBackend(store, job))
        self._store, self._job = store, job
        self._states: deque[State] = deque(maxlen=2)  # the last two that were read
        try:
            state = self._run(look())
        except BaseException:
            self._holder.close()
            raise
        if state is None:
            self._holder.close()
            raise RendezvousStateError(f"the store has no state of the job {job!r}")
        self._began, self._written, self._counters = time.monotonic(), 0, dict[str, Counter]()
        self._room = has_room(store, keys(job)[OURS])
        # No node has this name: it is not listed, and its write is not a heartbeat.
        me = Participant(Node(socket.gethostname()[:TEXT_LENGTH_MAX], os.getpid(), 0, secrets.token_hex(8)), "", 0)
        self._engine = Engine(me, state.settings, draw=random.random, life=secrets.token_hex(16))

    @property
    def state(self) -> State:
        """The state as it was read last."""
        return self._states[-1]

    def close_rendezvous(self, reason: str) -> bool:
        """Close the rendezvous for all nodes; False: it was closed before. Raises RendezvousError."""
        settings = encode_settings(self.state.settings)
        return self._ask(Action.MARK_RENDEZVOUS_CLOSED, CLOSE, flags=ANYWAY, reason=reason[:REASON_LENGTH_MAX],
                         settings=settings)  # fmt: skip

    def drain(self, name: str, *, force: bool = False) -> tuple[Node, bool]:
        """Mark a node, which makes it leave; returns the node, and False if it was marked before.

        Args:
            name: a node as it is printed, or its host if only one node of the job runs there.
            force: also if fewer than min_nodes remain, or if workers have succeeded already.

        Raises:
            UsageError: no node or several have this name, or the job would not continue; the text gives the reason.
            RendezvousError: the store is away, or its value is not a state.
        """
        node = named_node(self.state, name)
        listed = self.state.find(node.token)
        self._written, self._counters = listed.written if listed is not None else 0, self._counted(node)
        marked = self._ask(Action.REPLACE_ROUND, DRAIN, flags=ANYWAY * force, whom=node.token)
        self._run(look())
        if not marked and node.token not in self.state.draining:
            end = self.state.closed
            why = f"the job was {end}" if end is not None else f"{node} has left by itself"
            raise UsageError(f"nothing was drained: {why}")
        return node, marked

    def wait(self, over: Callable[[State], bool], seconds: float) -> bool:
        """Follow the state until `over` holds; False: it did not hold within `seconds`.

        Raises:
            RendezvousConnectionError: the store is away, perhaps because the node that served it has ended.
        """
        pause = min(LOOK_SECONDS, self.state.settings.keep_alive_interval / 4)
        return self._run(_until(over, seconds, pause), seconds + WRITE_SECONDS)

    def was_expelled(self, node: Node) -> bool:
        """Whether other nodes took this node off the lists, after `wait` has seen that it is not listed.

        A node that leaves writes that itself. If another node has written since, the node was expelled if it has sent
        no heartbeat since `drain`, for an interval or longer.
        """
        if self.state.writer == node.token:
            return False
        before = self._states[0]
        if self.state.version == before.version + 1:
            return True
        last = before.find(node.token)
        silent = last is not None and (last.written, self._counted(node)) == (self._written, self._counters)
        return silent and time.monotonic() - self._began >= self.state.settings.keep_alive_interval

    def _ask(self, action: Action, kind: int, **fields: Any) -> bool:
        """Apply an intent; False: nothing was changed. Raises UsageError: a drain is refused."""
        node = self._engine.me.node
        intent = Intent(kind, node.token, by=node, **fields)
        if not self._room:
            return self._run(self._engine.perform(action, intent))
        try:
            answer = read_summary(self._store.ask_room(self._job, intent.encode()))
        except (TrystateError, OSError) as error:
            raise unreachable(error, self._store, self._job, "") from error
        if answer.why:
            raise UsageError(answer.why)
        return answer.applied

    def _counted(self, node: Node) -> dict[str, Counter]:
        with contextlib.suppress(RendezvousConnectionError):  # the store may end with the node that has left
            return self._holder.backend.counters([node.token])
        return {}

    def _run(self, steps: Generator[Effect, Seen, T], seconds: float = WRITE_SECONDS) -> T:
        return run(steps, self._holder, outage_seconds_max=OUTAGE_SECONDS_MAX, timeout_seconds=seconds, look=self._see)

    def _see(self, seen: Seen) -> None:
        if seen.state is not None and seen.state not in self._states:
            self._states.append(seen.state)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._holder.close()


def named_node(state: State, name: str) -> Node:
    """The listed node with this name, or the only one on this host. Raises UsageError, which names the nodes."""
    nodes = [p.node for p in state.listed()]
    found = [node for node in nodes if str(node) == name] or [node for node in nodes if node.address == name]
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(f"{name} has {len(found)} nodes of this job; give one of {named(found)}")
    there = f"its nodes are {named(nodes)}" if nodes else "it has no node"
    raise UsageError(f"the job has no node {name!r}: {there}")


def _until(over: Callable[[State], bool], seconds: float, pause: float) -> Generator[Effect, Seen, bool]:
    seen = yield Sync()
    ends = seen.now + seconds
    while True:
        if seen.state is None:
            raise RendezvousConnectionError("the store has come back empty: the job is over, or starts again")
        if over(seen.state):
            return True
        if seen.now >= ends:
            return False
        seen = yield Sync(min(pause, ends - seen.now), seen.state.revision)
