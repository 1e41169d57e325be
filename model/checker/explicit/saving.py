"""Saves an explicit search in a storage, and resumes it.

Theory of operation. A search may end at any moment: by a limit, Ctrl-C or a crash. A checkpoint holds only whole
levels: half a level would be expanded again, and its steps would be counted twice. Each level is written once. The
numbers of the activated steps, the counts and the finds are small and are written with each checkpoint.

Rule: a checkpoint replaces the previous one when all its files are on the disk (storage.py). If another error ends the
search, a further failure of the storage is ignored, and the search raises the first error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from ...errors import UsageError
from ..kernel import Watch, WatchKey
from .levels import Levels
from .storage import Level, Run, Saved, Storage, StorageFailed, cut, fingerprint
from .watch_evaluation import Find

if TYPE_CHECKING:
    from .engine import ExplicitEngine

UNSAVED = 16  # unsaved levels may use 1/UNSAVED of the memory


class Checkpoint(NamedTuple):
    """The number of whole levels, and the numbers of steps and of finds in all of them except the last.

    If the search is `over`, the counts include the last level.
    """

    levels: int = 0
    edges: int = 0
    finds: int = 0
    over: bool = False


def refuse_moved(saved: Iterable[Saved], watches: Sequence[Watch]) -> None:
    """Refuse searches with a find whose line has moved: it would be dropped, and its level is not searched again."""
    if not {key for one in saved for key in one.finds} <= {watch.key for watch in watches}:
        raise UsageError("the saved search has met a step that leaves a field's range, at a line that has moved since: "
                         "begin again in another directory")  # fmt: skip


class Saver:
    """Keeps the last checkpoint of a search. Without a storage it does nothing."""

    def __init__(self, storage: Storage | None) -> None:
        self.storage = storage
        self.saved = Checkpoint()
        self.resumed = 0  # the number of resumed states

    def open_storage(self, search: ExplicitEngine, watches: Sequence[Watch]) -> Saved | None:
        """The search that is saved in the storage, or None."""
        if self.storage is None:
            return None
        described = fingerprint(search.kernel, search.layout, search.reduced, watches)
        saved = self.storage.begin(search.layout, described)
        if saved is not None:
            refuse_moved([saved], watches)
        return saved

    def resume(self, search: ExplicitEngine, saved: Saved) -> Level:
        """Load a saved search; returns its last level."""
        search.levels, search.edges = Levels((search.layout, level) for level in saved.levels), saved.edges
        for number in saved.met:
            search.steps[number].activated = True
        visited = search.visited
        visited.stored = [*saved.merged]
        visited.count = sum(map(len, saved.merged))
        for level in saved.levels:
            self.resumed += len(level)
            if self.resumed > visited.count:
                visited.add(level[:] if len(level) <= visited.keys_max // 2 else level)
        search.whole = self.saved = Checkpoint(len(search.levels), search.edges, len(saved.finds), saved.over)
        return search.levels[-1]

    @contextmanager
    def saving(self, search: ExplicitEngine, finds: Mapping[WatchKey, Find]) -> Iterator[None]:
        """Save the last whole level when the block ends, also after an error."""
        try:
            yield
        except BaseException:  # also Ctrl-C
            with suppress(StorageFailed, MemoryError):
                self.save(search, finds)
            raise
        self.save(search, finds)

    def due(self, search: ExplicitEngine) -> bool:
        """Whether it is time to save."""
        if self.storage is None:
            return False
        unsaved = sum(len(level) for level in search.levels if not isinstance(level, Run))
        return self.storage.due or unsaved * search.layout.state_bytes > self.storage.memory_bytes // UNSAVED

    def save(self, search: ExplicitEngine, finds: Mapping[WatchKey, Find]) -> None:
        whole = search.whole
        if self.storage is None or whole == self.saved:
            return
        held = search.levels
        new = [k for k, level in enumerate(held[: whole.levels]) if not isinstance(level, Run)]
        for k, run in zip(new, self.storage.write([cut(held[k][:]) for k in new]) if new else (), strict=True):
            held[k] = run
        levels = [level for level in held[: whole.levels] if isinstance(level, Run)]
        if levels:
            met = [number for number, step in enumerate(search.steps) if step.activated]
            finds = dict(islice(finds.items(), whole.finds))
            self.storage.save(Saved(levels, search.visited.stored, whole.edges, finds, met, whole.over))
            self.saved = whole
