"""A disk for a journal, which loses unsynced data in a crash; and `Journals` on a real journal on such a disk.

Theory of operation. A file has durable bytes and writes that are not synced. A directory has durable entries and
changes of entries that are not synced. The call that the test chooses (`calls_left`) raises `Crash` and does nothing. A
write can be cut at any byte (`bytes_left`), as by a kill. `after_crash` is the disk that the next server finds.

In the model each change is an element of one queue, so the number of changes is the length of the queue. A batch stops
between its write and its sync. A batch with a snapshot is written when the model syncs the directory, or crashes before
that; until then it has no visible effect.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from trystate.impl.host.disk import Disk
from trystate.impl.store.durable.contents import MARK_BYTES, KeptContents
from trystate.impl.store.durable.journal import MAGIC, NAME, recovered
from trystate.impl.store.durable.records import Kind, scan
from trystate.impl.store.limits import Limits
from trystate.model.language.sorts import ordinal
from trystate.model.store.journals import Journals
from trystate.model.store.vocabulary import Keeping

from ..steps import Steps

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


QUEUE = b"/changes"
ADDED_CALLS, PLACED_CALLS = 1, 3  # calls of the disk before a crash: the write; then also the sync and the rename


class JournalsSubject(Steps):
    """A journal, its contents, and the changes that replies have reported."""

    def __init__(self, system: Journals) -> None:
        self.system = system

    def reset(self) -> None:
        self._disk = ForgetfulDisk()
        self._told = self._begun = self._whole = 0
        self._torn = False
        self._open()
        self._server = Keeping.READY

    def observe(self) -> Mapping[str, int]:
        """The numbers of changes that were made, are durable, were reported, and would be found by a start."""
        seen = {"made": self._made, "told": self._told, "begun": self._begun, "whole": self._whole}
        if self._server is not Keeping.DOWN:
            seen |= {"made": self._changes, "synced": self._begun + self._contents.durable}
        return seen | {"server": ordinal(self._server), "torn": int(self._torn)}

    @property
    def _changes(self) -> int:
        return self._contents.length(QUEUE)

    def _open(self) -> None:
        self._lines: list[str] = []
        self._contents = KeptContents(Limits())
        self._journal = recovered(self._disk, "/data", self._contents, self._lines.append)
        self._made = self._begun = self._changes
        self._contents.more = self._more
        self._frozen: Any = None
        self._file: Any = None
        self._batch = 0
        self._adding: tuple[bytes, bytes] | None = None

    def _more(self, size: int) -> None:
        self._contents.free += self._journal.reserve(size - self._contents.free)

    def _make(self) -> None:
        self._contents.push(QUEUE, b"%d" % self._changes)

    def _tell(self) -> None:
        self._told = self._begun + self._contents.durable

    def _take(self) -> bytes:
        data, self._batch = b"".join(self._contents.pending), self._contents.appended
        self._contents.pending.clear()
        return data

    def _begin_batch(self) -> None:
        self._journal.write(self._take())
        self._server = Keeping.SYNCING

    def _end_batch(self) -> None:
        self._journal.sync()
        self._ended()

    def _ended(self) -> None:
        self._contents.durable = self._batch
        self._contents.free = self._journal.free(self._contents)
        self._server = Keeping.READY

    def _freeze(self) -> None:
        self._frozen = self._contents.freeze()

    def _finish_snapshot(self) -> None:
        self._file = self._journal.snapshot(self._frozen)

    def _add_the_rest(self) -> None:
        since = b"".join(self._contents.since or [])
        self._contents.since = None
        self._journal.prepare(self._file, len(since), self._contents)
        self._adding = self._take(), since
        self._server = Keeping.ADDING

    def _place(self) -> None:
        self._server = Keeping.PLACED

    def _sync_directory(self) -> None:
        assert self._adding is not None
        self._journal.commit(*self._adding)
        self._adding = None
        self._ended()

    # Crashes.

    def _crashed(self, survives: bool) -> None:
        """End the server at this point. The disk keeps all unsynced data, or none."""
        if self._adding is not None:
            self._disk.calls_left = ADDED_CALLS if self._server is Keeping.ADDING else PLACED_CALLS
            with contextlib.suppress(Crash):
                self._journal.commit(*self._adding)
        self._made = self._changes
        self._disk = self._disk.after_crash(lambda: survives)
        self._server = Keeping.DOWN

    def _lose_what_was_not_synced(self) -> None:
        end, written = self._journal.file.synced, self._server is Keeping.SYNCING
        seen = bytes(self._disk.entries[NAME].seen)
        self._crashed(False)
        if written:
            self._cut(end + MARK_BYTES + 5, seen)
        self._look()

    def _keep_some(self, change: int) -> None:
        seen = bytes(self._disk.entries[NAME].seen)
        self._crashed(True)
        at = len(MAGIC)
        file, changes = self._journal.file, 0

        def number(offset: int) -> int:
            return file.number(len(MAGIC) + offset) if offset else 0  # the header has the number 0

        for record in scan(seen[at:], number).records:
            changes += record.kind is Kind.PUSH
            if changes > change + 1:
                break
            at += record.size
        self._cut(at + 10 if changes > change + 1 else len(seen), seen)
        self._look()

    def _cut(self, size: int, data: bytes) -> None:
        """The journal has only the first `size` of these bytes."""
        inode = Inode(bytearray(data[:size]), bytearray(data[:size]))
        self._disk.entries[NAME] = self._disk.durable_entries[NAME] = inode

    def _find_the_new_file(self) -> None:
        self._crashed(True)
        self._look()

    def _look(self) -> None:
        """Count the changes that a start would find."""
        contents, lines = KeptContents(Limits()), list[str]()
        recovered(self._disk.after_crash(lambda: True), "/data", contents, lines.append)
        self._whole, self._torn = contents.length(QUEUE), bool(lines)

    def _start(self) -> None:
        self._open()
        self._torn = False
        self._server = Keeping.READY
