"""The watchers of each key. Every change after a watch began is told once, in the order of the changes.

Rule: a watcher is told the whole change: its kind, the old value and the new.
"""

from __future__ import annotations

from typing import Protocol

from trystate.model.store.vocabulary import Change


class Changed:
    """One change of a watched key: one object for all its watchers, who may be thousands."""

    __slots__ = ("change", "key", "new", "old", "wire")

    def __init__(self, key: bytes, change: Change, old: bytes | None, new: bytes | None) -> None:
        self.key, self.change, self.old, self.new = key, change, old, new
        self.wire: list[bytes] | None = None  # as a server sends it, made for the first of its watchers


class Watcher(Protocol):
    """Something that is told."""

    def changed(self, event: Changed) -> None:
        """Called after the change; it must not change the store itself."""


class Watching:
    """The watches of one store."""

    __slots__ = ("watchers",)

    def __init__(self) -> None:
        self.watchers: dict[bytes, dict[Watcher, None]] = {}

    def begin(self, watcher: Watcher, key: bytes) -> None:
        self.watchers.setdefault(key, {})[watcher] = None

    def end(self, watcher: Watcher, key: bytes) -> None:
        """Tell it no more; no matter whether it watched."""
        there = self.watchers.get(key)
        if there is not None and watcher in there:
            del there[watcher]
            if not there:
                del self.watchers[key]

    def changed(self, key: bytes, change: Change, old: bytes | None, new: bytes | None) -> None:
        event = Changed(key, change, old, new)
        for watcher in list(self.watchers.get(key, ())):
            watcher.changed(event)
