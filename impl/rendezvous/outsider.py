"""An operator's actions in a rendezvous, from a process that is not a node: close it, drain a node, and wait.

Rule: an outsider is not listed and writes no heartbeat. Its writes use the same engine and the same compare-and-set as
a node's.
"""

from __future__ import annotations

import os
import random
import secrets
import socket
import time
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Self, TypeVar

from trystate.model.errors import UsageError

from .driver import run
from .encoding import TEXT_LENGTH_MAX
from .engine import Effect, Engine, Seen, Sync, look
from .errors import RendezvousConnectionError, RendezvousStateError
from .state import Node, Participant, State, named
from .state_holder import StateHolder
from .store_backend import StoreBackend

T = TypeVar("T")
WRITE_SECONDS = 10.0  # limit of a write, for a slow store or many concurrent writers
OUTAGE_SECONDS_MAX = 2.0
LOOK_SECONDS = 1.0  # reading interval without notifications


class Outsider:
    """A command's access to the shared state of a running job, on a store that the caller closes."""

    def __init__(self, store: Any, job: str) -> None:
        """Raises RendezvousStateError: the store has no state of this job, or one of another version."""
        self._holder = StateHolder(StoreBackend(store, job))
        self._states: deque[State] = deque(maxlen=2)  # the last two that were read
        try:
            state = self._run(look())
        except BaseException:
            self._holder.close()
            raise
        if state is None:
            self._holder.close()
            raise RendezvousStateError(f"the store has no state of the job {job!r}")
        self._began, self._beats = time.monotonic(), {p.node.token: p.beats for p in state.listed()}
        # No node has this name: it is not listed, and its writes increment no heartbeat.
        me = Participant(Node(socket.gethostname()[:TEXT_LENGTH_MAX], os.getpid(), 0, secrets.token_hex(8)), "", 0)
        self._engine = Engine(me, state.settings, draw=random.random, life=secrets.token_hex(16))

    @property
    def state(self) -> State:
        """The state as it was read last."""
        return self._states[-1]

    def close_rendezvous(self, reason: str) -> bool:
        """Close the rendezvous for all nodes; False: it was closed before. Raises RendezvousError."""
        return self._run(self._engine.close(reason, anyway=True))

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

        def judge(state: State) -> None:
            if not force:
                _refuse(state, node)

        marked = self._run(self._engine.drain(node.token, judge))
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
        return self._run(_until(over, seconds), seconds + WRITE_SECONDS)

    def was_expelled(self, node: Node) -> bool:
        """Whether other nodes took this node off the lists, after `wait` has seen that it is not listed.

        A node that leaves writes that itself. If another node has written since, the node was expelled if its heartbeat
        has not changed since the first read.
        """
        if self.state.writer == node.token:
            return False
        before = self._states[0]
        if self.state.version == before.version + 1:
            return True
        last = before.find(node.token)
        silent = last is not None and last.beats == self._beats.get(node.token)
        return silent and time.monotonic() - self._began >= self.state.settings.keep_alive_interval

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


def _refuse(state: State, node: Node) -> None:
    """Raises UsageError if the job would not continue without the node."""
    stay = [p for p in state.listed() if p.node.token not in (node.token, *state.draining)]
    low = state.settings.min_nodes
    if len(stay) < low:
        nodes = f"{len(stay)} node{'s' * (len(stay) != 1)}"
        raise UsageError(f"without {node} the job has {nodes}, fewer than min_nodes={low}; start another node "
                         "first, or give --force, and the others will wait for one")  # fmt: skip
    if state.done:
        nodes = f"{len(state.done)} node{'s' * (len(state.done) != 1)}"
        raise UsageError(f"the workers of {nodes} have succeeded, and a new round would run them "
                         "again; let the job end, or give --force")  # fmt: skip


def _until(over: Callable[[State], bool], seconds: float) -> Generator[Effect, Seen, bool]:
    seen = yield Sync()
    ends = seen.now + seconds
    while True:
        if seen.state is None:
            raise RendezvousConnectionError("the store has come back empty: the job is over, or starts again")
        if over(seen.state):
            return True
        if seen.now >= ends:
            return False
        seen = yield Sync(min(LOOK_SECONDS, ends - seen.now), seen.state.revision)
