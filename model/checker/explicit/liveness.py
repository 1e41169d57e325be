"""Liveness after a complete search: its states are numbered in sorted order, and the graph is built from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ...errors import LimitReached
from ...language.expressions import FALSE, TRUE, Expr
from ...language.properties import Form, Within
from ..engine import ShowingClock
from ..kernel import Binding, Lasso, Limits, Path
from .graph import Explored, Graph, Route, fair_region, fair_run, late_rounds, late_run
from .levels import Levels
from .packing import CHUNK, Keys, Layout, Mask
from .paths import Trails
from .storage import Run
from .vectorise import Step, conditions
from .visited import Visited


@dataclass(frozen=True, eq=False)
class Liveness:
    """Answers questions about the whole graph. `stop_reason` returns why not to finish the graph, or "" to continue."""

    layout: Layout
    steps: Sequence[Step]
    levels: Levels
    visited: Visited
    trails: Trails
    clock: ShowingClock
    limits: Limits
    stop_reason: Callable[[], str] = str

    def lasso(self, premise: Expr, goal: Expr, binding: Binding, form: Form) -> Lasso | None:
        self.clock.restart(self.limits)
        avoid, again = ~self._where(goal, binding), None
        if form is Form.STABLE:
            avoid, again = np.ones_like(avoid), avoid
        region, core = fair_region(self._graph, avoid, again)
        start = self._start(region, premise, binding, form)
        if start is None:
            return None
        run, began = fair_run(self._graph, region, core, start, again)
        path = self._path(start, run)
        return Lasso(path, len(path.steps) - len(run) + began)

    def late(self, premise: Expr, goal: Expr, binding: Binding, form: Form, within: Within) -> Path | None:
        self.clock.restart(self.limits)
        avoid, counted = ~self._where(goal, binding), self.trails.kernel.counted(within)
        rounds = late_rounds(self._graph, avoid, counted, within.times)
        start = self._start(rounds[-1], premise, binding, form)
        return None if start is None else self._path(start, late_run(self._graph, avoid, counted, rounds, start))

    def _start(self, region: Mask, premise: Expr, binding: Binding, form: Form) -> int | None:
        """A nearest node of the region with the premise; for `eventually` an initial node."""
        starts = np.flatnonzero(region & self._where(premise, binding))
        if form is Form.EVENTUALLY:
            starts = starts[self._depths[starts] == 0]
        return int(starts[self._depths[starts].argmin()]) if len(starts) else None

    def _path(self, start: int, run: Route) -> Path:
        """A shortest path to a node, and then a run."""
        stem = self.trails.path(int(self._depths[start]), self.layout.words_of(self._states, start))
        states = tuple(self.layout.unpack(self.layout.words_of(self._states, node)) for _, node in run)
        return Path(stem.states + states, stem.steps + tuple(number for number, _ in run))

    def nearest(self, numbers: Sequence[int]) -> Path:
        """A shortest run to one of these states."""
        at = np.array(numbers)
        number = int(at[self._depths[at].argmin()])
        return self.trails.path(int(self._depths[number]), self.layout.words_of(self._states, number))

    def explored(self) -> Explored:
        """Every state and step. It has as much time as the exploration."""
        self.clock.restart(self.limits)
        initial, _ = self.layout.find(self.levels[0][:], self._states)
        return Explored(self.layout, self._states, self._graph, tuple(initial.tolist()))

    @cached_property
    def _states(self) -> Keys:
        if self.visited.released:
            return self.layout.sort(self.layout.concatenated([level[:] for level in self.levels]))
        held = 2 * self.visited.count * self.layout.state_bytes  # twice, while they are merged
        if self.visited.storage is not None and held > self.limits.memory_bytes:
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
        states = self._states
        return Graph(self.layout, self.steps, states, self._tick)

    def _tick(self, nodes: int, edge_bytes: int) -> None:
        states = 2 * len(self._states) * self.layout.state_bytes
        reason = self.clock.stop_reason(0, states + edge_bytes) or self.stop_reason()
        if reason:
            raise LimitReached(f"the search of the graph {reason}")
        self.clock.show("deciding liveness", nodes, len(self.levels))

    def _where(self, expr: Expr, binding: Binding) -> Mask:
        """The states in which a condition holds."""
        return np.concatenate([np.empty(0, np.bool_), *self._chunks(expr, binding)])

    def occurs(self, expr: Expr, binding: Binding) -> bool:
        return any(chunk.any() for chunk in self._chunks(expr, binding))

    def _chunks(self, expr: Expr, binding: Binding) -> Iterator[Mask]:
        """Chunk by chunk, the states in which a condition holds."""
        ground = self.trails.kernel.ground(expr, binding)
        holds = None if ground is TRUE or ground is FALSE else conditions(self.layout, [ground])
        for start in range(0, len(self._states), CHUNK):
            chunk = self._states[start : start + CHUNK]
            yield np.full(len(chunk), ground is TRUE) if holds is None else holds(*self.layout.columns(chunk))[0]
