"""Passes of torch's engine over a graph of the model, and the question whether what was seen is a run of the model.

Theory of operation. Real workers run the graph forwards and backwards (`graph_programs`); each node of the model but
the root notes when it runs. `force` opens the gates of operators one after the other, in an order that the test chose.
A pass gives a sequence of *visible* steps, by the machine's one clock; gradients arrive, are counted and answered
unseen. `Monitor` follows the model: it keeps every state in which the model may be, and the next visible step must be
one from there. The outcome of backward(), a hang too, and the gradients in the context must be those of a state where
nothing is left to do.

Rule: the model alone says what may happen; nothing of a graph is written down here.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from trystate.model.autograd.backward import Backward
from trystate.model.autograd.backward.fields import Outcome
from trystate.model.autograd.graphs import Graph
from trystate.model.autograd.vocabulary import NodeKind as K
from trystate.model.checker.interpret import Interpreter
from trystate.model.language.sorts import ordinal

from ...harness.paths import explore_graph
from ..torch_store.isolated import Silence
from . import graph_programs as programs
from .workers import WAIT_S, Group

ENTERS_S = 3.0  # an operator whose inputs are there is entered within some milliseconds
QUIET_S = 0.3  # nothing was noted for so long: the nodes that a failure has left over have run
NEXT_S = 0.05

Step = tuple[str, int]  # "run" or "raise_error", and the node
Ended = tuple[Outcome, tuple[float, ...]]  # the outcome of backward(), and the gradients of the leaves


@dataclass(frozen=True, slots=True)
class Seen:
    """A pass, as it was seen from outside: `gradients` are those of leaves; RUNNING says that backward() hangs."""

    steps: tuple[tuple[Step, float | None], ...]
    outcome: Outcome
    gradients: tuple[float, ...]
    stuck_at: int | None = None  # an operator of the order that did not begin


class Passes:
    """Workers that run passes over one graph, one after the other, each in a context of its own."""

    def __init__(self, group: Group, graph: Graph) -> None:
        self._workers, self._graph = group.workers[: graph.workers], graph
        self._home = self._workers[graph.home]

    def force(self, order: Sequence[int], failing: Iterable[int] = (), seconds: float = WAIT_S) -> Seen:
        """A pass whose operators go on in this order, and the others when it has ended; a failing one raises.

        backward() hangs if it has not ended after these seconds.
        """
        for worker in self._workers:
            worker.does(programs.prepare, self._graph, tuple(failing))
        asked, stuck = self._home.begins(programs.run_pass), None
        for node in order:
            worker = self._workers[self._graph.nodes[node].worker]
            if not worker.shows(programs.has_entered, True, ENTERS_S, node):
                stuck = node
                break
            worker.does(programs.go_on, node)
            self._ran(node)
        if stuck is not None:
            self._open_all()
        said = self._home.ends(asked, seconds)
        outcome = Outcome.RUNNING if isinstance(said, Silence) else Outcome.RAISED if said else Outcome.RETURNED
        self._open_all()
        self._settle()
        context = self._home.does(programs.context_of_pass)
        found: dict[int, float] = {}
        for worker in self._workers:
            found |= worker.does(programs.gradients, context)
        notes = sorted(note for worker in self._workers for note in worker.does(programs.notes))
        notes = [note for note in notes if not self._is_in_vain(note, notes)]
        steps = (((("raise_error" if n.failed else "run"), n.node), n.gradient) for n in notes)
        leaves = (k for k, node in enumerate(self._graph.nodes) if node.kind is K.ACCUMULATE)
        gradients = tuple(found.get(k, 0.0) for k in leaves)
        if outcome is not Outcome.RUNNING:
            self._home.does(programs.end_pass)
        return Seen(tuple(steps), outcome, gradients, stuck)

    def _is_in_vain(self, note: programs.Note, notes: Sequence[programs.Note]) -> bool:
        """Had it begun when another failed on its worker? It runs on; in the model a node runs in one step."""
        home = self._graph.nodes[note.node].worker
        failed = (n.ns for n in notes if n.failed and n is not note and self._graph.nodes[n.node].worker == home)
        return any(note.began_ns < ns < note.ns for ns in failed)

    def _open_all(self) -> None:
        for node in operators(self._graph):
            self._workers[self._graph.nodes[node].worker].does(programs.go_on, node)

    def _ran(self, node: int) -> None:
        """Wait until the operator has run, and those after it up to the next gate."""
        worker = self._workers[self._graph.nodes[node].worker]
        until = time.monotonic() + WAIT_S
        while not any(note.node == node for note in worker.does(programs.notes)) and time.monotonic() < until:
            pass
        self._settle(NEXT_S)

    def _settle(self, seconds: float = QUIET_S) -> None:
        """Wait until no worker has noted anything for a while."""
        before = -1
        while before != (now := sum(len(worker.does(programs.notes)) for worker in self._workers)):
            before = now
            time.sleep(seconds)


def operators(graph: Graph) -> list[int]:
    return [k for k, node in enumerate(graph.nodes) if node.kind is K.OP]


class Monitor:
    """The model of one graph, which says whether a pass that was seen is one of its runs."""

    def __init__(self, system: Backward) -> None:
        self.system, self.graph = system, system.shape
        explored = explore_graph(system)
        graph = explored.graph
        instances = Interpreter(system).kernel.instances
        labels = [_visible(instance.transition.name, instance.indices, self.graph) for instance in instances]
        first, after, number = graph.first_after.tolist(), graph.after.tolist(), graph.number.tolist()
        self._edges = [
            [(labels[number[e]], after[e]) for e in range(first[k], first[k + 1])] for k in range(len(first) - 1)
        ]
        self._state = explored.state
        self._initial = frozenset(explored.initial)
        # The gradient of a tensor is that of all tensors of its message, to the model.
        self.counts = all(len(self.graph.nodes[pair.send].feeds) == 1 for pair in self.graph.pairs)

    def objection(self, seen: Seen) -> str:
        """The first thing that was seen and is no run of the model; empty if there is none."""
        at = self._hidden(self._initial)
        for k, (step, gradient) in enumerate(seen.steps):
            before = [state for state in at if self._agrees(state, step, gradient)]
            at = self._hidden({after for state in before for label, after in self._edges[state] if label == step})
            if not at:
                return f"no {step} with the gradient {gradient} after {[one for one, _ in seen.steps[:k]]}"
        if not any(self._is_end(state) and self._agrees_in_the_end(state, seen) for state in at):
            return f"no end with {seen.outcome}, {seen.gradients} after {[one for one, _ in seen.steps]}"
        return ""

    def _agrees(self, state: int, step: Step, gradient: float | None) -> bool:
        if gradient is None or not self.counts:
            return True
        return self._cell(state, f"gradient[{step[1]}]") == gradient

    def _agrees_in_the_end(self, state: int, seen: Seen) -> bool:
        outcome, gradients = self._end(state)
        if self.counts:
            return outcome is seen.outcome and gradients == seen.gradients
        return outcome is seen.outcome and [x > 0 for x in gradients] == [x > 0 for x in seen.gradients]

    def _cell(self, state: int, name: str) -> int:
        return int(self._state(state)[self.system.positions[name]])

    def _end(self, state: int) -> Ended:
        outcome = next(o for o in Outcome if ordinal(o) == self._cell(state, "outcome[0]"))
        raised = Outcome.RAISED if outcome is Outcome.UNUSED else outcome
        return raised, tuple(float(self._cell(state, f"grads[{k}]")) for k in sorted(self.system.leaves()))

    def _is_end(self, state: int) -> bool:
        return not self._edges[state]

    def _hidden(self, states: Iterable[int]) -> frozenset[int]:
        """These states, and those that are reached from them unseen."""
        found, todo = set(states), list(states)
        while todo:
            new = {after for label, after in self._edges[todo.pop()] if label is None} - found
            found |= new
            todo += new
        return frozenset(found)

    @cached_property
    def orders(self) -> frozenset[tuple[int, ...]]:
        """The orders in which the model runs the operators of a pass in which none fails."""
        shown = {*operators(self.graph)}
        known: dict[int, frozenset[tuple[int, ...]]] = {}

        def from_(state: int) -> frozenset[tuple[int, ...]]:
            if state not in known:
                found = set[tuple[int, ...]]() if self._edges[state] else {()}
                for label, after in self._edges[state]:
                    if label is None or label[0] == "run":
                        head = () if label is None or label[1] not in shown else (label[1],)
                        found |= {head + rest for rest in from_(after)}
                known[state] = frozenset(found)
            return known[state]

        return frozenset().union(*(from_(state) for state in self._initial))

    def ends(self, failing: Iterable[int] = ()) -> frozenset[Ended]:
        """How a pass of the model may end in which none of the operators fails but, if at all, these."""
        found, todo = set(self._initial), list(self._initial)
        allowed = set(failing)
        while todo:
            new = {
                after for label, after in self._edges[todo.pop()]
                if label is None or label[0] == "run" or label[1] in allowed
            } - found  # fmt: skip
            found |= new
            todo += new
        return frozenset(self._end(state) for state in found if self._is_end(state))


def _visible(name: str, indices: Sequence[int], graph: Graph) -> Step | None:
    """The visible part of a step; None: there is none."""
    if name == "raise_error" or (name == "run" and graph.nodes[indices[0]].kind is not K.ROOT):
        return name, indices[0]
    return None
