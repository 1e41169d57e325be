"""Passes over graphs of whole numbers: along each edge goes the sum of what came.

So the gradient of a parameter is the number of paths from the roots to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from trystate.impl.autograd.container import Container
from trystate.impl.autograd.contexts import Context
from trystate.impl.autograd.local_pass import Begin, LocalPass
from trystate.impl.autograd.runner import Engine
from trystate.model.autograd.vocabulary import Mode

from ...adapters.our_autograd.simulated import LIKELY, Faults, Workers
from .graphs import Edge, Graph, Kind


class Announced:
    """Hooks that change nothing."""

    def around(self, gradients: list[Any], act: Callable[[list[Any]], None]) -> None:
        act(gradients)


class PathCounts:
    """A worker's part of a graph: integers, and every node adds up what it gets. It implements `Engine`."""

    def __init__(self, graph: Graph, raises: Callable[[int], bool]) -> None:
        self._graph, self._raises = graph, raises
        self.ran: Counter[int] = Counter()

    def next_edges(self, node: int) -> Sequence[Edge]:
        return self._graph.nodes[node].edges

    def inputs_of(self, node: int) -> int:
        return self._graph.results(node)

    def is_leaf(self, node: int) -> bool:
        return self._graph.nodes[node].kind in (Kind.LEAF, Kind.RECV)

    def add(self, one: int, other: int) -> int:
        return one + other

    def tolerates(self, node: int) -> bool:
        return False

    def run(self, node: int, gradients: Sequence[int | None]) -> Sequence[int | None]:
        self.ran[node] += 1
        if self._raises(node):
            raise ArithmeticError(f"node {node}")
        there = [each for each in gradients if each is not None]
        return [sum(there) if there else None] * len(self.next_edges(node))

    def run_region(self, starts: Any, leaves: list[int], retain: bool) -> list[list[int | None]]:
        """All that they lead to, one node after another."""
        given = {node: list(gradients) for node, gradients in starts.items()}
        reached, stack = set[int](), list(starts)
        while stack:
            node = stack.pop()
            if node not in reached:
                reached.add(node)
                stack += [] if self.is_leaf(node) else [to for to, _ in self.next_edges(node)]
        waits = Counter(to for node in reached if not self.is_leaf(node) for to, _ in self.next_edges(node))
        ready = [node for node in reached if not waits[node]]
        while ready:
            node = ready.pop()
            made = [] if self.is_leaf(node) else self.run(node, given.get(node, [None]))
            for (to, at), one in zip(self.next_edges(node), made, strict=True):
                into = given.setdefault(to, [None] * self.inputs_of(to))
                into[at] = one if into[at] is None else into[at] if one is None else into[at] + one
                waits[to] -= 1
                if not waits[to]:
                    ready.append(to)
        return [given.get(node, [None] * self.inputs_of(node)) for node in leaves]

    def hooks_of(self, node: int) -> Announced | None:
        return None if node % 2 else Announced()

    def keep(self, into: dict[Any, Any], before: dict[Any, Any], node: int, gradients: list[Any]) -> None:
        self.ran[node] += 1
        if gradients[0] is not None:
            into[node] = into.get(node, before.get(node, 0)) + gradients[0]


class World(Workers):
    """Workers over a graph of integers."""

    def __init__(
        self, graph: Graph, chance: Random, faults: Faults | None = None, make: Callable[..., Container] = Container
    ) -> None:
        super().__init__(graph.workers, chance, faults, make)
        self.graph = graph
        self.engines = [PathCounts(graph, self._raises) for _ in self.containers]
        self.messages: dict[int, int] = {}  # of the graph, to those of the containers
        self.size = 0

    def engine(self, me: int) -> Engine:
        return self.engines[me]

    def _raises(self, node: int) -> bool:
        if self.left["raises"] and self.chance.random() < LIKELY:
            self.left["raises"] -= 1
            return True
        return False

    def forward(self, until: int) -> None:
        """Do the calls that make the nodes up to this one."""
        made, self.size = range(self.size, until), until
        for at in made:
            node = self.graph.nodes[at]
            here, context = self.containers[node.worker], self._context_at(node.worker)
            if node.kind is Kind.SEND:
                assert node.message is not None
                peer = self.graph.nodes[self.graph.recv_of(at)].worker
                self.messages[node.message] = here.sent(context, peer, node.edges, f"call {node.message}")
                self.containers[peer].heard(self.context, here.me)
            elif node.kind is Kind.RECV:
                assert node.message is not None
                sender = self.graph.nodes[self.graph.send_of(at)].worker
                here.received(context, sender, self.messages[node.message], at)

    def _context_at(self, worker: int) -> Context:
        """The context, which came to a worker by a call without gradients if nothing else has brought it."""
        if self.context not in self.containers[worker].contexts:
            self.containers[0].get(self.context).known.add(worker)
        found = self.containers[worker].heard(self.context, 0)
        assert found is not None
        return found

    def backward(self, number: int, mode: Mode, retain: bool = True) -> LocalPass:
        """Begin a pass at worker 0; it goes on as `step` is called."""
        roots = self.graph.roots[number]
        return self.begin(Begin(roots, [1] * len(roots)), mode, retain)

    def gradients(self) -> dict[tuple[int, str], int]:
        """The gradients of the parameters of all living workers in the context."""
        found = {}
        for me, container in enumerate(self.containers):
            if me not in self.dead and self.context in container.contexts:
                for node, gradient in container.merge(container.get(self.context)).items():
                    found[me, self.graph.nodes[node].name] = gradient
        return found

    def expected(self, number: int) -> dict[tuple[int, str], int]:
        """The gradients that a pass gives them; a parameter that no path leads to gets no gradient, not one of 0."""
        paths = self.graph.paths(number)
        return {key: count for key, count in paths.items() if count and key[0] not in self.dead}
