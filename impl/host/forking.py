"""Objects that a fork must drop: sockets that both processes would read, threads and locks that stayed behind.

Rule: an object that owns such things is listed here while it lives, and drops them in the child before anything else.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Protocol

HOLD_SECONDS = 1.0  # a table is changed in microseconds, and a snapshot of a large one read in less


class Forked(Protocol):
    """Something that a fork copies, and must not."""

    def forked(self) -> None:
        """Called in the child: let go of what is the parent's."""


class Guarded(Protocol):
    """Something that threads change under a lock, and that a child keeps."""

    lock: threading.Lock


_owners: weakref.WeakSet[Forked] = weakref.WeakSet()
_guarded: weakref.WeakKeyDictionary[Guarded, None] = weakref.WeakKeyDictionary()
_held: dict[int, list[threading.Lock]] = {}  # by the thread that forks
_due: list[Callable[[], object]] = []


def let_go_after_fork(owner: Forked) -> None:
    """Have `owner.forked()` called in every child."""
    _owners.add(owner)


def when_all_let_go(call: Callable[[], object]) -> None:
    """From `forked()`: what may touch other owners, as a thread that runs a user's code does."""
    _due.append(call)


def whole_in_fork(owner: Guarded) -> None:
    """Let no fork happen while a thread is changing `owner`, which the child would get half changed."""
    _guarded[owner] = None


def _before() -> None:
    # In one order, so that two threads that fork do not wait for each other; not for ever, because a signal's handler
    # may fork inside the lock.
    owners = [owner for ref in _guarded.keyrefs() if (owner := ref()) is not None]  # other threads may add some
    for owner in sorted(owners, key=id):
        lock = owner.lock
        if lock.acquire(timeout=HOLD_SECONDS):
            _held.setdefault(threading.get_ident(), []).append(lock)


def _in_parent() -> None:
    for lock in _held.pop(threading.get_ident(), ()):
        lock.release()


def _in_child() -> None:
    _held.clear()
    for owner in list(_owners):
        owner.forked()
    while _due:
        _due.pop(0)()


os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
