"""`Journals` on a real journal, on a disk in memory that loses the bytes that the model's crash loses.

Each change is an element of one queue, so the number of changes is the length of the queue. A batch stops between its
write and its sync. A batch with a snapshot is written when the model syncs the directory, or crashes before that; until
then it has no visible effect.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from trystate.impl.store.durable.contents import MARK_BYTES, KeptContents
from trystate.impl.store.durable.journal import MAGIC, NAME, recovered
from trystate.impl.store.file.records import Kind, scan
from trystate.impl.store.limits import Limits
from trystate.model.language.sorts import ordinal
from trystate.model.store.journals import Journals
from trystate.model.store.vocabulary import Keeping

from ..steps import Steps
from .disks import Crash, ForgetfulDisk, Inode

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
