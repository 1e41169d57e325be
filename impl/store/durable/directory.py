"""A directory in which a server keeps its store: used by one server at a time, of this version, and nothing else.

Rule: a directory that is refused stays unchanged.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable

from ...host.disk import Disk
from ..errors import FileRefused
from ..limits import Limits
from .contents import KeptContents
from .journal import LOCK, MAGIC, NAME, NAMES, Journal, check_magic, recovered

# Errors of flock without locks: file systems that have none, NFS without its lock daemon, sandboxes.
NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})


class Directory:
    """An open directory: its journal and the contents of the journal."""

    def __init__(self, path: str, limits: Limits, log: Callable[[str], None], disk: Disk | None = None) -> None:
        """Read the directory or create its journal. Raises FileRefused, whose text names the remedy."""
        self.path = os.path.realpath(path)
        disk = disk or Disk()
        self.contents = KeptContents(limits)
        self._lock = -1
        try:
            _check(self.path, disk)
            self._lock = _locked(self.path)
            self.journal: Journal = recovered(disk, self.path, self.contents, log)
        except OSError as error:
            self.close()
            raise FileRefused(f"--data {path}: {error.strerror} ({error.filename or self.path}); give a directory that "
                              "this user may write, on a disk that has room") from error  # fmt: skip
        except BaseException:
            self.close()
            raise

    @property
    def summary(self) -> str:
        """The contents in words: `kept there: 3 values and 1 queued element, 217 bytes`."""
        contents = self.contents
        elements = f"{contents.items_held} queued element{'s' * (contents.items_held != 1)}"
        return f"kept there: {len(contents.values)} values and {elements}, {contents.bytes_held} bytes"

    def close(self) -> None:
        """Release the directory for another server."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _check(path: str, disk: Disk) -> None:
    """Make the directory if it does not exist. Raises FileRefused if it holds anything else."""
    if not os.path.lexists(path):
        disk.make_directory(path)
        disk.sync_directory(os.path.dirname(path))
        return
    if not os.path.isdir(path):
        raise FileRefused(f"--data {path} is not a directory; give an empty directory, or one that does not exist yet")
    names = disk.names(path)
    others = sorted(set(names) - NAMES)
    # A server that ended while it created the directory leaves no journal, and only files of NAMES.
    if NAME not in names and others:
        raise FileRefused(f"--data {path} has no journal of a store and is not empty (it has {others[0]!r}); it was "
                          "not changed: give an empty directory, or one that does not exist yet")  # fmt: skip
    if NAME in names:
        fd = disk.open(os.path.join(path, NAME))
        try:
            check_magic(os.path.join(path, NAME), disk.read(fd, len(MAGIC), 0))
        finally:
            disk.close(fd)


def _locked(path: str) -> int:
    """The descriptor of the lock. The kernel releases the lock when the server dies. Raises FileRefused."""
    fd = os.open(os.path.join(path, LOCK), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(fd, 0)
        os.pwrite(fd, b"%d\n" % os.getpid(), 0)
        return fd
    except BlockingIOError:
        pid = os.pread(fd, 20, 0).decode("ascii", "replace").strip()
        os.close(fd)
        raise FileRefused(f"--data {path} is in use by another server (process {pid or 'unknown'}); end that one, or "
                          "give another directory") from None  # fmt: skip
    except OSError as error:
        os.close(fd)
        if error.errno in NO_LOCKS:
            raise FileRefused(f"--data {path}: its file system has no locks ({error.strerror}), so two servers could "
                              "write there; give a directory on a local disk") from error  # fmt: skip
        raise
