"""The explored graph as arrays, and weakly fair runs in it.

Nodes are numbered in the order of the sorted states. Edges are stored twice, by origin and by target, as compressed
rows. The fair region is the greatest fixpoint of Emerson and Lei (1986), computed on masks over the nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ...errors import UsageError
from ...language.systems import State
from .packing import CHUNK, Keys, Layout, Mask, Rows
from .vectorise import Step

EDGE_BYTES = 36  # per edge while edges are indexed: seven int32s and an int64 for the order; afterwards six int32s

Nodes = NDArray[np.int32]
Route = list[tuple[int, int]]  # (number of the step, node it leads to)


class Graph:
    """Every step between the given states, which must contain all their successors."""

    def __init__(
        self, layout: Layout, steps: Sequence[Step], states: Keys, tick: Callable[[int, int], None]
    ) -> None:  # fmt: skip
        self.size = len(states)
        self.fair = [step.instance.number for step in steps if step.instance.fair and step.activated]
        pieces: dict[int, tuple[list[Nodes], list[Nodes]]] = {s.instance.number: ([], []) for s in steps}
        edges = 0
        for start in range(0, self.size, CHUNK):
            columns = layout.columns(states[start : start + CHUNK])
            for step in steps:
                taken = step.run(columns)
                if taken is None:
                    continue
                at, there = layout.find(layout.keys(taken.after), states)
                assert there.all(), "a graph is built of a complete exploration"
                origins, targets = pieces[step.instance.number]
                origins.append((taken.rows + start).astype(np.int32))
                targets.append(at.astype(np.int32))
                edges += len(at)
            tick(start, edges * EDGE_BYTES)
        self.origins: dict[int, Nodes] = {}
        self.targets: dict[int, Nodes] = {}
        for number in list(pieces):
            origins, targets = pieces.pop(number)  # frees the pieces step by step
            if origins:
                self.origins[number], self.targets[number] = np.concatenate(origins), np.concatenate(targets)
        self._index()

    def _index(self) -> None:
        """Index the edges by origin and by target."""
        none = [np.empty(0, np.int32)]
        origins = np.concatenate([*self.origins.values(), *none])
        targets = np.concatenate([*self.targets.values(), *none])
        numbers = np.repeat(np.array(list(self.origins), np.int32), [len(o) for o in self.origins.values()])
        order = np.argsort(origins, kind="stable")
        self.after, self.number = targets[order], numbers[order]
        self.first_after = _offsets(origins, self.size)
        del numbers, order
        self.before = origins[np.argsort(targets, kind="stable")]
        self.first_before = _offsets(targets, self.size)

    def out(self, node: int) -> tuple[Nodes, Nodes]:
        """The nodes that the steps from a node lead to, and the numbers of the steps."""
        span = slice(self.first_after[node], self.first_after[node + 1])
        return self.after[span], self.number[span]

    def predecessors(self, nodes: Rows) -> Nodes:
        """The origins of every edge into the nodes, with repetitions."""
        return self.before[_spans(self.first_before, nodes)[0]]

    @cached_property
    def resting(self) -> Mask:
        """The nodes where no fair step is enabled."""
        out = np.ones(self.size, np.bool_)
        for number in self.fair:
            if number in self.origins:
                out[self.origins[number]] = False
        return out

    def taken(self, number: int, within: Mask) -> tuple[Nodes, Nodes] | None:
        """The edges of a step from nodes of `within`, as origins and targets; None if the step has no such edge."""
        if number not in self.origins:
            return None
        chosen = within[self.origins[number]]
        return (self.origins[number][chosen], self.targets[number][chosen]) if chosen.any() else None

    def satisfied(self, number: int, region: Mask) -> Mask:
        """The nodes of the region where a fair step is disabled or stays in the region."""
        out = region.copy()
        if number in self.origins:
            out[self.origins[number][~region[self.targets[number]]]] = False
        return out

    def reaching(self, goal: Mask, within: Mask) -> Mask:
        """The nodes of `within` with a path in it to a node of `goal` (a subset of `within`)."""
        seen = goal.copy()
        unseen = within & ~goal
        frontier = np.flatnonzero(goal)
        rest = np.flatnonzero(unseen)
        if len(rest) < len(frontier):  # first round from the smaller side
            edges, counts = _spans(self.first_after, rest)
            frontier = np.unique(np.repeat(rest, counts)[goal[self.after[edges]]])
            seen[frontier], unseen[frontier] = True, False
        while len(frontier):
            origins = self.predecessors(frontier)
            frontier = np.unique(origins[unseen[origins]]).astype(np.intp)
            seen[frontier], unseen[frontier] = True, False
        return seen

    def route(self, start: int, goal: Mask, within: Mask) -> Route | None:
        """A shortest path in `within` to a node of `goal`; empty if `start` is in `goal`."""
        if goal[start]:
            return []
        unseen = within.copy()
        unseen[start] = False
        entered = np.full(self.size, -1, np.int64)  # the edge by which each node was reached
        frontier = np.array([start], np.intp)
        while len(frontier):
            edges = _spans(self.first_after, frontier)[0]
            edges = edges[unseen[self.after[edges]]]
            nodes, first = np.unique(self.after[edges], return_index=True)
            frontier = nodes.astype(np.intp)
            unseen[frontier] = False
            entered[frontier] = edges[first]
            hits = frontier[goal[frontier]]
            if len(hits):
                return self._retrace(entered, start, int(hits[0]))
        return None

    def _retrace(self, entered: NDArray[np.int64], start: int, node: int) -> Route:
        route = []
        while node != start:
            edge = entered[node]
            route.append((int(self.number[edge]), node))
            node = int(np.searchsorted(self.first_after, edge, side="right")) - 1
        return route[::-1]


@dataclass(frozen=True, slots=True)
class Explored:
    """Every reachable state, numbered as the nodes of the graph, and every step between them."""

    layout: Layout
    states: Keys
    graph: Graph
    initial: tuple[int, ...]

    def state(self, number: int) -> State:
        return self.layout.unpack(self.layout.words_of(self.states, number))

    def number(self, state: State) -> int:
        """The node of a state.

        Raises:
            UsageError: the state is not reachable.
        """
        at, _ = self.layout.find(self.layout.keys(self.layout.pack([state])), self.states)
        if self.state(int(at[0])) != state:
            raise UsageError(f"{state} is not among the {len(self.states):,} reachable states")
        return int(at[0])


def _offsets(ends: Nodes, size: int) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(np.bincount(ends, minlength=size))]).astype(np.int64)


def _spans(offsets: NDArray[np.int64], nodes: Rows) -> tuple[Rows, Rows]:
    """The positions of all edges of the nodes, and the number of edges of each."""
    starts = offsets[nodes]
    counts = offsets[nodes + 1] - starts
    skipped = starts - (np.cumsum(counts) - counts)
    return np.repeat(skipped, counts) + np.arange(counts.sum()), counts


def fair_region(graph: Graph, avoid: Mask) -> Mask:
    """The nodes of `avoid` from which a weakly fair run stays in it for ever.

    A run may stop where no fair step is enabled. As in the reference engine, a run is fair if, within the region, each
    fair step is disabled or taken again and again.
    """
    # A run that can reach a resting node is fair, since no fair step is enabled there. Acyclic graphs need no more.
    to_rest = graph.reaching(avoid & graph.resting, avoid)
    region = _endless(graph, avoid & ~to_rest)
    steps = [step for step in (graph.taken(number, region) for number in graph.fair) if step is not None]
    size = -1
    while size != (size := int(region.sum())):
        for origins, targets in steps:
            leaving = origins[region[origins] & ~region[targets]]
            if len(leaving):
                good = region.copy()
                good[leaving] = False
                region = graph.reaching(good, region)
    return region | to_rest


def _endless(graph: Graph, region: Mask) -> Mask:
    """Drop nodes without a successor in the region, until all remaining nodes have one."""
    region = region.copy()
    nodes = np.flatnonzero(region)
    edges, counts = _spans(graph.first_after, nodes)
    inside = np.concatenate([[0], np.cumsum(region[graph.after[edges]])])
    degree = np.zeros(graph.size, np.int64)
    degree[nodes] = np.diff(inside[np.concatenate([[0], np.cumsum(counts)])])
    frontier = nodes[degree[nodes] == 0]
    while len(frontier):
        region[frontier] = False
        origins, lost = np.unique(graph.predecessors(frontier), return_counts=True)
        degree[origins] -= lost
        frontier = origins[region[origins] & (degree[origins] == 0)].astype(np.intp)
    return region


def fair_run(graph: Graph, region: Mask, start: int) -> tuple[Route, int]:
    """A run in the region from `start`, and the number of steps after which it repeats for ever.

    In the loop every fair step is taken or disabled at least once. A loop of no steps means that the run stops.
    """
    to_rest = graph.route(start, region & graph.resting, region)
    if to_rest is not None:
        return to_rest, len(to_rest)
    run: Route = []
    here = start
    while True:
        anchor, began = here, len(run)
        here = _round(graph, region, here, run)
        home = np.zeros(graph.size, np.bool_)
        home[anchor] = True
        back = graph.route(here, home, region)
        if back is not None:
            return run + back, began


def _round(graph: Graph, region: Mask, here: int, run: Route) -> int:
    """Extend the run until each fair step has been disabled or taken once; returns its last node."""
    pending = set(graph.fair) & _enabled(graph, here)
    while pending:
        number = min(pending)
        route = graph.route(here, graph.satisfied(number, region), region)
        assert route is not None, "the fair region promises that every fair step can be satisfied within it"
        if not route:
            after, numbers = graph.out(here)
            route = [(number, int(after[numbers == number][0]))]
        for step, here in route:
            run.append((step, here))
            pending.discard(step)
            pending &= _enabled(graph, here)
    return here


def _enabled(graph: Graph, node: int) -> set[int]:
    return set(graph.out(node)[1].tolist())
