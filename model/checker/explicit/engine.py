"""The explicit engine: breadth-first over whole frontiers of packed states with NumPy.

*Theory of operation.* A state is a few 64-bit words (`packing`), a transition a function over arrays of them
(`vectorise`), the set of states seen a few sorted runs (`visited`). The engine keeps the levels instead of parent
pointers (`paths`), and builds the graph only when a liveness property asks for it (`graph`).

The caller creates one engine for one search, calls `explore` once, and then `lasso` or `explored` as often as it likes,
all on one thread. `explore` shares large levels among `workers`, and takes what they find in the order of the chunks:
the outcome does not depend on how many there are. Workers may have another kind of arrays, on a GPU: the search moves
to those with the first large level, and comes back when it is over. The searches of one kernel share what is compiled
(`Compiled`). With a `storage` states that do not fit the memory are kept there, and the search is saved there at the
end of a level, for a later one to resume it; the outcome is the same. Five things can go wrong: a limit ends the search
between two chunks, an allocation fails, a worker is lost, the storage fails (in these cases `stopped` says so, and what
was found stays), and an effect leaves its field's range (a watch reports the step; the state after it does not count).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...errors import LimitReached, UsageError
from ...language.expressions import FALSE, TRUE, Expr
from ..engine import Clock, OnProgress, Progress, memory_bounded, memory_ended, quiet
from ..interpret import Interpreter
from ..kernel import NO_PATH, Binding, Exploration, Kernel, Lasso, Limits, Path, Watch, WatchKey
from .codes import CodedSuccessors, Codes, renewed
from .graph import Explored, Graph, fair_region, fair_run
from .levels import Levels
from .packing import CHUNK, Columns, Keys, Layout, Layouts, Mask
from .paths import Trail, Trails, Words
from .storage import Level, Run, Saved, Storage, StorageFailed, cut, fingerprint
from .symmetry import Symmetry
from .vectorise import Step, conditions
from .visited import NextLevel, Successors, Visited
from .watch_evaluation import Find, Watching
from .workers import Expansion, WorkerLost, Workers

REPORT_SECONDS = 0.12
UNSAVED = 16  # levels that are not in the storage yet take a part of the memory as large as this: one in so many


@dataclass(frozen=True, slots=True)
class Compiled:
    """The searches of one kernel share this: the place of each cell, and each instance as a function over states."""

    layout: Layout
    steps: tuple[Step, ...]
    symmetry: Symmetry | None

    @classmethod
    def of(cls, kernel: Kernel, *, symmetry: bool = False, layouts: Layouts = Layout) -> Compiled:
        reduction = Symmetry(kernel, layouts) if symmetry else None
        layout = layouts(kernel.cells, kernel.frozen, "") if reduction is None else reduction.layout
        return cls(layout, tuple(Step(kernel, layout, instance) for instance in kernel.instances), reduction)


@dataclass(frozen=True, slots=True)
class Pause:
    """After so many states or seconds `stop_reason` is asked: why the search should end here, or empty to go on.

    It is told the states seen so far, the sizes of the levels, and the bytes a state takes.
    """

    states: int
    seconds: float
    stop_reason: Callable[[int, Sequence[int], float], str]


class Whole(NamedTuple):
    """How many levels are whole; the steps from all of them but the last, and how many finds are of these.

    If the search is `over`, of the last as well.
    """

    levels: int = 0
    edges: int = 0
    finds: int = 0
    over: bool = False


class Chunks(Sequence[Keys]):
    """A level in chunks, each taken when it is asked for."""

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

    The `workers` share the levels of more than one chunk. A search that is not over at a `pause` asks there, once,
    whether to go on. With a `storage` the search goes on from what is saved there.

    Under symmetry a watch is found if it occurs for some renaming of the members, so watches must be asked
    of every member alike; the paths found are runs of the system as it is declared.

    Raises:
        UsageError: symmetry where it would not be sound, or a cell too wide for a word.
    """

    name = "explicit"

    def __init__(
        self, kernel: Kernel, limits: Limits, on_progress: OnProgress = quiet, *, symmetry: bool = False,
        compiled: Compiled | None = None, pause: Pause | None = None, workers: Workers | None = None,
        storage: Storage | None = None,
    ) -> None:  # fmt: skip
        self.compiled = compiled or Compiled.of(kernel, symmetry=symmetry)
        self.kernel = kernel
        self._use(self.compiled)
        self.limits = limits
        self.on_progress = on_progress
        self._workers = workers or Workers()
        self._storage = storage
        self._codes: Codes | None = None
        self.visited = Visited(self.layout, self._workers, storage)
        self.levels = Levels()
        self._whole = self._saved = Whole()
        self._resumed = 0  # states
        self._pause = pause
        self.edges = 0
        self.stopped = "not explored yet"
        self._peak_bytes = 0
        self._chunk_bytes = 0  # of the successors of one chunk, and these together
        self._chunks = 1  # at a time
        self._reported = 0.0
        self._clock = Clock(limits)

    def explore(self, watches: Sequence[Watch]) -> Exploration:
        self._clock = Clock(self.limits)
        self._reported = 0.0
        self.stopped = ""
        finds: dict[WatchKey, Find] = {}
        found: dict[WatchKey, Path] = {}
        try:
            saved = None if self._storage is None else self._begun(self._storage, watches)
            finds |= {} if saved is None else saved.finds
            with self._workers, self._saving(finds):
                self._search(watches, finds, saved)
        except MemoryError:
            self.stopped = memory_ended(self.limits)
        except (WorkerLost, StorageFailed) as lost:
            self.stopped = str(lost)
        if self.stopped or self.layout is not self.compiled.layout:
            self.visited.release()  # the levels hold each state as well, and the paths need room
        self._use(self.compiled)
        wanted = {watch.key for watch in watches if watch.path}
        try:
            found = self._paths({key: find for key, find in finds.items() if key in wanted})
        except MemoryError:
            self.stopped = memory_ended(self.limits)
        except StorageFailed as lost:
            self.stopped = str(lost)
        found |= dict.fromkeys((key for key in finds if key not in wanted), NO_PATH)
        distinct = self.visited.count
        return Exploration(
            self.name, distinct, self.edges, max(0, len(self.levels) - 1), self._clock.seconds,
            self._peak_bytes / max(1, distinct), found, self.stopped, resumed=self._resumed,
        )  # fmt: skip

    def _search(self, watches: Sequence[Watch], finds: dict[WatchKey, Find], saved: Saved | None) -> None:
        watching = self._watching(watches, finds)
        if saved is None:
            level = self._initial()
            self._add(level, finds)
        else:
            level = self._resume(saved, finds)
        while not (self.stopped or self._whole.over):
            self._save_in_time(finds)
            layouts = self._workers.layouts(len(level))
            if layouts is not None and self.layout is self.compiled.layout:
                self._move(layouts)
                level, watching = self.layout.sent(level[:]), self._watching(watches, finds)
            if self.layout is self.compiled.layout and not self.visited.pays:
                self.visited = renewed(self.visited, self.layout, self.levels, self._workers) or self.visited
                self._codes = self.visited.codes
            level = self._successors(level, watching)
            self._add(level, finds)

    def _watching(self, watches: Sequence[Watch], finds: dict[WatchKey, Find]) -> Watching:
        return Watching(self.kernel, self.layout, watches, self.steps, finds, CHUNK)

    def _move(self, layouts: Layouts) -> None:
        """Go on with another kind of arrays; there is no storage then."""
        moved = Compiled.of(self.kernel, symmetry=self.symmetry is not None, layouts=layouts)
        for here, there in zip(self.steps, moved.steps, strict=True):
            if here.met:
                there.meet()
        self._use(moved)
        self._codes = None
        self.visited = Visited(self.layout, self._workers)
        for level in self.levels:
            self.visited.add(self.layout.sent(level[:]))

    def _use(self, compiled: Compiled) -> None:
        self.layout, self.steps, self.symmetry = compiled.layout, compiled.steps, compiled.symmetry

    def _add(self, fresh: Level, finds: Mapping[WatchKey, Find]) -> None:
        """Take a level; after the last one comes one that is empty."""
        if len(fresh):
            self.levels.append(self.layout, fresh)
        if self.stopped:  # some states of the level are missing: it is counted, and never searched
            self.visited.count += len(fresh)
            return
        self._whole = Whole(len(self.levels), self.edges, len(finds), over=not len(fresh))
        if len(fresh):
            self.visited.add(fresh)

    def _initial(self) -> Level:
        """The initial states; fewer if a limit stops the search: fields with several values each multiply."""
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
        chunks = Chunks(level, CHUNK * self.layout.chunks)
        expand = partial(self._expand, watching)
        if len(chunks) > 1:
            self._workers.begin(expand, chunks[0].nbytes, self._learn)
        self._chunks = min(len(chunks), self._workers.chunks)
        for expansion in self._workers.expanded(expand, len(self.levels) - 1, chunks):
            self.edges += expansion.edges
            for key, find in expansion.finds.items():
                watching.found.setdefault(key, find)
            for number in expansion.met:
                self.compiled.steps[number].meet()
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
        """Take every step from every state of the chunk. Changes nothing but `watching`, and what is compiled."""
        columns = self.layout.columns(chunk)
        unmet = [number for number, step in enumerate(self.steps) if not step.met]
        found_before = len(watching.found)
        watching.begin(columns, level)
        together = self.layout.together(columns, self.steps, watching)
        gathered = Successors(self.layout) if self._codes is None else CodedSuccessors(self._codes, columns)
        edges = 0
        if together:
            edges = together.edges
            gathered.add(self._canonical(together.after))
        for number in together.open if together else range(len(self.steps)):
            taken = self.steps[number].run(columns)
            if taken is None:
                continue
            watching.step(number, taken)
            if together and number in together.taken:
                continue
            edges += len(taken.rows)
            if self.symmetry is None and (taken.inside is None or taken.inside.all()):
                gathered.add(taken.after, taken.rows, taken.before)
            else:
                inside = slice(None) if taken.inside is None else taken.inside
                gathered.add(self._canonical(tuple(c[inside] for c in taken.after)))
        watching.end()
        finds = dict(islice(watching.found.items(), found_before, None))
        met = [number for number in unmet if self.steps[number].met]
        return Expansion(edges, finds, met, *gathered.finish())

    def _canonical(self, columns: Columns) -> Columns:
        return columns if self.symmetry is None else self.symmetry.canonical(columns)

    def _learn(self, news: Any) -> None:
        """In a worker: what it is told of codes."""
        if isinstance(news, list):
            assert self._codes is not None
            self._codes.add(news)
        else:
            self._codes = news

    def _check_limits(self, following: NextLevel) -> None:
        distinct = self.visited.count + following.count
        self.stopped = self._clock.stop_reason(distinct, self._memory(following.bytes))
        pause = self._pause
        if pause and not self.stopped and (distinct > pause.states or self._clock.seconds > pause.seconds):
            self._pause = None
            sizes = [*self.levels.sizes, following.count]
            self.stopped = pause.stop_reason(distinct, sizes, self._peak_bytes / distinct)
        self._progress("exploring", distinct)

    def _memory(self, successors: int) -> int:
        """The bytes in memory with those of successors; 0 if the limit does not count, for a storage keeps to it."""
        memory = self._workers.memory(self.visited.bytes + successors + self._chunks * self._chunk_bytes)
        self._peak_bytes = max(self._peak_bytes, memory)
        return memory if self._storage is None else 0

    # ---- the storage

    def _begun(self, storage: Storage, watches: Sequence[Watch]) -> Saved | None:
        return storage.begin(self.layout, fingerprint(self.kernel, self.layout, self.symmetry is not None, watches))

    def _resume(self, saved: Saved, finds: Mapping[WatchKey, Find]) -> Level:
        """Take what is saved; returns its last level."""
        self.levels, self.edges = Levels((self.layout, level) for level in saved.levels), saved.edges
        for number in saved.met:
            self.steps[number].meet()
        self.visited.stored = [*saved.merged]
        self.visited.count = sum(map(len, saved.merged))
        for level in saved.levels:
            self._resumed += len(level)
            if self._resumed > self.visited.count:
                self.visited.add(level[:] if len(level) <= self.visited.keys_max // 2 else level)
        self._whole = self._saved = Whole(len(self.levels), self.edges, len(finds), saved.over)
        return self.levels[-1]

    @contextmanager
    def _saving(self, finds: Mapping[WatchKey, Find]) -> Iterator[None]:
        """However the block ends, save the last whole level."""
        try:
            yield
        except BaseException:  # Ctrl-C, too
            if self._storage is not None:
                with suppress(StorageFailed, MemoryError):
                    self._save(self._storage, finds)
            raise
        if self._storage is not None:
            self._save(self._storage, finds)

    def _save_in_time(self, finds: Mapping[WatchKey, Find]) -> None:
        if self._storage is not None and self._time_to_save(self._storage):
            self._save(self._storage, finds)

    def _time_to_save(self, storage: Storage) -> bool:
        unsaved = sum(len(level) for level in self.levels if not isinstance(level, Run))
        return storage.due or unsaved * self.layout.state_bytes > storage.memory_bytes // UNSAVED

    def _save(self, storage: Storage, finds: Mapping[WatchKey, Find]) -> None:
        whole = self._whole
        if whole == self._saved:
            return
        new = [k for k, level in enumerate(self.levels[: whole.levels]) if not isinstance(level, Run)]
        for k, run in zip(new, storage.write([cut(self.levels[k][:]) for k in new]) if new else (), strict=True):
            self.levels[k] = run
        levels = [level for level in self.levels[: whole.levels] if isinstance(level, Run)]
        if levels:
            met = [number for number, step in enumerate(self.steps) if step.met]
            finds = dict(islice(finds.items(), whole.finds))
            storage.save(Saved(levels, self.visited.stored, whole.edges, finds, met, whole.over))
            self._saved = whole

    def _progress(self, phase: str, distinct: int) -> None:
        seconds = self._clock.seconds
        if seconds - self._reported >= REPORT_SECONDS:
            self._reported = seconds
            self.on_progress(Progress(self.name, phase, distinct, max(0, len(self.levels) - 1), seconds))

    def _paths(self, found: dict[WatchKey, Find]) -> dict[WatchKey, Path]:
        """A shortest path for every find; for a find with a step, ending with that step."""
        trails = self._trails.trails((find.level, find.words) for find in found.values())
        interpreter = Interpreter(self.kernel.system)
        paths: dict[tuple[int, Words], Path] = {end: self._concrete(trail) for end, trail in trails.items()}
        out = {}
        for key, find in found.items():
            path = paths[find.level, find.words]
            if find.step is not None:
                after = interpreter.apply(self.kernel.instances[find.step], path.states[-1])
                path = Path((*path.states, after), (*path.steps, find.step))
            out[key] = path
        return out

    @cached_property
    def _trails(self) -> Trails:
        canonical = None if self.symmetry is None else self.symmetry.canonical
        return Trails(self.layout, self.steps, self.levels, canonical)

    def _concrete(self, trail: Trail) -> Path:
        if self.symmetry is not None:
            return self.symmetry.concrete(trail)
        states, numbers = trail
        return Path(tuple(map(self.layout.unpack, states)), tuple(numbers))

    def lasso(self, premise: Expr, goal: Expr, binding: Binding) -> Lasso | None:
        """A weakly fair run through `premise` on which `goal` stays false from there on.

        No run reaches such a premise in fewer steps. Ask after a complete `explore`.

        Raises:
            UsageError: the exploration is not complete, or was reduced by symmetry.
            LimitReached: the graph does not fit the limits.
        """
        if self.symmetry is not None:
            raise UsageError("liveness is not decided under symmetry: explore without it")
        if self.stopped:
            raise UsageError(f"liveness is decided on all states: explore completely first ({self.stopped})")
        with memory_bounded(self.limits):
            return self._lasso(premise, goal, binding)

    def _lasso(self, premise: Expr, goal: Expr, binding: Binding) -> Lasso | None:
        region = fair_region(self._graph, ~self._where(goal, binding))
        starts = np.flatnonzero(region & self._where(premise, binding))
        if not len(starts):
            return None
        start = int(starts[self._depths[starts].argmin()])
        words = self.layout.words_of(self._states, start)
        end = int(self._depths[start]), words
        stem = self._concrete(self._trails.trails([end])[end])
        run, began = fair_run(self._graph, region, start)
        states = tuple(self.layout.unpack(self.layout.words_of(self._states, node)) for _, node in run)
        path = Path(stem.states + states, stem.steps + tuple(number for number, _ in run))
        return Lasso(path, len(stem.steps) + began)

    def explored(self) -> Explored:
        """Every state and step. Ask after a complete `explore`.

        Raises:
            UsageError: the exploration is not complete, or was reduced by symmetry.
            LimitReached: the graph does not fit the limits.
        """
        if self.symmetry is not None:
            raise UsageError("under symmetry a state stands for several: explore without it to get every step")
        if self.stopped:
            raise UsageError(f"the graph has all states: explore completely first ({self.stopped})")
        with memory_bounded(self.limits):
            initial, _ = self.layout.find(self.levels[0][:], self._states)
            return Explored(self.layout, self._states, self._graph, tuple(initial.tolist()))

    @cached_property
    def _states(self) -> Keys:
        if self.visited.released:
            return self.layout.sort(self.layout.concatenated([level[:] for level in self.levels]))
        held = 2 * self.visited.count * self.layout.state_bytes  # and while they are merged
        if self._storage is not None and held > self.limits.memory_bytes:
            raise LimitReached(
                f"liveness is decided with all states in memory, at least {held >> 20:,} MiB "
                f"(limit {self.limits.memory_bytes >> 20:,} MiB; raise it with --max-memory)"
            )
        return self.visited.merged()

    @cached_property
    def _depths(self) -> NDArray[np.int32]:
        """For each state, in sorted order, its distance from the initial states."""
        out = np.empty(len(self._states), np.int32)
        for depth, level in enumerate(self.levels):
            for keys in level.blocks() if isinstance(level, Run) else (level,):
                out[self.layout.find(keys, self._states)[0]] = depth
        return out

    @cached_property
    def _graph(self) -> Graph:
        self._clock = Clock(self._workers.afterwards(self.limits))
        self._reported = 0.0
        return Graph(self.layout, self.steps, self._states, self._tick)

    def _tick(self, nodes: int, edge_bytes: int) -> None:
        states = 2 * len(self._states) * self.layout.state_bytes
        reason = self._clock.stop_reason(0, states + edge_bytes)
        if reason:
            raise LimitReached(f"building the graph for liveness {reason}")
        self._progress("building the graph", nodes)

    def _where(self, expr: Expr, binding: Binding) -> Mask:
        """The states in which a condition holds."""
        closed = self.kernel.closed(expr, binding)
        out = np.full(len(self._states), closed is TRUE)
        if closed is TRUE or closed is FALSE:
            return out
        holds = conditions(self.layout, [closed])
        for start in range(0, len(out), CHUNK):
            (out[start : start + CHUNK],) = holds(*self.layout.columns(self._states[start : start + CHUNK]))
        return out
