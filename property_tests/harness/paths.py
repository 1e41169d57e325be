"""Walks that together take every step of an explored graph, and their replay on a subject.

Rule: nothing is compared but what the subject shows; a disagreement names the steps that lead to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

from trystate.model.checker.check import explore_whole
from trystate.model.checker.explicit.graph import Explored
from trystate.model.checker.interpret import Interpreter
from trystate.model.checker.kernel import Instance, Limits
from trystate.model.errors import LimitReached
from trystate.model.language import State, System

from .side_by_side import SideBySide
from .subjects import Disagreement, Subject

# How many states are searched for an untaken edge ahead before a walk ends. For two state holders (14,364
# edges), 100, 1,000 and 10,000 give 5.1, 4.7 and 4.8 steps per edge. No walks at all could do with less than
# 4.0 (a minimum-cost flow): the graph branches into runs that end, and each needs its own way from the start.
AHEAD_STATES_MAX = 1_000
REPORT_WALKS = 100


def explore_graph(system: System, limits: Limits | None = None) -> Explored:
    """Every state and step of a system.

    Raises:
        LimitReached: the system is too large; nothing could be said about every edge.
        DeclarationError: a reachable step leaves a field's range.
    """
    try:
        engine, _ = explore_whole(system, limits)
    except LimitReached as limit:
        raise LimitReached(f"{limit}; every edge can be replayed of a smaller system only") from None
    return engine.explored()


@dataclass(frozen=True, slots=True)
class Walk:
    """A path from an initial state: the numbers of its instances, and of the states they lead to."""

    start: int
    steps: tuple[int, ...]
    states: tuple[int, ...]


def covering_walks(explored: Explored) -> Iterator[Walk]:
    """Walks from an initial state that together take every edge.

    A walk begins along a shortest path to a state with an untaken edge, and follows untaken edges; where there
    are none it goes on to the nearest state that has one, and ends if there is none nearby.
    """
    yield from _Cover(explored).walks()


Tree = dict[int, tuple[int, int]]  # state -> (state before it, edge); in breadth-first order


class _Cover:
    """Which edges have been taken, of at most `edges_max`.

    An edge is its position in `graph.after`; plain lists are fast one by one.
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
        for state in self.tree:  # breadth-first, so that the way there is short
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
        """The edges to the nearest state with an untaken one; none if that is far."""
        tree: Tree = {state: (-1, -1)}
        for near in self._grow(tree):
            if self.untaken(near):
                return self._trace(tree, near)[1]
            if len(tree) > AHEAD_STATES_MAX:
                break
        return []

    def _grow(self, tree: Tree) -> Iterator[int]:
        """Breadth-first from the states in the tree; yields each state that is new, once it is in the tree."""
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
    """How much was compared, of how many edges, and every disagreement (at most `stop_after`)."""

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

    With `refusals`, in each state every disabled step that can be tried is tried once, and must be refused: without it
    a subject that does what the model forbids passes. Without `repeats`, a step that was compared before is compared
    again only at the end of a walk: what went wrong unseen this time shows at the next new step. A subject whose
    `observe` returns what happened since its last call needs them. With `edges_max`, a sample: the walks take no more
    edges. With `explored`, the graph of `system` is not made again.

    Raises:
        UsageError: a method of the subject is async or a generator, or `observe` shows what is no cell or no value.
        LimitReached: the system is too large; nothing could be said about every edge.
    """
    replay = _Replay(system, subject, refusals, repeats, edges_max, explored or explore_graph(system))
    walks = 0
    disagreements: list[str] = []
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


class _Replay:
    """The model's graph and the subject, side by side."""

    def __init__(
        self, system: System, subject: Subject, refusals: bool, repeats: bool, edges_max: int | None, explored: Explored
    ) -> None:  # fmt: skip
        self.cover = _Cover(explored, edges_max)
        interpreter = Interpreter(system)
        self.both = SideBySide(interpreter, subject)
        self.refusals, self._repeats = refusals, repeats
        self.steps = self.refused = 0
        self._state = cache(explored.state)
        self._careful = False  # look after each step, and each refused one, not after all of a state's
        self._instances = interpreter.kernel.instances
        self._compared: set[tuple[int, int, int]] = set()  # as _last
        self._tried: set[int] = set()  # the states in which every refusal has been tried
        self._last: tuple[int, int, int] | None = None  # the state before the last step, its number, the state after

    def follow(self, walk: Walk) -> None:
        """Take a walk from its beginning.

        Raises:
            Disagreement: the subject did something else than the model.
        """
        self._last = None
        here = walk.start
        self.both.reset()
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
        """The same disagreement after a shortest path to its last step; as found if it needs the longer one."""
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
        refused = [self._refuse(instance, state) for instance in self.both.forbidden(state)]
        if refused:
            self.both.compare(state, refused=" ".join(refused))
        self._tried.add(number)

    def _refuse(self, instance: Instance, state: State) -> str:
        self.both.refuse(instance)
        self.refused += 1
        if self._careful:
            self.both.compare(state, refused=instance.label)
        return instance.label
