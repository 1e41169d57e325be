"""The journal of a server: one file of records, made durable in batches, and replaced by a snapshot when it is long.

    DIR/journal           a magic, HEADER with the identity of the store, [a snapshot, SNAPSHOT_END], batch ...
    batch                 SYNCED, then records as in a `FileStore`'s file (`file/records`), each with its checksums
    DIR/journal.compact   a snapshot that is being written; it takes the journal's place, or is removed at the start
    DIR/lock              locked by the server that uses the directory, with its pid

Theory of operation. Each batch begins with how many bytes of the file were durable when it was written. So two kinds of
bytes that do not read are told apart without a guess. Some later batch says that they were durable: the file is
damaged, and the server does not start. No batch says so: they are of the last batch, and are cut off. It was under way
when the server or its machine ended, and no client was told of it; or the disk has damaged it since, which nothing in
the file tells apart. The mark has a random nonce of its file, so that no value that a user stores is taken for one.

The checksum of each record is combined with its place in the file, and with the nonce. So a record that a disk or a
backup has put in a second place does not read there, instead of being done twice. A file of version 1 has no such
checksums, and is kept as it is until a snapshot takes its place.

Space is taken from the disk before a change is made (`reserve`), a piece at a time: a full disk refuses changes, and
undoes none. Changes are refused while there is still room for a snapshot, which makes room by dropping history.
Reserved bytes read as zeros, which end the file like its end.

The history is dropped when most of the file is history: a thread writes a snapshot of one moment beside the journal,
while changes go on into the journal, and are kept. Then the kept ones are added to the new file, it is synced, takes
the journal's place (rename), and the directory is synced; only then is anybody told of those changes. Ended at any step
of this, the journal that is in place has all that anybody was told.

Rule: `write`, `sync`, `commit` and `snapshot` are called on one thread at a time each; all else on the driver's.
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
from ..file.records import Kind, Record, encode, place, scan, unplaced
from ..limits import GIB, MIB
from ..wire import I64, IDENTITY_BYTES, U64
from .contents import MARK_BYTES, NONCE_BYTES, Frozen, KeptContents, Unfit

MAGIC = b"\x89tryjr\x02\n"  # no text begins so; the number is the version of this format
VERSION = MAGIC[-2]
UNPLACED = 1  # the version without places in the checksums
HEADER_BYTES_MAX = 1024
NAME, NEW, COMPACT, LOCK = "journal", "journal.new", "journal.compact", "lock"
NAMES = frozenset({NAME, NEW, COMPACT, LOCK})

PIECE_BYTES = MIB  # taken from the disk at a time, and written of a snapshot
READ_BYTES = 16 * MIB  # at the start
LONG_BYTES, RATE = 256 * MIB, 150 * MIB  # from there on a start says how long it reads; bytes a second
COMPACT_BYTES_MIN = 4 * MIB  # below, reading the history takes less than a tenth of a second
COMPACT_FACTOR = 4  # at three quarters of history
SINCE_BYTES_MAX = 256 * MIB  # of changes while a snapshot is written; then it is given up, and tried again later
FILE_BYTES_MAX = 64 * GIB  # a compaction fails for so long that the disk must be looked at


@dataclass(slots=True)
class File:
    """An open journal: where its next byte goes, how far it is durable, and how far the disk has room for it."""

    fd: int
    nonce: bytes
    end: int
    synced: int
    reserved: int
    number: Callable[[int], int]  # of a place in it

    def batch(self, records: bytes) -> bytes:
        """The bytes of a batch at the end: a mark, then records."""
        data = bytearray(encode(Kind.SYNCED, self.nonce, number=self.synced) + records)
        self.place(data, self.end)
        return bytes(data)

    def place(self, records: bytearray, begin: int) -> None:
        """Combine the checksums of records that are to be written from `begin` on with their places."""
        place(records, lambda at: self.number(begin + at))


def numbers(nonce: bytes, version: int = VERSION) -> Callable[[int], int]:
    """The number of each place in a file with this nonce."""
    if version == UNPLACED:
        return unplaced
    seed = crc32(nonce)
    return lambda at: crc32(U64.pack(at), seed)


class Journal:
    """The file of one store, in its directory."""

    def __init__(self, disk: Disk, directory: str, file: File, identity: bytes, generation: int) -> None:
        self.disk, self.directory, self.file = disk, directory, file
        self.identity, self.generation = identity, generation
        self.next: File | None = None  # a snapshot that is to take the file's place
        self.compact_at = COMPACT_BYTES_MIN
        self.ending = False  # a snapshot is not worth its time any more
        self._swapping = threading.Lock()  # of `file` and `next`

    @property
    def path(self) -> str:
        return os.path.join(self.directory, NAME)

    # Space.

    def free(self, contents: KeptContents) -> int:
        """The bytes that records may take, when no batch is under way."""
        pending = sum(map(len, contents.pending)) + MARK_BYTES * len(contents.pending)
        return self.file.reserved - self.file.end - MARK_BYTES - pending - contents.prepaid

    def snapshot_bytes(self, contents: KeptContents) -> int:
        """About how many bytes of the disk a snapshot takes beside the journal, until it takes the journal's place."""
        return contents.live_bytes + contents.prepaid + 2 * PIECE_BYTES

    def reserve(self, size: int, beside: int = 0) -> int:
        """Take at least so many bytes more from the disk; how many. Raises `Refused`, and has then taken none.

        beside: bytes that must still be free then, for a snapshot.
        """
        size = -(-size // PIECE_BYTES) * PIECE_BYTES
        if self.file.reserved + size > FILE_BYTES_MAX:
            raise Refused(Status.TOO_LARGE, f"the journal {self.path} has {self.file.end} bytes, and may have "
                          f"{FILE_BYTES_MAX}; nothing was changed: see in the server's log why it is not "
                          "compacted")  # fmt: skip
        free, needed = self.disk.free(self.directory), size + beside
        if beside and free < needed:
            raise Refused(Status.TOO_LARGE, f"the journal {self.path} cannot grow: its disk has {free} bytes free, and "
                          f"{needed} are needed, with those of a snapshot that drops the history; nothing was changed, "
                          f"and reading goes on: make room for {needed - free} bytes on its disk")  # fmt: skip
        with self._swapping:
            files = [file for file in (self.file, self.next) if file is not None]  # either may get the records
            try:
                for file in files:
                    self.disk.reserve(file.fd, file.reserved, size)
            except OSError as error:
                raise Refused(Status.TOO_LARGE, f"the journal {self.path} cannot grow ({error.strerror}); nothing was "
                              "changed, and reading goes on: make room on its disk") from None  # fmt: skip
            for file in files:
                file.reserved += size
        return size

    # Batches.

    def write(self, records: bytes) -> None:
        """Put a batch at the end: it outlives this process, and not its machine. Raises OSError."""
        file = self.file
        data = file.batch(records)
        self.disk.write(file.fd, data, file.end)
        file.end += len(data)

    def sync(self) -> None:
        """Make durable what was written. Raises OSError: then nobody knows what is."""
        file, end = self.file, self.file.end
        self.disk.sync(file.fd)
        file.synced = end

    def commit(self, records: bytes, since: bytes | None) -> bool:
        """Make a batch durable. With `since`, all since the snapshot, in the new file; False if that failed."""
        if since is not None and self._switched(since):
            return True
        self.write(records)
        self.sync()
        return since is None

    # Compaction.

    def is_long(self, contents: KeptContents) -> bool:
        """Most of the file is history."""
        return self.file.end > max(self.compact_at, COMPACT_FACTOR * contents.live_bytes)

    def has_history(self, contents: KeptContents) -> bool:
        """A snapshot would be less than half as long."""
        return self.file.end > max(COMPACT_BYTES_MIN, 2 * contents.live_bytes)

    def snapshot(self, frozen: Frozen) -> File:
        """Write a new file beside the journal, and sync it. Raises OSError."""
        path = os.path.join(self.directory, COMPACT)
        return _written(self.disk, path, self.identity, self.generation + 1, self._wanted(frozen.records()))

    def _wanted(self, records: Iterator[bytes]) -> Iterator[bytes]:
        for record in records:
            if self.ending:
                raise OSError(errno.ECANCELED, "the server ends")
            yield record

    def prepare(self, file: File, since_bytes: int, contents: KeptContents) -> None:
        """A snapshot is to take the journal's place with the next batch. Raises OSError if the disk has no room."""
        size = since_bytes + 2 * MARK_BYTES + contents.prepaid + max(contents.free, 0) + PIECE_BYTES
        self.disk.reserve(file.fd, file.end, size)
        file.reserved = file.end + size
        self.next = file

    def give_up(self, file: File) -> None:
        """A snapshot is not wanted any more."""
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
        """Have the contents that are known to be durable, after a failure of the disk. Raises OSError, FileRefused."""
        reading = Reading(self.disk, self.file.fd, self.path, self.file.synced)
        _become(contents, reading)

    def close(self, records: bytes = b"") -> None:
        """Write the last records, give back the space that is not used, and say what is durable. Raises OSError."""
        if records:
            self.commit(records, None)
        self.write(b"")
        self.disk.cut(self.file.fd, self.file.end)
        self.sync()
        self.disk.close(self.file.fd)


class Reading:
    """The whole records at the beginning of a journal, and where the first byte is that does not read."""

    def __init__(self, disk: Disk, fd: int, path: str, size: int) -> None:
        self.disk, self.fd, self.path, self.size = disk, fd, path, size
        self.at = len(MAGIC)
        self.number: Callable[[int], int] = unplaced

    def header(self) -> Record | None:
        """The first record; None if it does not read. Those behind it have places."""
        begin = self.disk.read(self.fd, min(HEADER_BYTES_MAX, self.size), 0)
        header = next(iter(scan(begin[len(MAGIC) :]).records), None)
        if header is None or header.kind is not Kind.HEADER:
            return None
        self.number = numbers(header.parts[2], begin[len(MAGIC) - 2])
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
            want = READ_BYTES if found.used else 2 * want  # a record longer than that is joined a few times only
            if found.damaged or not (piece := self.disk.read(self.fd, min(want, self.size - fetched), fetched)):
                return
            data, fetched = data + piece, fetched + len(piece)

    def beyond(self, nonce: bytes) -> tuple[int, bool]:
        """Of what does not read: how many bytes until only zeros follow, and whether it is known to be durable."""
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
    """The journal of a directory, or a new one; `contents` hold what it says. The caller has the directory's lock.

    Raises:
        FileRefused: it is damaged, or none of this version; it is as it was.
        OSError: of the disk.
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
        raise _damaged(reading, "a later record says that it was whole before")
    if used:
        log(f"journal {path}: {used} bytes that do not read were cut off at byte {reading.at}. They are of the last "
            "batch: it was under way when the server ended, and no client was told of it; or its disk has damaged "
            "it since")  # fmt: skip
    file = File(fd, nonce, reading.at, reading.at, reading.at, reading.number)
    journal = Journal(disk, directory, file, identity, I64.unpack(generation)[0])
    disk.cut(fd, reading.at)  # else a record there would be read again once others end before it
    disk.sync(fd)
    try:
        journal.reserve(contents.prepaid + 2 * MARK_BYTES)
        journal.write(b"")  # from now on a byte that changed in what was read is damage
        journal.sync()
    except Refused as refusal:
        log(str(refusal))
    free, needed = disk.free(directory), journal.snapshot_bytes(contents)
    if free < needed:
        log(f"journal {path}: its disk has {free} bytes free, and a snapshot that drops the history takes "
            f"{needed}: make room; until then changes that need more of the disk are refused")  # fmt: skip
    contents.free = journal.free(contents)
    return journal


def _become(contents: KeptContents, reading: Reading) -> Record | None:
    """Hold what a journal says; its header. Raises FileRefused."""
    header = reading.header()
    if header is None:
        return None
    try:
        contents.become(reading.records())
    except Unfit as error:
        raise _damaged(reading, str(error)) from None
    return header


def check_magic(path: str, begin: bytes) -> None:
    """Raise FileRefused unless a file is a journal of this version, or of an older one."""
    if begin in (MAGIC, MAGIC.replace(bytes([VERSION]), bytes([UNPLACED]))):
        return
    if begin[:-2] == MAGIC[:-2] and len(begin) == len(MAGIC):
        raise FileRefused(f"{path} is a journal of version {begin[-2]} of its format, and this trystate writes version "
                          f"{VERSION}; it was left as it is: use the trystate that wrote it, or another "
                          "directory")  # fmt: skip
    raise FileRefused(f"{path} is not the journal of a store: it begins with {begin!r}, not {MAGIC!r}; it was left as "
                      "it is: give another directory")  # fmt: skip


def _damaged(reading: Reading, why: str) -> FileRefused:
    return FileRefused(f"journal {reading.path} is damaged at byte {reading.at} of {reading.size} ({why}); it was left "
                       "as it is: restore it from a copy, or move the directory away and begin with an empty "
                       "store")  # fmt: skip


def _written(disk: Disk, path: str, identity: bytes, generation: int, records: Iterable[bytes]) -> File:
    """A new file with a header and records, whole and synced; nothing is left of it if that fails."""
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
    """The records in pieces of about PIECE_BYTES; one piece at least."""
    piece = bytearray()
    for record in records:
        piece += record
        if len(piece) >= PIECE_BYTES:
            yield piece
            piece = bytearray()
    yield piece
