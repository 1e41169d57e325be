"""Nodes of either library beside one store: torch's handlers or ours on torch's own backend, which differ in no more.

Rule: a schedule holds, cuts and clocks both in the same places, and a claim is asked of both in the same words. A claim
that fails is an AssertionError; a schedule that did not come about is not.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Self

from trystate.impl.rendezvous.encoding import decode
from trystate.impl.rendezvous.handler import DynamicRendezvousHandler
from trystate.impl.rendezvous.state import State

from .clusters import (
    POLL_S,
    RUN_ID,
    WAIT_S_MAX,
    Call,
    Cluster,
    Node,
    Peek,
    Seat,
    Settings,
    disagree_on_master,
    disagree_on_world,
    replaced,
)

__all__ = ["RUN_ID", "Call", "Cluster", "Node", "Settings", "agreed", "claim", "cluster_of", "happens", "limit",
           "outage", "patience", "seats"]  # fmt: skip


DELAY = 0.2  # seconds for one of torch's: its handlers look five times as often, which can only help them


class TorchNode(Node):
    """One of torch's, which takes what it has read for new for a shorter time."""

    def _handler(self, store: Any, number: int) -> Any:
        made = super()._handler(store, number)
        made._state_holder._cache_duration = DELAY  # type: ignore[attr-defined]
        return made


class TorchCluster(Cluster):
    """torch's, with shorter pauses."""

    kind = TorchNode

    def __enter__(self) -> Self:
        super().__enter__()
        self._undo.enter_context(replaced("_delay", _delay))
        return self


def _delay(seconds: float | tuple[float, float]) -> None:
    time.sleep(DELAY * (random.uniform(*seconds) if isinstance(seconds, tuple) else seconds))


class OurNode(Node):
    """One of ours. It is in one process with others, which is hidden: it can die, and its threads have its name."""

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
        ours: Any = self.handler
        return ours._part

    def _descriptor(self) -> Any:
        return self._part.engine.me.node

    def _round(self) -> int:
        number: int = self._part.joined.state.round
        return number

    def _next_rendezvous(self) -> Seat:
        seat = super()._next_rendezvous()
        # The name of a thread tells which node asks for the wall clock; torch's thread has its name from the beginning.
        self._part.keep_alive._thread.name = threading.current_thread().name
        return seat

    @property
    def alive(self) -> bool:
        beating = self._part.keep_alive
        return beating is not None and beating._thread.is_alive()

    def die(self) -> None:
        self.backend.kill()
        self._part.listed = False  # the dead do not leave
        ours: Any = self.handler
        ours.leave()

    def release(self) -> None:
        self.die()
        super().release()


class OurCluster(Cluster):
    """Ours beside torch's store."""

    kind = OurNode

    def peek(self) -> Peek:
        raw = self.raw()
        state = decode(raw) if raw else None
        names = {node.descriptor: node.name for node in self._nodes}
        lists = {name: [names[p.node] for p in _list(state, name)] for name in ("participants", "waiting", "spares")}
        return Peek(
            state.round if state else 0, bool(state and state.complete), bool(state and state.closed),
            bool(state and state.calling), {name: rank for rank, name in enumerate(lists["participants"])},
            frozenset(lists["waiting"]), frozenset(lists["spares"]),
            {name: datetime.now(UTC) for listed in lists.values() for name in listed},
        )  # fmt: skip

    def shift_clock(self, node: Node, seconds: float) -> None:
        """The wall clock of every module that this one node runs in."""
        first = self._clocks is None
        super().shift_clock(node, seconds)
        if first and self._clocks is not None:
            self._undo.enter_context(_wall_clocks(self._clocks))


def _list(state: State | None, name: str) -> Any:
    return getattr(state, name) if state is not None else ()


@contextmanager
def _wall_clocks(offsets: Mapping[str, Any]) -> Iterator[None]:
    true = time.time

    def shown() -> float:
        node = threading.current_thread().name.rpartition("_")[2]
        return true() + (offsets[node].total_seconds() if node in offsets else 0.0)

    time.time = shown
    try:
        yield
    finally:
        time.time = true


def cluster_of(library: str, *, share_store: bool = True) -> Cluster:
    """An empty cluster of "torch" or "trystate"."""
    return (TorchCluster if library == "torch" else OurCluster)(print, share_store=share_store)


def happens(holds: Callable[[], object], within_s: float = WAIT_S_MAX) -> bool:
    """Whether it holds at last."""
    ends = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > ends:
            return False
        time.sleep(POLL_S)
    return True


def limit(library: str, ours_s: float) -> float:
    """Seconds to wait for what must not happen: in torch's, where it does, as long as it takes."""
    return ours_s if library == "trystate" else WAIT_S_MAX


def patience(library: str, torchs_s: float) -> float:
    """Seconds to wait for what must happen: torch's, where it does not, are not waited for so long."""
    return torchs_s if library == "torch" else WAIT_S_MAX


def claim(what: str, holds: Callable[[], object], within_s: float = WAIT_S_MAX) -> None:
    """It must hold at last."""
    assert happens(holds, within_s), f"not within {within_s:g} s: {what}"


def seats(*calls: Call[Seat], within_s: float = WAIT_S_MAX) -> list[Seat]:
    """The seats that these calls of next_rendezvous must return."""
    claim("a round for each of them", lambda: not any(call.running for call in calls), within_s)
    errors = [repr(call.error) for call in calls if call.error is not None]
    assert not errors, errors
    return [call.value() for call in calls]


def agreed(found: list[Seat], size: int) -> None:
    """They are the members of one round, of that size, and know the same master."""
    assert not disagree_on_world(found), found
    assert not disagree_on_master(found), found
    assert len({seat.round for seat in found}) == 1, found
    assert {seat.world for seat in found} == {size}, found


@contextmanager
def outage(*nodes: Node) -> Iterator[None]:
    """These nodes do not reach the store in here."""
    with contextlib.ExitStack() as stack:
        for node in nodes:
            stack.enter_context(node.backend.cut())
        yield
