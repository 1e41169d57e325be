"""An open file, and the lock on it that one process at a time has (flock).

Rule: an error of the kernel about a lock is "not now", or an error that names the file, the reason and the remedy.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import time

from ..errors import FileRefused

LOCK_SECONDS_MIN, LOCK_SECONDS_MAX = 0.000_1, 0.005  # between two tries: it is held for some 50 microseconds
# Errors of flock where there are no locks: file systems without them, NFS without its lock daemon, sandboxes.
NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})

log = logging.getLogger(__name__)


class Handle:
    """An open file; closed when the last thread that uses it lets go."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        info = os.fstat(fd)
        self.place = (info.st_dev, info.st_ino)
        self.since = time.monotonic()

    def __del__(self) -> None:
        os.close(self.fd)


def lock(handle: Handle, deadline: float, path: str) -> bool:
    """False if another process has the lock until the deadline. Raises FileRefused where there are no locks."""
    delay = LOCK_SECONDS_MIN
    while True:
        try:
            fcntl.flock(handle.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except (BlockingIOError, InterruptedError):
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(delay, left))
            delay = min(1.5 * delay, LOCK_SECONDS_MAX)
        except OSError as error:
            raise _no_lock(path, error) from error


def _no_lock(path: str, error: OSError) -> FileRefused:
    name = errno.errorcode.get(error.errno or 0, str(error.errno))
    if error.errno in NO_LOCKS:
        remedy = ("its file system has no locks, or no lock daemon (NFS wants rpc.statd, or local_lock=flock if all "
                  "processes are of one host); put the file on another file system, or use a TCPStore")  # fmt: skip
    else:
        remedy = "see whether its file system is mounted and answers"
    return FileRefused(f"file {path} cannot be locked ({name}: {error.strerror}); {remedy}")


def unlock(handle: Handle, path: str) -> None:
    """Also of a lock that was never had: an interrupt may come between the lock and the note of it."""
    try:
        fcntl.flock(handle.fd, fcntl.LOCK_UN)
    except OSError as error:  # nothing is lost: the kernel frees the lock with the open file
        if error.errno not in NO_LOCKS:
            log.warning("file %s cannot be unlocked (%s); others wait until this store is closed", path, error.strerror)


def in_place(handle: Handle, path: str) -> bool:
    """False if the path means another file by now, or none: the lock is on the old one."""
    try:
        info = os.stat(path)
    except OSError:
        return False
    return (info.st_dev, info.st_ino) == handle.place
