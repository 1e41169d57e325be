"""The file operations of a journal; tests use a disk that loses data that was not synced.

Rule: each operation is complete when it returns: a write has written all bytes, which are durable only after `sync`.
"""

from __future__ import annotations

import errno
import os

# Errors of file systems that cannot reserve space: a write may then fail, which ends all writing (`driver`).
CANNOT_RESERVE = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})


class Disk:
    """The real disk."""

    def names(self, directory: str) -> list[str]:
        return os.listdir(directory)

    def make_directory(self, directory: str) -> None:
        os.mkdir(directory, 0o700)

    def create(self, path: str) -> int:
        """Create a file, or empty an old one; returns its descriptor."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)

    def open(self, path: str) -> int:
        return os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)

    def close(self, fd: int) -> None:
        os.close(fd)

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def read(self, fd: int, count: int, at: int) -> bytes:
        """Read `count` bytes from `at`, or fewer at the end of the file."""
        parts: list[bytes] = []
        while count and (part := os.pread(fd, count, at)):
            parts.append(part)
            count, at = count - len(part), at + len(part)
        return b"".join(parts)

    def write(self, fd: int, data: bytes, at: int) -> None:
        """Write all bytes into the file, from `at` on. Raises OSError."""
        rest = memoryview(data)
        while rest:
            done = os.pwrite(fd, rest, at)
            rest, at = rest[done:], at + done

    def reserve(self, fd: int, at: int, count: int) -> None:
        """Reserve `count` bytes of the file from `at`, zeros at first. Raises OSError if the disk is full."""
        try:
            os.posix_fallocate(fd, at, count)
        except OSError as error:
            if error.errno not in CANNOT_RESERVE:
                raise

    def free(self, directory: str) -> int:
        """The bytes that files of this user may still take from the disk."""
        found = os.statvfs(directory)
        return found.f_bavail * found.f_frsize

    def cut(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def sync(self, fd: int) -> None:
        """Make the written data durable, and the file's length as far as reading the data needs it."""
        os.fdatasync(fd)

    def replace(self, path: str, by: str) -> None:
        """Replace the file `path` by the file `by`; durable after `sync_directory`."""
        os.replace(by, path)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def sync_directory(self, directory: str) -> None:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
