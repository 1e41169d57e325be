"""The ranks that share one search: processes on one machine or several, each with a part of the states.

*Theory of operation.* Every rank runs the same program on the same system. Each state has one owner, a rank that a hash
of the state's words determines (`owners`). The ranks communicate in only two ways, and all ranks do so at the same
places in the program. Each rank sends a small note to all others (`told`). Each rank sends every state to the owner of
the state (`swapped`). `Ranks` is the interface for an engine. `trystate/search/ranks.py` implements it with
torch.distributed. This module has no thread, clock or socket.

A note begins with its place in the program. So ranks at different places are detected before a rank misreads the
numbers of another.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...errors import LimitReached
from .packing import Keys, Layout
from .storage import Saved, Storage

RANKS_MAX = 4096  # an owner is an int16, and each rank has a piece of each other rank's states in memory

# Odd constants of SplitMix64 (Steele, Lea and Flood 2014): every bit of the words changes half of the hash's bits.
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))
_HALF = np.uint64(32)


class RankLost(LimitReached):
    """Another rank has ended or does not answer in time: the states that it held are lost."""


class Ranks(Protocol):
    """The group, seen from one rank. `told` and `swapped` return only when every rank has called them."""

    rank: int
    count: int

    def told(self, note: Any) -> list[Any]:
        """Send this rank's note to all; returns the notes of all ranks, by rank. A note is a value that JSON has.

        Raises:
            RankLost: another rank has ended or did not answer in time.
        """

    def swapped(self, parts: Sequence[Keys]) -> Iterator[Keys]:
        """The keys that each rank, including this one, has for this rank, in pieces of limited size.

        Sorted parts stay sorted.

        Args:
            parts: by rank, the keys for it.

        Raises:
            RankLost: another rank has ended or did not answer in time.
        """

    def stop_reason(self) -> str:
        """Why the search should end now, for example because of a signal; empty to continue."""


class PartStorage(Storage):
    """The storage of one rank. The storages of all ranks form a checkpoint, which a group of any size can resume."""

    @property
    @abstractmethod
    def earlier(self) -> Sequence[Saved]:
        """The parts that this rank must share out, after `begin`, from a checkpoint of another number of ranks."""

    @abstractmethod
    def commit(self) -> None:
        """Make this the checkpoint from now on: all ranks have saved. Only the first rank calls it.

        Raises:
            StorageFailed: there is no room.
        """

    @abstractmethod
    def forget(self) -> None:
        """Drop `earlier` and delete its files. Every rank calls it, after `commit`."""


def owners(layout: Layout, keys: Keys, count: int) -> NDArray[np.int16]:
    """The rank that owns each state: the same on every machine, with about the same number of states for each rank."""
    mixed = np.zeros(len(keys), np.uint64)
    for column in layout.columns(keys):
        mixed ^= column.view(np.uint64)
        for shift, factor in zip(_SHIFTS, _MIX, strict=False):
            mixed ^= mixed >> shift
            mixed *= factor
        mixed ^= mixed >> _SHIFTS[-1]
    return (((mixed >> _HALF) * np.uint64(count)) >> _HALF).astype(np.int16)


def parted(layout: Layout, keys: Keys, count: int) -> list[Keys]:
    """Sorted keys split by owner; the keys of each owner stay sorted."""
    if count == 1:
        return [keys]
    of = owners(layout, keys, count)
    ends = np.cumsum(np.bincount(of, minlength=count))[:-1]
    return np.split(keys[np.argsort(of, kind="stable")], ends)
