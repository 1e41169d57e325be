"""The graph of a program without its numbers: nodes, edges, messages between workers, and numbers of paths."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .programs import Leaf, Machine, Program


class Kind(enum.Enum):
    PLAIN = "an operation"
    LEAF = "a parameter: its gradient is accumulated"
    SEND = "where a gradient arrives"
    RECV = "from where a gradient is shipped to the send of the same message"


Edge = tuple[int, int]  # to a node by its number, and to which of its results


@dataclass(frozen=True)
class Node:
    """`edges` lead backward, to nodes of the same worker; a send has one for each result of its recv."""

    worker: int
    kind: Kind
    edges: tuple[Edge, ...] = ()
    message: int | None = None
    name: str = ""  # of a parameter or an operation


@dataclass(frozen=True)
class Graph:
    """`roots`: for each pass what it begins at, all on worker 0; `sizes`: how many nodes there are then."""

    workers: int
    nodes: tuple[Node, ...]
    roots: tuple[tuple[Edge, ...], ...]
    sizes: tuple[int, ...]

    def send_of(self, recv: int) -> int:
        """The node to which a recv ships its gradients."""
        message = self.nodes[recv].message
        return next(k for k, n in enumerate(self.nodes) if n.kind is Kind.SEND and n.message == message)

    def recv_of(self, send: int) -> int:
        """The node that ships its gradients to a send."""
        message = self.nodes[send].message
        return next(k for k, n in enumerate(self.nodes) if n.kind is Kind.RECV and n.message == message)

    def after(self, node: int) -> tuple[int, ...]:
        """The nodes that a gradient goes to from a node, over the network as well; one entry for each edge."""
        if self.nodes[node].kind is Kind.RECV:
            return (self.send_of(node),)
        return tuple(to for to, _ in self.nodes[node].edges)

    def reached(self, number: int) -> set[int]:
        """The nodes that a pass leads to."""
        found: set[int] = set()
        waiting = [node for node, _ in self.roots[number]]
        while waiting:
            node = waiting.pop()
            if node not in found:
                found.add(node)
                waiting.extend(self.after(node))
        return found

    def unused(self, number: int) -> list[int]:
        """The sends that a pass does not lead to, on the workers that it comes to: FAST waits for them."""
        reached = self.reached(number)
        workers = {self.nodes[k].worker for k in reached}
        sends = (k for k, n in enumerate(self.nodes[: self.sizes[number]]) if n.kind is Kind.SEND)
        return [k for k in sends if k not in reached and self.nodes[k].worker in workers]

    def paths(self, number: int) -> dict[tuple[int, str], int]:
        """How many paths lead from the roots of a pass to each parameter that any leads to, by worker and name."""
        counts = Counter(self.roots[number])
        order = list(self._outermost_first(number))
        for node in order:
            mine = [counts[node, k] for k in range(self.results(node))]
            if self.nodes[node].kind is Kind.RECV:
                edges = self.nodes[self.send_of(node)].edges
            elif self.nodes[node].kind is Kind.SEND:
                continue  # its recv has done it
            else:
                edges = self.nodes[node].edges
                mine = [sum(mine)] * len(edges)
            for edge, count in zip(edges, mine, strict=True):
                counts[edge] += count
        leaves = [k for k in order if self.nodes[k].kind is Kind.LEAF and counts[k, 0]]
        return {(self.nodes[k].worker, self.nodes[k].name): counts[k, 0] for k in leaves}

    def results(self, node: int) -> int:
        """How many gradients a node takes."""
        if self.nodes[node].kind is Kind.RECV:
            return len(self.nodes[self.send_of(node)].edges)
        return 2 if self.nodes[node].name in TWO else 1

    def _outermost_first(self, number: int) -> Iterator[int]:
        """The nodes of a pass, each after all that lead to it."""
        reached = self.reached(number)
        missing = Counter(after for node in reached for after in self.after(node))
        ready = [node for node in reached if not missing[node]]
        while ready:
            node = ready.pop()
            yield node
            for after in self.after(node):
                missing[after] -= 1
                if not missing[after]:
                    ready.append(after)


class Drawing(Machine[Edge | None]):
    """Makes nodes; None is a value that needs no gradient."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self.nodes: list[Node] = []
        self._leaves: dict[tuple[int, str], int] = {}
        self._messages = 0

    def _node(self, node: Node) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1

    def leaf(self, worker: int, leaf: Leaf) -> Edge:
        key = worker, leaf.name
        if key not in self._leaves:
            self._leaves[key] = self._node(Node(worker, Kind.LEAF, name=leaf.name))
        return self._leaves[key], 0

    def do(self, worker: int, operation: str, operands: Sequence[Edge | None]) -> list[Edge | None]:
        results = range(2 if operation in TWO else 1)
        edges = () if operation == "detach" else tuple(each for each in operands if each is not None)
        if not edges:
            return [None for _ in results]
        made = self._node(Node(worker, Kind.PLAIN, edges, name=operation))
        return [(made, k) for k in results]

    def change(self, worker: int, operation: str, value: Edge | None, operand: Edge | None) -> Edge | None:
        return self.do(worker, operation, [value, operand])[0]

    def sent(self, here: int, there: int, values: Sequence[Edge | None]) -> list[Edge | None]:
        edges = tuple(dict.fromkeys(each for each in values if each is not None))  # a tensor travels once
        if not edges:
            return [None] * len(values)
        self._messages += 1
        self._node(Node(here, Kind.SEND, edges, self._messages))
        recv = self._node(Node(there, Kind.RECV, (), self._messages))
        return [None if each is None else (recv, edges.index(each)) for each in values]


TWO = ("both", "halves", "fork")  # the operations of two results


def graph(program: Program) -> Graph:
    drawing = Drawing(program)
    roots, sizes = [], []
    for each, _ in program.run(drawing):
        roots.append(tuple(edge for edge in each if edge is not None))
        sizes.append(len(drawing.nodes))
    return Graph(program.workers, tuple(drawing.nodes), tuple(roots), tuple(sizes))
