"""Paths that together take every step of an explored graph, and their replay on a subject."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from trystate.model.checker.explicit import ExplicitEngine
from trystate.model.checker.interpret import Interpreter
from trystate.model.checker.kernel import Instance, Kernel, Limits
from trystate.model.language import State, System

from .subjects import Disagreement, Refused, Subject, difference


class ExploredGraph:
    """Every state and step of a system, numbered, from the explicit engine."""

    def __init__(self, system: System, limits: Limits | None = None) -> None:
        self.kernel = Kernel(system)
        engine = ExplicitEngine(self.kernel, limits or Limits())
        seen = engine.explore([])
        if not seen.complete:
            raise Disagreement(f"{system.label}: {seen.stopped}; nothing can be said about every edge")
        self.graph = engine._graph
        self._engine = engine
        self.initial = [self.number(s) for s in system.initial_states]

    def number(self, state: State) -> int:
        layout = self._engine.layout
        at, _ = layout.find(layout.keys(layout.pack([state])), self._engine._states)
        return int(at[0])

    def state(self, number: int) -> State:
        layout = self._engine.layout
        return layout.unpack(layout.words_of(self._engine._states, number))

    @property
    def edges(self) -> int:
        return len(self.graph.after)


@dataclass(frozen=True, slots=True)
class Walk:
    """A path from an initial state: the numbers of its instances, and of the states they lead to."""

    start: int
    steps: tuple[int, ...]
    states: tuple[int, ...]


def covering_walks(explored: ExploredGraph) -> Iterator[Walk]:
    """Walks from an initial state that together take every edge.

    A walk goes to the nearest state with an untaken edge along a breadth-first tree, then follows untaken
    edges while there are any.
    """
    graph = explored.graph
    taken = np.zeros(len(graph.after), np.bool_)
    todo = np.diff(graph.first_after).astype(np.int64)  # untaken edges per state
    cursor = graph.first_after[:-1].copy()
    parent = _tree(explored)
    for state in _breadth_first(parent, explored.initial):
        while todo[state]:
            stem = _stem(parent, state)
            steps, states = list(stem[1]), list(stem[2])
            here = state
            while todo[here]:
                edge = int(cursor[here])
                cursor[here] += 1
                taken[edge] = True
                todo[here] -= 1
                here = int(graph.after[edge])
                steps.append(int(graph.number[edge]))
                states.append(here)
            yield Walk(stem[0], tuple(steps), tuple(states))
    assert taken.all(), "every edge of the graph starts in a reachable state"


Parents = dict[int, tuple[int, int]]  # state -> (state before it, number of the step)


def _tree(explored: ExploredGraph) -> Parents:
    """A breadth-first tree over all states."""
    parent: Parents = {s: (-1, -1) for s in explored.initial}
    level = list(parent)
    while level:
        following = []
        for state in level:
            for after, number in zip(*explored.graph.out(state), strict=True):
                if int(after) not in parent:
                    parent[int(after)] = (state, int(number))
                    following.append(int(after))
        level = following
    return parent


def _breadth_first(parent: Parents, initial: list[int]) -> Iterator[int]:
    yield from parent  # insertion order is breadth-first


def _stem(parent: Parents, state: int) -> tuple[int, list[int], list[int]]:
    steps: list[int] = []
    states: list[int] = []
    while parent[state][0] >= 0:
        states.append(state)
        state, number = parent[state]
        steps.append(number)
    return state, steps[::-1], states[::-1]


@dataclass(frozen=True, slots=True)
class Replayed:
    """How much was compared, and every disagreement (at most `stop_after`)."""

    walks: int
    steps: int
    edges: int
    refusals: int
    disagreements: tuple[str, ...]


def replay_every_edge(
    system: System, subject: Subject, *, refusals: bool = False, stop_after: int = 5,
    report: Callable[[str], None] = lambda _: None,
) -> Replayed:  # fmt: skip
    """Take every edge of the system's graph on the subject, comparing what can be seen after each step.

    With `refusals`, in each state every disabled step that can be tried is tried once, and must be refused.
    """
    explored = ExploredGraph(system)
    interpreter = Interpreter(system)
    tried: set[int] = set()
    walks = steps = refused = 0
    disagreements: list[str] = []
    for walk in covering_walks(explored):
        walks += 1
        follower = _Follower(system, subject, interpreter, explored.state(walk.start))
        try:
            for number, target in zip(walk.steps, walk.states, strict=True):
                if refusals and target not in tried:
                    refused += follower.try_refusals()
                follower.take(explored.kernel.instances[number], explored.state(target))
                tried.add(target)
                steps += 1
        except Disagreement as found:
            disagreements.append(str(found))
            if len(disagreements) >= stop_after:
                break
        if walks % 500 == 0:
            report(f"{steps:,} steps, {walks:,} walks")
    return Replayed(walks, steps, explored.edges, refused, tuple(disagreements))


class _Follower:
    """The model and the subject, side by side."""

    def __init__(self, system: System, subject: Subject, interpreter: Interpreter, state: State) -> None:
        self.system, self.subject, self.interpreter, self.state = system, subject, interpreter, state
        self.trail: list[str] = []
        subject.reset()
        self._compare()

    def take(self, instance: Instance, after: State) -> None:
        self.trail.append(instance.label)
        try:
            self.subject.perform(instance.transition.name, instance.indices)
        except Refused as why:
            raise Disagreement(f"the model allows, the subject refuses ({why}): {self._said()}") from None
        self.state = after
        self._compare()

    def try_refusals(self) -> int:
        """Every disabled step that can be tried is refused and changes nothing."""
        count = 0
        for instance in self.interpreter.kernel.instances:
            name = instance.transition.name
            if self.subject.can_refuse(name) and not self.interpreter.allowed(instance, self.state):
                count += 1
                try:
                    self.subject.perform(name, instance.indices)
                except Refused:
                    self._compare()
                    continue
                raise Disagreement(f"the model forbids {instance.label}, the subject does it, after: {self._said()}")
        return count

    def _compare(self) -> None:
        text = difference(self.system, self.state, self.subject.observe())
        if text:
            raise Disagreement(f"{text}; after: {self._said()}")

    def _said(self) -> str:
        return " ".join(self.trail) or "the initial state"
