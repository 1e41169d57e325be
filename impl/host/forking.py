"""Objects that a fork must drop: sockets that both processes would read, threads and locks that stayed behind.

Rule: an object that owns such things is listed here while it lives, and drops them in the child before anything else.
"""

from __future__ import annotations

import os
import select
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

HOLD_SECONDS = 1.0  # a table is changed in microseconds, and a snapshot of a large one read in less
COPY_SECONDS = 60.0  # for a child to copy gigabytes on a busy machine


class Forked(Protocol):
    """Something that a fork copies, and must not."""

    def forked(self) -> None:
        """Called in the child: let go of what is the parent's."""


class Guarded(Protocol):
    """Something that threads change under a lock, and that a child keeps."""

    lock: threading.Lock


class Shared(Protocol):
    """Memory that a child would share with its parent and with others: the child copies it before anything else."""

    def hold(self) -> None:
        """In the parent, before the fork: let no other process write to the memory that is used now."""

    def copy(self) -> None:
        """In the child: replace the memory that is used by a copy."""

    def let_go(self) -> None:
        """In the parent, when the child has its copy: others may write again."""


_owners: weakref.WeakSet[Forked] = weakref.WeakSet()
_guarded: weakref.WeakKeyDictionary[Guarded, None] = weakref.WeakKeyDictionary()
_held: dict[int, list[threading.Lock]] = {}  # by the thread that forks
_due: list[Callable[[], object]] = []
_shared: set[Shared] = set()
_copied: dict[int, tuple[list[Shared], list[int]]] = {}  # by the thread that forks: what is held; the ends of a pipe


def let_go_after_fork(owner: Forked) -> None:
    """Have `owner.forked()` called in every child."""
    _owners.add(owner)


def when_all_let_go(call: Callable[[], object]) -> None:
    """From `forked()`: what may touch other owners, as a thread that runs a user's code does."""
    _due.append(call)


def whole_in_fork(owner: Guarded) -> None:
    """Let no fork happen while a thread is changing `owner`, which the child would get half changed."""
    _guarded[owner] = None


def copied_in_fork(owner: Shared) -> None:
    """Have every child copy the memory of `owner`, until `shared_no_more`; the thread that forks waits for it."""
    _shared.add(owner)


def shared_no_more(owner: Shared) -> None:
    """Nothing of its memory is used."""
    _shared.discard(owner)


def _before() -> None:
    held, pipe = list(_shared), list[int]()
    for shared in held:
        shared.hold()
    if held:
        with suppress(OSError):  # without a descriptor the parent does not wait
            pipe += os.pipe()
        _copied[threading.get_ident()] = held, pipe
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
    if copied := _copied.pop(threading.get_ident(), None):
        held, pipe = copied
        if pipe:
            os.close(pipe.pop())  # without a child, or when it has died, the other end is at its end
            poll = select.poll()
            poll.register(pipe[0], select.POLLIN)
            poll.poll(COPY_SECONDS * 1000)
            os.close(pipe.pop())
        for shared in held:
            shared.let_go()


def _in_child() -> None:
    _held.clear()
    if copied := _copied.pop(threading.get_ident(), None):
        held, pipe = copied
        try:
            for shared in held:
                shared.copy()
        finally:
            while pipe:  # both ends are closed: so the parent is told
                os.close(pipe.pop())
    _copied.clear()
    _shared.clear()
    for owner in list(_owners):
        owner.forked()
    while _due:
        _due.pop(0)()


os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
