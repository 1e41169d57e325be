"""Workers that meet: each gives a value and gets the values of all. `calls.all_gather` and `calls.barrier` use it.

Theory of operation. The worker with the smallest name leads the workers that meet. Each member sends the leader its
value in one call, GATHER, which the leader answers to all members when the last of them has come. No thread waits at
the leader, and a member needs one round trip. The leader keeps the *rounds* of the same workers in order: a value goes
to the first round without a value of this member. So members need no numbers of rounds, and several threads of a
member may meet at the same time.

A member whose time is over takes its value back by LEAVE, and the answer names the members that had not come. It may
come again. A round is over for all its members when one of them is lost.

Rule: `Gatherings` is the leader's table, and does no I/O.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from torch.futures import Future

from .errors import PeerLost, RpcError

Ranks = tuple[int, ...]
GATHER, LEAVE = ":gather", ":leave"  # functions that each worker has for the workers that it leads
LEAVE_SECONDS = 1.0  # the longest wait for the answer to LEAVE, after a member's own time is over


class _Round:
    """The values that have come, by rank, each with its member's number of the call."""

    def __init__(self) -> None:
        self.come: dict[int, tuple[int, Any]] = {}
        self.all_there: Future[Any] = Future()  # set to the values by rank


class Gatherings:
    """The rounds that one worker leads, which are not complete.

    Args:
        loss: returns why the worker of a rank is lost, or None.
    """

    def __init__(self, loss: Callable[[int], str | None]) -> None:
        self._loss = loss
        self._lock = threading.Lock()
        self._rounds: dict[Ranks, list[_Round]] = {}

    def come(self, ranks: Ranks, member: int, number: int, value: Any) -> Future[Any]:
        """Add a member's value. The result is set to all values, by rank, when all members have come.

        Raises PeerLost if one of them is lost, and RpcError if the caller is not one of them.
        """
        if member not in ranks:
            raise RpcError(
                f"worker {member} is not one of the workers {ranks} that it would meet: have it name itself too"
            )
        with self._lock:  # `lost`, which takes it too, is called after a loss is known
            for lost in filter(None, map(self._loss, ranks)):
                raise PeerLost(f"the workers {ranks} cannot meet: {lost}")
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
        """Take a member's value back. Returns the ranks that had not come; none if the round is complete or unknown."""
        with self._lock:
            for each in self._rounds.get(ranks, ()):
                if each.come.get(member, (None,))[0] == number:
                    del each.come[member]
                    if not each.come:
                        self._drop(ranks, each)
                    return [rank for rank in ranks if rank not in each.come and rank != member]
        return []

    def lost(self, peer: int, reason: str) -> None:
        """End the rounds with a worker that is lost."""
        with self._lock:
            gone = [(ranks, each) for ranks, rounds in self._rounds.items() if peer in ranks for each in rounds]
            for ranks, each in gone:
                self._drop(ranks, each)
        for ranks, each in gone:
            each.all_there.set_exception(PeerLost(f"the workers {ranks} cannot meet: {reason}"))

    def _drop(self, ranks: Ranks, gone: _Round) -> None:
        rounds = self._rounds[ranks]
        rounds.remove(gone)
        if not rounds:
            del self._rounds[ranks]
