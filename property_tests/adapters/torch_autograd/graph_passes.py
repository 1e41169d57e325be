"""Passes of torch's engine over a graph of the model.

Theory of operation. Real workers run the graph forwards and backwards (`graph_programs`); each node of the model but
the root notes when it runs. `force` opens the gates of operators one after the other, in an order that the test chose.
A pass gives a sequence of *visible* steps, by the machine's one clock; gradients arrive, are counted and answered
unseen.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from trystate.model.autograd.backward.fields import Outcome
from trystate.model.autograd.graphs import Graph
from trystate.model.autograd.vocabulary import NodeKind

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
