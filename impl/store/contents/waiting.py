"""Waits for keys. A wait is satisfied when all its keys are present together, and not one by one.

Theory of operation. `begin` registers a wait that would not be satisfied now. Each change of a key calls `appeared` or
`vanished`, which update the missing keys of the crowds of that key. If a crowd misses no key, its waits are satisfied
in their order, until one of them takes the last element of the queue and the others miss it again. First come, first
served also holds among the crowds of one key. The methods are called under the lock of the store, or on the server's
only thread.

Rule: waits of one kind for the same keys form one crowd. A crowd is in the table under each of its keys until it is
empty, so the cost of a change depends on the number of crowds that name its key, not on the number of their waits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterable, Mapping


class Wait(ABC):
    """One blocked request. It waits until its keys are present: each has a value, or a queue with an element.

    `takes`: it takes an element from the queue of its only key. `reads`: it reads values, so a queue does not count.
    """

    __slots__ = ("keys",)
    takes = False
    reads = False

    def __init__(self, keys: Iterable[bytes]) -> None:
        self.keys = frozenset(keys)

    @abstractmethod
    def satisfied(self) -> None:
        """All keys are present now. The wait is in no table any more."""


class Crowd:
    """The waits for the same keys in their order, each with its number, and the keys that they miss."""

    __slots__ = ("keys", "missing", "reads", "takes", "waits")

    def __init__(self, like: Wait, missing: Iterable[bytes]) -> None:
        self.keys, self.takes, self.reads = like.keys, like.takes, like.reads
        self.missing = set(missing)
        self.waits: OrderedDict[Wait, int] = OrderedDict()  # wait -> its number, in order

    def first(self) -> int:
        """The number of the wait that came first."""
        return next(iter(self.waits.values()))


Kind = tuple[frozenset[bytes], bool, bool]  # common to the waits of one crowd


class Waiting:
    """The blocked waits of one store. First come, first served holds at every key."""

    __slots__ = ("crowds", "keys_waited", "number", "queues", "values", "waits")

    def __init__(self, values: Mapping[bytes, object], queues: Mapping[bytes, object]) -> None:
        self.values = values
        self.queues = queues
        self.crowds: dict[Kind, Crowd] = {}
        self.waits: dict[bytes, dict[Crowd, None]] = {}
        self.keys_waited = 0
        self.number = 0  # the number of the last wait

    def look(self, wait: Wait) -> bool:
        """Whether a wait would be satisfied now. Nothing is registered."""
        return not self._missing(wait)

    def begin(self, wait: Wait) -> None:
        """Register a wait that would not be satisfied now."""
        kind = (wait.keys, wait.takes, wait.reads)
        crowd = self.crowds.get(kind)
        if crowd is None:
            missing = wait.keys if len(wait.keys) == 1 else self._missing(wait)
            crowd = self.crowds[kind] = Crowd(wait, missing)
            for key in wait.keys:
                there = self.waits.get(key)
                if there is None:
                    self.waits[key] = {crowd: None}
                else:
                    there[crowd] = None
        wait.keys = crowd.keys  # one set for all waits of a crowd; the wait's own copy is dropped
        self.number += 1
        crowd.waits[wait] = self.number
        self.keys_waited += len(wait.keys)

    def withdraw(self, wait: Wait) -> None:
        """Forget a registered wait."""
        kind = (wait.keys, wait.takes, wait.reads)
        crowd = self.crowds[kind]
        del crowd.waits[wait]
        self.keys_waited -= len(wait.keys)
        if crowd.waits:
            return
        del self.crowds[kind]
        for key in crowd.keys:
            there = self.waits[key]
            del there[crowd]
            if not there:
                del self.waits[key]

    def appeared(self, key: bytes) -> None:
        """A key got a value, or its queue an element."""
        alone = []
        for crowd in list(self.waits.get(key, ())):
            if not self._lacks(crowd, key):
                crowd.missing.discard(key)
                if len(crowd.keys) == 1:
                    alone.append(crowd)
                else:
                    # A wait for several keys takes no element. It is satisfied before a pop takes the only element and
                    # the key vanishes again.
                    self._satisfy(crowd)
        if len(alone) == 1:
            self._satisfy(alone[0])
        while ready := [crowd for crowd in alone if crowd.waits and not crowd.missing]:
            self._satisfy(min(ready, key=Crowd.first), 1)

    def vanished(self, key: bytes) -> None:
        """A key has no value, or no queue, any more."""
        for crowd in self.waits.get(key, ()):
            if self._lacks(crowd, key):
                crowd.missing.add(key)

    def _satisfy(self, crowd: Crowd, most: int | None = None) -> None:
        """Satisfy the crowd's waits in order, at most `most` of them. Stop when a key is missing."""
        waits = crowd.waits
        while waits and not crowd.missing and most != 0:
            wait = next(iter(waits))
            self.withdraw(wait)
            wait.satisfied()
            most = most and most - 1

    def _missing(self, wait: Wait) -> frozenset[bytes]:
        if wait.takes:
            return wait.keys.difference(self.queues)
        missing = wait.keys.difference(self.values)
        return missing if wait.reads or not missing else missing.difference(self.queues)

    def _lacks(self, crowd: Crowd, key: bytes) -> bool:
        if crowd.takes:
            return key not in self.queues
        return key not in self.values and (crowd.reads or key not in self.queues)
