"""`HashStore`: a store in the memory of one process, for its threads.

Rule: it adds nothing to the meanings in `contents`, `waiting` and `barriers`; it only lets threads in, one at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from ..host.forking import let_go_after_fork
from .base import DEFAULT_TIMEOUT, Event, OnLost, Store, Watch
from .contents.contents import Refused
from .errors import StoreClosed
from .limits import Limits
from .memory import (
    LOCAL,
    Blocked,
    BlockedArrival,
    BlockedPop,
    BlockedRead,
    Callbacks,
    KeyWatcher,
    Memory,
    raised,
)


class HashStore(Store):
    """A store in memory. Clones share the data, which lives as long as one of them does.

    A forked child has a copy, as it was at that moment, for itself. The watches are the parent's: `lost` in the child.
    """

    def __init__(self, timeout: timedelta = DEFAULT_TIMEOUT, *, limits: Limits = LOCAL) -> None:
        sizes = (limits.key_bytes, limits.value_bytes, limits.keys_in_request)
        super().__init__(timeout, key_bytes=sizes[0], value_bytes=sizes[1], keys_in_request=sizes[2])
        self._memory = Memory(limits)
        self._blocked: set[Blocked | BlockedArrival] = set()  # threads of this store, which close() sends home
        self._watchers: set[KeyWatcher] = set()
        self._callbacks = Callbacks()
        let_go_after_fork(self)

    def forked(self) -> None:
        """The threads stayed in the parent."""
        self._callbacks.forked()
        for watcher in self._watchers:
            watcher.forked()
        self._watchers.clear()
        self._blocked.clear()

    @contextmanager
    def _changing(self, operation: str, *names: bytes) -> Iterator[Memory]:
        with self._memory.lock:
            try:
                yield self._memory
            except Refused as refused:
                raise raised(operation, names, refused, self._where()) from None

    def _set(self, name: bytes, value: bytes) -> None:
        with self._changing("set", name) as memory:
            memory.contents.set(name, value)

    def _multi_set(self, pairs: list[tuple[bytes, bytes]]) -> None:
        if pairs:
            with self._changing("multi_set", *(name for name, _ in pairs)) as memory:
                memory.contents.multi_set(*zip(*pairs, strict=True))

    def _add(self, name: bytes, amount: int) -> int:
        with self._changing("add", name) as memory:
            return memory.contents.add(name, amount)

    def _compare_set(self, name: bytes, expected: bytes, desired: bytes) -> bytes:
        with self._changing("compare_set", name) as memory:
            return memory.contents.compare_set(name, expected, desired)

    def _append(self, name: bytes, value: bytes) -> None:
        with self._changing("append", name) as memory:
            memory.contents.append(name, value)

    def _take(self, name: bytes) -> bytes | None:
        with self._memory.lock:
            return self._memory.contents.take(name)

    def _check(self, names: list[bytes]) -> bool:
        with self._memory.lock:
            return all(map(self._memory.contents.present, names))

    def _num_keys(self) -> int:
        with self._memory.lock:
            return len(self._memory.contents.values)

    def _list_keys(self, prefix: bytes) -> list[bytes]:
        with self._memory.lock:
            return self._memory.contents.keys(prefix)

    def _queue_push(self, name: bytes, value: bytes) -> None:
        with self._changing("queue_push", name) as memory:
            memory.contents.push(name, value)

    def _queue_len(self, name: bytes) -> int:
        with self._memory.lock:
            return self._memory.contents.length(name)

    # What blocks.

    def _get(self, names: list[bytes], seconds: float) -> list[bytes] | None:
        read = BlockedRead(self._memory.contents, names)
        self._block("get", read, seconds)
        return read.values

    def _wait(self, names: list[bytes], seconds: float) -> bool:
        return self._block("wait", Blocked(self._memory.contents, names), seconds)

    def _queue_pop(self, name: bytes, seconds: float) -> bytes | None:
        pop = BlockedPop(self._memory.contents, [name])
        self._block("queue_pop", pop, seconds)
        return pop.value

    def _barrier(self, name: bytes, world_size: int, seconds: float, token: bytes = b"") -> bool:
        arrival = BlockedArrival(name, token)
        with self._changing("barrier", name) as memory:
            if (earlier := memory.barriers.arrived_with(name, token)) is not None:
                memory.barriers.withdraw(earlier)
                earlier.released()
            memory.barriers.arrive(arrival, world_size)
            if not arrival.done:
                self._blocked.add(arrival)
        return self._sleep("barrier", arrival, seconds)

    def _block(self, operation: str, wait: Blocked, seconds: float) -> bool:
        with self._memory.lock:
            waiting = self._memory.contents.waiting
            if waiting.look(wait):
                wait.satisfied()
            else:
                waiting.begin(wait)
            if not wait.done:
                self._blocked.add(wait)
        return self._sleep(operation, wait, seconds)

    def _sleep(self, operation: str, blocked: Blocked | BlockedArrival, seconds: float) -> bool:
        """Until its bell rings or time is over. An exception (an interrupt) withdraws it like the end of its time."""
        try:
            if not blocked.done and seconds > 0:
                blocked.bell.acquire(timeout=seconds)
        finally:
            with self._memory.lock:
                sent_home = blocked not in self._blocked and not blocked.done
                self._blocked.discard(blocked)
                if not blocked.done and not sent_home:
                    self._withdraw(blocked)
        if sent_home:
            raise StoreClosed(f"{operation}: this HashStore was closed meanwhile; make another one, or close it later")
        return blocked.done

    def _withdraw(self, blocked: Blocked | BlockedArrival) -> None:
        if isinstance(blocked, Blocked):
            self._memory.contents.waiting.withdraw(blocked)
        else:
            self._memory.barriers.withdraw(blocked)

    # Watches, clones, the end.

    def _watch(self, name: bytes, callback: Callable[[Event], None], on_lost: OnLost | None = None) -> Watch:
        watcher = KeyWatcher(self._callbacks, name.decode(), callback, on_lost, self._unwatch)
        self._callbacks.start()
        with self._memory.lock:
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
