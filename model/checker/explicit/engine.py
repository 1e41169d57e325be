"""The explicit engine: breadth-first over whole frontiers of packed states with NumPy.

*Theory of operation.* A state is a few 64-bit words (`packing`), a transition is a function over arrays of words
(`vectorise`), and the set of states seen is a few sorted runs (`visited`). The engine keeps the levels instead of
parent pointers (`paths`), and builds the graph only for a liveness property (`graph`).

The caller creates one engine for one search, calls `explore` once, and then `lasso` or `explored` any number of times,
all on one thread. `explore` shares large levels among `workers` and takes their results in the order of the chunks, so
the outcome does not depend on the number of workers. Workers may keep the states in arrays on a GPU. The search then
moves to the GPU at the first large level, and moves back when it has ended. The searches of one kernel share compiled
functions (`Compiled`). A `storage` keeps the states that do not fit in memory. The search is saved there at the end of
a level. A later search can resume from it and has the same outcome.

Failures:

- A limit ends the search between two chunks, an allocation fails, a worker is lost, or the storage fails. `stopped` has
  the reason, and what was found stays.
- An effect leaves its field's range. A watch reports the step. The search neither counts nor stores the state after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from typing import Any

from ...errors import UsageError
from ...language.expressions import Expr
from ...language.properties import Form, Within
from ..engine import OnProgress, ShowingClock, memory_bounded, memory_ended, quiet
from ..kernel import NO_PATH, Binding, Exploration, Kernel, Lasso, Limits, Path, Watch, WatchKey
from .codes import CodedSuccessors, renewed
from .graph import Explored
from .levels import Levels
from .liveness import Liveness
from .members import SMALL, Members
from .packing import CHUNK, Columns, Keys, Layout, Layouts
from .paths import Trails
from .saving import Checkpoint, Saver
from .storage import Level, Saved, Storage, StorageFailed
from .symmetry import Symmetry, reduction
from .vectorise import Step, Taken
from .visited import NextLevel, Successors, Visited
from .watch_evaluation import Find, Watching
from .workers import Expansion, WorkerLost, Workers

EVEN = 2  # a level of several chunks has a multiple of this number, so two workers end together


@dataclass(frozen=True, slots=True)
class Compiled:
    """The part that all searches of one kernel share: the place of each cell, and each instance as a function."""

    layout: Layout
    steps: tuple[Step, ...]
    members: Members
    symmetry: Symmetry | None

    @classmethod
    def of(cls, kernel: Kernel, *, symmetry: bool | tuple[str, ...] = False, layouts: Layouts = Layout) -> Compiled:
        reduced = reduction(kernel, symmetry, layouts)
        layout = layouts(kernel.cells, kernel.constant_cells, "") if reduced is None else reduced.layout
        steps = tuple(Step(kernel, layout, instance) for instance in kernel.instances)
        return cls(layout, steps, Members(kernel, layout, steps), reduced)


@dataclass(frozen=True, slots=True)
class Pause:
    """After `states` or `seconds`, `stop_reason` returns why the search should end here, or "" to continue.

    On a busy machine `seconds` may pass within a small search, so a tenth of `states` must have been seen by then.

    Its arguments are the number of states seen so far, the sizes of the levels, and the bytes per state.
    """

    states: int
    seconds: float
    stop_reason: Callable[[int, Sequence[int], float], str]

    def is_due(self, distinct: int, seconds: float) -> bool:
        return distinct > self.states or (seconds > self.seconds and distinct > self.states // 10)


class Chunks(Sequence[Keys]):
    """A level in chunks, each read when it is needed."""

    def __init__(self, level: Level, size: int) -> None:
        self._level = level
        self._size = size

    def __len__(self) -> int:
        return -(-len(self._level) // self._size)

    def __getitem__(self, number: Any) -> Any:
        if not 0 <= number < len(self):
            raise IndexError(number)
        return self._level[number * self._size : (number + 1) * self._size]


class ExplicitEngine:
    """Explores a kernel level by level. With `symmetry`, one state per orbit; `compiled` is from an earlier search.

    The `workers` share the levels of more than one chunk. At a `pause`, the search decides once whether to continue.
    With a `storage`, the search resumes the search that is saved there.

    Under symmetry a watch is found if it occurs for some renaming of the members, so each watch must be the same
    for every member; the paths found are runs of the system as it is declared.

    Raises:
        UsageError: symmetry where it would not be sound, or a cell too wide for a word.
    """

    name = "explicit"

    def __init__(
        self, kernel: Kernel, limits: Limits, on_progress: OnProgress = quiet, *,
        symmetry: bool | tuple[str, ...] = False, compiled: Compiled | None = None, pause: Pause | None = None,
        workers: Workers | None = None, storage: Storage | None = None,
    ) -> None:  # fmt: skip
        self.compiled = compiled or Compiled.of(kernel, symmetry=symmetry)
        self.kernel = kernel
        self._use(self.compiled)
        self.limits = limits
        self.on_progress = on_progress
        self._workers = workers or Workers()
        self._saver = Saver(storage)
        self.visited = Visited(self.layout, self._workers, storage)
        self.levels = Levels()
        self.whole = Checkpoint()
        self._pause = pause
        self.edges = 0
        self.stopped = ""
        self.complete = False
        self._peak_bytes = 0
        self._chunk_bytes = 0  # bytes held while one chunk is expanded
        self._chunks = 1  # the number of chunks in memory at the same time
        self._clock = ShowingClock(limits, self.name, on_progress)

    def explore(self, watches: Sequence[Watch]) -> Exploration:
        self._clock.restart(self.limits)
        finds: dict[WatchKey, Find] = {}
        found: dict[WatchKey, Path] = {}
        try:
            saved = self._open_storage(watches)
            finds |= {} if saved is None else saved.finds
            with self._workers, self._saver.saving(self, finds):
                self._search(watches, finds, saved)
        except MemoryError:
            self.stopped = memory_ended(self.limits)
        except (WorkerLost, StorageFailed) as lost:
            self.stopped = str(lost)
        if self.stopped or self.layout is not self.compiled.layout:
            self.visited.release()  # the levels hold each state too, and the paths need memory
        self._use(self.compiled)
        wanted = {watch.key for watch in watches if watch.path}
        try:
            found = self._trails().paths({key: find for key, find in finds.items() if key in wanted})
        except MemoryError:
            self.stopped = memory_ended(self.limits)
        except StorageFailed as lost:
            self.stopped = str(lost)
        found |= dict.fromkeys((key for key in finds if key not in wanted), NO_PATH)
        self.complete = not self.stopped
        distinct = self.visited.count
        return Exploration(
            self.name, distinct, self.edges, max(0, len(self.levels) - 1), self._clock.seconds,
            self._peak_bytes / max(1, distinct), found, self.stopped, resumed=self._saver.resumed,
        )  # fmt: skip

    def _open_storage(self, watches: Sequence[Watch]) -> Saved | None:
        """The saved search to resume, or None."""
        return self._saver.open_storage(self, watches)

    def _search(self, watches: Sequence[Watch], finds: dict[WatchKey, Find], saved: Saved | None) -> None:
        watching = self._watching(watches, finds)
        if saved is None:
            level = self._initial()
            self._add(level, finds)
        else:
            level = self._saver.resume(self, saved)
        while not (self.stopped or self.whole.over):
            if self._saver.due(self):
                self._saver.save(self, finds)
            layouts = self._workers.layouts(len(level))
            if layouts is not None and self.layout is self.compiled.layout:
                self._move(layouts)
                level, watching = self.layout.sent(level[:]), self._watching(watches, finds)
            if self.layout is self.compiled.layout and not self.visited.pays:
                self.visited = renewed(self.visited, self.layout, self.levels, self._workers) or self.visited
            level = self._successors(level, watching)
            self._add(level, finds)

    def _watching(self, watches: Sequence[Watch], finds: dict[WatchKey, Find]) -> Watching:
        return Watching(self.kernel, self.layout, watches, self.steps, finds, CHUNK)

    def _move(self, layouts: Layouts) -> None:
        """Continue on the workers' arrays, such as a GPU's. Such a search has no storage."""
        moved = Compiled.of(self.kernel, symmetry=self.reduced, layouts=layouts)
        for here, there in zip(self.steps, moved.steps, strict=True):
            there.activated = here.activated
        self._use(moved)
        self.visited = Visited(self.layout, self._workers)
        for level in self.levels:
            self.visited.add(self.layout.sent(level[:]))

    @property
    def reduced(self) -> bool | tuple[str, ...]:
        """The argument `symmetry` of the search."""
        return self.symmetry is not None and self.symmetry.names

    def _use(self, compiled: Compiled) -> None:
        self.layout, self.steps, self.symmetry = compiled.layout, compiled.steps, compiled.symmetry
        self.members = compiled.members

    def _add(self, fresh: Level, finds: Mapping[WatchKey, Find]) -> None:
        """Take a level; the last one is empty."""
        if len(fresh):
            self.levels.append(self.layout, fresh)
        if self.stopped:  # some states of the level are missing: it is counted but not searched
            self.visited.count += len(fresh)
            return
        self.whole = Checkpoint(len(self.levels), self.edges, len(finds), over=not len(fresh))
        if len(fresh):
            self.visited.append(fresh)

    def _initial(self) -> Level:
        """The initial states; fewer if a limit stops the search, since each field may have several initial values."""
        gathered = NextLevel(self.layout, self.visited, self.limits.states, self._workers)
        states = self.kernel.initial_states()
        while batch := list(islice(states, CHUNK)):
            columns = self._canonical(self.layout.pack(batch))
            gathered.add(self.layout.sort_unique(self.layout.keys(columns)))
            if len(batch) == CHUNK:
                self._check_limits(gathered)
            if self.stopped:
                break
        return gathered.finish()

    def _successors(self, level: Level, watching: Watching) -> Level:
        """The states first reached from this level; fewer if a limit stops the search."""
        room = max(0, self.limits.states - self.visited.count)
        following = self.visited.next_level(room)
        parts = -(-len(level) // CHUNK)
        size = CHUNK if parts < 2 else -(-len(level) // (-(-parts // EVEN) * EVEN))
        if self.layout.chunks > 1:
            watching.part(size)
        chunks = Chunks(level, size * self.layout.chunks)
        expand = partial(self._expand, watching)
        if len(chunks) > 1:
            self._workers.begin(expand, CHUNK * self.layout.chunks * self.layout.state_bytes, self._learn)
        self._chunks = min(len(chunks), self._workers.chunks)
        for expansion in self._workers.expanded(expand, len(self.levels) - 1, chunks, self.visited.merge):
            self.edges += expansion.edges
            for key, find in expansion.finds.items():
                watching.found.setdefault(key, find)
            for number in expansion.met:
                self.compiled.steps[number].activated = True
            self._chunk_bytes = max(self._chunk_bytes, expansion.bytes)
            if len(expansion.after):
                following.add(expansion.after)
            if len(expansion.novel):
                following.add_novel(expansion.novel)
            self._check_limits(following)
            if self.stopped:
                break
        return following.finish()

    def _expand(self, watching: Watching, level: int, chunk: Keys) -> Expansion:
        """Take every step from every state of the chunk. Only `watching` and compiled functions change."""
        columns = self.layout.columns(chunk)
        unmet = [number for number, step in enumerate(self.steps) if not step.activated]
        found_before = len(watching.found)
        watching.begin(columns, level)
        fused = self.layout.fused(columns, self.steps, watching)
        codes, recent = self.visited.codes, self.visited.table()
        gathered = Successors(self.layout, recent) if codes is None else CodedSuccessors(codes, columns, recent)
        edges = 0
        if fused:
            edges = fused.edges
            gathered.add(self._canonical(fused.after))
        for number, taken in self._taken(columns, fused.open if fused else range(len(self.steps)), watching):
            if number is not None:
                watching.step(number, taken)
            if fused and number in fused.taken:
                continue
            edges += len(taken.after[0])
            if self.symmetry is None and (taken.inside is None or taken.inside.all()):
                gathered.add(taken.after, taken.rows, taken.before)
            else:
                inside = slice(None) if taken.inside is None else taken.inside
                gathered.add(self._canonical(tuple(c[inside] for c in taken.after)))
        watching.end()
        ends = gathered.finish()
        if recent is not None:
            self.visited.recent.append(recent)
        finds = dict(islice(watching.found.items(), found_before, None))
        met = [number for number in unmet if self.steps[number].activated]
        return Expansion(edges, finds, met, *ends)

    def _taken(
        self, columns: Columns, numbers: Sequence[int], watching: Watching
    ) -> Iterator[tuple[int | None, Taken]]:  # fmt: skip
        """Each of these steps that is taken from the states; in a small chunk, as `Members.taken` returns them."""
        if len(columns[0]) <= SMALL and self.layout.home is self.layout:
            return self.members.taken(columns, watching)
        runs = ((number, self.steps[number].run(columns)) for number in numbers)
        return ((number, taken) for number, taken in runs if taken is not None)

    def _canonical(self, columns: Columns) -> Columns:
        return columns if self.symmetry is None else self.symmetry.canonical(columns)

    def _learn(self, news: Any) -> None:
        """Take new values of the codes, or new codes. Called in a worker."""
        if isinstance(news, list):
            self.visited.codes.add(news)
        else:
            self.visited.codes, self.visited.recent = news, []

    def _check_limits(self, following: NextLevel) -> None:
        distinct = self.visited.count + following.count
        self.stopped = self._clock.stop_reason(distinct, self._memory(following.bytes))
        pause = self._pause
        if pause and not self.stopped and pause.is_due(distinct, self._clock.seconds):
            self._pause = None
            sizes = [*self.levels.sizes, following.count]
            self.stopped = pause.stop_reason(distinct, sizes, self._peak_bytes / distinct)
        self._clock.show("exploring", distinct, len(self.levels))

    def _memory(self, successors: int) -> int:
        """The bytes in memory, `successors` bytes included; 0 with a storage, which keeps to the limit by itself."""
        memory = self._workers.memory(self.visited.bytes + successors + self._chunks * self._chunk_bytes)
        self._peak_bytes = max(self._peak_bytes, memory)
        return memory if self._saver.storage is None else 0

    # ---- queries after the search

    def lasso(self, premise: Expr, goal: Expr, binding: Binding, form: Form = Form.LEADS_TO) -> Lasso | None:
        """A fair run that `Engine.lasso` describes. No run reaches such a premise in fewer steps.

        Raises:
            UsageError: the exploration is not complete, or was reduced by symmetry.
            LimitReached: the graph does not fit the limits.
        """
        reduced = "liveness is not decided under symmetry: explore without it"
        self._refuse_part(reduced, "liveness is decided on all states")
        with memory_bounded(self.limits):
            return self._liveness.lasso(premise, goal, binding, form)

    def late(self, premise: Expr, goal: Expr, binding: Binding, form: Form, within: Within) -> Path | None:
        """A run that `Engine.late` describes. Call it after a complete `explore`, without symmetry."""
        with memory_bounded(self.limits):
            return self._liveness.late(premise, goal, binding, form, within)

    def occurs(self, expr: Expr, binding: Binding) -> bool:
        """Whether the condition holds in some state. Call it after a complete `explore`, without symmetry."""
        return self._liveness.occurs(expr, binding)

    def nearest(self, numbers: Sequence[int]) -> Path:
        """A shortest run to one of these states of `explored`."""
        return self._liveness.nearest(numbers)

    def explored(self) -> Explored:
        """Every state and step. Call it after a complete `explore`.

        Raises:
            UsageError: the exploration is not complete, or was reduced by symmetry.
            LimitReached: the graph does not fit the limits.
        """
        reduced = "under symmetry a state stands for several: explore without it to get every step"
        self._refuse_part(reduced, "the graph has all states")
        with memory_bounded(self.limits):
            return self._liveness.explored()

    def _refuse_part(self, reduced: str, part: str) -> None:
        if self.symmetry is not None:
            raise UsageError(reduced)
        if not self.complete:
            raise UsageError(f"{part}: explore completely first ({self.stopped or 'not explored yet'})")

    @cached_property
    def _liveness(self) -> Liveness:
        limits = self._workers.afterwards(self.limits)
        return Liveness(self.layout, self.steps, self.levels, self.visited, self._trails(), self._clock, limits)

    def _trails(self) -> Trails:
        return Trails(self.kernel, self.layout, self.steps, self.levels, self.symmetry)
