"""The symbolic engine: sets of states as binary decision diagrams.

It is a second opinion: an algorithm that shares neither states nor order with the explicit engine must find the same
counts, depths and verdicts. On the rendezvous the explicit engine is faster at every size measured. Diagrams win on
symmetric systems such as two-phase commit, and `auto` chooses them for a system whose states do not fit in memory.

*Theory of operation.* `encoding` gives each cell its bits, `trees` turns conditions into diagrams, and `steps` turns
each instance into an image and a preimage. The search is strictly breadth-first, so counts and shortest paths are the
same as in the other engines. For each depth, the engine keeps the set of all states seen so far, and traces a path back
through these sets, state by state. A step out of a field's range is found if a watch looks for it, and is not followed.
The caller creates one engine for one search, on one thread.

Memory and seconds limit a search; the number of states does not. Both are checked between operations on diagrams.
Within one operation CUDD itself limits memory, and nothing limits time. If the diagrams of a watch are too large, only
that watch stays unanswered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ...errors import LimitReached
from ...language.expressions import Expr, and_
from ...language.properties import Form, Within
from ...language.systems import State
from ..engine import Clock, OnProgress, Progress, memory_bounded, quiet
from ..interpret import Interpreter
from ..kernel import Binding, Exploration, Instance, Kernel, Lasso, Limits, Path, Watch, WatchKey
from .diagrams import Diagrams, Function
from .fairness import Paths, Region, Walk
from .steps import Step, make_steps
from .trees import Encoding, Trees, variable_order

RESERVE_BYTES = 16 << 20  # freed when memory runs out, for the paths to the finds: CUDD itself returns no memory
SIFT_NODES = 20_000  # on the rendezvous, one sift at this size saved a third of the time and half of the memory


class SymbolicEngine:
    """Explores a kernel on decision diagrams.

    The variables are sifted when the diagram of the states seen exceeds `sift_nodes` for the first time, and after
    each tenfold growth.

    Raises:
        UnavailableError: the package `dd` is not installed.
    """

    name = "symbolic"

    def __init__(
        self, kernel: Kernel, limits: Limits, on_progress: OnProgress = quiet, *, sift_nodes: int = SIFT_NODES
    ) -> None:
        self.kernel = kernel
        self.limits = limits
        self.on_progress = on_progress
        self.encoding = Encoding(kernel)
        self.interpreter = Interpreter(kernel.system)
        self.diagrams = Diagrams(variable_order(kernel.cells), limits.memory_bytes)
        self.name += self.diagrams.suffix
        self.sift_nodes = sift_nodes
        self.clock = Clock(limits)
        self.trees = Trees(kernel, self.diagrams, self.clock)
        self.steps: list[Step] = []
        self.seen: list[Function] = []
        self.distinct = 0
        self._reserve = bytearray()
        self._origins: dict[State, tuple[State, int]] = {}

    def __del__(self) -> None:
        # Otherwise the collector might free the manager before its diagrams, if they are in a reference cycle.
        for name in ("steps", "seen"):
            self.__dict__.get(name, []).clear()
        if "trees" in self.__dict__:
            self.trees.clear()

    def explore(self, watches: Sequence[Watch]) -> Exploration:
        self.clock.restart(self.limits)
        stopped = ""
        edges = 0
        try:
            with self._bounded():
                self._reserve = bytearray(RESERVE_BYTES)
                self._search()
        except LimitReached as limit:
            stopped = str(limit)
            self.diagrams.grow_no_more()
        self._reserve = bytearray()
        seconds = self.clock.seconds
        self.clock.restart(self.limits)  # also after a limit, the watches are searched in the states seen
        try:
            with self._bounded():
                edges = sum(self.diagrams.count(self.seen[-1] & step.taken) for step in self.steps if self.seen)
        except LimitReached as limit:
            stopped = stopped or str(limit)
        found, unanswered = self._find(watches)
        per_state = self.diagrams.memory_bytes / max(1, self.distinct)
        depth = max(0, len(self.seen) - 1)
        seconds += self.clock.seconds
        return Exploration(self.name, self.distinct, edges, depth, seconds, per_state, found, stopped, unanswered)

    def lasso(self, premise: Expr, goal: Expr, binding: Binding, form: Form = Form.LEADS_TO) -> Lasso | None:
        """Like `Engine.lasso`; each lasso has the full limit of seconds."""
        self.clock.restart(self.limits)
        with self._bounded():
            return self._lasso(self._holds(premise, binding), self._holds(goal, binding), form)

    def late(self, premise: Expr, goal: Expr, binding: Binding, form: Form, within: Within) -> Path | None:
        self.clock.restart(self.limits)
        with self._bounded():
            starts = self._holds(premise, binding) & (self.seen[0] if form is Form.EVENTUALLY else self.seen[-1])
            avoid, counted = self.seen[-1] & ~self._holds(goal, binding), self.kernel.counted(within)
            paths, rounds = Paths(self.steps, avoid, self.diagrams, self.clock.check), [avoid]
            for _ in range(within.times):
                rounds.append(paths.backward(paths.before(rounds[-1], avoid, counted), avoid))
            walk = self._walk(paths, starts & rounds[-1])
            if walk is None:
                return None
            walk.delay(avoid, counted, rounds)
            return walk.path

    def occurs(self, expr: Expr, binding: Binding) -> bool:
        with self._bounded():
            return (self.seen[-1] & self._holds(expr, binding)) != self.diagrams.false

    @contextmanager
    def _bounded(self) -> Iterator[None]:
        """Turn failures of CUDD and of malloc into LimitReached."""
        with memory_bounded(self.limits):
            try:
                yield
            except (RuntimeError, ValueError) as error:
                self.diagrams.refused(error)

    def _search(self) -> None:
        d = self.diagrams
        self.seen = [self._initial()]
        self._progress()
        self.steps = []
        for step in make_steps(self.kernel, self.trees):
            self.steps.append(step)
            self.clock.check()
        frontier = self.seen[0]
        while True:
            seen = self.seen[-1]
            source = min(frontier, seen, key=lambda u: u.dag_size)  # both give the same new states
            frontier = d.union(self._images(source)) & ~seen
            if frontier == d.false:
                return
            self.seen.append(seen | frontier)
            self._progress()
            self._sift()

    def _sift(self) -> None:
        if self.seen[-1].dag_size > self.sift_nodes:
            self.diagrams.sift()
            self.sift_nodes *= 10

    def _images(self, states: Function) -> Iterator[Function]:
        for step in self.steps:
            self.clock.check()
            yield step.image(states)

    def _initial(self) -> Function:
        out = self._holds(self.kernel.system.initial_condition, {})
        for cell in self.kernel.cells:
            read = self.trees.vector(self.kernel.cell_read(*cell.key))
            out = out & self.diagrams.union(self.trees.equal(read, self.trees.constant(v)) for v in cell.initial)
        return out

    def _progress(self) -> None:
        self.distinct = self.diagrams.count(self.seen[-1])
        self.on_progress(Progress(self.name, "exploring", self.distinct, len(self.seen) - 1, self.clock.seconds))
        self.clock.check(self.diagrams.memory_bytes)

    def _holds(self, expr: Expr, binding: Binding) -> Function:
        return self.trees.condition(self.kernel.ground(expr, binding))

    def _find(self, watches: Sequence[Watch]) -> tuple[dict[WatchKey, Path], dict[WatchKey, str]]:
        """A shortest path for each key that occurs, and for each unanswered key the reason.

        Most watches never occur, which one test on the set of all states shows. A watch that is too large does not
        affect the others.
        """
        taken: dict[Instance | None, Function] = {step.instance: step.taken for step in self.steps}
        nearest: dict[WatchKey, tuple[int, Watch, Function]] = {}
        found: dict[WatchKey, Path] = {}
        unanswered: dict[WatchKey, str] = {}
        for watch in watches if self.seen else ():
            try:
                with self._bounded():
                    self._look(watch, taken, nearest)
            except LimitReached as limit:
                unanswered[watch.key] = str(limit)
        for key, (depth, watch, states) in nearest.items():
            try:
                with self._bounded():
                    found[key] = self._watched(depth, watch, states)
            except LimitReached as limit:
                unanswered[key] = str(limit)
        return found, unanswered

    def _look(
        self, watch: Watch, taken: dict[Instance | None, Function],
        nearest: dict[WatchKey, tuple[int, Watch, Function]],
    ) -> None:  # fmt: skip
        """Record where a watch occurs, if that is nearer than the best find of its key so far."""
        false = self.diagrams.false
        best = nearest.get(watch.key)
        states = self.seen[-1] if best is None else self.seen[best[0] - 1] if best[0] else false
        if watch.instance is not None:
            states = states & taken.get(watch.instance, false)
        for i in watch.idle:  # a search that was stopped may not have built all steps
            here = taken[i] if i in taken else self._holds(and_(self.kernel.guard(i), self.kernel.changes(i)), {})
            states = states & ~here
        if states != false:
            states = states & self._holds(watch.expr, watch.binding)
        if states != false:
            depth = self._depth(states)
            nearest[watch.key] = depth, watch, states & self.seen[depth]

    def _watched(self, depth: int, watch: Watch, states: Function) -> Path:
        path = self._path(self._pick(states), depth)
        if watch.instance is None:
            return path
        after = self.interpreter.apply(watch.instance, path.states[-1])
        return Path((*path.states, after), (*path.steps, watch.instance.number))

    def _depth(self, states: Function) -> int:
        """The least depth at which one of these states was seen."""
        low, high = 0, len(self.seen) - 1
        while low < high:
            middle = (low + high) // 2
            if (self.seen[middle] & states) != self.diagrams.false:
                high = middle
            else:
                low = middle + 1
        return low

    def _pick(self, states: Function) -> State:
        return self.encoding.decode(self.diagrams.pick(states, self.encoding.bits))

    def _path(self, state: State, depth: int) -> Path:
        """A shortest path to a state that was first seen at this depth."""
        states, steps = [state], list[int]()
        for k in range(depth - 1, -1, -1):
            origin = self._origins.get(states[-1])
            if origin is None:
                origin = self._origins[states[-1]] = self._origin(states[-1], self.seen[k])
            states.append(origin[0])
            steps.append(origin[1])
        return Path(tuple(reversed(states)), tuple(reversed(steps)))

    def _origin(self, state: State, within: Function) -> tuple[State, int]:
        values = self.encoding.assign(state)
        for step in self.steps:
            before = step.before(values, within)
            if before != self.diagrams.false:
                written = [bit for bit in self.encoding.bits if bit in step.fixed or bit in step.assigned]
                origin = values | self.diagrams.pick(before, written)
                return self.encoding.decode(origin), step.instance.number
        raise AssertionError(f"{self.kernel.system.decode(state)} was reached, but from nowhere")

    def _lasso(self, premise: Function, goal: Function, form: Form) -> Lasso | None:
        avoid, again = self.seen[-1] & ~goal, None
        if form is Form.STABLE:
            avoid, again = self.seen[-1], avoid
        elif form is Form.EVENTUALLY:
            premise = premise & self.seen[0]
        if (avoid & premise) == self.diagrams.false:
            return None
        region = Region(self.steps, avoid, self.diagrams, self.clock.check, again)
        walk = self._walk(region, region.states & premise)
        if walk is None:
            return None
        loop = walk.close_loop(region, again)
        return Lasso(walk.path, loop)

    def _walk(self, paths: Paths, starts: Function) -> Walk | None:
        """A walk that begins with a shortest path to one of these states; None if there is none."""
        if starts == self.diagrams.false:
            return None
        depth = self._depth(starts)
        stem = self._path(self._pick(starts & self.seen[depth]), depth)
        return Walk(paths, self.encoding, self.interpreter, stem)
