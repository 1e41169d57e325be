"""The explored graph as arrays, and fair runs in it.

Nodes are numbered in the order of the sorted states. Edges are stored twice, by origin and by target, as compressed
rows. The fair region is the greatest fixpoint of Emerson and Lei (1986), and with strong fairness of Kesten, Pnueli and
Raviv (1998), computed on masks over the nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from ...errors import UsageError
from ...language.systems import State
from ..kernel import Group, fair_groups
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
        self.groups = fair_groups(step.instance for step in steps if step.activated)
        self.group_of = {number: k for k, group in enumerate(self.groups) for number in group.numbers}
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
        self.tick = partial(tick, self.size, edges * EDGE_BYTES)  # called in each loop below

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

    def out(self, node: int) -> Iterator[tuple[int, int]]:
        """The numbers of the steps from a node, and the nodes that they lead to."""
        span = slice(self.first_after[node], self.first_after[node + 1])
        return zip(self.number[span].tolist(), self.after[span].tolist(), strict=True)

    def predecessors(self, nodes: Rows) -> Nodes:
        """The origins of every edge into the nodes, with repetitions."""
        return self.before[_spans(self.first_before, nodes)[0]]

    @cached_property
    def resting(self) -> Mask:
        """The nodes where no fair step is enabled."""
        out = np.ones(self.size, np.bool_)
        for number in self.group_of:
            if number in self.origins:
                out[self.origins[number]] = False
        return out

    def taken(self, group: Group, within: Mask) -> tuple[Nodes, Nodes]:
        """The edges of a group's steps from nodes of `within`, as origins and targets."""
        known = [number for number in group.numbers if number in self.origins]
        if len(known) == 1:
            origins, targets = self.origins[known[0]], self.targets[known[0]]
        else:
            none = [np.empty(0, np.int32)]
            origins, targets = (np.concatenate([*none, *(of[n] for n in known)]) for of in (self.origins, self.targets))
        chosen = within[origins]
        return origins[chosen], targets[chosen]

    def satisfied(self, group: Group, region: Mask) -> Mask:
        """The nodes of the region where a step of the group stays in the region, or a weak group is disabled."""
        origins, targets = self.taken(group, region)
        out = np.zeros(self.size, np.bool_) if group.strong else region.copy()
        out[origins] = False
        out[origins[region[targets]]] = True
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
            self.tick()
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
            self.tick()
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


def fair_region(graph: Graph, avoid: Mask, again: Mask | None = None) -> tuple[Mask, Mask]:
    """The nodes of `avoid` from which a fair run stays in it for ever, and its core, in which a run can move for ever.

    A run may stop where no fair step is enabled. As in the reference engine, a run is fair if, within the region, each
    weak group is disabled or taken again and again, and each strong group is taken again and again, or disabled from
    some point on. With `again`, the run also comes to nodes of `again` again and again.
    """
    # A run that can reach a resting node is fair, since no fair step is enabled there. Acyclic graphs need no more.
    to_rest = graph.reaching(avoid & _resting(graph, again), avoid)
    core = _endless(graph, avoid & ~to_rest)
    steps = [(group, *graph.taken(group, core)) for group in graph.groups]
    steps = [(group, origins, targets) for group, origins, targets in steps if len(origins)]
    size = -1
    while size != (size := int(core.sum())):
        if again is not None:
            core = graph.reaching(core & again, core)
        for group, origins, targets in steps:
            if group.strong or len(group.numbers) > 1:
                core = _restricted(graph, core, group, origins, targets)
                continue
            leaving = origins[core[origins] & ~core[targets]]
            if len(leaving):
                good = core.copy()
                good[leaving] = False
                core = graph.reaching(good, core)
    if again is None and not any(group.strong for group, *_ in steps):
        return core | to_rest, core
    return graph.reaching(core | to_rest, avoid), core


def _resting(graph: Graph, again: Mask | None) -> Mask:
    return graph.resting if again is None else graph.resting & again


def _restricted(graph: Graph, core: Mask, group: Group, origins: Nodes, targets: Nodes) -> Mask:
    """The nodes of the core that are left, since a run in it must satisfy this group."""
    enabled, staying = np.zeros(graph.size, np.bool_), np.zeros(graph.size, np.bool_)
    inside = core[origins]
    enabled[origins[inside]] = True
    staying[origins[inside & core[targets]]] = True
    disabled = core & ~enabled
    return disabled | graph.reaching(staying, core) if group.strong else graph.reaching(disabled | staying, core)


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
        graph.tick()
    return region


def fair_run(graph: Graph, region: Mask, core: Mask, start: int, again: Mask | None = None) -> tuple[Route, int]:
    """A run in the region from `start`, and the number of steps after which it repeats for ever.

    In the loop every weak group is taken or disabled at least once, and every strong group that is enabled is taken.
    A loop of no steps means that the run stops.
    """
    to_rest = graph.route(start, region & _resting(graph, again), region)
    if to_rest is not None:
        return to_rest, len(to_rest)
    run = graph.route(start, core, region)
    assert run is not None, "the fair region promises that a run in it reaches its core"
    here = run[-1][1] if run else start
    while True:
        anchor, began = here, len(run)
        here = _round(graph, core, here, run, again)
        home = np.zeros(graph.size, np.bool_)
        home[anchor] = True
        back = graph.route(here, home, core)
        if back is not None:
            return run + back, began


def _round(graph: Graph, core: Mask, here: int, run: Route, again: Mask | None) -> int:
    """Extend the run to `again`, and until each group has been satisfied once; returns its last node."""
    if again is not None:
        run += graph.route(here, core & again, core) or []
        here = run[-1][1] if run else here
    strong = {k for k, group in enumerate(graph.groups) if group.strong}
    pending = strong | _enabled(graph, here)
    while pending:
        wanted = min(pending)
        route = graph.route(here, graph.satisfied(graph.groups[wanted], core), core)
        if route is None:
            assert wanted in strong, "the fair region promises that every weak group can be satisfied within its core"
            pending.discard(wanted)  # it is not enabled from here on
        elif not route:
            route = [next((n, node) for n, node in graph.out(here) if graph.group_of.get(n) == wanted and core[node])]
        for step, here in route or ():
            run.append((step, here))
            pending.discard(graph.group_of.get(step, -1))
            pending &= strong | _enabled(graph, here)
    return here


def _enabled(graph: Graph, node: int) -> set[int]:
    """The groups that are enabled in a node."""
    return {graph.group_of[number] for number, _ in graph.out(node) if number in graph.group_of}


def late_rounds(graph: Graph, avoid: Mask, counted: Collection[int], times: int) -> list[Mask]:
    """For each number from 0 to `times`, the nodes of `avoid` with a path in it that has this number of steps."""
    rounds = [avoid]
    while len(rounds) <= times:
        following = graph.reaching(_stepping(graph, avoid, counted, rounds[-1]), avoid)
        if np.array_equal(following, rounds[-1]):  # then all later rounds are equal too
            return rounds + [following] * (times + 1 - len(rounds))
        rounds.append(following)
    return rounds


def late_run(graph: Graph, avoid: Mask, counted: Collection[int], rounds: Sequence[Mask], start: int) -> Route:
    """A path in `avoid` from a node of the last round that has a counted step for each other round."""
    run: Route = []
    here = start
    for goal in reversed(rounds[:-1]):
        route = graph.route(here, _stepping(graph, avoid, counted, goal), avoid)
        assert route is not None, "each node of a round leads to the next"
        run += route
        here = run[-1][1] if run else here
        run.append(next((n, node) for n, node in graph.out(here) if n in counted and goal[node]))
        here = run[-1][1]
    return run


def _stepping(graph: Graph, avoid: Mask, counted: Collection[int], goal: Mask) -> Mask:
    """The nodes of `avoid` from which a counted step leads to `goal`."""
    graph.tick()
    origins, targets = graph.taken(Group(tuple(counted), strong=False), avoid)
    out = np.zeros(graph.size, np.bool_)
    out[origins[goal[targets]]] = True
    return out
