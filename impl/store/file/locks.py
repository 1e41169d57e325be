"""An open file, and its lock (flock), which one process at a time holds.

Rule: an error of the kernel about a lock means "not now", or it becomes an error with the file, reason and remedy.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import time

from ..errors import FileRefused

LOCK_SECONDS_MIN, LOCK_SECONDS_MAX = 0.000_1, 0.005  # between two tries; the lock is held for some 50 microseconds
# Errors of flock without locks: file systems that have none, NFS without its lock daemon, sandboxes.
NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})

log = logging.getLogger(__name__)


class Handle:
    """An open file. It is closed when the last thread that uses it drops its reference."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        info = os.fstat(fd)
        self.place = (info.st_dev, info.st_ino)
        self.since = time.monotonic()

    def __del__(self) -> None:
        os.close(self.fd)


def lock(handle: Handle, deadline: float, path: str) -> bool:
    """Take the lock. False if another process has it until the deadline. Raises FileRefused without locks."""
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
        remedy = ("its file system has no locks or no lock daemon (NFS needs rpc.statd, or local_lock=flock if all "
                  "processes run on one host); put the file on another file system, or use a TCPStore")  # fmt: skip
    else:
        remedy = "see whether its file system is mounted and responds"
    return FileRefused(f"file {path} cannot be locked ({name}: {error.strerror}); {remedy}")


def unlock(handle: Handle, path: str) -> None:
    """Release the lock. Also called if it may not be held: an interrupt may come between `flock` and its result."""
    try:
        fcntl.flock(handle.fd, fcntl.LOCK_UN)
    except OSError as error:  # the kernel releases the lock when the file is closed
        if error.errno not in NO_LOCKS:
            log.warning("file %s cannot be unlocked (%s); others wait until this store closes", path, error.strerror)


def in_place(handle: Handle, path: str) -> bool:
    """Whether the path still names this file. If not, the lock is on a file that was replaced or deleted."""
    try:
        info = os.stat(path)
    except OSError:
        return False
    return (info.st_dev, info.st_ino) == handle.place
