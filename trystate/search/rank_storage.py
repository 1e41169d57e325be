"""The checkpoint of a search on several ranks: a directory that all hosts share, with a part for each rank.

*Theory of operation.* Each rank keeps its states, as `spill` does, in its own directory:

    DIR/of-4/0 ... DIR/of-4/3    the parts of four ranks
    DIR/ranks.json               how many ranks the checkpoint is of

The file names one group of parts, once all ranks have saved theirs: parts that it does not name are left over, and are
removed. A group of the same size continues with its parts. A group of another size writes new parts next to them,
redistributes the states and saves. Then the first rank writes the file again, and each rank removes the parts that it
has read. A process may be killed at any time between.

Where ranks were killed while they saved, some parts have a level more than others: the search resumes from the last
level that all have (`PartitionedEngine`).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import uuid
from collections.abc import Mapping, Sequence

from trystate.impl.host.disk import Disk
from trystate.model.checker.explicit.packing import Layout
from trystate.model.checker.explicit.ranks import RANKS_MAX, PartStorage, Ranks
from trystate.model.checker.explicit.storage import Saved
from trystate.model.checker.kernel import Limits
from trystate.model.errors import UsageError

from .checkpoint import LOCK, Lock, replace
from .spill import Spill, bytes_for_states

GROUP, NEW, TOKEN = "ranks.json", "ranks.new", "token"
FOLDER = re.compile(r"of-\d{1,4}")


class RankSpill(Spill, PartStorage):
    """The part of one rank of a checkpoint in the directory `root`, as `opened` makes it.

    `lock` is the lock of the whole directory, which the first rank holds for all.
    """

    def __init__(
        self, root: str, rank: int, count: int, memory_bytes: int, disk: Disk | None = None, lock: Lock | None = None
    ) -> None:  # fmt: skip
        self._root, self._rank, self._count, self._lock = root, rank, count, lock
        super().__init__(_part(root, count, rank), memory_bytes, disk)
        self._memory = memory_bytes
        self._others: list[Spill] = []
        self._earlier: list[Saved] = []

    @property
    def earlier(self) -> Sequence[Saved]:
        return self._earlier

    def close(self) -> None:
        for other in self._others:
            other.close()
        super().close()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def begin(self, layout: Layout, fingerprint: Mapping[str, str]) -> Saved | None:
        group = _group(self._root)
        if group != self._count:
            shutil.rmtree(self._path, ignore_errors=True)  # left over: no checkpoint has it
        try:
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
        except OSError as error:
            raise UsageError(_unwritable(self._path, error)) from error
        own = Spill.begin(self, layout, fingerprint)
        if group == self._count and own is None:
            raise UsageError(_damaged(self._root, f"the part of rank {self._rank} is not there"))
        if group not in (0, self._count):
            for rank in range(self._rank, group, self._count):
                other = Spill(_part(self._root, group, rank), self._memory)
                self._others.append(other)
                saved = other.begin(layout, fingerprint)
                if saved is None:
                    raise UsageError(_damaged(self._root, f"the part of rank {rank} of {group} is not there"))
                self._earlier.append(saved)
        return own

    def commit(self) -> None:
        replace(self._disk or Disk(), self._root, GROUP, NEW, json.dumps({"ranks": self._count}))

    def forget(self) -> None:
        for other in self._others:
            other.close()
            shutil.rmtree(other._path, ignore_errors=True)
        self._others, self._earlier = [], []
        if self._rank == 0:
            for name in os.listdir(self._root):
                if FOLDER.fullmatch(name) and name != f"of-{self._count}":
                    shutil.rmtree(os.path.join(self._root, name), ignore_errors=True)


def opened(root: str | os.PathLike[str], ranks: Ranks, limits: Limits) -> RankSpill:
    """The part of this rank. Every rank calls it, with the same directory.

    Raises:
        UsageError: on every rank. `root` is not a directory, has other files, cannot be written, or is not the same
            directory on all hosts; or the limit of memory is too small.
    """
    path = os.path.realpath(root)
    token, problem, lock = uuid.uuid4().hex, "", None
    try:
        memory = bytes_for_states(path, limits)
        if ranks.rank == 0:
            lock = _prepared(path, token)
    except UsageError as error:
        problem = str(error)
    try:
        notes = ranks.told([problem, token])
        problem = next((f"{why} (rank {rank})" for rank, (why, _) in enumerate(notes) if why), "")
        if problem:
            raise UsageError(problem)
        apart = [rank for rank, same in enumerate(ranks.told(_token(path) == notes[0][1])) if not same]
        if apart:
            raise UsageError(
                f"--checkpoint {path} is not the directory of rank 0 on rank {apart[0]}: give one that all hosts "
                "share, or remove it there and start all ranks on one host"
            )
    except BaseException:
        if lock is not None:
            lock.close()
        raise
    return RankSpill(path, ranks.rank, ranks.count, memory, lock=lock)


def _part(root: str, count: int, rank: int) -> str:
    return os.path.join(root, f"of-{count}", str(rank))


def _prepared(path: str, token: str) -> Lock:
    """Make the directory, or check the existing one, and lock it.

    Raises:
        UsageError: it cannot be used.
    """
    try:
        if not os.path.isdir(path):
            os.mkdir(path)  # only one level: a mistyped path makes no folders
        known = (GROUP, NEW, TOKEN, LOCK)
        others = [name for name in os.listdir(path) if not FOLDER.fullmatch(name) and name not in known]
        if others:
            raise UsageError(
                f"--checkpoint {path} is not a checkpoint of ranks, and not empty (it has {min(others)!r}); it was "
                "left as it was: give an empty directory, or one that does not exist yet"
            )
        lock = Lock(path)
        try:
            with open(os.path.join(path, TOKEN), "w", encoding="ascii") as file:
                file.write(token)
        except BaseException:
            lock.close()
            raise
    except OSError as error:
        raise UsageError(_unwritable(path, error)) from error
    return lock


def _token(path: str) -> str:
    try:
        with open(os.path.join(path, TOKEN), encoding="ascii") as file:
            return file.read(64)
    except (OSError, UnicodeDecodeError):
        return ""


def _group(root: str) -> int:
    """The number of ranks of the checkpoint; 0 if the directory has no checkpoint.

    Raises:
        UsageError: the file is damaged, or cannot be read.
    """
    try:
        with open(os.path.join(root, GROUP), encoding="ascii") as file:
            count = json.loads(file.read(1 << 10))["ranks"]
    except FileNotFoundError:
        return 0
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(_damaged(root, f"{GROUP}: {error}")) from error
    if not isinstance(count, int) or not 1 <= count <= RANKS_MAX:
        raise UsageError(_damaged(root, f"{GROUP} names {count} ranks"))
    return count


def _unwritable(path: str, error: OSError) -> str:
    return f"--checkpoint {error.filename or path}: {error.strerror or error}; give a directory that can be written"


def _damaged(root: str, part: str) -> str:
    return f"--checkpoint {root} is not as it was written ({part}): remove the directory, and search again"
