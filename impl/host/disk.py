"""The operations on files that a journal consists of; a test has a disk that forgets what was not synced.

Rule: each is one call of the system, or all of it: a write is whole when it returns, and durable only after `sync`.
"""

from __future__ import annotations

import errno
import os

# Of file systems that cannot reserve space: then a write may fail, which ends all writing (`driver`).
CANNOT_RESERVE = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})


class Disk:
    """The real one."""

    def names(self, directory: str) -> list[str]:
        return os.listdir(directory)

    def make_directory(self, directory: str) -> None:
        os.mkdir(directory, 0o700)

    def create(self, path: str) -> int:
        """A new file, or an old one emptied; its descriptor."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)

    def open(self, path: str) -> int:
        return os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)

    def close(self, fd: int) -> None:
        os.close(fd)

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def read(self, fd: int, count: int, at: int) -> bytes:
        """So many bytes from `at`, fewer at the end of the file."""
        parts: list[bytes] = []
        while count and (part := os.pread(fd, count, at)):
            parts.append(part)
            count, at = count - len(part), at + len(part)
        return b"".join(parts)

    def write(self, fd: int, data: bytes, at: int) -> None:
        rest = memoryview(data)
        while rest:
            done = os.pwrite(fd, rest, at)
            rest, at = rest[done:], at + done

    def reserve(self, fd: int, at: int, count: int) -> None:
        """Give the file so many bytes from `at`, zeros at first. Raises OSError if the disk has no room for them."""
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
        """Make durable what was written, and as much of the file's length as it takes to find it."""
        (os.fdatasync if hasattr(os, "fdatasync") else os.fsync)(fd)

    def replace(self, path: str, by: str) -> None:
        """Put the file `by` in the place of `path`; durable after `sync_directory`."""
        os.replace(by, path)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def sync_directory(self, directory: str) -> None:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
