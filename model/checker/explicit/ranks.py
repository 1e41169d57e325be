"""The ranks that share one search: processes of one machine or of several, each of which holds a part of the states.

*Theory of operation.* Every rank runs the same program on the same system. A state belongs to one rank, its owner,
which a hash of its words names (`owners`). The ranks meet in two ways only, and all of them at the same places of the
program: each tells all others a small note (`told`), and each sends every other the states that belong there
(`swapped`). `Ranks` is what an engine asks for; `trystate/search/ranks.py` has it over torch.distributed. This module
has no thread, clock or socket.

A note begins with its place in the program: so ranks that are not at the same place are found before they misread each
other's numbers.
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

RANKS_MAX = 4096  # an owner is an int16, and each rank has a piece of each other's states in memory

# Odd constants of SplitMix64 (Steele, Lea and Flood 2014): every bit of the words changes half of the hash's bits.
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))
_HALF = np.uint64(32)


class RankLost(LimitReached):
    """Another rank is gone, or gives no answer in time: the states that it held are lost with it."""


class Ranks(Protocol):
    """The group, as one of its ranks sees it. Both methods return only when every rank has called them."""

    rank: int
    count: int

    def told(self, note: Any) -> list[Any]:
        """The note of each rank, by rank; a note is a value that JSON has.

        Raises:
            RankLost: another rank is gone, or gave no answer in time.
        """

    def swapped(self, parts: Sequence[Keys]) -> Iterator[Keys]:
        """The keys that each rank has for this one, its own too, in pieces of limited size; sorted parts stay sorted.

        Args:
            parts: by rank, the keys for it.

        Raises:
            RankLost: another rank is gone, or gave no answer in time.
        """

    def stop_reason(self) -> str:
        """Why the search should end now, as a signal says; empty to go on."""


class PartStorage(Storage):
    """The storage of one rank. Those of all ranks together are a checkpoint, for a group of any size to go on from."""

    @property
    @abstractmethod
    def earlier(self) -> Sequence[Saved]:
        """After `begin`: of a checkpoint of another number of ranks, the parts that this rank is to share out."""

    @abstractmethod
    def commit(self) -> None:
        """All ranks have saved: this is the checkpoint from now on. The first rank is asked.

        Raises:
            StorageFailed: there is no room.
        """

    @abstractmethod
    def forget(self) -> None:
        """Let go of `earlier`, and of its files. Every rank is asked, after `commit`."""


def owners(layout: Layout, keys: Keys, count: int) -> NDArray[np.int16]:
    """The rank that each state belongs to: the same on every machine, and of each rank about as many."""
    mixed = np.zeros(len(keys), np.uint64)
    for column in layout.columns(keys):
        mixed ^= column.view(np.uint64)
        for shift, factor in zip(_SHIFTS, _MIX, strict=False):
            mixed ^= mixed >> shift
            mixed *= factor
        mixed ^= mixed >> _SHIFTS[-1]
    return (((mixed >> _HALF) * np.uint64(count)) >> _HALF).astype(np.int16)


def parted(layout: Layout, keys: Keys, count: int) -> list[Keys]:
    """Sorted keys by their owners; those of each owner stay sorted."""
    if count == 1:
        return [keys]
    of = owners(layout, keys, count)
    ends = np.cumsum(np.bincount(of, minlength=count))[:-1]
    return np.split(keys[np.argsort(of, kind="stable")], ends)
