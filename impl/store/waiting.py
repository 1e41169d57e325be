"""Who waits for which keys. A wait is satisfied when all its keys are present together, and not one by one.

Rule: a wait stays under every key it names until it is satisfied or withdrawn; a key that vanishes is missing again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping


class Wait(ABC):
    """One blocked request for keys that are present: that have a value, or a queue with an element.

    `takes`: it wants an element of the queue of its only key; `reads`: it wants values, which a queue is not.
    """

    __slots__ = ("keys", "missing")
    takes = False
    reads = False

    def __init__(self, keys: Iterable[bytes]) -> None:
        self.keys = frozenset(keys)
        self.missing: set[bytes] = set()

    @abstractmethod
    def satisfied(self) -> None:
        """All keys are present, now; the wait is in no table any more."""


class Waiting:
    """The blocked waits of one store, first come first served at every key."""

    __slots__ = ("keys_waited", "queues", "values", "waits")

    def __init__(self, values: Mapping[bytes, object], queues: Mapping[bytes, object]) -> None:
        self.values = values
        self.queues = queues
        self.waits: dict[bytes, dict[Wait, None]] = {}
        self.keys_waited = 0

    def look(self, wait: Wait) -> bool:
        """Whether a wait would be satisfied now; nothing is registered."""
        if wait.takes:
            return all(key in self.queues for key in wait.keys)
        missing = wait.keys.difference(self.values)
        wait.missing = set(missing.difference(() if wait.reads else self.queues) if missing else ())
        return not wait.missing

    def begin(self, wait: Wait) -> None:
        """Register a wait that was looked at, and not satisfied, just now."""
        waits = self.waits
        for key in wait.keys:
            there = waits.get(key)
            if there is None:
                waits[key] = {wait: None}
            else:
                there[wait] = None
        self.keys_waited += len(wait.keys)

    def withdraw(self, wait: Wait) -> None:
        """Forget a registered wait."""
        waits = self.waits
        for key in wait.keys:
            there = waits[key]
            del there[wait]
            if not there:
                del waits[key]
        self.keys_waited -= len(wait.keys)

    def appeared(self, key: bytes) -> None:
        """A key became present, or its queue got an element."""
        there = self.waits.get(key, {})
        # Who waits for several keys takes nothing, and is told before the first popper takes the element.
        for wait in sorted(there, key=_is_of_one_key) if key in self.queues else list(there):
            if wait not in there:  # whoever was satisfied before it made it go
                continue
            if wait.takes:
                if key not in self.queues:
                    continue
            elif wait.reads and key not in self.values:
                continue
            else:
                wait.missing.discard(key)
                if wait.missing:
                    continue
            self.withdraw(wait)
            wait.satisfied()
            if key not in self.queues and key not in self.values:
                return  # it took the last element: `vanished` has told the others

    def vanished(self, key: bytes) -> None:
        """A key has no value, or no queue, any more."""
        queued = key in self.queues
        for wait in self.waits.get(key, ()):
            if wait.reads or not queued:
                wait.missing.add(key)


def _is_of_one_key(wait: Wait) -> bool:
    return len(wait.keys) == 1
