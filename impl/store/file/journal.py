"""The file of a `FileStore`: a log that processes append to, one at a time, and that everybody reads without a lock.

Rule: a change is appended whole, under an exclusive `flock`, by a process that has read everything before it. A reader
takes whole records only, so that a writer may be slow, stopped, or killed at any byte.

- The lock is on the file; it is asked for again and again until the caller's time is over, because a process that is
  stopped keeps it. The kernel takes it from one that dies.
- A record that was cut off is cut away by the next writer.
- When most of the file is history, a writer puts a snapshot in its place (rename). A reader keeps the old file open
  and reads it to its end, then goes on in the new one. A process that gets the lock of a file that is no longer in its
  place begins again.
- Nothing is fsynced except a snapshot: a job does not survive its machine, and its processes share one page cache.
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

from ...host.forking import let_go_after_fork
from ..contents.contents import Contents, Refused
from ..errors import FileLost, FileRefused, LimitExceeded, StoreClosed, StoreError, StoreTimeout
from ..memory import Blocked
from ..wire import U64
from .locks import Handle, in_place, lock, unlock
from .process_identity import myself
from .records import MAGIC, RECORD_BYTES_MAX, Kind, Record, Scan, encode, scan
from .replica import TICKET_BYTES, Replica, join

POLL_SECONDS_MIN, POLL_SECONDS_MAX = 0.001, 0.020  # of a wait: short enough not to be felt, long enough not to burn
COMPACT_BYTES_MIN = 1 << 20  # below, reading the history takes a few milliseconds
COMPACT_FACTOR = 4  # at three quarters of history
COMPACT_SECONDS_MIN = 1.0  # between two: a watcher that looks every POLL_SECONDS_MAX sees all of every file
# To say good-bye under the lock, when a store is closed, and then in a thread while its process goes on. Without it
# the others still see the process end.
CLOSE_SECONDS, LEAVE_SECONDS = 0.5, 60.0


B = TypeVar("B", bound=Blocked[Any])


class Journal:
    """One process's view of a store's file; the store and its clones share it."""

    def __init__(self, path: str, world_size: int, job: str, seconds: float) -> None:
        self.path = os.path.realpath(path)  # a symlink stays one when a snapshot takes the file's place
        self.world_size, self.job = world_size, job.encode()
        self.holders = 1
        self.forked()
        let_go_after_fork(self)
        self.enter(seconds)

    def forked(self) -> None:
        """As before the file was opened: a lock that was taken before the fork would be held by both processes."""
        self.mutex = threading.Lock()  # over all below; never held while waiting for anything
        self.changed = threading.Condition(self.mutex)
        # One thread at a time asks for the file's lock. A lock that an interrupt (Ctrl-C) left taken is taken again by
        # its thread.
        self.writing = threading.RLock()
        self.replica = Replica()
        self.handle: Handle | None = None
        self.offset = 0  # of the first byte that is not in the replica
        self.torn = False  # the replica may be between two states: an interrupt came while it changed
        self.ticket = b""
        self.arrivals = 0
        self.gaps = 0  # times when two snapshots came between two looks: changes went by unseen
        self.compact_at = COMPACT_BYTES_MIN

    # Reading; under the mutex.

    def read(self) -> bool:
        """Take in what was appended. False if what follows does not read, which only the lock can judge."""
        if self.handle is None:
            raise self._was_closed()
        try:
            info = os.stat(self.path)
        except OSError as error:
            raise FileLost(f"file {self.path} is gone ({error.strerror}): its job is over, or somebody deleted it; "
                           "keep it until all have closed their stores") from None  # fmt: skip
        if self.torn:
            self._mend(self.handle)
        if (info.st_dev, info.st_ino) != self.handle.place:
            self._take_in(self.handle)
            self._follow()
        elif info.st_size == self.offset:
            return True
        elif info.st_size < self.offset:
            raise FileLost(f"file {self.path} was cut from {self.offset} to {info.st_size} bytes by somebody else; "
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
        """Read the file from its beginning. It is not known which watches were told of the interrupted change."""
        after, used = _load(_contents(handle, 0), self.path)
        if after is None:
            raise FileLost(f"file {self.path} was cut by somebody else; close this store and make a new one")
        self.gaps += 1
        self._become(after, handle, used)
        self._take_in(handle)

    def _become(self, after: Replica, handle: Handle, used: int) -> None:
        self.torn = True
        self.replica.become(after)
        self.handle, self.offset = handle, used  # the records after the snapshot are history again, to be replayed
        self.torn = False

    def _follow(self) -> None:
        """Go on in the snapshot that took the file's place."""
        try:
            handle = Handle(os.open(self.path, os.O_RDWR | os.O_CLOEXEC))
        except OSError as error:
            raise FileLost(f"file {self.path} cannot be opened any more ({error.strerror}); keep it as it is") from None
        after, used = _load(_contents(handle, 0), self.path)
        if after is None or after.identity != self.replica.identity:
            raise FileLost(f"file {self.path} was replaced by another one; close this store and make a new one")
        self.gaps += after.generation > self.replica.generation + 1
        self._become(after, handle, used)

    # Writing.

    @contextmanager
    def locked(self, operation: str, seconds: float) -> Iterator[Replica]:
        """The replica, up to date and ours alone. Raises StoreTimeout, FileLost, FileRefused."""
        deadline = time.monotonic() + seconds
        handle: Handle | None = None
        try:
            if not self.writing.acquire(timeout=seconds):
                raise self._busy(operation, seconds)
            try:
                handle = self._grab(operation, seconds, deadline)
                with self.mutex:
                    if not self.read():
                        raise self._damaged()
                    if os.fstat(handle.fd).st_size > self.offset:
                        os.ftruncate(handle.fd, self.offset)  # the beginning of a record whose writer was killed
                    yield self.replica
                    self.changed.notify_all()
            finally:
                if (held := handle or self.handle) is not None:  # else an interrupt may come as it is handed over
                    unlock(held, self.path)
        finally:
            try:
                while True:  # also what an earlier interrupt left
                    self.writing.release()
            except RuntimeError:  # it is not ours, any more or yet: only acquire() itself knows, and may be interrupted
                pass

    def _grab(self, operation: str, seconds: float, deadline: float) -> Handle:
        while True:
            with self.mutex:
                self.read()
                handle = self.handle
            assert handle is not None  # read() has seen it
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
        """Put records at the end of the file, all or none; the new end. Under the lock."""
        assert self.handle is not None
        rest = memoryview(b"".join(records))
        at = self.offset
        try:
            while rest:
                count = os.pwrite(self.handle.fd, rest, at)
                rest, at = rest[count:], at + count
        except OSError as error:
            os.ftruncate(self.handle.fd, self.offset)
            raise StoreError(f"file {self.path}: {error.strerror}; nothing was changed: make room") from error
        return at

    def change(self, kind: Kind, *parts: bytes, number: int = 0) -> Any:
        """Append an operation, do it, and return its result. Under the lock. Raises Refused."""
        size = sum(map(len, parts)) + 16 * len(parts)
        if size > RECORD_BYTES_MAX:
            raise LimitExceeded(f"file {self.path}: one change of {size} bytes > {RECORD_BYTES_MAX}; make several")
        end = self.append(encode(kind, *parts, number=number))
        result = self._done(Record(kind, number, parts), end)
        if self.offset > max(self.compact_at, COMPACT_FACTOR * self.replica.bytes_live):
            assert self.handle is not None  # append() has written to it
            if time.monotonic() - self.handle.since > COMPACT_SECONDS_MIN:
                self.compact()
        return result

    def _done(self, record: Record, end: int) -> Any:
        """Do a record that now is in the file. Interrupted before it is read again, and within it all of the file."""
        self.torn = True
        try:
            result = self.replica.apply(record)
        except Refused:
            self.offset, self.torn = end, False
            raise
        self.offset, self.torn = end, False
        return result

    def compact(self) -> None:
        """Put a snapshot in the file's place. Under the lock; if it fails the file stays as it is."""
        assert self.handle is not None
        beside = self.path + ".compact"  # one name: a killed writer's file is overwritten, not collected
        data = replace(self.replica, generation=self.replica.generation + 1).snapshot()
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            handle = Handle(os.open(beside, flags, stat.S_IMODE(os.fstat(self.handle.fd).st_mode)))
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(handle.fd, rest) :]
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
        """Note who died without closing, and with it their arrivals. Under the lock."""
        for ticket in [ticket for ticket, user in self.replica.users.items() if not user.lives()]:
            self.change(Kind.LEAVE, ticket)

    def _was_closed(self) -> StoreClosed:
        return StoreClosed(f"file {self.path}: its store was closed meanwhile; close it later, or make another one")

    def _late(self, operation: str, seconds: float) -> StoreTimeout:
        return StoreTimeout(f"{operation}: timed out after {round(seconds * 1000)}ms, another process has the lock of "
                            f"file {self.path} and does not go on; see whether it is stopped")  # fmt: skip

    def _busy(self, operation: str, seconds: float) -> StoreTimeout:
        return StoreTimeout(f"{operation}: timed out after {round(seconds * 1000)}ms, another thread of this process "
                            f"writes to file {self.path}, or waits for its lock; see what it does")  # fmt: skip

    # Looking and waiting.

    @contextmanager
    def looked(self, operation: str, seconds: float) -> Iterator[Replica]:
        """The replica, up to date, without the lock."""
        self.enter(seconds)
        with self.mutex:
            reads = self.read()
            if reads:
                yield self.replica
                return
        with self.locked(operation, seconds) as replica:  # which tells damage from a writer at work
            yield replica

    def pause(self, seconds: float, delay: float) -> float:
        """Wait for a change in this process, or for a moment, and look; the next moment. Under the mutex."""
        self.changed.wait(min(seconds, delay))
        self.read()
        return min(1.5 * delay, POLL_SECONDS_MAX)

    def block(self, operation: str, make: Callable[[Contents], B], seconds: float, lock_timeout: float,
              closed: Callable[[], bool]) -> B:  # fmt: skip
        """Wait for keys: the wait is done, or its time is over. `lock_timeout` is for what is not waiting for keys."""
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
                if not wait.done and not self.torn:  # else it may be half withdrawn, and is mended with the rest
                    waiting.withdraw(wait)
        return wait

    # Coming and going.

    def enter(self, seconds: float) -> None:
        """Become a user of the file, if this process is none: at first, and after a fork."""
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
        # Unlike atexit, this runs at the end of processes that multiprocessing starts as well.
        self.farewell = util.Finalize(None, self.leave, exitpriority=0)

    def _begin(self, handle: Handle) -> bytes:
        """Read the file, if it is of our job, and cut off what was not finished; else what a new one begins with."""
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
        """Whether a file is of our job; False: of one that is over. Raises FileRefused if it is of another."""
        living = sorted(user.shown for user in found.users.values() if user.lives())
        ours = (found.world_size, found.job) == (self.world_size, self.job)
        if ours:
            crashed = not living and (found.users or found.left >= self.world_size)
            return self.world_size < 0 or not crashed
        if living or found.world_size < 0:
            used = f"used by {', '.join(living)}" if living else "kept, because it has no world_size"
            raise FileRefused(f"file {self.path} is of world_size {found.world_size}, job {found.job.decode()!r}, "
                              f"not of {self.world_size}, {self.job.decode()!r}, and is {used}: "
                              "take another file, or delete it when nobody uses it")  # fmt: skip
        return False

    def shared(self) -> Journal:
        """For one more store of this process."""
        with self.mutex:
            self.holders += 1
        return self

    def release(self) -> None:
        """One store less; the last one leaves."""
        with self.mutex:
            self.holders -= 1
            last = self.holders == 0
        if last:
            self.leave()

    def next_ticket(self) -> bytes:
        """Names an arrival. Under the lock."""
        self.arrivals += 1
        return self.ticket + U64.pack(self.arrivals)

    def leave(self, seconds: float = CLOSE_SECONDS) -> None:
        """Be no user any more; the last one of `world_size` deletes the file. Never raises for acts of others."""
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
            pass  # gone already, or not ours to delete
        finally:
            if not later:
                with self.mutex:
                    self.handle = None

    def _leave_later(self) -> bool:
        """A stopped process has the lock. This process may live for long, and would count as a user all the time."""
        with contextlib.suppress(RuntimeError):  # the interpreter ends, which the others see
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
        raise FileRefused(f"{path} is no regular file; give another path")
    return handle


def _contents(handle: Handle, offset: int) -> bytes:
    parts: list[bytes] = []
    while (left := os.fstat(handle.fd).st_size - offset) > 0:  # no more than that: a large buffer takes 50 us to get
        parts.append(os.pread(handle.fd, left, offset))
        offset += len(parts[-1])
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _load(data: bytes, path: str) -> tuple[Replica | None, int]:
    """The snapshot that a file begins with, and its length; None if its first writer was killed, or it is empty."""
    if not data.startswith(MAGIC):
        if MAGIC.startswith(data):
            return None, 0
        raise FileRefused(f"file {path} is not of a trystate FileStore, or of another version: it begins with "
                          f"{data[: len(MAGIC)]!r}, not {MAGIC!r}; take another file, or delete it")  # fmt: skip
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
