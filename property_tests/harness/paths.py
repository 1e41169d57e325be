"""Walks that together take every step of an explored graph, and their replay on a subject.

Rule: only the cells that the subject shows are compared. A disagreement names the steps that lead to it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

from trystate.model.checker.explicit.graph import Explored
from trystate.model.checker.interpret import Interpreter
from trystate.model.checker.kernel import Instance
from trystate.model.checker.whole import explore_whole
from trystate.model.errors import LimitReached
from trystate.model.language import State, System

from .checks import Outcome
from .side_by_side import SideBySide
from .subjects import Calls, Disagreement, Subject

# The number of states that are searched for an untaken edge before a walk ends. For two state holders (14,364 edges),
# 100, 1,000 and 10,000 give 5.1, 4.7 and 4.8 steps for each edge. The least possible number is 4.0 (a minimum-cost
# flow), because many runs end, and each of them needs its own path from an initial state.
AHEAD_STATES_MAX = 1_000
COMPARED = 4  # one of the first refusals in a state is followed by a comparison, by the number of the state
REPORT_WALKS = 100


def explore_graph(system: System) -> Explored:
    """Every state and step of a system.

    Raises:
        LimitReached: the system is too large; not every edge can be replayed.
        DeclarationError: a reachable step leaves a field's range.
    """
    try:
        engine, _ = explore_whole(system)
    except LimitReached as limit:
        raise LimitReached(f"{limit}; every edge can be replayed of a smaller system only") from None
    return engine.explored()


@dataclass(frozen=True, slots=True)
class Walk:
    """A path from an initial state: the numbers of its instances, and the numbers of the states after them."""

    start: int
    steps: tuple[int, ...]
    states: tuple[int, ...]


Tree = dict[int, tuple[int, int]]  # state -> (state before it, edge); in breadth-first order


class _Cover:
    """Walks from an initial state that together take every edge, or `edges_max` of them.

    A walk begins along a shortest path to a state with an untaken edge and follows untaken edges. At a state without
    one it continues to the nearest state that has one, and ends if no such state is near.

    An edge is its position in `graph.after`. Lists are used because single elements of an array are slow to read.
    """

    def __init__(self, explored: Explored, edges_max: int | None = None) -> None:
        graph = explored.graph
        self.first: list[int] = graph.first_after.tolist()
        self.after: list[int] = graph.after.tolist()
        self.number: list[int] = graph.number.tolist()
        self.next: list[int] = self.first[:-1]  # the untaken edges of a state are next[state] .. first[state + 1]
        self._left = edges_max if edges_max is not None else len(self.after)
        self.tree: Tree = dict.fromkeys(explored.initial, (-1, -1))
        for _ in self._grow(self.tree):
            pass

    def walks(self) -> Iterator[Walk]:
        for state in self.tree:  # breadth-first, so the path to the state is short
            while self.untaken(state):
                yield self.walk(state)

    def untaken(self, state: int) -> bool:
        return self._left > 0 and bool(self.next[state] < self.first[state + 1])

    @property
    def taken(self) -> int:
        """How many edges have been taken."""
        return sum(self.next) - sum(self.first[:-1])

    def walk(self, state: int) -> Walk:
        """One walk through `state`, as long as untaken edges are near."""
        start, edges = self._trace(self.tree, state)
        while True:
            while self.untaken(state):
                edges.append(self.next[state])
                self.next[state] += 1
                self._left -= 1
                state = self.after[edges[-1]]
            way = self._way_on(state)
            if not way:
                return self._walk(start, edges)
            edges += way
            state = self.after[way[-1]]

    def shortest(self, state: int) -> Walk:
        return self._walk(*self._trace(self.tree, state))

    def _walk(self, start: int, edges: list[int]) -> Walk:
        return Walk(start, tuple(self.number[e] for e in edges), tuple(self.after[e] for e in edges))

    def _way_on(self, state: int) -> list[int]:
        """The edges to the nearest state with an untaken edge; empty if no such state is near."""
        tree: Tree = {state: (-1, -1)}
        for near in self._grow(tree):
            if self.untaken(near):
                return self._trace(tree, near)[1]
            if len(tree) > AHEAD_STATES_MAX:
                break
        return []

    def _grow(self, tree: Tree) -> Iterator[int]:
        """Add states to the tree, breadth-first; yield each new state after it was added."""
        level = list(tree)
        while level:
            following = []
            for state in level:
                for edge in range(self.first[state], self.first[state + 1]):
                    after = self.after[edge]
                    if after not in tree:
                        tree[after] = (state, edge)
                        following.append(after)
                        yield after
            level = following

    def _trace(self, tree: Tree, state: int) -> tuple[int, list[int]]:
        """The root and the edges of the path to a state of the tree."""
        edges = []
        before, edge = tree[state]
        while edge >= 0:
            edges.append(edge)
            state = before
            before, edge = tree[state]
        return state, edges[::-1]


@dataclass(frozen=True, slots=True)
class Replayed:
    """The size of the compared part (`edges` of `edges_of_all`), and at most `stop_after` disagreements."""

    walks: int
    steps: int
    edges: int
    edges_of_all: int
    refusals: int
    disagreements: tuple[str, ...]


def replay_every_edge(
    system: System, subject: Subject, *, refusals: bool = True, repeats: bool = True, stop_after: int = 5,
    edges_max: int | None = None, report: Callable[[str], None] = lambda _: None, explored: Explored | None = None,
) -> Replayed:  # fmt: skip
    """Take every edge of the system's graph on the subject, comparing what can be seen after each step.

    With `refusals`, each disabled step that can be tried is tried once in each state, and must be refused; otherwise a
    subject that does what the model forbids would pass. Without `repeats`, a step that was compared before is compared
    again only at the end of a walk; a difference that is missed there shows at the next new step. A subject whose
    `observe` returns the events since its last call needs `repeats`. With `edges_max`, the walks take at most
    that number of edges. `explored` is the graph of `system`, if it exists already.

    Raises:
        UsageError: a method of the subject is a generator, `observe` returns an unknown cell or value, or `reset` takes
            no cells although the system has several initial states.
        LimitReached: the system is too large; not every edge can be replayed.
    """
    walks = 0
    disagreements: list[str] = []
    with closing(Calls()) as call:
        replay = _Replay(system, subject, refusals, repeats, edges_max, explored or explore_graph(system), call)
        for walk in replay.cover.walks():
            walks += 1
            try:
                replay.follow(walk)
            except Disagreement as found:
                disagreements.append(replay.shortened(found))
                if len(disagreements) >= stop_after:
                    break
            if walks % REPORT_WALKS == 0:
                report(f"{replay.steps:,} steps, {walks:,} walks")
    return Replayed(
        walks, replay.steps, replay.cover.taken, len(replay.cover.after), replay.refused, tuple(disagreements)
    )


def replay_systems(
    systems: Iterable[System], subject_of: Callable[[Any], Any], report: Callable[[str], None],
    edges_max: int | None = None, **options: Any,
) -> Outcome:  # fmt: skip
    """Replay every edge of each system on the subject that `subject_of` makes for it: the outcome of one check.

    If `subject_of` returns a context manager, the subject is the value of its `with`. With `edges_max`, a sample of the
    edges of each system is replayed.
    """
    began, edges, of, disagreements = time.perf_counter(), 0, 0, list[str]()
    for system in systems:
        report(f"replaying {system.label}")
        made = subject_of(system)
        with made if isinstance(made, AbstractContextManager) else nullcontext(made) as subject:
            given = {"repeats": False, "edges_max": edges_max, "report": report, **options}
            found = replay_every_edge(system, subject, **given)
        edges, of = edges + found.edges, of + found.edges_of_all
        disagreements += [f"{system.label}: {text}" for text in found.disagreements]
    return Outcome(edges, "edges", tuple(disagreements), time.perf_counter() - began, of)


class _Replay:
    """The model's graph and the subject, side by side."""

    def __init__(
        self, system: System, subject: Subject, refusals: bool, repeats: bool, edges_max: int | None,
        explored: Explored, call: Calls,
    ) -> None:  # fmt: skip
        self.cover = _Cover(explored, edges_max)
        interpreter = Interpreter(system)
        self.both = SideBySide(interpreter, subject, call)
        self.refusals, self._repeats = refusals, repeats
        self.steps = self.refused = 0
        self._state = cache(explored.state)
        self._careful = False  # compare after each refused step, and not only after all refused steps of a state
        self._instances = interpreter.kernel.instances
        self._compared: set[tuple[int, int, int]] = set()  # the compared steps, in the form of `_last`
        self._tried: set[int] = set()  # the states in which every refusal has been tried
        self._last: tuple[int, int, int] | None = None  # the last step, and the states before and after it

    def follow(self, walk: Walk) -> None:
        """Take a walk from its beginning.

        Raises:
            Disagreement: the subject differs from the model.
        """
        self._last = None
        here = walk.start
        self.both.reset(self._state(here))
        self._arrive(here)
        for left, number, after in zip(range(len(walk.steps))[::-1], walk.steps, walk.states, strict=True):
            self._last = (here, number, after)
            self.both.take(self._instances[number])
            if self._repeats or self._careful or not left or self._last not in self._compared:
                self._arrive(after)
                self._compared.add(self._last)
            here = after
            self.steps += 1

    def shortened(self, found: Disagreement) -> str:
        """The disagreement after a shortest path to its last step, if it shows there; otherwise as it was found."""
        if self._last is None:
            return str(found)
        self._careful = True
        before, number, after = self._last
        way = self.cover.shortest(before)
        try:
            self.follow(Walk(way.start, (*way.steps, number), (*way.states, after)))
        except Disagreement as shorter:
            return str(shorter)
        finally:
            self._careful = False
        return str(found)

    def _arrive(self, number: int) -> None:
        state = self._state(number)
        self.both.compare(state)
        if not self.refusals or number in self._tried:
            return
        refused = []
        for place, instance in enumerate(self.both.forbidden(state)):
            refused.append(self._refuse(instance, state))
            if place == number % COMPARED and not self._careful:  # the second of two refusals may undo the first
                self.both.compare(state, refused=" ".join(refused))
        if refused:
            self.both.compare(state, refused=" ".join(refused))
        self._tried.add(number)

    def _refuse(self, instance: Instance, state: State) -> str:
        self.both.refuse(instance)
        self.refused += 1
        if self._careful:
            self.both.compare(state, refused=instance.label)
        return instance.label
