"""Workers that meet: each gives a value and gets those of all. `calls.all_gather` and `calls.barrier` are made of it.

Theory of operation. Of the workers that meet, the one with the least name leads. Each member sends the leader its value
in one call, GATHER, which the leader answers to all members when the last of them has come: no thread waits there, and
a member needs one round trip. The leader keeps the *rounds* of the same workers in order: a value goes to the first
round that has none of this member yet. So members need no numbers of rounds, and several threads of one may meet at the
same time.

A member whose time is over takes its value back by LEAVE, and is told who had not come; it may come again. A round is
over for all of its members when one of them is lost.

Rule: `Gatherings` is the leader's table, and does no I/O.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any

from torch.futures import Future

from .errors import PeerLost, RpcError

Ranks = tuple[int, ...]
GATHER, LEAVE = ":gather", ":leave"  # functions that each worker has for those that it leads
LEAVE_SECONDS = 1.0  # at most, after the end of a member's time, to ask who has not come


class _Round:
    """The values that have come: by rank, with the number that its member gave to the call."""

    def __init__(self) -> None:
        self.come: dict[int, tuple[int, Any]] = {}
        self.all_there: Future[Any] = Future()  # set to the values by rank


class Gatherings:
    """The rounds that one worker leads, which are not complete.

    Args:
        loss: why the worker of a rank is lost, or None.
    """

    def __init__(self, loss: Callable[[int], str | None]) -> None:
        self._loss = loss
        self._lock = threading.Lock()
        self._rounds: dict[Ranks, list[_Round]] = {}

    def come(self, ranks: Ranks, member: int, number: int, value: Any) -> Future[Any]:
        """A member comes with a value. The result is set when all have: the values by rank.

        Raises PeerLost if one of them is lost, and RpcError if the caller is none of them.
        """
        if member not in ranks:
            raise RpcError(
                f"worker {member} is none of the workers {ranks} that it would meet: have it name itself too"
            )
        for lost in filter(None, map(self._loss, ranks)):
            raise PeerLost(f"the workers {ranks} cannot meet: {lost}")
        with self._lock:
            rounds = self._rounds.setdefault(ranks, [])
            found = next((each for each in rounds if member not in each.come), None)
            if found is None:
                rounds.append(found := _Round())
            found.come[member] = number, value
            if complete := len(found.come) == len(ranks):
                self._drop(ranks, found)
        if complete:
            found.all_there.set_result({rank: found.come[rank][1] for rank in ranks})
        return found.all_there

    def leave(self, ranks: Ranks, member: int, number: int) -> list[int]:
        """A member's time is over: who had not come to its round. None, if it is complete or there is none."""
        with self._lock:
            for each in self._rounds.get(ranks, ()):
                if each.come.get(member, (None,))[0] == number:
                    del each.come[member]
                    if not each.come:
                        self._drop(ranks, each)
                    return [rank for rank in ranks if rank not in each.come and rank != member]
        return []

    def lost(self, peer: int, reason: str) -> None:
        """A worker is lost: the rounds with it are over."""
        with self._lock:
            gone = [(ranks, each) for ranks, rounds in self._rounds.items() if peer in ranks for each in rounds]
            for ranks, each in gone:
                self._drop(ranks, each)
        for ranks, each in gone:
            each.all_there.set_exception(PeerLost(f"the workers {ranks} cannot meet: {reason}"))

    def open(self) -> Mapping[Ranks, Collection[int]]:
        """How many have come to each round, by its workers."""
        with self._lock:
            return {ranks: [len(each.come) for each in rounds] for ranks, rounds in self._rounds.items()}

    def _drop(self, ranks: Ranks, gone: _Round) -> None:
        rounds = self._rounds[ranks]
        rounds.remove(gone)
        if not rounds:
            del self._rounds[ranks]
