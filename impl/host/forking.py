"""Objects that a fork must drop: sockets that both processes would read, and threads and locks of the parent.

Rule: an object that owns such resources is registered here while it lives, and drops them in the child before anything
else runs.
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
COPY_SECONDS = 60.0  # limit for a child to copy gigabytes on a busy machine


class Forked(Protocol):
    """An object that a fork copies, and that must not live in the child."""

    def forked(self) -> None:
        """Called in the child: release the parent's resources."""


class Guarded(Protocol):
    """An object that threads change under a lock, and that a child keeps."""

    lock: threading.Lock


class Shared(Protocol):
    """Memory that a child would share with its parent and with others: the child copies it before anything else."""

    def hold(self) -> None:
        """In the parent, before the fork: keep other processes from writing to the memory that is in use."""

    def copy(self) -> None:
        """In the child: replace the memory that is in use by a copy."""

    def let_go(self) -> None:
        """In the parent, when the child has its copy: others may write again."""


_owners: weakref.WeakSet[Forked] = weakref.WeakSet()
_guarded: weakref.WeakKeyDictionary[Guarded, None] = weakref.WeakKeyDictionary()
_held: dict[int, list[threading.Lock]] = {}  # locks per forking thread
_due: list[Callable[[], object]] = []
_shared: set[Shared] = set()
_copied: dict[int, tuple[list[Shared], list[int]]] = {}  # per forking thread: held memory, ends of a pipe


def let_go_after_fork(owner: Forked) -> None:
    """Call `owner.forked()` in every child."""
    _owners.add(owner)


def when_all_let_go(call: Callable[[], object]) -> None:
    """From `forked()`, register a call that may use other owners, such as a thread that runs a user's code."""
    _due.append(call)


def whole_in_fork(owner: Guarded) -> None:
    """Prevent forks while a thread changes `owner`, which the child would otherwise get half changed."""
    _guarded[owner] = None


def copied_in_fork(owner: Shared) -> None:
    """Make every child copy the memory of `owner`, until `shared_no_more`; the thread that forks waits for the copy."""
    _shared.add(owner)


def shared_no_more(owner: Shared) -> None:
    """Its memory is not used any more."""
    _shared.discard(owner)


def _before() -> None:
    held, pipe = list(_shared), list[int]()
    for shared in held:
        shared.hold()
    if held:
        with suppress(OSError):  # without a descriptor the parent does not wait
            pipe += os.pipe()
        _copied[threading.get_ident()] = held, pipe
    # One order keeps two forking threads from waiting for each other. The wait has a limit because a signal's handler
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
            os.close(pipe.pop())  # if the child does not exist or has died, the other end is closed
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
            while pipe:  # closing both ends informs the parent
                os.close(pipe.pop())
    for _, pipe in _copied.values():  # other threads' forks wait until all copies are closed
        while pipe:
            os.close(pipe.pop())
    _copied.clear()
    _shared.clear()
    for owner in list(_owners):
        owner.forked()
    while _due:
        _due.pop(0)()


os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
