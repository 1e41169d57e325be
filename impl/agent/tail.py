r"""The copy of the workers' output (`--tee`, filters): whole lines, to the last one.

torch's tail (tail_log.py:tail_logfile) takes a partial read for a line. A line in two pieces gets two prefixes, and a
filter sees neither whole. If the worker ends after the last read, torch's tail stops and loses the output in between.

Rule: a line is bounded: a longer one becomes several. `\r` ends a line too, like the line of a progress bar.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TextIO

from torch.distributed.elastic.multiprocessing import api
from torch.distributed.elastic.multiprocessing.tail_log import TailLog

READ_BYTES = 1 << 16
LINE_LENGTH_MAX = 1 << 20  # characters


def follow(
    header: str, path: str, to: TextIO, finished: threading.Event, interval: float, wanted: Callable[[str], bool]
) -> None:  # fmt: skip
    """Copy the lines of a growing file, each after the header, until it has `finished` and was read completely."""
    decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8")("replace"), translate=True)
    file, rest = None, ""

    def copy(lines: list[str]) -> None:
        for line in lines:
            if wanted(f"{line}\n"):
                to.write(f"{header}{line}\n")
        to.flush()

    try:
        while True:
            last = finished.is_set()  # before the read, which then gets all output
            if file is None and os.path.exists(path):
                file = open(path, "rb", buffering=0)  # noqa: SIM115 (closed below)
            # A process that outlives its worker may write for ever: at the end only what is there is copied.
            left = os.fstat(file.fileno()).st_size - file.tell() if last and file is not None else sys.maxsize
            while data := file.read(min(READ_BYTES, left)) if file is not None else b"":
                left -= len(data)
                *lines, rest = (rest + decoder.decode(data)).split("\n")
                if len(rest) >= LINE_LENGTH_MAX:
                    lines, rest = [*lines, rest], ""
                copy(lines)
            if last:
                rest += decoder.decode(b"", final=True)
                copy([rest] if rest else [])
                return
            finished.wait(interval)
    finally:
        if file is not None:
            file.close()


class WholeLines(TailLog):
    """Like torch's TailLog, but with whole lines."""

    def start(self) -> WholeLines:
        """Start a thread for each file."""
        if self._threadpool and self._dst:
            for rank, path in self._log_files.items():
                header = (self._log_line_prefixes or {}).get(rank, f"[{self._name}{rank}]:")
                wanted = getattr(self, "_log_line_filter", None) or (lambda line: True)  # older releases have no filter
                ends = self._finished_events[rank]
                self._futs.append(
                    self._threadpool.submit(follow, header, path, self._dst, ends, self._interval_sec, wanted)
                )
        return self


@contextlib.contextmanager
def whole_lines() -> Iterator[None]:
    """Make `WholeLines` tail the workers that start in this context."""
    before = api.TailLog  # type: ignore[attr-defined]
    setattr(api, "TailLog", WholeLines)  # noqa: B010 (mypy: a class is not assigned to)
    try:
        yield
    finally:
        setattr(api, "TailLog", before)  # noqa: B010
