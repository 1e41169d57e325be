"""FileStore and its lock: what the kernel refuses is quoted, with the remedy; a lock that is kept delays little."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from trystate.impl.store.file.store import FileStore
from trystate.property_tests.adapters.torch_store.isolated import Child
from trystate.property_tests.support.stores.client.common import until
from trystate.property_tests.support.stores.defects import Connection
from trystate.property_tests.tests.store.test_file_store import AMPLE, SHORT
from trystate.store import StoreTimeout

CLOSE_SECONDS = 0.5  # as docs/stores.md says
FLOCK = {"x86_64": 73, "aarch64": 32}  # the system call's number


def refuse_locks(code: int) -> bool:
    """Have the kernel answer every flock of this process with an error, by a filter of system calls (seccomp(2))."""
    number = FLOCK[platform.machine()]
    rules = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x50000 | code), (0x06, 0, 0, 0x7FFF0000)]
    filtering = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in rules))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(rules), ctypes.addressof(filtering)))
    libc = ctypes.CDLL(None)
    return bool(libc.prctl(38, 1, 0, 0, 0) == 0 == libc.prctl(22, 2, program))


def open_and_set(told: Connection, path: Path, code: int, first: bool) -> None:
    """Open a store and write, with locks refused from the start or from then on; close it all the same."""
    store = None if first else FileStore(path)
    if not refuse_locks(code):
        told.send(None)
        return
    try:
        store = store or FileStore(path)
        store.set("k", "v")
    except Exception as error:
        told.send(f"{type(error).__name__}: {error}")
    if store is not None:
        store.close()
    told.send("closed")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another open file has the lock, as a stopped process would."""
    with path.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        yield


@pytest.mark.skipif(platform.machine() not in FLOCK or platform.system() != "Linux", reason="needs seccomp")
@pytest.mark.parametrize("first", [True, False], ids=["at once", "later"])
@pytest.mark.parametrize(("code", "remedy"), [
    ("ENOLCK", "another file system, or use a TCPStore"),
    ("EOPNOTSUPP", "another file system, or use a TCPStore"),
    ("ENOSYS", "another file system, or use a TCPStore"),
    ("EIO", "mounted and answers"),
])  # fmt: skip
def test_a_lock_that_the_kernel_refuses_is_refused_with_the_file_the_error_and_the_remedy(
    tmp_path: Path, code: str, remedy: str, first: bool
) -> None:
    path = tmp_path / "store"
    with Child(open_and_set, path, getattr(errno, code), first) as child:
        said = child.hear(20.0)
        if said is None:
            pytest.skip("this kernel filters no system calls")
        assert isinstance(said, str) and said.startswith("FileRefused: ")
        assert str(path) in said and remedy in said
        assert f"({code}: " in said.replace("ENOTSUP:", "EOPNOTSUPP:")  # one number, two names
        assert child.hear(20.0) == "closed"


def test_a_lock_that_a_signal_interrupts_is_asked_for_again_within_the_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python asks again by itself, except where the file system answers with the error and not the kernel."""
    interrupted, flock = [0], fcntl.flock

    def interrupt(times: int) -> Any:
        def ask(fd: int, how: int) -> None:
            if how & fcntl.LOCK_EX and interrupted[0] < times:
                interrupted[0] += 1
                raise InterruptedError(errno.EINTR, os.strerror(errno.EINTR))
            flock(fd, how)

        return ask

    with FileStore(tmp_path / "store", timeout=AMPLE) as store:
        monkeypatch.setattr(fcntl, "flock", interrupt(3))
        store.set("k", "v")
        assert (interrupted, store.get("k")) == ([3], b"v")
        monkeypatch.setattr(fcntl, "flock", interrupt(10**9))
        store.set_timeout(SHORT)
        with pytest.raises(StoreTimeout, match=r"set: timed out after 1000ms"):
            store.set("k", "w")
        monkeypatch.undo()
        assert store.get("k") == b"v"


def test_close_waits_shortly_for_the_lock_and_says_good_bye_later(tmp_path: Path) -> None:
    """The process goes on: as long as it counts as a user the file is not deleted."""
    path = tmp_path / "store"
    store = FileStore(path, 1)
    store.set("k", "v")
    with locked(path):
        began = time.monotonic()
        store.close()
        assert time.monotonic() - began < 5 * CLOSE_SECONDS
        assert path.exists()
    until(lambda: not path.exists())
