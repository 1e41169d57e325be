"""Dependency counts of a pass on one worker: how many gradients each node waits for, and those that have come.

Source: seed "distributed autograd design", FAST mode, points 1 to 3; torch: dist_engine.cpp, computeDependencies. No
locks: one thread at a time.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from .errors import AutogradError

Node = Any  # hashable; nodes of torch are equal by identity
Gradient = Any
Edge = tuple[Node | None, int]  # the input number `int` of a node; None where no gradient is wanted


class Undefined(enum.Enum):
    """A gradient that came and is not defined: its node runs. None means that no gradient came.

    Some tensors of a message may not lead to the roots. In plain autograd the nodes behind these do not run.
    """

    UNDEFINED = enum.auto()


UNDEFINED = Undefined.UNDEFINED


class LocalGraph(Protocol):
    """The local part of a graph. Its leaves take gradients and give none."""

    def next_edges(self, node: Node) -> Sequence[Edge]:
        """The edges along which a node's gradients go; none for a leaf."""

    def inputs_of(self, node: Node) -> int:
        """The number of gradients that a leaf takes. For another node a graph may return a smaller number."""

    def is_leaf(self, node: Node) -> bool:
        """Whether the node only takes gradients: AccumulateGrad, or a recv."""

    def add(self, one: Gradient, other: Gradient) -> Gradient:
        """The sum; neither operand is changed."""


class DependencyCounts:
    """Counts the gradients that each node waits for, from the sources on, and adds up those that come.

    `sources` are the edges of the roots and of all sends that expect a gradient. Each node that they reach is in
    `counts`, with the number of its missing inputs, until it is taken.
    """

    def __init__(self, graph: LocalGraph, sources: Iterable[Sequence[Edge]]) -> None:
        self.graph = graph
        self.counts: dict[Node, int] = {}
        self.ready: dict[Node, None] = {}  # ordered by the time at which they became ready
        self._buffers: dict[Node, list[Gradient | None]] = {}
        counts, stack = self.counts, []
        next_edges, is_leaf = graph.next_edges, graph.is_leaf
        for edges in sources:
            for node, _ in edges:
                if node is not None:
                    if node not in counts:
                        stack.append(node)
                    counts[node] = counts.get(node, 0) + 1
        while stack:
            node = stack.pop()
            if is_leaf(node):
                continue
            for following, _ in next_edges(node):
                if following is not None:
                    if following not in counts:
                        stack.append(following)
                    counts[following] = counts.get(following, 0) + 1

    def give(self, edges: Sequence[Edge], gradients: Sequence[Gradient | None]) -> None:
        """Add gradients that arrive along edges: one for each edge, or None."""
        for (node, at), gradient in zip(edges, gradients, strict=True):
            if node is not None:
                self.put(node, at, gradient)
                self.spend(node)

    def put(self, node: Node, at: int, gradient: Gradient | None) -> None:
        """Add a gradient to an input, without counting that it came."""
        if gradient is None:
            return
        buffer = self._buffers.get(node)
        if buffer is None:
            buffer = self._buffers[node] = [None] * self.graph.inputs_of(node)
        if at >= len(buffer):
            buffer += [None] * (at + 1 - len(buffer))
        there = buffer[at]
        if there is None or there is UNDEFINED:
            buffer[at] = gradient
        elif gradient is not UNDEFINED:
            buffer[at] = self.graph.add(there, gradient)

    def spend(self, node: Node, times: int = 1) -> None:
        """Count `times` gradients that a node waits for as arrived.

        Raises:
            AutogradError: more came than were counted; a node would run twice, or with a part of its gradient.
        """
        left = self.counts.get(node, 0) - times
        if left < 0:
            raise AutogradError(f"{node}: more gradients came than dependencies were counted; the graph has changed")
        self.counts[node] = left
        if not left:
            self.ready[node] = None

    def take(self, node: Node) -> list[Gradient | None]:
        """Take a ready node's gradients; the node is never ready again."""
        del self.ready[node], self.counts[node]
        return self._buffers.pop(node, None) or [None] * self.graph.inputs_of(node)

    def take_all(self, nodes: Iterable[Node]) -> dict[Node, list[Gradient | None]]:
        """Take the gradients that have come for nodes that are ready, or that the other nodes will make ready."""
        taken = {}
        for node in nodes:
            self.ready.pop(node, None)
            del self.counts[node]
            if (buffer := self._buffers.pop(node, None)) is not None:
                taken[node] = buffer
        return taken

    def rest(self, tolerates: Callable[[Node], bool]) -> tuple[list[Node], list[Node], dict[Node, int]]:
        """The nodes that will run if no more gradient arrives: those that lead to a waiting node, and all others.

        Both lists are in an order in which the nodes may run. A leaf that `tolerates` accepts may get its gradient in
        parts. The third result is the number of gradients that each node gets from these nodes.
        """
        order, got = list(self.ready), dict[Node, int]()
        next_edges, is_leaf, counts = self.graph.next_edges, self.graph.is_leaf, self.counts
        for node in order:  # the list grows meanwhile
            if is_leaf(node):
                continue
            for following, _ in next_edges(node):
                if following is not None:
                    there = got[following] = got.get(following, 0) + 1
                    if there == counts[following]:
                        order.append(following)
        waits = {node for node, times in got.items() if times < counts[node] and not tolerates(node)}
        if not waits:
            return [], order, got
        for node in reversed(order):
            if not is_leaf(node) and any(following in waits for following, _ in next_edges(node)):
                waits.add(node)
        return [node for node in order if node in waits], [node for node in order if node not in waits], got
