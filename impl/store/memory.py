"""Threads that share one `Contents`: how they wait for keys, arrive at barriers, and are told of changes.

Theory of operation. `Memory` has the tables of a store, and the lock over them. A thread whose operation blocks puts
itself into a table (`Blocked`, `BlockedArrival`), releases the lock, and waits for its bell. The thread whose change
satisfies it does the blocked operation too, under the same lock, and rings. When its time is over first, the blocked
thread withdraws itself. Watches are called on a thread of their own (`Callbacks`), in the order of the changes.

A fork takes the data along. Waits, arrivals and watches are of the parent's threads, so the child begins without them.

Rule: tables are touched under the lock only; each waiting thread has a bell of its own, so that a change wakes those
that it satisfies and nobody else.
"""

from __future__ import annotations

import logging
import queue
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

from trystate.model.store.vocabulary import Status

from ..host.forking import let_go_after_fork, when_all_let_go, whole_in_fork
from .base import Event, OnLost, Watch
from .contents.barriers import Arrival, Barriers
from .contents.contents import Contents, Refused
from .contents.waiting import Wait, Waiting
from .contents.watching import Changed, Watching
from .errors import ConnectionLost, CounterOverflow, LimitExceeded, NotANumber, StoreError, WrongWorld
from .limits import GIB, KIB, Limits
from .operations import Operation
from .wire import shown

T = TypeVar("T")

log = logging.getLogger(__name__)
# No peer to be wary of: the sizes only keep a mistake from filling the memory or the disk. torch's have no limit.
LOCAL = Limits(key_bytes=64 * KIB, value_bytes=GIB, keys_in_request=sys.maxsize, frame_bytes=sys.maxsize)

_FORKED = ConnectionLost("watches end with a fork; watch again in the child")
_RAISED: dict[Status, type[StoreError]] = {
    Status.NOT_A_NUMBER: NotANumber,
    Status.OVERFLOW: CounterOverflow,
    Status.TOO_LARGE: LimitExceeded,
    Status.WRONG_WORLD: WrongWorld,
}


def raised(operation: Operation[Any], refused: Refused, where: str) -> StoreError:
    """The exception for a caller of the store, for an operation that the contents refused."""
    text = str(refused)
    for name in operation.keys:  # the contents know only bytes
        text = text.replace(shown(name), repr(name.decode()))
    return _RAISED.get(refused.status, StoreError)(f"{operation.SPEC.name}: {text} ({where})")


class Blocked(Wait, Generic[T]):
    """A thread in an operation that blocks; the operation is applied at the moment when its keys are there."""

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
    """The tables of one store, and the lock over them."""

    def __init__(self, limits: Limits) -> None:
        self.contents = Contents(limits)
        self.forked()
        let_go_after_fork(self)
        whole_in_fork(self)

    def forked(self) -> None:
        """The data stays; waits, watches and arrivals are of threads of the parent."""
        self.lock = threading.Lock()
        self.contents.waiting = Waiting(self.contents.values, self.contents.queues)
        self.contents.watching = Watching()
        self.barriers = Barriers()


class Callbacks:
    """The one thread of a store on which its watches are called; it begins with the first watch."""

    def __init__(self) -> None:
        self.forked()

    def forked(self) -> None:
        """Called by its store: the thread stayed in the parent, and so does what it was to tell."""
        self._due: queue.SimpleQueue[tuple[Watch, Callable[[], object]] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="trystate-watch", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """No further callback; waits for a running one, unless it is the caller. May be called twice."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            self._due.put(None)
            if thread is not threading.current_thread():
                thread.join(timeout=1.0)  # a callback that blocks must not block close() as well

    def call(self, watch: Watch, call: Callable[[], object]) -> None:
        """Soon, unless the watch is cancelled before."""
        self._due.put((watch, call))

    def _run(self) -> None:
        while (due := self._due.get()) is not None:
            watch, call = due
            if watch.cancelled:
                continue
            try:
                call()
            except Exception:
                log.exception("a callback of %r failed; the watch goes on", watch)


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

    def lose(self, reason: StoreError) -> None:
        """Changes may be missed from here on."""
        self.watch.lost = True
        if self.on_lost is not None:
            self.callbacks.call(self.watch, partial(self.on_lost, reason))
        else:
            log.warning("%r: %s", self.watch, reason)

    def forked(self) -> None:
        """After its callbacks' `forked`: in the child it is lost."""
        self.watch.lost = True
        if self.on_lost is not None:
            self.callbacks.call(self.watch, partial(self.on_lost, _FORKED))
            when_all_let_go(self.callbacks.start)
