"""The reference engine: breadth-first search over single states with the interpreter.

*Theory of operation.* A queue holds the states that were seen and not yet expanded; `parent` holds the state and step
from which each was first seen. Since the queue is first in, first out, the way back along `parent` is a shortest path.
`graph` keeps every step, for the fair runs. The caller creates one engine for one search, calls `explore` once, and
then `lasso` any number of times, all on one thread.

Failures: a limit or a failed allocation ends the search (`stopped` has the reason), or a step leaves a field's range
(it is found but not followed).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

from ...language.expressions import Expr
from ...language.properties import Form, Within
from ...language.systems import State
from ..engine import Clock, OnProgress, Progress, memory_bounded, memory_ended, quiet
from ..interpret import Interpreter
from ..kernel import Binding, Exploration, Group, Kernel, Lasso, Limits, Path, Watch, WatchKey, fair_groups, traced

# Upper bounds, measured with tracemalloc; each needs in addition a tuple of the state's cells.
STATE_BYTES = 200  # an entry in two dicts, the parent and the list of steps
EDGE_BYTES = 100  # a pair in that list
CELL_BYTES = 8


class ReferenceEngine:
    """Explores a kernel one state at a time and keeps the whole graph."""

    name = "interpret"

    def __init__(self, kernel: Kernel, limits: Limits, on_progress: OnProgress = quiet) -> None:
        self.kernel = kernel
        self.limits = limits
        self.on_progress = on_progress
        self.interpreter = Interpreter(kernel.system)
        self.parent: dict[State, tuple[State, int] | None] = {}
        self.graph: dict[State, list[tuple[int, State]]] = {}
        self.edges = self.depth = 0
        self.stopped = ""
        self._clock = Clock(limits)

    def explore(self, watches: Sequence[Watch]) -> Exploration:
        self._clock = Clock(self.limits)
        self.parent, self.edges, self.depth, self.stopped = {}, 0, 0, ""
        watching = _Watching(self.interpreter, watches, self._path)
        try:
            self._search(watching)
        except MemoryError:
            self.graph.clear()  # lasso() needs a complete graph
            self.stopped = memory_ended(self.limits)
        distinct = len(self.parent)
        return Exploration(
            self.name, distinct, self.edges, self.depth, self._clock.seconds,
            self._memory_bytes / max(1, distinct), watching.found, self.stopped,
        )  # fmt: skip

    def _search(self, watching: _Watching) -> None:
        queue: deque[tuple[State, int]] = deque()
        for state in self.kernel.initial_states():
            self.parent[state] = None
            queue.append((state, 0))
            if self._passes_a_limit(len(queue)):
                return
        while queue:
            state, self.depth = queue.popleft()
            steps = [(i.number, after) for i, after in self.interpreter.successors(state)]
            self.graph[state] = steps
            self.edges += len(steps)
            watching.look(state, steps)
            for number, after in steps:
                if after not in self.parent and self._in_range(after):
                    self.parent[after] = (state, number)
                    queue.append((after, self.depth + 1))
            if self._passes_a_limit(len(self.graph)):
                return

    def _passes_a_limit(self, done: int) -> bool:
        """Whether a limit is passed. Checked after each state, because one state may have hundreds of steps."""
        self.stopped = self._clock.stop_reason(len(self.parent), self._memory_bytes)
        if done % 1024 == 0:
            self.on_progress(Progress(self.name, "exploring", len(self.parent), self.depth, self._clock.seconds))
        return bool(self.stopped)

    @property
    def _memory_bytes(self) -> int:
        state = CELL_BYTES * len(self.kernel.cells)
        return len(self.parent) * (STATE_BYTES + state) + self.edges * (EDGE_BYTES + state)

    def _in_range(self, state: State) -> bool:
        """Whether all values are in range. A step out of range is not followed: there the search might never end."""
        return all(c.sort.low <= value <= c.sort.high for c, value in zip(self.kernel.cells, state, strict=True))

    def _path(self, state: State) -> Path:
        states, steps = traced(state, self.parent.__getitem__)
        return Path(tuple(states), tuple(steps))

    def lasso(self, premise: Expr, goal: Expr, binding: Binding, form: Form = Form.LEADS_TO) -> Lasso | None:
        with memory_bounded(self.limits):
            return self._lasso(premise, goal, binding, form)

    def late(self, premise: Expr, goal: Expr, binding: Binding, form: Form, within: Within) -> Path | None:
        holds, counted = self.interpreter.holds, self.kernel.counted(within)
        avoid = {s for s in self.graph if not holds(goal, s, binding)}
        queue = deque((s, 0) for s in self._starts(form) if s in avoid and holds(premise, s, binding))
        origins: dict[tuple[State, int], tuple[tuple[State, int], int] | None] = dict.fromkeys(queue)
        while queue:
            state, count = here = queue.popleft()
            if count == within.times:
                run, steps = traced(here, origins.__getitem__)
                stem = self._path(run[0][0])
                return Path(stem.states[:-1] + tuple(state for state, _ in run), stem.steps + tuple(steps))
            for number, after in self.graph[state]:
                then = after, count + (number in counted)
                if after in avoid and then not in origins:
                    origins[then] = here, number
                    queue.append(then)
        return None

    def _starts(self, form: Form) -> Iterator[State]:
        return (s for s in self.graph if form is not Form.EVENTUALLY or self.parent[s] is None)

    def occurs(self, expr: Expr, binding: Binding) -> bool:
        return any(self.interpreter.holds(expr, state, binding) for state in self.graph)

    def _lasso(self, premise: Expr, goal: Expr, binding: Binding, form: Form) -> Lasso | None:
        holds = self.interpreter.holds
        avoid = {s for s in self.graph if not holds(goal, s, binding)}
        again = None
        if form is Form.STABLE:
            avoid, again = set(self.graph), avoid
        groups = fair_groups(self.kernel.instances)
        parts = fair_parts(self.graph, avoid, groups, again)
        region = fair_region(self.graph, avoid, parts)
        start = next((s for s in self._starts(form) if s in region and holds(premise, s, binding)), None)
        if start is None:
            return None
        stem = self._path(start)
        states, steps, loop = fair_walk(self.graph, region, parts, groups, start, again)
        path = Path(stem.states + tuple(states), stem.steps + tuple(steps))
        return Lasso(path, len(stem.steps) + loop)


Graph = dict[State, list[tuple[int, State]]]


class _Watching:
    """The first state or step found for each watch."""

    def __init__(self, interpreter: Interpreter, watches: Sequence[Watch], path: Callable[[State], Path]) -> None:
        self.interpreter = interpreter
        self.open = list(watches)
        self.path = path
        self.found: dict[WatchKey, Path] = {}

    def look(self, state: State, steps: list[tuple[int, State]]) -> None:
        """Check the open watches in a state. In breadth-first order, the first find has a shortest path."""
        taken = dict(steps)
        still = []
        for watch in self.open:
            number = None if watch.instance is None else watch.instance.number
            asked = (number is None or number in taken) and all(i.number not in taken for i in watch.idle)
            if asked and self.interpreter.holds(watch.expr, state, watch.binding):
                if watch.key not in self.found:
                    path = self.path(state)
                    if number is not None:
                        path = Path((*path.states, taken[number]), (*path.steps, number))
                    self.found[watch.key] = path
            else:
                still.append(watch)
        self.open = [w for w in still if w.key not in self.found]


def fair_parts(
    graph: Graph, avoid: set[State], groups: Sequence[Group], again: set[State] | None = None
) -> list[set[State]]:
    """Sets of states of `avoid` that reach one another. A fair run can stay in each set and visit all of its states.

    Each other fair run that stays in `avoid` visits, from some point on, only states of one of these sets. A run may
    stop, so a single state is a set. With `again`, each set has one of these states.
    """
    found, open_ = [], [avoid]
    while open_:
        for part in _components(graph, open_.pop()):
            possible = {s: {number for number, _ in graph[s]} for s in part}
            taken = {number for s in part for number, after in graph[s] if after in part}
            unmet = [g for g in groups if taken.isdisjoint(g.numbers)]
            left = {s for s in part if all(possible[s].isdisjoint(g.numbers) for g in unmet if g.strong)}
            weak = [g for g in unmet if not g.strong]
            if left != part:
                open_.append(left)  # a fair run that stays in the part avoids the states that enable the strong group
            elif all(any(possible[s].isdisjoint(g.numbers) for s in part) for g in weak):
                found.append(part)
    return [part for part in found if again is None or not part.isdisjoint(again)]


def fair_region(graph: Graph, avoid: set[State], parts: Iterable[set[State]]) -> set[State]:
    """The states of `avoid` from which a path in it leads to one of its parts."""
    back: dict[State, list[State]] = {}
    for state in avoid:
        for _, after in graph[state]:
            if after in avoid:
                back.setdefault(after, []).append(state)
    seen = {s for part in parts for s in part}
    queue = [*seen]
    while queue:
        new = {*back.get(queue.pop(), ())} - seen
        seen |= new
        queue += new
    return seen


def _components(graph: Graph, within: set[State]) -> Iterator[set[State]]:
    """The strongly connected components of the states (Tarjan, 1972)."""
    order: dict[State, int] = {}
    low: dict[State, int] = {}
    open_: dict[State, None] = {}  # states in no component yet, in the order of their visits
    for root in within:
        path = [] if root in order else [(root, iter(graph[root]))]
        while path:
            state, steps = path[-1]
            if state not in order:
                order[state] = low[state] = len(order)
                open_[state] = None
            after = next((y for _, y in steps if y in within and (y not in order or y in open_)), None)
            if after is None:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[state])
                if low[state] == order[state]:
                    part: set[State] = set()
                    while state not in part:
                        part.add(open_.popitem()[0])
                    yield part
            elif after in order:
                low[state] = min(low[state], order[after])
            else:
                path.append((after, iter(graph[after])))


def fair_walk(
    graph: Graph, region: set[State], parts: Sequence[set[State]], groups: Sequence[Group], start: State,
    again: set[State] | None = None,
) -> tuple[list[State], list[int], int]:  # fmt: skip
    """A walk in the region from `start` that closes a loop in one of the parts, in which it is fair.

    Returns the states after `start`, the steps, and the number of steps before the loop begins.
    """
    part_of = {s: part for part in parts for s in part}
    walk = _route(graph, region, start, part_of.__contains__)
    assert walk is not None, "each state of the fair region leads to one of its parts"
    began, home = len(walk), walk[-1][1] if walk else start
    part = part_of[home]

    def go(goal: Callable[[State], bool]) -> bool:
        route = _route(graph, part, walk[-1][1] if walk else start, goal)
        walk.extend(route or [])
        return route is not None

    def satisfied(state: State, group: Group) -> bool:
        after = [y for k, y in graph[state] if k in group.numbers]
        return any(y in part for y in after) or not (after or group.strong)

    if again is not None:
        go(again.__contains__)
    for group in groups:
        if go(lambda s, group=group: satisfied(s, group)):  # type: ignore[misc]
            steps = graph[walk[-1][1] if walk else start]
            walk += [(k, y) for k, y in steps if k in group.numbers and y in part][:1]
        else:
            assert group.strong, "each weak group can be satisfied in a fair part"
    go(lambda s: s == home)
    return [s for _, s in walk], [k for k, _ in walk], began


def _route(
    graph: Graph, region: set[State], start: State, goal: Callable[[State], bool]
) -> list[tuple[int, State]] | None:
    """A shortest path within the region to a state that satisfies `goal`; empty if `start` does."""
    parent: dict[State, tuple[State, int] | None] = {start: None}
    queue = deque([start])
    while queue:
        state = queue.popleft()
        if goal(state):
            states, steps = traced(state, parent.__getitem__)
            return [*zip(steps, states[1:], strict=True)]
        for number, after in graph[state]:
            if after in region and after not in parent:
                parent[after] = (state, number)
                queue.append(after)
    return None
