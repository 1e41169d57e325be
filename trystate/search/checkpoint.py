"""Sorted keys in files, and a directory of such files from which a search is resumed.

*Theory of operation.* A file has the keys of packed states (`model/checker/explicit/packing`), sorted and without
repetitions, in blocks. Each block is read on its own. In a block each word is the difference to the word of the key
before. The differences are cut into planes (all lowest bytes, all second bytes, ...), planes of zeros are dropped, and
the others are deflated. Sets of states are dense: the reachable states of a protocol take 0.1 to 0.6 bytes each, where
a word takes 8, and a block is read at 8 ns a key. The index comes last.

    MAGIC | block, block, ... | index: offset, bytes, keys, checksum and first key of each block | its place, MAGIC

`Directory` has the files of one search, and the manifest: a fingerprint of the search, the content that the caller
saves, and size and digest of each file. A manifest replaces the previous one atomically, after everything that it
names is on the disk: a process may be killed, or the power may fail, at any time. Files that it does not name are
removed when the directory is opened, and after each `save`, unless a `KeysFile` still uses them.

Failures:

- The directory is of another search, in use by another process, or has other files: `UsageError`; it is left as it was.
- A file is damaged. Sizes and the index are compared when it is opened (`UsageError`), a block when it is read
  (`StorageFailed`).
- The disk is full, or fails: `StorageFailed`; the present manifest stays valid.
- A process is killed: the kernel releases its lock.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from trystate.impl.host.disk import Disk
from trystate.model.checker.explicit.packing import Keys
from trystate.model.checker.explicit.storage import StorageFailed
from trystate.model.errors import TrystateError, UsageError

MAGIC = b"trystate keys 1\n"
MANIFEST, NEW, LOCK = "checkpoint.json", "checkpoint.new", "lock"
MANIFEST_BYTES_MAX = 1 << 28  # a line for each level: no search comes near this
NAME = re.compile(r"\d{1,15}\.keys")
NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL})  # if a file system has no locks
LEVEL = 1  # deflate's level: level 3 saves a quarter of the bytes and takes twice as long

_OPEN: set[str] = set()  # directories of this process: the kernel's lock keeps out others only


class Entry(NamedTuple):
    """A file as the manifest names it: `digest` is the digest of its index, which has the checksums of its blocks."""

    name: str
    bytes: int
    keys: int
    digest: str


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class KeysFile:
    """A complete file of keys: its blocks begin with the keys `firsts` and end before `ends`."""

    path: str
    entry: Entry
    firsts: Keys
    ends: NDArray[np.int64]
    _blocks: NDArray[np.uint64]
    _disk: Disk

    def block(self, number: int) -> Keys:
        """The keys of one block.

        Raises:
            StorageFailed: it cannot be read, or is not as it was written.
        """
        at, size, count, checksum = map(int, self._blocks[number, :4])
        data = _read(self._disk, self.path, at, size)
        if len(data) != size or zlib.crc32(data) != checksum:
            raise StorageFailed(_damaged(self.path, f"block {number}"))
        return _decoded(data, count, self.firsts.dtype)


def _damaged(path: str, part: str) -> str:
    return (
        f"{path} is not as it was written ({part}): the disk has lost it, or something else has written there; "
        "remove the directory, and search again"
    )


def _words(dtype: np.dtype[Any]) -> int:
    return dtype.itemsize // 8


def _table(keys: Keys) -> NDArray[np.uint64]:
    """The words of each key, a row for each."""
    return np.ascontiguousarray(keys).view(np.uint64).reshape(len(keys), -1)


def _keys(table: NDArray[np.uint64], dtype: np.dtype[Any]) -> Keys:
    keys: Keys = np.ascontiguousarray(table).view(dtype)[:, 0] if len(table) else np.empty(0, dtype)
    return keys


def _encoded(keys: Keys) -> bytes:
    table = _table(keys)
    used, planes = [], []
    for j in range(table.shape[1]):
        steps = np.diff(table[:, j], prepend=np.uint64(0))  # modulo 2 ** 64
        if j:  # the first word rises, the others come and go
            steps = (steps << np.uint64(1)) ^ (steps.view(np.int64) >> 63).view(np.uint64)
        cut = np.ascontiguousarray(steps.astype("<u8", copy=False).view(np.uint8).reshape(-1, 8).T)
        some = [k for k in range(8) if cut[k].any()]
        used.append(sum(1 << k for k in some))
        planes += [cut[k] for k in some]
    return bytes(used) + zlib.compress(b"".join(planes), LEVEL)


def _decoded(data: bytes, count: int, dtype: np.dtype[Any]) -> Keys:
    words = _words(dtype)
    planes = np.frombuffer(zlib.decompress(data[words:]), np.uint8).reshape(-1, count)
    table = np.empty((count, words), np.uint64)
    row = 0
    for j, used in enumerate(data[:words]):
        cut = np.zeros((count, 8), np.uint8)
        for k in range(8):
            if used >> k & 1:
                cut[:, k] = planes[row]
                row += 1
        steps = cut.reshape(-1).view("<u8").astype(np.uint64, copy=False)
        if j:
            steps = (steps >> np.uint64(1)) ^ (~(steps & np.uint64(1)) + np.uint64(1))
        np.cumsum(steps, out=table[:, j])
    return _keys(table, dtype)


def write(path: str, blocks: Iterable[Keys], dtype: Any, disk: Disk) -> KeysFile:
    """Write sorted keys and sync the file; an incomplete file is removed if that fails.

    Args:
        path: the new file.
        blocks: arrays of keys of the type, one after the other in order, none of them empty.
        dtype: of the keys.
        disk: with which to write.

    Raises:
        StorageFailed: the disk is full, or fails.
    """
    fd = -1
    try:
        fd = disk.create(path)
        entry, index = _written(disk, fd, os.path.basename(path), blocks, np.dtype(dtype))
        disk.close(fd)
    except BaseException as error:
        _discard(disk, fd, path)
        if isinstance(error, OSError):
            raise StorageFailed(_failed("written", path, error)) from error
        raise
    return KeysFile(path, entry, *_parted(index, np.dtype(dtype)), disk)


def replace(disk: Disk, folder: str, name: str, new: str, text: str) -> None:
    """Write a text as the file `new` of a folder, and rename it to `name`. The files before it are then on the disk.

    Raises:
        StorageFailed: the disk is full, or fails; a previous file of that name is still valid.
    """
    path, fd = os.path.join(folder, new), -1
    try:
        fd = disk.create(path)
        disk.write(fd, text.encode(), 0)
        disk.sync(fd)
        disk.close(fd)
        disk.sync_directory(folder)  # the names of the files, before the file that names them
        disk.replace(os.path.join(folder, name), path)
        disk.sync_directory(folder)
    except OSError as error:
        _discard(disk, fd, path)
        raise StorageFailed(_failed("written", path, error)) from error


def _discard(disk: Disk, fd: int, path: str) -> None:
    if fd < 0:
        return
    with suppress(OSError):
        disk.close(fd)
    with suppress(OSError):  # no manifest names it: it takes room, and does no harm
        disk.remove(path)


def _failed(what: str, path: str, error: OSError) -> str:
    return (
        f"stopped as {path} could not be {what} ({error.strerror or error}): make room on the disk, or mend it; the "
        "same command then continues from the last checkpoint"
    )


def _written(disk: Disk, fd: int, name: str, blocks: Iterable[Keys], dtype: np.dtype[Any]) -> tuple[Entry, bytes]:
    disk.write(fd, MAGIC, 0)
    at, keys, rows = len(MAGIC), 0, []
    for block in blocks:
        data = _encoded(block)
        disk.write(fd, data, at)
        rows.append(np.array([at, len(data), len(block), zlib.crc32(data), *_table(block[:1])[0]], "<u8"))
        at, keys = at + len(data), keys + len(block)
    index = np.array(rows, "<u8").tobytes()
    disk.write(fd, index + at.to_bytes(8, "little") + MAGIC, at)
    disk.sync(fd)
    digest = blake2b(index + dtype.str.encode(), digest_size=16).hexdigest()
    return Entry(name, at + len(index) + 8 + len(MAGIC), keys, digest), index


def _parted(index: bytes, dtype: np.dtype[Any]) -> tuple[Keys, NDArray[np.int64], NDArray[np.uint64]]:
    table = np.frombuffer(index, "<u8").astype(np.uint64).reshape(-1, 4 + _words(dtype))
    return _keys(table[:, 4:], dtype), np.cumsum(table[:, 2]).astype(np.int64), table


def read(path: str, entry: Entry, dtype: Any, disk: Disk) -> KeysFile:
    """The file that a manifest names.

    Raises:
        UsageError: it is missing, another file, or not complete.
        StorageFailed: it cannot be read.
    """
    tail = 8 + len(MAGIC)
    end = _read(disk, path, max(0, entry.bytes - tail), tail + 1, missing=UsageError)
    begin = int.from_bytes(end[:8], "little")
    if len(end) != tail or end[8:] != MAGIC or not len(MAGIC) <= begin <= entry.bytes - tail:
        raise UsageError(_damaged(path, f"it should have {entry.bytes:,} bytes"))
    index = _read(disk, path, begin, entry.bytes - tail - begin)
    if blake2b(index + np.dtype(dtype).str.encode(), digest_size=16).hexdigest() != entry.digest:
        raise UsageError(_damaged(path, "its index"))
    return KeysFile(path, entry, *_parted(index, np.dtype(dtype)), disk)


def _read(disk: Disk, path: str, at: int, size: int, missing: type[TrystateError] = StorageFailed) -> bytes:
    try:
        fd = disk.open(path)
        try:
            return disk.read(fd, size, at)
        finally:
            disk.close(fd)
    except FileNotFoundError:
        raise missing(_damaged(path, "it is not there")) from None
    except OSError as error:
        raise StorageFailed(_failed("read", path, error)) from error


class Lock:
    """Keeps other searches out of a directory until `close`.

    Raises:
        UsageError: another search uses the directory, or the file system has no locks.
        OSError: its file cannot be made.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        # A lock of this process, and not of the open file: forked processes, which may live a little longer, have none.
        if path in _OPEN:
            raise UsageError(f"{path} is in use by another search of this process: give each its own directory")
        fd = os.open(os.path.join(path, LOCK), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(fd, 0)
            os.pwrite(fd, b"%d\n" % os.getpid(), 0)
        except (BlockingIOError, PermissionError):  # either, by POSIX
            holder = os.pread(fd, 20, 0).decode("ascii", "replace").strip()
            os.close(fd)
            raise UsageError(
                f"{path} is in use by another search (process {holder or 'unknown'}): wait until it ends, or give "
                "another directory"
            ) from None
        except OSError as error:
            os.close(fd)
            if error.errno in NO_LOCKS:
                raise UsageError(
                    f"{path}: its file system has no locks ({error.strerror}), so two searches could write "
                    "there: give a directory on another file system"
                ) from error
            raise
        self._fd = fd
        _OPEN.add(path)

    def close(self) -> None:
        """Release the directory for other searches."""
        _OPEN.discard(self._path)
        os.close(self._fd)


class Directory:
    """The files of one search, open until `close`. A missing directory is made; an existing one is locked and checked.

    Args:
        path: the directory.
        fingerprint: describes the search, part by part; a directory of another search is refused.
        disk: with which to read and write.

    Raises:
        UsageError: it is of another search, in use, not a directory, damaged, or has other files; or it cannot be
            made, read or written.
    """

    def __init__(self, path: str, fingerprint: Mapping[str, str], disk: Disk | None = None) -> None:
        self.path = os.path.realpath(path)
        self._fingerprint = dict(fingerprint)
        self._disk = disk or Disk()
        self._lock: Lock | None = None
        self.saved: Any = None  # the content of the manifest, if there is one
        self.entries: dict[str, Entry] = {}  # the files that it names
        self._in_use: WeakValueDictionary[str, KeysFile] = WeakValueDictionary()
        try:
            self._refuse_others()
            self._lock = Lock(self.path)
            if MANIFEST in self._disk.names(self.path):  # now: another search may just have ended
                self._load()
            self._clean()
            self._next = 1 + max((int(name.split(".")[0]) for name in self.entries), default=0)
        except OSError as error:
            self.close()
            raise UsageError(
                f"{error.filename or self.path}: {error.strerror or error}; give a directory that this user may write, "
                "on a disk that has room"
            ) from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the directory for other processes."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def write(self, blocks: Iterable[Keys], dtype: Any) -> KeysFile:
        """A new file; a `save` that does not name it removes it, unless it is still in use.

        Raises:
            StorageFailed: the disk is full, or fails.
        """
        name, self._next = f"{self._next}.keys", self._next + 1
        file = self._in_use[name] = write(os.path.join(self.path, name), blocks, dtype, self._disk)
        return file

    def open(self, name: str, dtype: Any) -> KeysFile:
        """A file that the manifest names.

        Raises:
            UsageError: the manifest does not, or the file is not as it was written.
            StorageFailed: it cannot be read.
        """
        if name not in self.entries:
            raise UsageError(_damaged(os.path.join(self.path, MANIFEST), f"{name} is missing"))
        file = self._in_use[name] = read(os.path.join(self.path, name), self.entries[name], dtype, self._disk)
        return file

    def save(self, content: Any, files: Iterable[Entry]) -> None:
        """Write a manifest with this content and these files, and remove files that are neither named nor in use.

        Args:
            content: values for JSON.
            files: files of this directory, as returned by `write` or `open`.

        Raises:
            StorageFailed: the disk is full, or fails; the previous manifest is still valid.
        """
        entries = {entry.name: entry for entry in files}
        body = {"fingerprint": self._fingerprint, "files": list(entries.values()), "content": content}
        text = json.dumps({"digest": _digest(body), "body": body})
        replace(self._disk, self.path, MANIFEST, NEW, text)
        self.saved, self.entries = content, entries
        self._clean()

    def _refuse_others(self) -> None:
        """Make the directory if it does not exist; refuse a directory that has anything else."""
        if not os.path.lexists(self.path):
            self._disk.make_directory(self.path)
            return
        if not os.path.isdir(self.path):
            raise UsageError(f"{self.path} is not a directory: give one that is empty, or does not exist yet")
        names = set(self._disk.names(self.path))
        others = sorted(name for name in names - {MANIFEST, NEW, LOCK} if not NAME.fullmatch(name))
        if MANIFEST not in names and others:
            raise UsageError(
                f"{self.path} has no checkpoint of a search, but is not empty (it has {others[0]!r}); it was left as "
                "it was: give an empty directory, or one that does not exist yet"
            )

    def _load(self) -> None:
        path = os.path.join(self.path, MANIFEST)
        data = _read(self._disk, path, 0, MANIFEST_BYTES_MAX)
        try:
            text = json.loads(data)
            body = text["body"]
            whole = text["digest"] == _digest(body)
            entries = [Entry(*entry) for entry in body["files"]] if whole else []
            found, content = body["fingerprint"], body["content"]
        except (ValueError, KeyError, TypeError):
            whole = False
        if not whole:
            raise UsageError(_damaged(path, "its digest"))
        for part, value in self._fingerprint.items():
            if found.get(part) != value:
                raise UsageError(
                    f"{self.path} has a search with another {part} ({found.get(part)} instead of {value}); it was left "
                    "as it was: give another directory, or remove this one"
                )
        self.saved, self.entries = content, {entry.name: entry for entry in entries}

    def _clean(self) -> None:
        """Remove the files that the manifest does not name and that are not in use."""
        for name in self._disk.names(self.path):
            needed = name in self.entries or name in self._in_use or not NAME.fullmatch(name)
            if name == NEW or not needed:
                with suppress(OSError):
                    self._disk.remove(os.path.join(self.path, name))


def _digest(body: Any) -> str:
    return blake2b(json.dumps(body, sort_keys=True).encode(), digest_size=16).hexdigest()
