"""A disk for a journal. In a crash the disk loses data that was not synced: all of it, some of it, or none.

Theory of operation. A file has durable bytes and writes that are not synced. A directory has durable entries and
changes of entries that are not synced. The call that the test chooses (`calls_left`) raises `Crash` and does nothing. A
write can be cut at any byte (`bytes_left`), as by a kill. `after_crash` is the disk that the next server finds.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from trystate.impl.host.disk import Disk

SECTOR = 16  # a sector is written completely or not at all; small, so a batch of a test has several


class Crash(BaseException):
    """The server ends here."""


@dataclass
class Inode:
    """A file: the bytes that a process reads, the durable bytes, and the changes that are not synced."""

    seen: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    unsynced: list[tuple[Literal["write", "cut"], int, bytes]] = field(default_factory=list)


def _write(data: bytearray, at: int, new: bytes) -> None:
    data.extend(bytes(max(at + len(new) - len(data), 0)))
    data[at : at + len(new)] = new


def _cut(data: bytearray, size: int) -> None:
    del data[size:]
    data.extend(bytes(size - len(data)))


class ForgetfulDisk(Disk):
    """A disk in memory, with one directory."""

    def __init__(self) -> None:
        self.entries: dict[str, Inode] = {}
        self.durable_entries: dict[str, Inode] = {}
        self.changes: list[tuple[str, Inode | None]] = []  # changes of entries that are not synced
        self.open_files: dict[int, Inode] = {}
        self.calls_left = self.bytes_left = -1  # until the crash; -1: no crash
        self.room = 1 << 40  # bytes that can be reserved
        self.calls = self.bytes_written = 0
        self.fails: str | None = None  # the call that raises OSError

    def _call(self, name: str) -> None:
        self.calls += 1
        if self.calls_left == 0:
            raise Crash(name)
        self.calls_left -= 1
        if name == self.fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def _entry(self, name: str, inode: Inode | None) -> None:
        self.changes.append((name, inode))
        if inode is None:
            self.entries.pop(name, None)
        else:
            self.entries[name] = inode

    # The calls of a journal.

    def names(self, directory: str) -> list[str]:
        return list(self.entries)

    def create(self, path: str) -> int:
        self._call("create")
        inode = Inode()
        self._entry(os.path.basename(path), inode)
        return self._opened(inode)

    def open(self, path: str) -> int:
        return self._opened(self.entries[os.path.basename(path)])

    def _opened(self, inode: Inode) -> int:
        fd = max(self.open_files, default=100) + 1
        self.open_files[fd] = inode
        return fd

    def close(self, fd: int) -> None:
        del self.open_files[fd]

    def size(self, fd: int) -> int:
        return len(self.open_files[fd].seen)

    def read(self, fd: int, count: int, at: int) -> bytes:
        return bytes(self.open_files[fd].seen[at : at + count])

    def write(self, fd: int, data: bytes, at: int) -> None:
        self._call("write")
        inode = self.open_files[fd]
        if 0 <= self.bytes_left < len(data):
            data = data[: self.bytes_left]
            self.calls_left = 0
        self.bytes_left -= len(data) if self.bytes_left >= 0 else 0
        self.bytes_written += len(data)
        _write(inode.seen, at, data)
        inode.unsynced.append(("write", at, data))
        if self.calls_left == 0:
            raise Crash("write")

    def reserve(self, fd: int, at: int, count: int) -> None:
        self._call("reserve")
        if count > self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.room -= count
        inode = self.open_files[fd]
        if at + count > len(inode.seen):
            zeros = bytes(at + count - len(inode.seen))
            inode.unsynced.append(("write", len(inode.seen), zeros))
            inode.seen += zeros

    def free(self, directory: str) -> int:
        return self.room

    def cut(self, fd: int, size: int) -> None:
        self._call("cut")
        inode = self.open_files[fd]
        _cut(inode.seen, size)
        inode.unsynced.append(("cut", size, b""))

    def sync(self, fd: int) -> None:
        self._call("sync")
        inode = self.open_files[fd]
        inode.durable = bytearray(inode.seen)
        inode.unsynced.clear()

    def replace(self, path: str, by: str) -> None:
        self._call("replace")
        if os.path.basename(path) == os.path.basename(by):
            return  # the system does nothing, too
        inode = self.entries[os.path.basename(by)]
        self._entry(os.path.basename(path), inode)
        self.entries.pop(os.path.basename(by))
        self.changes.append((os.path.basename(by), None))

    def remove(self, path: str) -> None:
        self._call("remove")
        self._entry(os.path.basename(path), None)

    def sync_directory(self, directory: str) -> None:
        self._call("sync_directory")
        self.durable_entries = dict(self.entries)
        self.changes.clear()

    # The end.

    def after_crash(self, survives: Callable[[], bool]) -> ForgetfulDisk:
        """The disk after a crash: it has a prefix of the changes of entries, and any sectors of the writes."""
        found = ForgetfulDisk()
        entries = dict(self.durable_entries)
        for name, inode in self.changes:
            if not survives():
                break
            entries.pop(name, None)
            if inode is not None:
                entries[name] = inode
        for name, inode in entries.items():
            data = bytearray(inode.durable)
            for what, at, new in inode.unsynced:
                if what == "cut":
                    if survives():
                        _cut(data, at)
                    continue
                for begin in range(0, len(new), SECTOR):
                    if survives():
                        _write(data, at + begin, new[begin : begin + SECTOR])
            found.entries[name] = found.durable_entries[name] = Inode(bytearray(data), bytearray(data))
        return found
