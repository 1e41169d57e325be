"""The explicit engine with its states on several ranks. Its answers are the same as in one process.

*Theory of operation.* Each rank expands the states of a level that it owns, in rounds. In a round it expands chunks
until it has `BATCH` successors, sorts them, drops repetitions and sends each to its owner, which keeps new states.
The level is over for all ranks when no rank has more to expand; the search is over when no rank has a new state. At the
end of a level each rank sends all others its number of new states, its finds of watches, and its activated steps. So
all ranks have the same information, and all take the same one of several finds of a watch.

The ranks decide at the beginning of a round whether to stop. If one rank has a reason (a limit, a signal, no more
memory), all of them stop there with that reason, and what was found stays. If a rank is lost, the search ends with
`RankLost`: without its states no path can be found.

All ranks find a path together (`_SharedTrails`): each makes the same guesses of a predecessor, and looks them up in its
part of the level before. For liveness, the states are gathered on the first rank, if they fit there: this rank alone
builds and judges the graph. The reports of the others have no liveness.

A run is the same as in a search of one process, unless a level has more than `CHUNK` states and several steps violate
a property there. Its length is always the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import count, islice
from typing import Any, TypeVar

import numpy as np

from ...errors import LimitReached, UsageError
from ...language.expressions import Expr
from ...language.properties import Form, Within
from ..engine import OnProgress, memory_ended, quiet
from ..kernel import Binding, Exploration, Kernel, Lasso, Limits, Path, Watch, WatchKey, WatchKind
from .engine import ExplicitEngine
from .liveness import Liveness
from .packing import CHUNK, Columns, Keys, Mask
from .paths import Origins, Trails
from .ranks import PartStorage, RankLost, Ranks, parted
from .saving import Checkpoint, refuse_moved
from .storage import Level, Run, Saved, StorageFailed, cut, fingerprint
from .visited import NextLevel, Visited
from .watch_evaluation import Find, Watching

BATCH = 1 << 20  # successors of a round: 8 MB for each word of a state, which take about ten milliseconds to send
DECIDED = (WatchKind.ALWAYS, WatchKind.SOMETIMES, WatchKind.STEP, WatchKind.DEADLOCK)
GATHERED = 7  # memory for each state that is gathered on the first rank, in half keys; the same as `Visited.bytes`

Result = TypeVar("Result")


class PartitionedEngine(ExplicitEngine):
    """Explores a kernel together with the other ranks: each calls the same methods with the same arguments.

    `distinct` and `edges` are totals over all ranks; `levels` has the states of this rank.

    Raises:
        UsageError: symmetry where it would not be sound, or a cell too wide for a word.
    """

    def __init__(
        self, kernel: Kernel, limits: Limits, on_progress: OnProgress = quiet, *, ranks: Ranks,
        symmetry: bool | tuple[str, ...] = False, storage: PartStorage | None = None,
    ) -> None:  # fmt: skip
        super().__init__(kernel, limits, on_progress, symmetry=symmetry, storage=storage)
        self._ranks = ranks
        self._parts = storage
        self._full = ""  # why this rank takes no more states
        self._met: set[int] = set()  # steps that are activated on all ranks
        self._agreed: set[WatchKey] = set()  # watches whose find all ranks have
        self._asked: list[WatchKey] = []
        self._gathered = False
        self._committed = False
        self._due = False
        self._distinct = 0  # a total over all ranks, like the next
        self._peaks = 0
        self._level_edges = 0  # on this rank
        self._place = 0  # the place in the program: the number of notes sent

    def explore(self, watches: Sequence[Watch]) -> Exploration:
        """Like `explore` of one process.

        Raises:
            UsageError: another rank has another system, or other limits; or the storage has another search.
            RankLost: a rank is lost; the text names the properties with finds until then.
        """
        self._asked = list(dict.fromkeys(watch.key for watch in watches))
        try:
            self._refuse_others(watches)
            seen = super().explore(watches)
        except RankLost as lost:
            raise RankLost(f"{lost}; {self._so_far()}") from None
        seen.distinct, seen.bytes_per_state = self._distinct, self._peaks / max(1, self._distinct)
        return seen

    def _refuse_others(self, watches: Sequence[Watch]) -> None:
        mine = fingerprint(self.kernel, self.layout, self.reduced, watches)
        mine["limit of states"] = str(self.limits.states)
        for rank, (theirs,) in enumerate(self.told("search", mine)):
            part = next((part for part in mine if theirs.get(part) != mine[part]), None)
            if part is not None:
                raise UsageError(
                    f"rank {rank} has another {part} ({theirs.get(part)}) than rank {self._ranks.rank} ({mine[part]}): "
                    "start the same command, with the same release and the same system, on every rank"
                )

    def _so_far(self) -> str:
        names = sorted({str(key.subject) for key in self._agreed if key.kind in DECIDED})
        found = f"found until then, without their runs: {', '.join(names)}" if names else "nothing was found until then"
        return f"{self._distinct:,} states were seen to depth {max(0, len(self.levels) - 1)}, and {found}"

    def _search(self, watches: Sequence[Watch], finds: dict[WatchKey, Find], saved: Saved | None) -> None:
        watching = self._watching(watches, finds)
        if saved is None:
            self._add_shared(self._initial_batches(), watching)
        else:
            self._saver.resume(self, saved)
            self._saver.saved = Checkpoint()  # this group has saved nothing yet
            self._distinct = sum(held for (held,) in self.told("resumed", sum(map(len, self.levels))))
            self._saver.resumed = self._distinct
        while not (self.stopped or self.whole.over):
            level = self.levels[-1]
            self._save_together(finds, self._due)
            self._add_shared(self._expanded(level, watching), watching)
        self._save_together(finds, True)

    def _add_shared(self, batches: Iterator[Keys], watching: Watching) -> None:
        """Take a level. This rank may have no state of it; in the last level no rank has a state."""
        fresh, new = self._shared(batches, watching)
        if new:
            self.levels.append(self.layout, fresh)
        if self.stopped:  # some states of the level are missing: it is counted but not searched
            self.visited.count += len(fresh)
            return
        self.whole = Checkpoint(len(self.levels), self.edges, len(watching.found), over=not new)
        if len(fresh):
            self._guarded(self.visited.add, fresh)

    # ---- one level

    def _initial_batches(self) -> Iterator[Keys]:
        """This rank's chunks of the initial states: the ranks take the chunks in turn, so together they have all."""
        states = self.kernel.initial_states()
        for number in count():
            batch = list(islice(states, CHUNK))
            if not batch:
                return
            if number % self._ranks.count == self._ranks.rank:
                columns = self.layout.pack(batch)
                if self.symmetry is not None:
                    columns = self.symmetry.canonical(columns)
                yield self.layout.sort_unique(self.layout.keys(columns))

    def _expanded(self, level: Level, watching: Watching) -> Iterator[Keys]:
        for start in range(0, len(level), CHUNK):
            expansion = self._expand(watching, len(self.levels) - 1, level[start : start + CHUNK])
            self._chunk_bytes = max(self._chunk_bytes, expansion.bytes)
            self._level_edges += expansion.edges
            yield expansion.after

    def _shared(self, batches: Iterator[Keys], watching: Watching) -> tuple[Level, int]:
        """The new states of all batches that this rank owns, and the number of new states on all ranks."""
        self._level_edges = 0
        room = max(0, self.limits.states - self._distinct) // self._ranks.count
        following = NextLevel(self.layout, self.visited, room, self._workers)
        self._exchange(batches, following)
        fresh = self._guarded(following.finish)
        fresh = np.empty(0, self.layout.dtype) if fresh is None else fresh
        return fresh, self._settle_level(len(fresh), watching)

    def _exchange(self, batches: Iterator[Keys], following: NextLevel) -> None:
        """Send every state to its owner, in rounds, until no rank has more or all stop."""
        more = True
        while more:
            pending, mine = self._guarded(lambda: self._batch(batches)) or (np.empty(0, self.layout.dtype), False)
            more = self._agree(mine, len(pending), following)
            if self.stopped:
                return
            for piece in self._ranks.swapped(parted(self.layout, pending, self._ranks.count)):
                if len(piece):
                    self._guarded(following.add, piece)

    def _batch(self, batches: Iterator[Keys]) -> tuple[Keys, bool]:
        """The successors of this round, sorted, and whether more follow."""
        pending: list[Keys] = []
        waiting, more = 0, True
        while more and waiting < BATCH:
            keys = next(batches, None)
            more = keys is not None
            if keys is not None and len(keys):
                pending.append(keys)
                waiting += len(keys)
        if len(pending) > 1:
            return self.layout.sort_unique(np.concatenate(pending)), more
        return pending[0] if pending else np.empty(0, self.layout.dtype), more

    def _guarded(self, do: Callable[..., Result], *args: Any) -> Result | None:
        """The result, or None if this rank has no more room: the others continue until it reports that."""
        if self._full:
            return None
        try:
            return do(*args)
        except MemoryError:
            self._full = memory_ended(self.limits)
        except StorageFailed as failed:
            self._full = str(failed)
        return None

    def _agree(self, more: bool, waiting: int, following: NextLevel) -> bool:
        """Exchange the progress of all ranks; returns whether any has more, and sets `stopped` if all stop."""
        memory = self._memory(following.bytes + 3 * waiting * self.layout.state_bytes)
        reason = self._full or self._ranks.stop_reason() or self._clock.stop_reason(0, memory)
        notes = self.told("round", more, reason, self.visited.count + following.count)
        distinct = sum(count for _, _, count in notes)
        self.stopped = _first_reason(why for _, why, _ in notes) or self._too_many(distinct)
        self._clock.show("exploring", distinct, len(self.levels))
        return any(others for others, _, _ in notes)

    def _settle_level(self, new: int, watching: Watching) -> int:
        """Exchange the results of a level among all ranks; returns the total number of new states."""
        mine = [key for key in watching.found if key not in self._agreed]
        numbers = {key: number for number, key in enumerate(self._asked)} if mine else {}
        finds = [[numbers[key], *_as_row(watching.found.pop(key))] for key in mine]
        met = [number for number, step in enumerate(self.steps) if step.activated and number not in self._met]
        due = self._saver.due(self)
        notes = self.told("level", self._full, due, new, self._level_edges, self._peak_bytes, finds, met)
        for number in sorted({number for *_, numbers in notes for number in numbers}):
            self.steps[number].activated = True
            self._met.add(number)
        rows = [row for *_, found, _ in notes for row in found]
        for number, step, *words in self._first(rows):
            watching.found[self._asked[number]] = _find_of(len(self.levels) - 1, [step, *words])
            self._agreed.add(self._asked[number])
        self._due = any(due for _, due, *_ in notes)
        fresh: int = sum(new for _, _, new, *_ in notes)
        self._distinct += fresh
        self.edges += sum(edges for _, _, _, edges, *_ in notes)
        self._peaks = sum(peak for _, _, _, _, peak, *_ in notes)
        self.stopped = self.stopped or _first_reason(why for why, *_ in notes) or self._too_many(self._distinct)
        return fresh

    def _too_many(self, distinct: int) -> str:
        """The reason to stop at `distinct` states, or "": it is the same on all ranks, unlike the elapsed time."""
        return self._clock.stop_reason(distinct, 0) if distinct > self.limits.states else ""

    def _first(self, rows: list[list[int]]) -> list[list[int]]:
        """For each watch the find with the first step, and among these the find in the first state."""
        order = self.order([row[2:] for row in rows])
        best: dict[int, tuple[int, int]] = {}
        for at, (number, step, *_) in enumerate(rows):
            best[number] = min(best.get(number, (step, at)), (step, at), key=lambda one: (one[0], order[one[1]]))
        return [rows[at] for _, (_, at) in sorted(best.items())]

    def order(self, words: Sequence[Sequence[int]]) -> list[int]:
        """The position of each state in the sorted order of keys."""
        if not words:
            return []
        keys = self.layout.keys(tuple(np.array(column, np.int64) for column in zip(*words, strict=True)))
        order = np.empty(len(words), np.intp)
        order[np.argsort(keys, kind="stable")] = np.arange(len(words))
        out: list[int] = order.tolist()
        return out

    def told(self, at: str, *note: Any) -> list[list[Any]]:
        """Exchange notes with all ranks, which must be at the same place in the program."""
        self._place += 1
        mine = [f"{at} {len(self.levels)}", self._place, *note]
        notes = self._ranks.told(mine)
        for rank, note_of in enumerate(notes):
            if note_of[:2] != mine[:2]:
                raise RankLost(
                    f"rank {rank} is at {note_of[:2]} of the search where rank {self._ranks.rank} is at {mine[:2]}"
                )
        return [note_of[2:] for note_of in notes]

    # ---- the checkpoint

    def _open_storage(self, watches: Sequence[Watch]) -> Saved | None:
        """The saved search, up to the last level that all ranks have saved; None if nothing is saved.

        Raises:
            UsageError: on every rank, if one cannot resume its part.
        """
        if self._parts is None:
            return None
        mine: list[Saved] = []
        own, problem = None, ""
        try:
            own = self._saver.open_storage(self, watches)
            mine = [own] if own is not None else [*self._parts.earlier]
            refuse_moved(mine, watches)
        except (UsageError, StorageFailed) as error:
            problem = str(error)
        notes = self.told("checkpoint", problem, [self._outline(one) for one in mine if not problem])
        problem = _first_reason(why for why, _ in notes)
        if problem:
            raise UsageError(problem)
        outlines = [outline for _, parts in notes for outline in parts]
        if not outlines:
            return None
        levels, over, edges, _, rows = min(outlines)
        finds = {self._asked[number]: _find_of(level, row) for number, level, *row in rows}
        met = sorted({number for *_, numbers, _ in outlines for number in numbers})
        self._agreed, self._met = set(finds), set(met)
        if own is None:
            return Saved(self._shared_out(mine, levels), (), edges, finds, met, over)
        kept = own.levels[:levels]
        searched = kept if over else kept[:-1]
        merged = own.merged if sum(map(len, own.merged)) <= sum(map(len, searched)) else ()
        return Saved(kept, merged, edges, finds, met, over)

    def _outline(self, saved: Saved) -> list[Any]:
        """A saved search without its states: if the ranks were interrupted while saving, some have one level less."""
        numbers = {key: number for number, key in enumerate(self._asked)}
        finds = [[numbers[key], find.level, *_as_row(find)] for key, find in saved.finds.items()]
        return [len(saved.levels), saved.over, saved.edges, list(saved.met), finds]

    def _shared_out(self, parts: Sequence[Saved], levels: int) -> list[Run]:
        """The states that this rank owns now, in the levels that a group of another size has saved.

        Raises:
            LimitReached: the search must stop; the checkpoint is unchanged.
        """
        assert self._parts is not None
        out = []
        for number in range(levels):
            blocks = (block for part in parts for block in part.levels[number].blocks())
            gathered = NextLevel(self.layout, Visited(self.layout, self._workers, self._parts), 1 << 62, self._workers)
            self._exchange(blocks, gathered)
            level = self._guarded(gathered.finish)
            run = level if level is None or isinstance(level, Run) else self._guarded(self._kept, level)
            problem = self.stopped or _first_reason(why for (why,) in self.told("shared out", self._full))
            if problem or run is None:
                raise LimitReached(f"{problem} while the checkpoint was shared out; the checkpoint is unchanged")
            out.append(run)
        return out

    def _kept(self, level: Keys) -> Run:
        assert self._parts is not None
        (run,) = self._parts.write([cut(level)])
        return run

    def _save_together(self, finds: Mapping[WatchKey, Find], due: bool) -> None:
        """Save the last whole level on all ranks; the first time, replace an earlier checkpoint."""
        if self._parts is None or not due or not self.whole.levels:
            return
        self._guarded(self._saver.save, self, finds)
        problem = _first_reason(why for (why,) in self.told("saved", self._full))
        if not problem and not self._committed:
            if self._ranks.rank == 0:
                self._guarded(self._parts.commit)
            problem = _first_reason(why for (why,) in self.told("committed", self._full))
            if not problem:
                self._committed = True
                self._parts.forget()
        self.stopped = self.stopped or problem

    # ---- paths and liveness

    def _trails(self) -> Trails:
        return super()._trails() if self._gathered else _SharedTrails(self)

    @cached_property
    def _liveness(self) -> Liveness:
        return replace(super()._liveness, stop_reason=self._ranks.stop_reason)

    def lasso(self, premise: Expr, goal: Expr, binding: Binding, form: Form = Form.LEADS_TO) -> Lasso | None:
        """Like `lasso` of one process, on the first rank; None on the others, which have no more to do.

        Raises:
            UsageError: the exploration is not complete, or was reduced by symmetry.
            LimitReached: the states of all ranks, or the graph, do not fit the first rank's limits.
            RankLost: a rank is lost.
        """
        if self.complete and self.symmetry is None and not self._gathered:
            self._gather()
        return super().lasso(premise, goal, binding, form) if self._ranks.rank == 0 else None

    def late(self, premise: Expr, goal: Expr, binding: Binding, form: Form, within: Within) -> Path | None:
        """Like `late` of one process, on the first rank; None on the others."""
        if not self._gathered:
            self._gather()
        return super().late(premise, goal, binding, form, within) if self._ranks.rank == 0 else None

    def _gather(self) -> None:
        """Send the states of all ranks to the first, once.

        Raises:
            LimitReached: they do not fit its memory.
        """
        needed = self._distinct * GATHERED // 2 * self.layout.state_bytes
        ((limit,), *_) = self.told("gather", self.limits.memory_bytes)
        if needed > limit:
            raise LimitReached(
                f"liveness is decided by the first rank alone, and the states of all take {needed >> 20:,} MiB there "
                f"(limit {limit >> 20:,} MiB; raise it with --max-memory, or check a smaller system)"
            )
        visited, none = Visited(self.layout, self._workers), np.empty(0, self.layout.dtype)
        for number, level in enumerate(self.levels):
            parts = [level[:], *[none] * (self._ranks.count - 1)]
            pieces = list(self._ranks.swapped(parts))
            if self._ranks.rank == 0:
                self.levels[number] = whole = self.layout.sort_unique(np.concatenate(pieces))
                visited.add(whole)
        self.visited, self._gathered = visited, True


class _SharedTrails(Trails):
    """Walks back through levels that are split among the ranks. All ranks make the same guesses."""

    def __init__(self, engine: PartitionedEngine) -> None:
        super().__init__(engine.kernel, engine.layout, engine.steps, engine.levels, engine.symmetry)
        self._engine = engine

    def _plausible(self, guesses: Columns, level: Level) -> Columns:
        return guesses  # a look-up is a message to every rank: it takes longer than the step

    def _within(self, keys: Keys, level: Level) -> Mask:
        mine = np.flatnonzero(Trails._within(self, keys, level)).tolist() if len(level) else []
        out = np.zeros(len(keys), np.bool_)
        for (rows,) in self._engine.told("guesses", mine):
            out[rows] = True
        return out

    def _first(self, found: Origins) -> Origins:
        mine = [[*end, *start, number] for end, (start, number) in found.items()]
        rows = [row for (given,) in self._engine.told("origins", mine) for row in given]
        words = self._layout.words
        order = self._engine.order([row[words : 2 * words] for row in rows])
        out: Origins = {}
        for at in sorted(range(len(rows)), key=order.__getitem__):
            row = rows[at]
            out.setdefault(tuple(row[:words]), (tuple(row[words : 2 * words]), row[-1]))
        return out


def _as_row(find: Find) -> list[int]:
    return [-1 if find.step is None else find.step, *find.words]


def _find_of(level: int, row: Sequence[int]) -> Find:
    step, *words = row
    return Find(level, tuple(words), None if step < 0 else step)


def _first_reason(reasons: Iterable[str]) -> str:
    """The reason of the first rank that has one, with the rank; empty if no rank has a reason."""
    return next((f"{why} (rank {rank})" for rank, why in enumerate(reasons) if why), "")
