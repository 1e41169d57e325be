"""`FileStore`: a store in a file, for the processes of one host (or of several, on a file system with `flock`).

Rule: an operation that changes the store is one record in the file, appended under its lock. An operation that only
reads takes no lock.

When the file is deleted, and when it is kept:

- With `world_size` the file belongs to one job. It is deleted when `world_size` users have left and no other user
  remains. If all users died without closing, the file belongs to a crashed job, and the next job starts with a new one.
- Without it (-1) the end of the job is unknown: the file is kept with all acknowledged changes, also after a crash.
- A file of another program is refused and not changed. So is a file with another world_size or job that is still used.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from ...host.forking import let_go_after_fork
from ..base import DEFAULT_TIMEOUT, Event, OnLost, Store, Watch
from ..contents.contents import Refused
from ..errors import InvalidArgument, StoreClosed, StoreError
from ..memory import LOCAL, Blocked, Callbacks, KeyWatcher, raised
from ..operations import Barrier, DeleteKey, Operation, QueuePop, Take, Wait
from .journal import POLL_SECONDS_MIN, Journal
from .records import Kind
from .replica import BarrierPlace, recorded

T = TypeVar("T")
PAUSE_SECONDS = 1.0  # the longest pause of the thread that reads for watches; `journal.POLL_SECONDS_MAX` shortens it
LOCK_TIMEOUT_SECONDS_MIN = 1.0  # an operation with a timeout of 0 looks once, but still has to get the file's lock


@dataclass(frozen=True, slots=True)
class _AnElement(Wait):
    """True when a queue has an element. The pop itself needs the lock, so another process may pop first."""

    takes = True


class FileStore(Store):
    """A store in a file. A store and its clones count as one user of the file.

    A forked child counts as another user from its first operation on. Its parent's watches are `lost` in the child.
    """

    def __init__(self, file_name: str | os.PathLike[str], world_size: int = -1,
                 timeout: timedelta = DEFAULT_TIMEOUT, *, job: str = "") -> None:  # fmt: skip
        """`job` distinguishes jobs that use one path. Raises FileRefused, or StoreTimeout if the lock is held."""
        if world_size != -1 and world_size < 1:
            raise InvalidArgument(f"FileStore: world_size is {world_size}; give the number of users, or -1 for unknown")
        super().__init__(timeout, key_bytes=LOCAL.key_bytes, value_bytes=LOCAL.value_bytes)
        self._begin()
        try:
            self._journal = Journal(os.fspath(file_name), world_size, job, self._lock_timeout)
        except BaseException:
            self._forget()
            raise

    def _begin(self) -> None:
        self._watchers: set[KeyWatcher] = set()
        self._callbacks = Callbacks()
        self._poller: threading.Thread | None = None
        let_go_after_fork(self)

    def forked(self) -> None:
        """End the watches in the child: their threads stayed in the parent."""
        self._callbacks.forked()
        for watcher in self._watchers:
            watcher.forked()
        self._watchers.clear()
        self._poller = None

    @property
    def path(self) -> str:
        """The path of the file."""
        return self._journal.path

    @property
    def _lock_timeout(self) -> float:
        return max(self.timeout.total_seconds(), LOCK_TIMEOUT_SECONDS_MIN)

    def _do(self, operation: Operation[T]) -> T:
        name = operation.SPEC.name
        if not operation.SPEC.writes:
            with self._journal.looked(name, self._lock_timeout) as replica:
                return operation.apply(replica.contents)
        if isinstance(operation, DeleteKey):
            return self._do(Take(operation.key)) is not None  # type: ignore[return-value]
        return self._change(operation)

    def _change(self, operation: Operation[T]) -> T:
        """Append an operation and apply it. An operation that would change nothing is only applied."""
        self._journal.enter(self._lock_timeout)
        with self._journal.locked(operation.SPEC.name, self._lock_timeout) as replica:
            if not operation.changes(replica.contents):
                return operation.apply(replica.contents)
            kind, parts, number = recorded(operation)
            try:
                result: T = self._journal.change(kind, *parts, number=number)
            except Refused as refused:
                raise raised(operation, refused, self._where()) from None
            return result

    def _await(self, operation: Operation[T], seconds: float) -> T | None:
        if isinstance(operation, Barrier):
            return self._gather(operation, seconds)  # type: ignore[return-value]
        if isinstance(operation, QueuePop):
            return self._pop(operation, seconds)  # type: ignore[return-value]
        return self._block(operation, seconds)

    def _pop(self, pop: QueuePop, seconds: float) -> bytes | None:
        deadline = time.monotonic() + seconds
        while True:
            left = max(0.0, deadline - time.monotonic())
            if not self._block(_AnElement([pop.key]), left):
                return None
            value = self._change(pop)
            if value is not None or left <= 0:  # None: another process took the element first
                return value

    def _block(self, operation: Operation[T], seconds: float) -> T | None:
        name = operation.SPEC.name if not isinstance(operation, _AnElement) else "queue_pop"
        return self._journal.block(
            name, lambda contents: Blocked(contents, operation), seconds, self._lock_timeout, lambda: self._closed
        ).result

    def _gather(self, barrier: Barrier, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        ticket = self._arrive(barrier)
        journal, delay, released = self._journal, POLL_SECONDS_MIN, False
        try:
            with journal.mutex:
                while not (released := ticket not in journal.replica.places):
                    left = deadline - time.monotonic()
                    if left <= 0:
                        break
                    delay = journal.pause(left, delay)
                    if self._closed:
                        raise StoreClosed(
                            f"barrier({barrier.key.decode()!r}): the store was closed meanwhile; close it later"
                        )
        finally:
            if not released:
                with journal.locked("barrier", self._lock_timeout) as replica:
                    # The last caller may have arrived after the time-out and before this process got the lock.
                    released = ticket not in replica.places
                    if not released:
                        journal.change(Kind.WITHDRAW, ticket)
        return released

    def _arrive(self, barrier: Barrier) -> bytes:
        journal = self._journal
        journal.enter(self._lock_timeout)
        with journal.locked("barrier", self._lock_timeout) as replica:
            journal.collect()  # a process that died in the barrier has not arrived
            earlier = replica.barriers.arrived_with(barrier.key, barrier.token)
            if isinstance(earlier, BarrierPlace):
                journal.change(Kind.WITHDRAW, earlier.ticket)
            ticket = journal.next_ticket() + barrier.token
            try:
                journal.change(Kind.ARRIVE, barrier.key, ticket, number=barrier.world_size)
            except Refused as refused:
                raise raised(barrier, refused, self._where()) from None
        return ticket

    # Watches, clones, end.

    def _watch(self, name: bytes, callback: Callable[[Event], None], on_lost: OnLost | None = None) -> Watch:
        watcher = KeyWatcher(self._callbacks, name.decode(), callback, on_lost, self._unwatch)
        self._callbacks.start()
        with self._journal.looked("watch_key", self._lock_timeout) as replica:
            replica.contents.watching.begin(watcher, name)
            self._watchers.add(watcher)
            if self._poller is None:
                self._poller = threading.Thread(target=self._poll, name="trystate-file", daemon=True)
                self._poller.start()
        return watcher.watch

    def _unwatch(self, watcher: KeyWatcher) -> None:
        with self._journal.mutex:
            self._journal.replica.contents.watching.end(watcher, watcher.name)
            self._watchers.discard(watcher)

    def _poll(self) -> None:
        """Read the file while a key is watched: reading it calls the watchers."""
        journal = self._journal
        with journal.mutex:
            gaps, seen, delay = journal.gaps, journal.offset, POLL_SECONDS_MIN
            reason = StoreError(f"changes were missed ({self._where()}); read the key, and watch it again")
            while self._watchers and not self._closed:
                try:
                    delay = journal.pause(PAUSE_SECONDS, delay)
                except StoreError as error:  # the file was deleted, cut or replaced, and its changes are lost
                    reason = error
                    break
                if gaps != journal.gaps:
                    break
                if seen != journal.offset:
                    seen, delay = journal.offset, POLL_SECONDS_MIN
            for watcher in self._watchers:
                if not self._closed:
                    watcher.lose(reason)
                journal.replica.contents.watching.end(watcher, watcher.name)
            self._watchers.clear()
            self._poller = None

    def _clone(self) -> FileStore:
        clone = FileStore.__new__(FileStore)
        Store.__init__(clone, self.timeout, key_bytes=self.key_bytes, value_bytes=self.value_bytes)
        clone._journal = self._journal.shared()
        clone._begin()
        return clone

    def _close(self) -> None:
        for watcher in list(self._watchers):
            watcher.watch.cancel()
        with self._journal.mutex:
            self._journal.changed.notify_all()
        self._callbacks.stop()
        self._journal.release()

    def _where(self) -> str:
        return f"file {self._journal.path}"
