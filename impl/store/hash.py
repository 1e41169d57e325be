"""`HashStore`: a store in the memory of one process, for its threads.

Rule: it adds nothing to the meanings in `contents`, `waiting` and `barriers`. It only lets in one thread at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

from ..host.forking import let_go_after_fork
from .base import DEFAULT_TIMEOUT, Event, OnLost, Store, Watch
from .contents.contents import Refused
from .errors import StoreClosed
from .limits import Limits
from .memory import LOCAL, Blocked, BlockedArrival, Callbacks, KeyWatcher, Memory, raised
from .operations import Barrier, Operation

T = TypeVar("T")


class HashStore(Store):
    """A store in memory. Clones share the data, which lives as long as one of them.

    A forked child has its own copy of the data at the moment of the fork. Its parent's watches are `lost` in the child.
    """

    def __init__(self, timeout: timedelta = DEFAULT_TIMEOUT, *, limits: Limits = LOCAL) -> None:
        sizes = (limits.key_bytes, limits.value_bytes, limits.keys_in_request)
        super().__init__(timeout, key_bytes=sizes[0], value_bytes=sizes[1], keys_in_request=sizes[2])
        self._memory = Memory(limits)
        self._blocked: set[Blocked[Any] | BlockedArrival] = set()  # threads of this store, which close() wakes
        self._watchers: set[KeyWatcher] = set()
        self._callbacks = Callbacks()
        let_go_after_fork(self)

    def forked(self) -> None:
        """End the watches and waits in the child: their threads stayed in the parent."""
        self._callbacks.forked()
        for watcher in self._watchers:
            watcher.forked()
        self._watchers.clear()
        self._blocked.clear()

    def _do(self, operation: Operation[T]) -> T:
        with self._memory.lock:
            try:
                return operation.apply(self._memory.contents)
            except Refused as refused:
                raise raised(operation, refused, self._where()) from None

    def _await(self, operation: Operation[T], seconds: float) -> T | None:
        if isinstance(operation, Barrier):
            return self._arrive(operation, seconds)  # type: ignore[return-value]
        blocked = Blocked(self._memory.contents, operation)
        with self._memory.lock:
            self._alive(operation.SPEC.name)  # another thread may have closed the store meanwhile
            waiting = self._memory.contents.waiting
            if waiting.look(blocked):
                blocked.satisfied()
            else:
                waiting.begin(blocked)
                self._blocked.add(blocked)
        self._sleep(operation, blocked, seconds)
        return blocked.result

    def _arrive(self, barrier: Barrier, seconds: float) -> bool:
        arrival = BlockedArrival(barrier.key, barrier.token)
        memory = self._memory
        with memory.lock:
            self._alive(barrier.SPEC.name)
            # A rank that comes again (`generations`) arrives with the token of its earlier call. The earlier thread is
            # woken as if it was released; it then finds another token at its rank's place.
            if (earlier := memory.barriers.arrived_with(barrier.key, barrier.token)) is not None:
                memory.barriers.withdraw(earlier)
                earlier.released()
            try:
                memory.barriers.arrive(arrival, barrier.world_size)
            except Refused as refused:
                raise raised(barrier, refused, self._where()) from None
            if not arrival.done:
                self._blocked.add(arrival)
        return self._sleep(barrier, arrival, seconds)

    def _sleep(self, operation: Operation[Any], blocked: Blocked[Any] | BlockedArrival, seconds: float) -> bool:
        """Wait until the bell rings or the time is over. An interrupt withdraws the request, as a timeout does."""
        try:
            if not blocked.done and seconds > 0:
                blocked.bell.acquire(timeout=seconds)
        finally:
            with self._memory.lock:
                # another thread has called `close()`, which has withdrawn the request and rung the bell.
                sent_home = blocked not in self._blocked and not blocked.done
                self._blocked.discard(blocked)
                if not blocked.done and not sent_home:
                    self._withdraw(blocked)
        if sent_home:
            raise StoreClosed(
                f"{operation.SPEC.name}: this HashStore was closed meanwhile; make another one, or close it later"
            )
        return blocked.done

    def _withdraw(self, blocked: Blocked[Any] | BlockedArrival) -> None:
        if isinstance(blocked, Blocked):
            self._memory.contents.waiting.withdraw(blocked)
        else:
            self._memory.barriers.withdraw(blocked)

    # Watches, clones, end.

    def _watch(self, name: bytes, callback: Callable[[Event], None], on_lost: OnLost | None = None) -> Watch:
        watcher = KeyWatcher(self._callbacks, name.decode(), callback, on_lost, self._unwatch)
        self._callbacks.start()
        with self._memory.lock:
            self._alive("watch_key")
            self._memory.contents.watching.begin(watcher, name)
            self._watchers.add(watcher)
        return watcher.watch

    def _unwatch(self, watcher: KeyWatcher) -> None:
        with self._memory.lock:
            self._memory.contents.watching.end(watcher, watcher.name)
            self._watchers.discard(watcher)

    def _clone(self) -> HashStore:
        clone = HashStore(self.timeout, limits=self._memory.contents.limits)
        clone._memory = self._memory
        return clone

    def _close(self) -> None:
        for watcher in list(self._watchers):
            watcher.watch.cancel()
        with self._memory.lock:
            for blocked in [each for each in self._blocked if not each.done]:
                self._withdraw(blocked)
                blocked.bell.release()
            self._blocked.clear()
        self._callbacks.stop()

    def _where(self) -> str:
        return "HashStore in this process"
