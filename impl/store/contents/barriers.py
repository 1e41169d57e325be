"""Barriers that count arrivals: a barrier is released exactly when `world_size` callers have arrived, each once.

Theory of operation. The first arrival at a key creates a barrier and fixes its `world_size`. A later arrival with
another `world_size` is refused and changes nothing. The last arrival removes the barrier and calls `released` of all
arrivals in their order. An arrival is withdrawn when its time is over or its connection has ended. The methods are
called under the lock of the store, or on the server's only thread.

Rule: a barrier is in the table while at least one caller has arrived and not all have. After its release, or after all
arrivals were withdrawn, the next arrival creates a new one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from trystate.model.store.vocabulary import Status

from ..wire import shown
from .contents import Refused


class Arrival(ABC):
    """One participant's arrival at a barrier, identified by its token if it may arrive again, else by this object."""

    __slots__ = ("key", "token")

    def __init__(self, key: bytes, token: bytes = b"") -> None:
        self.key = key
        self.token = token

    @abstractmethod
    def released(self) -> None:
        """All have arrived. The arrival is in no table any more."""


class Barrier:
    """The arrivals at a barrier, in their order."""

    __slots__ = ("arrivals", "world_size")

    def __init__(self, world_size: int) -> None:
        self.world_size = world_size
        self.arrivals: dict[bytes | Arrival, Arrival] = {}  # token -> arrival


class Barriers:
    """The barriers that are incomplete. They are not keys: no other request sees or changes them."""

    __slots__ = ("table",)

    def __init__(self) -> None:
        self.table: dict[bytes, Barrier] = {}

    def arrived_with(self, key: bytes, token: bytes) -> Arrival | None:
        """The unreleased arrival with a token; None if no such arrival exists."""
        barrier = self.table.get(key)
        return barrier.arrivals.get(token) if barrier is not None else None

    def arrive(self, arrival: Arrival, world_size: int) -> None:
        """Count an arrival, and release all arrivals if it is the last. Raises `Refused` if `world_size` differs."""
        key = arrival.key
        if world_size < 1:
            reason = f"the barrier {shown(key)} has world_size {world_size}: give the number of callers, at least 1"
            raise Refused(Status.WRONG_WORLD, reason)
        barrier = self.table.get(key)
        if barrier is None:
            barrier = self.table[key] = Barrier(world_size)
        elif barrier.world_size != world_size:
            reason = (
                f"the barrier {shown(key)} has world_size {barrier.world_size} by its first arrival, not {world_size}: "
                "give the same world_size everywhere, or another key"
            )
            raise Refused(Status.WRONG_WORLD, reason)
        assert arrival.token not in barrier.arrivals  # it was withdrawn before
        barrier.arrivals[arrival.token or arrival] = arrival
        if len(barrier.arrivals) == world_size:
            del self.table[key]
            for each in barrier.arrivals.values():
                each.released()

    def withdraw(self, arrival: Arrival) -> None:
        """Take an arrival back: it was not released."""
        barrier = self.table[arrival.key]
        del barrier.arrivals[arrival.token or arrival]
        if not barrier.arrivals:
            del self.table[arrival.key]
