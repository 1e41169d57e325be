"""Threads that share one `Contents`: how they wait for keys, arrive at barriers, and receive changes.

Theory of operation. `Memory` has the tables of a store and the lock over them. A thread whose operation blocks puts
itself into a table (`Blocked`, `BlockedArrival`), releases the lock, and waits for its bell. The thread whose change
satisfies the blocked operation also applies it, under the same lock, and rings the bell. If the time is over before
that, the blocked thread withdraws itself. Watches are called on their own thread (`Callbacks`), in the order of the
changes.

A forked child has a copy of the data. Waits, arrivals and watches belong to the parent's threads, so the child starts
without them.

Rule: tables are used under the lock only. Each waiting thread has its own bell, so a change wakes only the threads that
it satisfies.
"""

from __future__ import annotations

import logging
import queue
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

from ..host.forking import let_go_after_fork, when_all_let_go, whole_in_fork
from .base import Event, OnLost, Watch
from .contents.barriers import Arrival, Barriers
from .contents.contents import Contents, Refused
from .contents.waiting import Wait, Waiting
from .contents.watching import Changed, Watching
from .errors import REFUSALS, ConnectionLost, StoreError
from .limits import GIB, KIB, Limits
from .operations import Operation
from .wire import shown

T = TypeVar("T")

log = logging.getLogger(__name__)
# No foreign peer exists here. The limits only keep a mistake from filling memory. torch's stores have no limit.
LOCAL = Limits(key_bytes=64 * KIB, value_bytes=GIB, keys_in_request=sys.maxsize, frame_bytes=sys.maxsize)

_FORKED = ConnectionLost("watches end with a fork; watch again in the child")


def raised(operation: Operation[Any], refused: Refused, where: str) -> StoreError:
    """The exception for the caller of an operation that the contents refused."""
    text = str(refused)
    for name in operation.keys:  # the text of the contents has keys as bytes
        text = text.replace(shown(name), repr(name.decode()))
    return REFUSALS.get(refused.status, StoreError)(f"{operation.SPEC.name}: {text} ({where})")


class Blocked(Wait, Generic[T]):
    """A thread in an operation that blocks. The operation is applied at the moment when its keys are present."""

    __slots__ = ("bell", "contents", "done", "operation", "reads", "result", "takes")

    def __init__(self, contents: Contents, operation: Operation[T]) -> None:
        super().__init__(operation.keys)
        self.contents, self.operation = contents, operation
        self.reads, self.takes = operation.reads, operation.takes
        self.done = False
        self.result: T | None = None
        self.bell = threading.Lock()
        self.bell.acquire()

    def satisfied(self) -> None:
        self.result = self.operation.apply(self.contents)
        self.done = True
        self.bell.release()


class BlockedArrival(Arrival):
    """A thread in `barrier`."""

    __slots__ = ("bell", "done")

    def __init__(self, key: bytes, token: bytes) -> None:
        super().__init__(key, token)
        self.done = False
        self.bell = threading.Lock()
        self.bell.acquire()

    def released(self) -> None:
        self.done = True
        self.bell.release()


class Memory:
    """The tables of one store and the lock over them."""

    def __init__(self, limits: Limits) -> None:
        self.contents = Contents(limits)
        self.forked()
        let_go_after_fork(self)
        whole_in_fork(self)

    def forked(self) -> None:
        """Keep the data in the child, and drop waits, watches and arrivals: they belong to threads of the parent."""
        self.lock = threading.Lock()
        self.contents.waiting = Waiting(self.contents.values, self.contents.queues)
        self.contents.watching = Watching()
        self.barriers = Barriers()


class Callbacks:
    """The one thread of a store on which its watches are called. It starts with the first watch."""

    def __init__(self) -> None:
        self.forked()

    def forked(self) -> None:
        """Start without a thread and without due calls: they stayed in the parent. Called by the store."""
        self._due: queue.SimpleQueue[tuple[Watch | None, Callable[[], object]] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="trystate-watch", daemon=True)
                self._thread.start()

    def end(self) -> None:
        """Make no call after the ones that are due."""
        self._due.put(None)

    def stop(self) -> None:
        """End the callbacks, and wait for a running one unless it is the caller. May be called twice."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            self.end()
            if thread is not threading.current_thread():
                thread.join(timeout=1.0)  # a callback that blocks must not also block close()

    def call(self, watch: Watch | None, call: Callable[[], object]) -> None:
        """Make a call soon, unless its watch is cancelled before."""
        self._due.put((watch, call))

    def _run(self) -> None:
        while (due := self._due.get()) is not None:
            watch, call = due
            if watch is not None and watch.cancelled:
                continue
            try:
                call()
            except Exception:
                log.exception("a callback of %r failed; the watch continues", watch)


class KeyWatcher:
    """Turns the changes of a key into calls of a watch."""

    def __init__(self, callbacks: Callbacks, key: str, callback: Callable[[Event], None], on_lost: OnLost | None,
                 withdraw: Callable[[KeyWatcher], None]) -> None:  # fmt: skip
        self.name = key.encode()
        self.callbacks, self.on_lost = callbacks, on_lost
        self.watch = Watch(key, callback, lambda watch: withdraw(self))

    def changed(self, event: Changed) -> None:
        told = Event(event.change, self.watch.key, event.old, event.new)
        self.callbacks.call(self.watch, partial(self.watch.callback, told))

    def lose(self, reason: StoreError | ConnectionLost) -> None:
        """Mark the watch lost: changes may be missed from here on."""
        self.watch.lost = True
        if self.on_lost is not None:
            self.callbacks.call(self.watch, partial(self.on_lost, reason))
        elif not self.watch.cancelled:
            log.warning("%r: %s", self.watch, reason)

    def forked(self) -> None:
        """Mark the watch lost in the child. Called after `forked` of its callbacks."""
        self.watch.lost = True
        if self.on_lost is not None:
            self.callbacks.call(self.watch, partial(self.on_lost, _FORKED))
            when_all_let_go(self.callbacks.start)
