"""The files of a record, written by a thread. The recorder never waits for a disk.

Theory of operation. `put` adds the time to lines, under the lock of the queue. The thread takes all lines at once,
GATHER_SECONDS after the first. Lines that cannot be kept, because the queue is full or the disk refused the last lines,
are counted (`lost`). The recorder takes that number before its next lines and writes it into the record. After an error
of the disk the file is cut back to its last whole line, and nothing is written for RETRY_SECONDS. If the file cannot be
cut back, the next file is started.

Rule: a line is written completely or not at all. Times never go back. At most `files` files are kept, the latest ones.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import re
import socket
import stat
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, time
from typing import Any, Protocol

from trystate.model.errors import UsageError

from .format import FORMAT

QUEUE_BYTES = 64 << 20  # the most bytes that wait for the disk; beyond that the disk is too slow
GATHER_SECONDS = 0.1
TICK_SECONDS = 1.0
RETRY_SECONDS = 1.0
CLOSE_SECONDS = 5.0
BYTES_MIN = 64 << 10
BYTES, FILES = 256 << 20, 8
_LATER = re.compile(r"\.[1-9][0-9]{0,8}")


@dataclass(frozen=True, slots=True)
class Lines:
    """Some lines, and the number of lines that are lost if these are."""

    data: bytes
    count: int


@dataclass(frozen=True, slots=True)
class Begin:
    """The start of a file: its time, and the additional fields of its header."""

    at: float
    fields: dict[str, Any]


class Sink(Protocol):
    """The destination of a recorder's lines."""

    def put(self, lines: Sequence[bytes], lost: int = 0) -> None:
        """Keep these JSON objects, which have no time yet, or count them as lost.

        With `lost` the first line contains that number and the others repeat the state. If these lines are lost too,
        that number counts again.
        """

    def rotate(self, fields: dict[str, Any]) -> None:
        """Start the next file, with these fields in its header."""

    def take_lost(self) -> int | None:
        """The number of lines that were lost since the last call; None while lines are still being lost."""


def encoded(line: dict[str, Any]) -> bytes:
    """A line without its time."""
    return json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode()


def segments(path: Path) -> list[tuple[int, Path]]:
    """The existing files of a record with their numbers, in order."""
    found = [(0, path)] if path.exists() else []
    for each in path.parent.glob(f"{glob.escape(path.name)}.*"):
        suffix = each.name[len(path.name) :]
        if _LATER.fullmatch(suffix):
            found.append((int(suffix[1:]), each))
    return sorted(found)


class Writer:
    """A bounded record in files. As a context manager it ends the record."""

    def __init__(
        self,
        path: Path,
        header: dict[str, Any],
        *,
        bytes_max: int = BYTES,
        files: int = FILES,
        log: Callable[[str], None],
        write: Callable[[int, bytes], int] = os.write,
    ) -> None:
        """Start the first file. Raises UsageError if it cannot be written or has contents already.

        Args:
            path: the path of the first file; later files add a number to it.
            header: the fields of each file's first line, without the format and the host.
            bytes_max: the size of one file, without the line that reaches it.
            files: the most files that are kept.
            log: gets one line when the disk starts to refuse lines.
            write: like `os.write`; for tests.
        """
        if bytes_max < BYTES_MIN:
            raise UsageError(f"--record-bytes {bytes_max}: the least is {BYTES_MIN} bytes")
        if files < 1:
            raise UsageError(f"--record-files {files}: the least is 1")
        self.path, self.bytes_max, self.files, self._log, self._write_to = path, bytes_max, files, log, write
        self._header = {
            "c": 0, "op": "header", "format": FORMAT, "host": socket.gethostname(), "pid": os.getpid(), **header,
            "limits": {"bytes": bytes_max, "files": files},
        }  # fmt: skip
        self._offset = time() - monotonic()
        self._changed = threading.Condition()
        self._queue: list[Lines | Begin] = []
        self._queued = 0  # bytes
        self._last = 0.0  # the time of the last line
        self._lost = 0
        self._failed_until: float | None = None
        self._closed = False
        # The fields of the thread:
        self._number = 0
        self._begin = Begin(self.now(), {})
        self._fd: int | None = None
        self._size = 0  # the size of the whole lines in the file
        self._said = False
        check_free(path)
        try:
            self._open()
            self._write([])
        except OSError as error:
            raise UsageError(f"--record {path}: {error.strerror}; give a file that can be written") from error
        self._thread = threading.Thread(target=self._run, name="trystate record", daemon=True)
        self._thread.start()

    def now(self) -> float:
        return monotonic() + self._offset

    def put(self, lines: Sequence[bytes], lost: int = 0) -> None:
        """Keep lines, or count them as lost. Never waits for the disk."""
        with self._changed:
            size = sum(map(len, lines))
            owed = self._lost and not lost  # the number of lost lines has to be written before further lines
            if self._closed or owed or self._failed_until is not None or self._queued + size > QUEUE_BYTES:
                self._lost += lost or len(lines)
                return
            self._append(lines, lost or len(lines))
            self._add(size)

    def rotate(self, fields: dict[str, Any]) -> None:
        """Start the next file after the lines that were put."""
        with self._changed:
            if self._failed_until is None:
                self._stamp()
                self._queue.append(Begin(self._last, fields))
                self._add(1)

    def take_lost(self) -> int | None:
        """The number of lines lost since the last call; None if further lines would be lost now."""
        with self._changed:
            if not self._lost:
                return 0
            if self._failed_until is not None:  # the disk has refused lines: try again after RETRY_SECONDS
                if monotonic() < self._failed_until:
                    return None
                self._failed_until = None
            elif self._queued > QUEUE_BYTES // 2:  # the queue was full: continue when half of it is written
                return None
            lost, self._lost = self._lost, 0
            return lost

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Write the remaining lines and the end, for at most `seconds`. May be called twice."""
        with self._changed:
            if not self._closed:
                lost = [encoded({"c": 0, "op": "lost", "lines": self._lost})] if self._lost else []
                self._append([*lost, encoded({"c": 0, "op": "end"})], 0)  # even if the queue is full
            self._closed = True
            self._changed.notify()
        self._thread.join(seconds)

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _append(self, lines: Sequence[bytes], count: int) -> None:
        stamp = self._stamp()
        self._queue.append(Lines(b"".join([stamp + line[1:] + b"\n" for line in lines]), count))

    def _stamp(self) -> bytes:
        """The first bytes of a line that is put now."""
        self._last = max(self._last, self.now())
        return b'{"t":%.6f,' % self._last

    def _add(self, size: int) -> None:
        first = not self._queued
        self._queued += size
        if first:
            self._changed.notify()

    # The thread

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._queue and not self._closed:
                    self._changed.wait(TICK_SECONDS)
                if not self._queue and not self._closed:
                    if self._failed_until is not None:
                        continue
                    self._queue.append(Lines(self._stamp() + b'"c":0,"op":"tick"}\n', 0))
                elif not self._closed:
                    self._changed.wait_for(lambda: self._closed, GATHER_SECONDS)
                queue, self._queue, self._queued = self._queue, [], 0
                closed = self._closed
            self._keep(queue)
            if closed:
                self._drop()
                return

    def _keep(self, queue: list[Lines | Begin]) -> None:
        """Write lines, and start the files that are queued among them."""
        lines: list[bytes] = []
        left, here = _count(queue), 0
        try:
            for each in queue:
                if isinstance(each, Lines):
                    lines.append(each.data)
                    here += each.count
                    continue
                self._write(lines)
                left, here, lines = left - here, 0, []
                self._drop()
                self._number += 1
                self._begin = each
                self._open()
            self._write(lines)
        except OSError as error:
            self._refused(error, left)
        else:
            self._said = self._said and not queue

    def _open(self) -> None:
        """Open the next file, which has to be new or empty."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        name = f"{self.path}.{self._number}" if self._number else str(self.path)
        fd = os.open(name, flags, 0o600)
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_size:
            os.close(fd)
            raise OSError(0, "it is not an empty regular file", name)
        self._fd, self._size = fd, 0
        for number, each in segments(self.path):
            if number <= self._number - self.files:
                with contextlib.suppress(OSError):
                    os.unlink(each)

    def _write(self, lines: list[bytes]) -> None:
        """Write lines, after the header if they are the first lines of their file."""
        if self._fd is None:
            self._open()
        assert self._fd is not None
        if not self._size:
            lines = [self._first_line(), *lines]
        data = b"".join(lines)
        view = memoryview(data)
        while view:
            view = view[self._write_to(self._fd, bytes(view[: 1 << 20])) :]
        self._size += len(data)

    def _first_line(self) -> bytes:
        at = self._begin.at
        later = {"continues": self._number} if self._number else {}
        line = self._header | later | self._begin.fields | {"monotonic": round(at - self._offset, 6)}
        return b'{"t":%.6f,' % at + encoded(line)[1:] + b"\n"

    def _refused(self, error: OSError, left: int) -> None:
        """After the disk refused lines, remove the part that it has written, and try again later."""
        if self._fd is not None:
            try:
                os.ftruncate(self._fd, self._size)
            except OSError:
                self._drop()
                self._number += 1
        with self._changed:
            self._lost += left + _count(self._queue)
            self._queue, self._queued = [], 0
            self._failed_until = monotonic() + RETRY_SECONDS
        if not self._said:
            self._said = True
            self._log(
                f"--record {self.path}: {error.strerror or error}; lines are lost until it can be written again: "
                "see whether the disk is full"
            )

    def _drop(self) -> None:
        if self._fd is not None:
            with contextlib.suppress(OSError):
                os.close(self._fd)
            self._fd = None


def _count(queue: list[Lines | Begin]) -> int:
    return sum(each.count for each in queue if isinstance(each, Lines))


def check_free(path: Path) -> None:
    """Raise UsageError if a file has contents: two records in one file could not be separated."""
    if not path.name or path.is_dir():
        raise UsageError(f"--record {path}: it is a directory; name a file in it")
    for number, each in segments(path):
        if number or each.stat().st_size:
            raise UsageError(f"--record {path}: {each} exists already; move it away, or name another file")
