"""The watchers of each key. A watcher receives every change after its watch began, once, in the order of the changes.

Rule: a watcher receives the whole change: its kind, the old value and the new value.
"""

from __future__ import annotations

from typing import Protocol

from trystate.model.store.vocabulary import Change


class Changed:
    """One change of a watched key. One object serves all watchers of the key, possibly thousands."""

    __slots__ = ("change", "key", "new", "old", "wire")

    def __init__(self, key: bytes, change: Change, old: bytes | None, new: bytes | None) -> None:
        self.key, self.change, self.old, self.new = key, change, old, new
        self.wire: list[bytes] | None = None  # the message that a server sends, made for the first watcher


class Watcher(Protocol):
    """An object that receives changes."""

    def changed(self, event: Changed) -> None:
        """Called after the change. It must not change the store."""


class Watching:
    """The watches of one store."""

    __slots__ = ("watchers",)

    def __init__(self) -> None:
        self.watchers: dict[bytes, dict[Watcher, None]] = {}

    def begin(self, watcher: Watcher, key: bytes) -> None:
        self.watchers.setdefault(key, {})[watcher] = None

    def end(self, watcher: Watcher, key: bytes) -> None:
        """End a watch. Does nothing if the watcher did not watch the key."""
        there = self.watchers.get(key)
        if there is not None and watcher in there:
            del there[watcher]
            if not there:
                del self.watchers[key]

    def changed(self, key: bytes, change: Change, old: bytes | None, new: bytes | None) -> None:
        event = Changed(key, change, old, new)
        for watcher in list(self.watchers.get(key, ())):
            watcher.changed(event)
