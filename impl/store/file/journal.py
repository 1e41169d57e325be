"""The file of a `FileStore`: a log. One process at a time appends to it. All processes read it without a lock.

Rule: a change is appended as a whole, under an exclusive `flock`, by a process that has read everything before it. A
reader uses whole records only, so a writer may be slow, stopped or killed at any byte.

- The lock is on the file. A process tries to get it again and again until the caller's timeout, because a stopped
  process keeps the lock. The kernel releases the lock of a process that dies.
- A record that was cut off is removed by the next writer.
- When most of the file is history, a writer replaces the file by a snapshot (rename). A reader still has the old file
  open. It reads the old file to the end and then continues in the new file. A process that gets the lock of a replaced
  file tries again with the new file.
- Only a snapshot is fsynced. A job does not survive its machine, and its processes share one page cache.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import util
from pathlib import Path
from typing import Any, TypeVar

from ...host.disk import write_all
from ...host.forking import let_go_after_fork
from ..contents.contents import Contents, Refused
from ..errors import FileLost, FileRefused, LimitExceeded, StoreClosed, StoreError, StoreTimeout
from ..memory import Blocked
from ..wire import U64
from .locks import Handle, in_place, lock, unlock
from .process_identity import myself
from .records import MAGIC, RECORD_BYTES_MAX, Kind, Record, Scan, encode, scan
from .replica import TICKET_BYTES, Replica, join

POLL_SECONDS_MIN, POLL_SECONDS_MAX = 0.001, 0.020  # the pauses of a wait: hardly noticeable, and cheap
COMPACT_BYTES_MIN = 1 << 20  # a shorter history is read in a few milliseconds
COMPACT_FACTOR = 4  # three quarters of the file are history
COMPACT_SECONDS_MIN = 1.0  # between two snapshots: a watcher that looks every POLL_SECONDS_MAX sees all of each file
# How long a closed store waits for the lock to write its LEAVE: first in `close`, then in a thread. Without a LEAVE the
# other processes still notice the end of this process.
CLOSE_SECONDS, LEAVE_SECONDS = 0.5, 60.0


B = TypeVar("B", bound=Blocked[Any])


class Journal:
    """One process's view of a store's file. The store and its clones share it."""

    def __init__(self, path: str, world_size: int, job: str, seconds: float) -> None:
        self.path = os.path.realpath(path)  # a symlink stays a symlink when a snapshot replaces the file
        self.world_size, self.job = world_size, job.encode()
        self.holders = 1
        self.forked()
        let_go_after_fork(self)
        self.enter(seconds)

    def forked(self) -> None:
        """Return to the state before the file was opened: both processes would hold a lock from before the fork."""
        self.mutex = threading.Lock()  # guards all fields below; never held while waiting
        self.changed = threading.Condition(self.mutex)
        # One thread at a time tries to get the file's lock. If an interrupt (Ctrl-C) left this lock held, its thread
        # takes it again.
        self.writing = threading.RLock()
        self.replica = Replica()
        self.handle: Handle | None = None
        self.offset = 0  # the place of the first byte that is not in the replica
        self.torn = False  # the replica may be between two states: an interrupt came while it changed
        self.ticket = b""
        self.arrivals = 0
        self.gaps = 0  # how often two snapshots came between two looks, so changes were missed
        self.compact_at = COMPACT_BYTES_MIN

    # Reading, under the mutex.

    def read(self) -> bool:
        """Replay the appended records. False if further bytes do not read: only under the lock is that damage."""
        if self.handle is None:
            raise self._was_closed()
        try:
            info = os.stat(self.path)
        except OSError as error:
            raise FileLost(f"file {self.path} does not exist any more ({error.strerror}): its job is over, or it was "
                           "deleted; keep it until all processes have closed their stores") from None  # fmt: skip
        if self.torn:
            self._mend(self.handle)
        if (info.st_dev, info.st_ino) != self.handle.place:
            self._take_in(self.handle)
            self._follow()
        elif info.st_size == self.offset:
            return True
        elif info.st_size < self.offset:
            raise FileLost(f"file {self.path} was cut from {self.offset} to {info.st_size} bytes by another program; "
                           "close this store and make a new one")  # fmt: skip
        return not self._take_in(self.handle).damaged

    def _take_in(self, handle: Handle) -> Scan:
        found = scan(_contents(handle, self.offset))
        self.torn = True
        for record in found.records:
            self.replica.replay(record)
        self.offset += found.used
        self.torn = False
        return found

    def _mend(self, handle: Handle) -> None:
        """Read the file from its start. It is unknown which watches were called for the interrupted change."""
        after, used = _load(_contents(handle, 0), self.path)
        if after is None:
            raise FileLost(f"file {self.path} was cut by another program; close this store and make a new one")
        self.gaps += 1
        self._become(after, handle, used)
        self._take_in(handle)

    def _become(self, after: Replica, handle: Handle, used: int) -> None:
        self.torn = True
        self.replica.become(after)
        self.handle, self.offset = handle, used  # the records after the snapshot have to be replayed
        self.torn = False

    def _follow(self) -> None:
        """Continue in the snapshot that has replaced the file."""
        try:
            handle = Handle(os.open(self.path, os.O_RDWR | os.O_CLOEXEC))
        except OSError as error:
            raise FileLost(f"file {self.path} cannot be opened any more ({error.strerror}); do not change it") from None
        after, used = _load(_contents(handle, 0), self.path)
        if after is None or after.identity != self.replica.identity:
            raise FileLost(f"file {self.path} was replaced by another one; close this store and make a new one")
        self.gaps += after.generation > self.replica.generation + 1
        self._become(after, handle, used)

    # Writing.

    @contextmanager
    def locked(self, operation: str, seconds: float) -> Iterator[Replica]:
        """The replica, up to date, under the file's lock. Raises StoreTimeout, FileLost, FileRefused."""
        deadline = time.monotonic() + seconds
        handle: Handle | None = None
        try:
            if not self.writing.acquire(timeout=seconds):
                raise self._late(operation, seconds, f"thread of this process writes to file {self.path} or waits for "
                                 "its lock; see what it does")  # fmt: skip
            try:
                handle = self._grab(operation, seconds, deadline)
                with self.mutex:
                    if not self.read():
                        raise self._damaged()
                    if os.fstat(handle.fd).st_size > self.offset:
                        os.ftruncate(handle.fd, self.offset)  # removes a part of a record whose writer was killed
                    yield self.replica
                    self.changed.notify_all()
            finally:
                # An interrupt may come after `_grab` got the lock and before `handle` is set.
                if (held := handle or self.handle) is not None:
                    unlock(held, self.path)
        finally:
            try:
                while True:  # also releases a lock that an earlier interrupt left held
                    self.writing.release()
            except RuntimeError:  # not held by this thread; only the error shows that if `acquire` was interrupted
                pass

    def _grab(self, operation: str, seconds: float, deadline: float) -> Handle:
        while True:
            with self.mutex:
                self.read()
                handle = self.handle
            assert handle is not None  # read() has checked it
            kept = False
            try:
                if not lock(handle, deadline, self.path):
                    raise self._late(operation, seconds)
                if kept := in_place(handle, self.path):
                    return handle
            finally:
                if not kept:
                    unlock(handle, self.path)

    def append(self, *records: bytes) -> int:
        """Write records at the end of the file, all or none, and return the new end. Under the lock."""
        assert self.handle is not None
        data = b"".join(records)
        try:
            write_all(self.handle.fd, data, self.offset)
        except OSError as error:
            os.ftruncate(self.handle.fd, self.offset)
            raise StoreError(f"file {self.path}: {error.strerror}; nothing was changed: make room there") from error
        return self.offset + len(data)

    def change(self, kind: Kind, *parts: bytes, number: int = 0) -> Any:
        """Append an operation, do it, and return its result. Under the lock. Raises Refused."""
        size = sum(map(len, parts)) + 16 * len(parts)
        if size > RECORD_BYTES_MAX:
            raise LimitExceeded(f"file {self.path}: a change of {size} bytes, limit {RECORD_BYTES_MAX}; make several")
        end = self.append(encode(kind, *parts, number=number))
        result = self._done(Record(kind, number, parts), end)
        if self.offset > max(self.compact_at, COMPACT_FACTOR * self.replica.bytes_live):
            assert self.handle is not None  # append() has written to it
            if time.monotonic() - self.handle.since > COMPACT_SECONDS_MIN:
                self.compact()
        return result

    def _done(self, record: Record, end: int) -> Any:
        """Apply a record that is in the file now. After an interrupt in here the next look reads the whole file."""
        self.torn = True
        try:
            result = self.replica.apply(record)
        except Refused:
            self.offset, self.torn = end, False
            raise
        self.offset, self.torn = end, False
        return result

    def compact(self) -> None:
        """Replace the file by a snapshot, under the lock. If that fails the file stays as it is."""
        assert self.handle is not None
        beside = self.path + ".compact"  # always this name, so the file of a killed writer is overwritten
        data = replace(self.replica, generation=self.replica.generation + 1).snapshot()
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            handle = Handle(os.open(beside, flags, stat.S_IMODE(os.fstat(self.handle.fd).st_mode)))
            write_all(handle.fd, data, 0)
            os.fsync(handle.fd)
            os.replace(beside, self.path)
        except OSError:
            self.compact_at = 2 * self.offset  # the change itself is done; try again much later
        else:
            self.torn = True
            self.replica.generation += 1
            self.handle, self.offset, self.compact_at = handle, len(data), COMPACT_BYTES_MIN
            self.torn = False

    def collect(self) -> None:
        """Record that users who died without closing have left, and withdraw their arrivals. Under the lock."""
        for ticket in [ticket for ticket, user in self.replica.users.items() if not user.lives()]:
            self.change(Kind.LEAVE, ticket)

    def _was_closed(self) -> StoreClosed:
        return StoreClosed(f"file {self.path}: its store was closed meanwhile; close it later, or make another one")

    def _late(self, operation: str, seconds: float, why: str = "") -> StoreTimeout:
        why = why or f"process has the lock of file {self.path} and does not release it; see whether it is stopped"
        return StoreTimeout(f"{operation}: timed out after {round(seconds * 1000)}ms, another {why}")

    # Looking and waiting.

    @contextmanager
    def looked(self, operation: str, seconds: float) -> Iterator[Replica]:
        """The replica, up to date, without the file's lock."""
        self.enter(seconds)
        with self.mutex:
            reads = self.read()
            if reads:
                yield self.replica
                return
        with self.locked(operation, seconds) as replica:  # under the lock no writer is active, so the rest is damage
            yield replica

    def pause(self, seconds: float, delay: float) -> float:
        """Wait for a change by this process for at most `delay`, read, and return the next delay. Under the mutex."""
        self.changed.wait(min(seconds, delay))
        self.read()
        return min(1.5 * delay, POLL_SECONDS_MAX)

    def block(self, operation: str, make: Callable[[Contents], B], seconds: float, lock_timeout: float,
              closed: Callable[[], bool]) -> B:  # fmt: skip
        """Wait for keys until they are present or the time is over. `lock_timeout` is for getting the file's lock."""
        deadline = time.monotonic() + seconds
        with self.looked(operation, lock_timeout) as replica:
            wait, waiting = make(replica.contents), replica.contents.waiting
            if waiting.look(wait):
                wait.satisfied()
            else:
                waiting.begin(wait)
        delay = POLL_SECONDS_MIN
        with self.mutex:
            try:
                while not wait.done and (left := deadline - time.monotonic()) > 0:
                    delay = self.pause(left, delay)
                    if closed() and not wait.done:
                        raise StoreClosed(f"{operation}: the store was closed meanwhile; close it later")
            finally:
                if not wait.done and not self.torn:  # a torn replica may hold half a wait; `_mend` repairs it
                    waiting.withdraw(wait)
        return wait

    # Coming and going.

    def enter(self, seconds: float) -> None:
        """Become a user of the file if this process is not one yet: at first, and after a fork."""
        if self.handle is not None:
            return
        with self.writing:
            if not self.holders:
                raise self._was_closed()
            if self.handle is None:
                self._open(seconds)

    def _open(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while True:
            handle = _opened(self.path)
            try:
                if not lock(handle, deadline, self.path):
                    raise self._late("FileStore", seconds)
                if in_place(handle, self.path):
                    self._join(handle)
                    return
            finally:
                unlock(handle, self.path)

    def _join(self, handle: Handle) -> None:
        with self.mutex:
            try:
                begun = self._begin(handle)
                self.ticket = secrets.token_bytes(TICKET_BYTES)
                self.offset = self.append(begun, join(self.ticket, myself()))
                self.replica.users[self.ticket] = myself()
                self.collect()
            except BaseException:
                self.handle = None
                raise
        # Unlike atexit, this also runs at the end of processes that multiprocessing starts.
        self.farewell = util.Finalize(None, self.leave, exitpriority=0)

    def _begin(self, handle: Handle) -> bytes:
        """Read the file if it belongs to our job, and cut off an unfinished record. Returns the start of a new file."""
        self.handle = handle
        found, self.offset = _load(_contents(handle, 0), self.path)
        if found is not None:
            self.replica = found
            if self._take_in(handle).damaged:
                raise self._damaged()
        if found is None or not self._continues(found):
            self.replica = Replica(secrets.token_bytes(TICKET_BYTES), world_size=self.world_size, job=self.job)
            self.offset = 0
        os.ftruncate(handle.fd, self.offset)
        return b"" if self.offset else self.replica.snapshot()

    def _damaged(self) -> FileRefused:
        return FileRefused(f"file {self.path} is damaged at byte {self.offset}; restore or delete it")

    def _continues(self, found: Replica) -> bool:
        """Whether a file belongs to our job; False: to a job that is over. Raises FileRefused if to another job."""
        living = sorted(user.shown for user in found.users.values() if user.lives())
        ours = (found.world_size, found.job) == (self.world_size, self.job)
        if ours:
            # All users are dead. Some have not closed, or the last one was killed before it deleted the file.
            crashed = not living and (found.users or found.left >= self.world_size)
            return self.world_size < 0 or not crashed
        if living or found.world_size < 0:
            used = f"used by {', '.join(living)}" if living else "kept, because it has no world_size"
            raise FileRefused(f"file {self.path} has world_size {found.world_size} and job {found.job.decode()!r}, "
                              f"not {self.world_size} and {self.job.decode()!r}, and is {used}: "
                              "use another file, or delete it when no process uses it")  # fmt: skip
        return False

    def shared(self) -> Journal:
        """This journal, for one more store of this process."""
        with self.mutex:
            self.holders += 1
        return self

    def release(self) -> None:
        """Release the journal for one store. The last release leaves the file."""
        with self.mutex:
            self.holders -= 1
            last = self.holders == 0
        if last:
            self.leave()

    def next_ticket(self) -> bytes:
        """A new name for an arrival. Under the lock."""
        self.arrivals += 1
        return self.ticket + U64.pack(self.arrivals)

    def leave(self, seconds: float = CLOSE_SECONDS) -> None:
        """Stop using the file. The last of `world_size` users deletes it. Never raises for acts of other processes."""
        if self.handle is None:
            return
        self.farewell.cancel()
        later = False
        try:
            with self.locked("close", seconds) as replica:
                self.collect()
                self.change(Kind.LEAVE, self.ticket)
                if 0 <= self.world_size <= replica.left and not replica.users:
                    os.unlink(self.path)
                    Path(self.path + ".compact").unlink(missing_ok=True)
        except StoreTimeout:
            later = seconds < LEAVE_SECONDS and self._leave_later()
        except (StoreError, OSError):
            pass  # the file was deleted already, or this user may not delete it
        finally:
            if not later:
                with self.mutex:
                    self.handle = None

    def _leave_later(self) -> bool:
        """Leave in a thread while a stopped process has the lock. Otherwise this process would count as a user."""
        with contextlib.suppress(RuntimeError):  # the interpreter exits, which the other processes notice
            threading.Thread(target=self.leave, args=(LEAVE_SECONDS,), name="trystate-file", daemon=True).start()
            return True
        return False


def _opened(path: str) -> Handle:
    try:
        handle = Handle(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o600))
    except OSError as error:
        raise FileRefused(f"file {path} cannot be opened ({error.strerror}); give a file in a directory that exists "
                          "and that all processes may write") from error  # fmt: skip
    if not stat.S_ISREG(os.fstat(handle.fd).st_mode):
        raise FileRefused(f"{path} is not a regular file; give another path")
    return handle


def _contents(handle: Handle, offset: int) -> bytes:
    parts: list[bytes] = []
    while (left := os.fstat(handle.fd).st_size - offset) > 0:  # not more: to allocate a large buffer takes 50 us
        parts.append(os.pread(handle.fd, left, offset))
        offset += len(parts[-1])
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _load(data: bytes, path: str) -> tuple[Replica | None, int]:
    """The snapshot at the start of a file, and its length; None if the file is empty or its first writer was killed."""
    if not data.startswith(MAGIC):
        if MAGIC.startswith(data):
            return None, 0
        raise FileRefused(f"file {path} is not a file of a trystate FileStore of this version: it begins with "
                          f"{data[: len(MAGIC)]!r}, not {MAGIC!r}; use another file, or delete it")  # fmt: skip
    found = scan(data[len(MAGIC) :])
    replica, used = Replica(), len(MAGIC)
    for record in found.records:
        replica.replay(record)
        used += record.size
        if record.kind is Kind.SNAPSHOT_END:
            return replica, used
    if found.damaged:
        raise FileRefused(f"file {path} is damaged at byte {used}; restore or delete it")
    return None, 0
