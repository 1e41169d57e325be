"""The journal of a server: one file of records, made durable in batches and replaced by a snapshot when it is long.

    DIR/journal           a magic, HEADER with the identity of the store, [a snapshot, SNAPSHOT_END], batch ...
    batch                 SYNCED, then records, each with its checksums (`records`)
    DIR/journal.compact   a snapshot that is being written; it replaces the journal, or is removed at the next start
    DIR/lock              locked by the server that uses the directory, with its pid

Theory of operation. Each batch starts with a mark: the number of bytes of the file that were durable when the batch was
written. The marks separate two kinds of unreadable bytes. If a later mark covers the bytes, they were durable. Then the
file is damaged, and the server does not start. If no mark covers the bytes, they belong to the last batch and are cut
off. There are two possible causes, and the file does not show which: the server or its machine ended before the batch
was durable, and no client has its replies; or the disk has damaged the batch since. A mark contains the random nonce of
its file, so a value of a user is not mistaken for a mark.

The checksum of each record is combined with its place in the file and with the nonce. A disk or a backup may put a copy
of a record in a second place. The checksum of the copy is wrong there, so the copy is not applied.

Space on the disk is reserved in pieces before a change is made (`reserve`). If the disk is full, changes are refused,
and none is undone. Changes are refused early: the disk still has room for a snapshot, which frees space because it has
no history. Reserved bytes read as zeros. Zeros mark the end of the records, as the end of the file does.

When most of the file is history, a snapshot replaces it. A thread writes the snapshot of one moment next to the
journal. Meanwhile further changes are written to the journal and are also collected. Then the collected changes are
added to the new file. The new file is synced and renamed to the journal, and the directory is synced. Only then are the
replies to those changes sent. If the server ends at any of these steps, the journal in place has all changes that a
client has seen.

Rule: `write`, `sync`, `commit` and `snapshot` each run on one thread at a time. Everything else runs on the driver's
thread.
"""

from __future__ import annotations

import errno
import os
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from zlib import crc32

from trystate.model.store.vocabulary import Status

from ...host.disk import Disk
from ..contents.contents import Refused
from ..errors import FileRefused
from ..limits import GIB, MIB
from ..wire import I64, IDENTITY_BYTES, U64
from .contents import MARK_BYTES, NONCE_BYTES, Frozen, KeptContents, Unfit
from .records import Kind, Record, encode, place, scan, unplaced

MAGIC = b"\x89tryjr\x03\n"  # no text begins with this; the number is the version of the format
VERSION = MAGIC[-2]
HEADER_BYTES_MAX = 1024
NAME, NEW, COMPACT, LOCK = "journal", "journal.new", "journal.compact", "lock"
NAMES = frozenset({NAME, NEW, COMPACT, LOCK})

PIECE_BYTES = MIB  # the unit of reservations on the disk and of writes of a snapshot
READ_BYTES = 16 * MIB  # the size of a read at the start
LONG_BYTES, RATE = 256 * MIB, 150 * MIB  # reading a longer file is logged, with its time; RATE is in bytes a second
COMPACT_BYTES_MIN = 4 * MIB  # a shorter history is read in less than a tenth of a second
COMPACT_FACTOR = 4  # three quarters of the file are history
SINCE_BYTES_MAX = 256 * MIB  # if a snapshot misses more changes than this, it is dropped and tried again later
FILE_BYTES_MAX = 64 * GIB  # in a longer file many compactions have failed, and an operator must look at the disk


@dataclass(slots=True)
class File:
    """An open journal: the place of its next byte, the end of its durable part, and the end of its reserved space."""

    fd: int
    nonce: bytes
    end: int
    synced: int
    reserved: int
    number: Callable[[int], int]  # place in the file -> the number that is combined with a checksum

    def batch(self, records: bytes) -> bytes:
        """The bytes of a batch at the end of the file: a mark, then records."""
        data = bytearray(encode(Kind.SYNCED, self.nonce, number=self.synced) + records)
        self.place(data, self.end)
        return bytes(data)

    def place(self, records: bytearray, begin: int) -> None:
        """Combine the checksums of records that will be written from `begin` on with their places."""
        place(records, lambda at: self.number(begin + at))


def numbers(nonce: bytes) -> Callable[[int], int]:
    """The number of each place in a file with this nonce."""
    seed = crc32(nonce)
    return lambda at: crc32(U64.pack(at), seed)


class Journal:
    """The file of one store, in its directory."""

    def __init__(self, disk: Disk, directory: str, file: File, identity: bytes, generation: int) -> None:
        self.disk, self.directory, self.file = disk, directory, file
        self.identity, self.generation = identity, generation
        self.next: File | None = None  # a snapshot that will replace the file
        self.compact_at = COMPACT_BYTES_MIN
        self.ending = False  # a running snapshot stops
        self._swapping = threading.Lock()  # guards `file` and `next`

    @property
    def path(self) -> str:
        return os.path.join(self.directory, NAME)

    # Space.

    def free(self, contents: KeptContents) -> int:
        """The bytes that records may take while no batch is running."""
        pending = sum(map(len, contents.pending)) + MARK_BYTES * len(contents.pending)
        return self.file.reserved - self.file.end - MARK_BYTES - pending - contents.prepaid

    def snapshot_bytes(self, contents: KeptContents) -> int:
        """The approximate size on the disk of a snapshot next to the journal, until it replaces the journal."""
        return contents.live_bytes + contents.prepaid + 2 * PIECE_BYTES

    def reserve(self, size: int, beside: int = 0) -> int:
        """Reserve at least `size` more bytes on the disk, and return the number.

        After that, `beside` bytes must still be free on the disk, for a snapshot. Raises `Refused`, and then reserves
        nothing.
        """
        size = -(-size // PIECE_BYTES) * PIECE_BYTES
        if self.file.reserved + size > FILE_BYTES_MAX:
            raise Refused(Status.TOO_LARGE, f"the journal {self.path} has {self.file.end} bytes, and the limit is "
                          f"{FILE_BYTES_MAX}; nothing was changed: see in the server's log why it is not "
                          "compacted")  # fmt: skip
        free, needed = self.disk.free(self.directory), size + beside
        if beside and free < needed:
            raise Refused(Status.TOO_LARGE, f"the journal {self.path} cannot grow: its disk has {free} bytes free, but "
                          f"{needed} are needed, with the room for a snapshot without history; nothing was changed, "
                          f"and reads still work: make room for {needed - free} bytes on its disk")  # fmt: skip
        with self._swapping:
            files = [file for file in (self.file, self.next) if file is not None]  # either may get the records
            try:
                for file in files:
                    self.disk.reserve(file.fd, file.reserved, size)
            except OSError as error:
                raise Refused(Status.TOO_LARGE, f"the journal {self.path} cannot grow ({error.strerror}); nothing was "
                              "changed, and reads still work: make room on its disk") from None  # fmt: skip
            for file in files:
                file.reserved += size
        return size

    # Batches.

    def write(self, records: bytes) -> None:
        """Write a batch at the end. It survives this process, but not a crash of the machine. Raises OSError."""
        file = self.file
        data = file.batch(records)
        self.disk.write(file.fd, data, file.end)
        file.end += len(data)

    def sync(self) -> None:
        """Make the written bytes durable. Raises OSError; then it is unknown which bytes are durable."""
        file, end = self.file, self.file.end
        self.disk.sync(file.fd)
        file.synced = end

    def commit(self, records: bytes, since: bytes | None) -> bool:
        """Make a batch durable. With `since` (all records since the snapshot) use the new file; False: that failed."""
        if since is not None and self._switched(since):
            return True
        self.write(records)
        self.sync()
        return since is None

    # Compaction.

    def is_long(self, contents: KeptContents) -> bool:
        """Whether most of the file is history."""
        return self.file.end > max(self.compact_at, COMPACT_FACTOR * contents.live_bytes)

    def has_history(self, contents: KeptContents) -> bool:
        """Whether a snapshot would be less than half as long."""
        return self.file.end > max(COMPACT_BYTES_MIN, 2 * contents.live_bytes)

    def snapshot(self, frozen: Frozen) -> File:
        """Write a new file next to the journal, and sync it. Raises OSError."""
        path = os.path.join(self.directory, COMPACT)
        return _written(self.disk, path, self.identity, self.generation + 1, self._wanted(frozen.records()))

    def _wanted(self, records: Iterator[bytes]) -> Iterator[bytes]:
        for record in records:
            if self.ending:
                raise OSError(errno.ECANCELED, "the server ends")
            yield record

    def prepare(self, file: File, since_bytes: int, contents: KeptContents) -> None:
        """Let a snapshot replace the journal with the next batch. Raises OSError if the disk has no room."""
        size = since_bytes + 2 * MARK_BYTES + contents.prepaid + max(contents.free, 0) + PIECE_BYTES
        self.disk.reserve(file.fd, file.end, size)
        file.reserved = file.end + size
        self.next = file

    def give_up(self, file: File) -> None:
        """Delete a snapshot that will not be used."""
        with self._swapping:
            self.next = None
        self.compact_at = 2 * self.file.end
        self.disk.close(file.fd)
        self.disk.remove(os.path.join(self.directory, COMPACT))

    def _switched(self, since: bytes) -> bool:
        old, file = self.file, self.next
        assert file is not None
        try:
            data = file.batch(since)
            self.disk.write(file.fd, data, file.end)
            self.disk.sync(file.fd)
            self.disk.replace(self.path, os.path.join(self.directory, COMPACT))
        except OSError:
            self.give_up(file)
            return False
        file.end += len(data)
        self.disk.sync_directory(self.directory)
        file.synced = file.end
        with self._swapping:
            self.file, self.next = file, None
        self.generation += 1
        self.compact_at = COMPACT_BYTES_MIN
        self.disk.close(old.fd)
        return True

    # The end.

    def reload(self, contents: KeptContents) -> None:
        """After a failure of the disk, read the contents that are known to be durable. Raises OSError, FileRefused.

        The rest is cut off. After a failed sync the system may still return those bytes and never write them: a later
        server would take them for durable.
        """
        self.disk.cut(self.file.fd, self.file.synced)
        reading = Reading(self.disk, self.file.fd, self.path, self.file.synced)
        _become(contents, reading)

    def close(self, records: bytes = b"") -> None:
        """Write the last records and a mark, release the unused space, and sync. Raises OSError."""
        if records:
            self.commit(records, None)
        self.write(b"")
        self.disk.cut(self.file.fd, self.file.end)
        self.sync()
        self.disk.close(self.file.fd)


class Reading:
    """The readable records at the start of a journal, and the place of the first byte that does not read."""

    def __init__(self, disk: Disk, fd: int, path: str, size: int) -> None:
        self.disk, self.fd, self.path, self.size = disk, fd, path, size
        self.at = len(MAGIC)
        self.number: Callable[[int], int] = unplaced

    def header(self) -> Record | None:
        """The first record; None if it does not read. The checksums of the records after it depend on their places."""
        begin = self.disk.read(self.fd, min(HEADER_BYTES_MAX, self.size), 0)
        header = next(iter(scan(begin[len(MAGIC) :]).records), None)
        if header is None or header.kind is not Kind.HEADER:
            return None
        self.number = numbers(header.parts[2])
        self.at += header.size
        return header

    def _number_from(self, begin: int, at: int) -> int:
        return self.number(begin + at)

    def records(self) -> Iterator[Record]:
        data, fetched, want = b"", self.at, READ_BYTES
        while True:
            found = scan(data, partial(self._number_from, self.at))
            for record in found.records:
                yield record
                self.at += record.size
            data = data[found.used :]
            want = READ_BYTES if found.used else 2 * want  # doubled, so a long record is joined a few times only
            if found.damaged or not (piece := self.disk.read(self.fd, min(want, self.size - fetched), fetched)):
                return
            data, fetched = data + piece, fetched + len(piece)

    def beyond(self, nonce: bytes) -> tuple[int, bool]:
        """The number of unreadable bytes before the final zeros, and whether a later mark shows they were durable."""
        begin, used, overlap = self.at, 0, MARK_BYTES
        while piece := self.disk.read(self.fd, READ_BYTES + overlap, begin):
            used = max(used, begin - self.at + len(piece.rstrip(b"\0"))) if piece.strip(b"\0") else used
            there = piece.find(nonce)
            while there >= 0:
                mark = max(there - MARK_BYTES + NONCE_BYTES, 0)
                number = partial(self._number_from, begin + mark)
                found = scan(piece[mark : there + NONCE_BYTES], number).records
                if found and found[0].kind is Kind.SYNCED and found[0].number > self.at:
                    return used, True
                there = piece.find(nonce, there + 1)
            if len(piece) <= overlap:
                break
            begin += max(len(piece) - overlap, 1)
        return used, False


def recovered(disk: Disk, directory: str, contents: KeptContents, log: Callable[[str], None]) -> Journal:
    """The journal of a directory, or a new one. Fills `contents` from it. The caller has the directory's lock.

    Raises:
        FileRefused: the journal is damaged or of another version; it was not changed.
        OSError: the disk failed.
    """
    path = os.path.join(directory, NAME)
    names = disk.names(directory)
    for leftover in (NEW, COMPACT):
        if leftover in names:
            disk.remove(os.path.join(directory, leftover))
    if NAME not in names:
        new = os.path.join(directory, NEW)
        file = _written(disk, new, secrets.token_bytes(IDENTITY_BYTES), 0, ())
        disk.replace(path, new)
        disk.sync_directory(directory)
        disk.close(file.fd)
    fd = disk.open(path)
    try:
        return _read(disk, directory, fd, contents, log)
    except BaseException:
        disk.close(fd)
        raise


def _read(disk: Disk, directory: str, fd: int, contents: KeptContents, log: Callable[[str], None]) -> Journal:
    path = os.path.join(directory, NAME)
    check_magic(path, disk.read(fd, len(MAGIC), 0))
    reading = Reading(disk, fd, path, disk.size(fd))
    if reading.size > LONG_BYTES:
        log(f"journal {path}: reading {reading.size / MIB:,.0f} MiB, which takes about {reading.size / RATE:,.0f} s")
    header = _become(contents, reading)
    if header is None:
        raise _damaged(reading, "its header does not read")
    identity, generation, nonce, _ = header.parts
    used, was_durable = reading.beyond(nonce)
    if was_durable:
        raise _damaged(reading, "a later record shows that this place was readable before")
    if used:
        log(f"journal {path}: {used} bytes that do not read were cut off at byte {reading.at}. They belong to the last "
            "batch. Either the server ended while it wrote them, and no client got a reply; or the disk has damaged "
            "them since")  # fmt: skip
    file = File(fd, nonce, reading.at, reading.at, reading.at, reading.number)
    journal = Journal(disk, directory, file, identity, I64.unpack(generation)[0])
    disk.cut(fd, reading.at)  # a record left there would be read again after new records end before it
    disk.sync(fd)
    try:
        journal.reserve(contents.prepaid + 2 * MARK_BYTES)
        journal.write(b"")  # with this mark a byte that changes in the part read here counts as damage
        journal.sync()
    except Refused as refusal:
        log(str(refusal))
    free, needed = disk.free(directory), journal.snapshot_bytes(contents)
    if free < needed:
        log(f"journal {path}: its disk has {free} bytes free, but a snapshot without history takes {needed}: make "
            "room; until then changes that need more of the disk are refused")  # fmt: skip
    contents.free = journal.free(contents)
    return journal


def _become(contents: KeptContents, reading: Reading) -> Record | None:
    """Fill the contents from a journal, and return its header. Raises FileRefused."""
    header = reading.header()
    if header is None:
        return None
    try:
        contents.become(reading.records())
    except Unfit as error:
        raise _damaged(reading, str(error)) from None
    return header


def check_magic(path: str, begin: bytes) -> None:
    """Raise FileRefused unless a file is a journal of this version."""
    if begin == MAGIC:
        return
    if begin[:-2] == MAGIC[:-2] and len(begin) == len(MAGIC):
        raise FileRefused(f"{path} is a journal in version {begin[-2]} of its format, but this trystate reads version "
                          f"{VERSION}; it was not changed: use the trystate that wrote it, or another "
                          "directory")  # fmt: skip
    raise FileRefused(f"{path} is not the journal of a store: it begins with {begin!r}, not {MAGIC!r}; it was not "
                      "changed: give another directory")  # fmt: skip


def _damaged(reading: Reading, why: str) -> FileRefused:
    return FileRefused(f"journal {reading.path} is damaged at byte {reading.at} of {reading.size} ({why}); it was not "
                       "changed: restore it from a copy, or move the directory away and start with an empty "
                       "store")  # fmt: skip


def _written(disk: Disk, path: str, identity: bytes, generation: int, records: Iterable[bytes]) -> File:
    """A new file with a header and records, complete and synced. If that fails the file is removed."""
    nonce = secrets.token_bytes(NONCE_BYTES)
    fd = disk.create(path)
    try:
        head = MAGIC + encode(Kind.HEADER, identity, I64.pack(generation), nonce, b"")
        file = File(fd, nonce, 0, 0, 0, numbers(nonce))
        for piece in _pieces(records):
            file.place(piece, file.end + len(head))
            disk.write(fd, head + piece, file.end)
            file.end, head = file.end + len(head) + len(piece), b""
        disk.sync(fd)
    except BaseException:
        disk.close(fd)
        disk.remove(path)
        raise
    file.synced = file.reserved = file.end
    return file


def _pieces(records: Iterable[bytes]) -> Iterator[bytearray]:
    """The records in pieces of about PIECE_BYTES, at least one piece."""
    piece = bytearray()
    for record in records:
        piece += record
        if len(piece) >= PIECE_BYTES:
            yield piece
            piece = bytearray()
    yield piece
