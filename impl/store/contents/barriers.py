"""Barriers by arrival: released exactly when as many have arrived as the first of them said, each once.

Theory of operation. The first arrival at a key begins a barrier, and fixes its `world_size`. A later arrival with
another one is refused, and changes nothing. The last arrival removes the barrier, and calls `released` of all in the
order in which they came. An arrival whose time is over, or whose connection is gone, is withdrawn. Called under the
lock of the store, or on the server's one thread.

Rule: a barrier is in the table while somebody has arrived and not all have; released or left by all, it is fresh.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from trystate.model.store.vocabulary import Status

from ..wire import shown
from .contents import Refused


class Arrival(ABC):
    """One participant's place in a barrier, known by its token if it may come again, else by this object."""

    __slots__ = ("key", "token")

    def __init__(self, key: bytes, token: bytes = b"") -> None:
        self.key = key
        self.token = token

    @abstractmethod
    def released(self) -> None:
        """All have arrived; the arrival is in no table any more."""


class Barrier:
    """The arrivals at a barrier, in their order."""

    __slots__ = ("arrivals", "world_size")

    def __init__(self, world_size: int) -> None:
        self.world_size = world_size
        self.arrivals: dict[bytes | Arrival, Arrival] = {}  # by token


class Barriers:
    """The barriers that are incomplete. They are no keys: no other request sees or moves them."""

    __slots__ = ("table",)

    def __init__(self) -> None:
        self.table: dict[bytes, Barrier] = {}

    def arrived_with(self, key: bytes, token: bytes) -> Arrival | None:
        """The arrival of a token that is not released yet."""
        barrier = self.table.get(key)
        return barrier.arrivals.get(token) if barrier is not None else None

    def arrive(self, arrival: Arrival, world_size: int) -> None:
        """Count an arrival, and release all if it was the last. Raises `Refused` if `world_size` disagrees."""
        key = arrival.key
        if world_size < 1:
            reason = f"the barrier {shown(key)} is of {world_size}: give the number of those who will arrive"
            raise Refused(Status.WRONG_WORLD, reason)
        barrier = self.table.get(key)
        if barrier is None:
            barrier = self.table[key] = Barrier(world_size)
        elif barrier.world_size != world_size:
            reason = (
                f"the barrier {shown(key)} is of {barrier.world_size}, as its first arrival said, not of {world_size}: "
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
