"""Keeps the states of a search in a directory: the search needs little memory, and resumes after it was stopped.

*Theory of operation.* `Spill` implements `Storage` (`model/checker/explicit/storage`) with the files of `checkpoint`.
It serves one search at a time. A file has one run, or a few small levels one after the other. A search saves every
`SAVE_SECONDS`, and when it ends for any reason. A search that is killed loses the work since its last save. The
directory is locked from the beginning of the search until `close`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self

from trystate.impl.host.disk import Disk
from trystate.model.checker.explicit.packing import Keys, Layout
from trystate.model.checker.explicit.storage import Run, Saved, Storage
from trystate.model.checker.explicit.watch_evaluation import Find
from trystate.model.checker.kernel import Limits, Move, WatchKey, WatchKind
from trystate.model.errors import UsageError
from trystate.version import __version__

from .checkpoint import Directory, Entry, KeysFile

SAVE_SECONDS = 20.0  # a killed search loses at most this much work, and a level more
PROGRAM_BYTES = 256 << 20  # resident without any state: this program, a compiled system, the successors of some chunks
MEMORY_BYTES_MIN = 2 * PROGRAM_BYTES


def bytes_for_states(path: str | os.PathLike[str], limits: Limits) -> int:
    """The memory that a search with these limits has for states if it keeps others in `path`.

    Raises:
        UsageError: the limit of memory is too small.
    """
    if limits.memory_bytes < MEMORY_BYTES_MIN:
        raise UsageError(
            f"a search that keeps its states in {os.fspath(path)} needs {MEMORY_BYTES_MIN >> 20} MiB, and the limit is "
            f"{limits.memory_bytes >> 20} MiB: raise it with --max-memory"
        )
    return limits.memory_bytes - PROGRAM_BYTES


class FileRun(Run):
    """A part of a file: its blocks from `start` on, up to `stop`."""

    def __init__(self, layout: Layout, file: KeysFile, start: int, stop: int) -> None:
        before = int(file.ends[start - 1]) if start else 0
        ends = file.ends[start:stop] - before
        super().__init__(layout, file.firsts[start:stop], ends, lambda number: file.block(start + number))
        self.entry = file.entry
        self.place = file.entry.name, start, stop


class Spill(Storage):
    """A storage in the directory `path`, which is made if it does not exist.

    Args:
        path: on a disk that has room: for the states of protocols, about a byte each.
        memory_bytes: for states.
        disk: with which to read and write.
    """

    def __init__(self, path: str, memory_bytes: int, disk: Disk | None = None) -> None:
        super().__init__(memory_bytes)
        self._path = path
        self._disk = disk
        self._directory: Directory | None = None
        self._saved_at = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Release the directory for other searches."""
        if self._directory is not None:
            self._directory.close()
            self._directory = None

    def begin(self, layout: Layout, fingerprint: Mapping[str, str]) -> Saved | None:
        Spill.close(self)
        directory = self._directory = Directory(self._path, {"release": __version__, **fingerprint}, self._disk)
        self._layout = layout
        self._saved_at = time.monotonic()
        content = directory.saved
        if content is None:
            return None
        files = {name: directory.open(name, layout.dtype) for name in directory.entries}

        def runs(places: Iterable[Any]) -> list[Run]:
            return [FileRun(layout, files[name], start, stop) for name, start, stop in places]

        return Saved(
            runs(content["levels"]), runs(content["merged"]), content["edges"],
            dict(map(_find_of, content["finds"])), content["met"], content["over"],
        )  # fmt: skip

    @property
    def due(self) -> bool:
        return time.monotonic() - self._saved_at > SAVE_SECONDS

    def write(self, runs: Iterable[Iterable[Keys]]) -> list[Run]:
        assert self._directory is not None
        counts: list[int] = []

        def blocks() -> Iterator[Keys]:
            for run in runs:
                counts.append(0)
                for block in run:
                    counts[-1] += 1
                    yield block

        file = self._directory.write(blocks(), self._layout.dtype)
        out: list[Run] = []
        start = 0
        for count in counts:
            out.append(FileRun(self._layout, file, start, start + count))
            start += count
        return out

    def save(self, saved: Saved) -> None:
        assert self._directory is not None
        runs = [run for run in (*saved.levels, *saved.merged) if isinstance(run, FileRun)]
        content = {
            "levels": [run.place for run in runs[: len(saved.levels)]],
            "merged": [run.place for run in runs[len(saved.levels) :]],
            "edges": saved.edges,
            "finds": [_plain(key, find) for key, find in saved.finds.items()],
            "met": list(saved.met),
            "over": saved.over,
        }
        entries: list[Entry] = [run.entry for run in runs]
        self._directory.save(content, entries)
        self._saved_at = time.monotonic()


def _plain(key: WatchKey, find: Find) -> list[Any]:
    """A find as values for JSON."""
    return [key.kind.value, key.subject, key.instance, find.level, list(find.words), find.step]


def _find_of(plain: list[Any]) -> tuple[WatchKey, Find]:
    kind, subject, instance, level, words, step = plain
    subject = subject if isinstance(subject, str) else Move(*subject)
    return WatchKey(WatchKind(kind), subject, instance), Find(level, tuple(words), step)
