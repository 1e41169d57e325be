"""Passes of torch's engine over a graph of the model, and the question whether what was seen is a run of the model.

Theory of operation. Real workers run the graph forwards and backwards (`graph_programs`); each node of the model but
the root notes when it runs. `force` opens the gates of operators one after the other, in an order that the test chose.
A pass gives a sequence of *visible* steps, by the machine's one clock; gradients arrive, are counted and answered
unseen. `Monitor` follows the model: it keeps every state in which the model may be, and the next visible step must be
one from there. The outcome of backward(), a hang too, and the gradients in the context must belong to a state in which
nothing is left to do.

Rule: only the model decides what may happen; nothing of a graph is written down here.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from trystate.model.autograd.backward import Backward
from trystate.model.autograd.backward.fields import Outcome
from trystate.model.autograd.graphs import Graph
from trystate.model.autograd.vocabulary import NodeKind
from trystate.model.checker.interpret import Interpreter
from trystate.model.language.sorts import ordinal

from ...harness.paths import explore_graph
from ..worlds import Task, World
from . import graph_programs as programs

WAIT_S = 60.0  # limit for each task: on an idle machine it takes well below a second
ENTERS_S = 3.0  # an operator whose inputs have come is entered within some milliseconds
QUIET_S = 0.3  # after this long without a note, no node is left that runs after a failure
NEXT_S = 0.05

Step = tuple[str, int]  # "run" or "raise_error", and the node
Ended = tuple[Outcome, tuple[float, ...]]  # the outcome of backward(), and the gradients of the leaves


@dataclass(frozen=True, slots=True)
class Seen:
    """The observations of a pass. `gradients`: of the leaves. The outcome RUNNING means that backward() hangs."""

    steps: tuple[tuple[Step, float | None], ...]
    outcome: Outcome
    gradients: tuple[float, ...]


@contextmanager
def workers(size: int, rpc_timeout_s: float = WAIT_S) -> Iterator[World]:
    """Processes A, B, ... that run torch.distributed.rpc; they are killed in the end."""
    with tempfile.TemporaryDirectory(prefix="trystate-autograd-") as folder, World(size) as world:
        world.do(programs.join, size, f"{folder}/store", rpc_timeout_s, seconds=WAIT_S)
        yield world


class Passes:
    """Runs passes over one graph, one after the other, each in its own context."""

    def __init__(self, world: World, graph: Graph) -> None:
        self._world, self._graph = world, graph

    def _do(self, task: Task, *arguments: object) -> list[Any]:
        return self._world.do(task, *arguments, seconds=2 * WAIT_S)

    def force(self, order: Sequence[int], failing: Iterable[int] = (), seconds: float = WAIT_S) -> Seen:
        """Run a pass. Release its operators in `order`, and the others after the pass.

        The operators in `failing` raise. A `backward()` that has not ended after `seconds` counts as hanging.
        """
        self._do(programs.prepare, self._graph, tuple(failing))
        self._do(programs.begin_pass)
        for node in order:
            if not self._is_soon(programs.has_entered, node, ENTERS_S):
                self._do(programs.go_on, operators(self._graph))
                break
            self._do(programs.go_on, [node])
            self._is_soon(programs.has_run, node, WAIT_S)
            self._settle(NEXT_S)  # the nodes after the operator run, up to the next gate
        outcome = self._do(programs.outcome, seconds)[self._graph.home]
        self._do(programs.go_on, operators(self._graph))
        self._settle(QUIET_S)
        found = {node: gradient for each in self._do(programs.gradients) for node, gradient in each.items()}
        notes = self._notes()
        notes = [note for note in notes if not self._is_in_vain(note, notes)]
        steps = (((("raise_error" if n.failed else "run"), n.node), n.gradient) for n in notes)
        leaves = (k for k, node in enumerate(self._graph.nodes) if node.kind is NodeKind.ACCUMULATE)
        gradients = tuple(found.get(k, 0.0) for k in leaves)
        if outcome is not Outcome.RUNNING:
            self._do(programs.end_pass)
        return Seen(tuple(steps), outcome, gradients)

    def _notes(self) -> list[programs.Note]:
        return sorted(note for notes in self._do(programs.notes) for note in notes)

    def _is_in_vain(self, note: programs.Note, notes: Sequence[programs.Note]) -> bool:
        """Had the node begun when another node failed on its worker? torch lets it end; the model has no such step."""
        home = self._graph.nodes[note.node].worker
        failed = (n.ns for n in notes if n.failed and n is not note and self._graph.nodes[n.node].worker == home)
        return any(note.began_ns < ns < note.ns for ns in failed)

    def _is_soon(self, task: Task, node: int, seconds: float) -> bool:
        """Whether the task returns True on a worker in time."""
        until = time.monotonic() + seconds
        while not (found := any(self._do(task, node))) and time.monotonic() < until:
            time.sleep(0.01)
        return found

    def _settle(self, seconds: float) -> None:
        """Wait until no worker has made a note for `seconds`."""
        before = -1
        while before != (now := len(self._notes())):
            before = now
            time.sleep(seconds)


def operators(graph: Graph) -> list[int]:
    return [k for k, node in enumerate(graph.nodes) if node.kind is NodeKind.OP]


class Monitor:
    """The model of one graph, which decides whether a pass that was seen is one of its runs."""

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
        # All tensors of a message have one gradient in the model.
        self.counts = all(len(self.graph.nodes[pair.send].feeds) == 1 for pair in self.graph.pairs)

    def objection(self, seen: Seen) -> str:
        """The first observation that no run of the model has; empty if each is in a run."""
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

    def _reached(self, states: Iterable[int], takes: Callable[[Step | None], bool]) -> frozenset[int]:
        """These states, and the states that steps with an accepted label reach. None is the label of a hidden step."""
        found, todo = set(states), list(states)
        while todo:
            new = {after for label, after in self._edges[todo.pop()] if takes(label)} - found
            found |= new
            todo += new
        return frozenset(found)

    def _hidden(self, states: Iterable[int]) -> frozenset[int]:
        """These states, and the states that hidden steps reach from them."""
        return self._reached(states, lambda label: label is None)

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
        """The possible ends of a pass of the model in which no operator fails, except perhaps `failing`."""
        allowed = set(failing)
        found = self._reached(self._initial, lambda label: not label or label[0] == "run" or label[1] in allowed)
        return frozenset(self._end(state) for state in found if self._is_end(state))


def _visible(name: str, indices: Sequence[int], graph: Graph) -> Step | None:
    """The visible part of a step, or None if it has no visible part."""
    if name == "raise_error" or (name == "run" and graph.nodes[indices[0]].kind is not NodeKind.ROOT):
        return name, indices[0]
    return None
