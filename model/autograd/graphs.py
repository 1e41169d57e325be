"""Distributed graphs as values: the nodes of each worker, their edges, and the pairs of send and recv between workers.

A graph is written forwards, like a program: leaves, operators, values that are sent. Backwards, a node feeds the nodes
that its inputs came from; a recv feeds the send of its pair, on the worker that the value came from.
Rule: a node feeds only nodes that were written before it, so a graph cannot have a cycle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from ..errors import UsageError
from .vocabulary import Mode, NodeKind


@dataclass(frozen=True, slots=True)
class Node:
    """A node of one worker; `feeds` lists the nodes that get its gradient, each as often as it is used."""

    worker: int
    kind: NodeKind
    label: str
    feeds: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Pair:
    """A value that went from one worker to another: its send there, and its recv here."""

    send: int
    recv: int


@dataclass(frozen=True)
class Graph:
    """The graph of one context. `calls` has, for each pair, the call of the program that it belongs to."""

    name: str
    doc: str
    nodes: tuple[Node, ...]
    pairs: tuple[Pair, ...]
    calls: tuple[str, ...]

    @cached_property
    def workers(self) -> int:
        return 1 + max(node.worker for node in self.nodes)

    @cached_property
    def root(self) -> int:
        """The node where a pass begins."""
        return next(k for k, node in enumerate(self.nodes) if node.kind is NodeKind.ROOT)

    @cached_property
    def home(self) -> int:
        """The worker of the root."""
        return self.nodes[self.root].worker

    @cached_property
    def links(self) -> tuple[tuple[int, int], ...]:
        """The ordered pairs of workers between which gradients are sent."""
        return tuple(sorted({self.ends(p) for p in range(len(self.pairs))}))

    @cached_property
    def pair_of(self) -> dict[int, int]:
        """Each send and recv -> its pair."""
        return {node: p for p, pair in enumerate(self.pairs) for node in (pair.send, pair.recv)}

    def ends(self, pair: int) -> tuple[int, int]:
        """The worker that ships the gradient of a pair, and the worker that takes it."""
        return self.nodes[self.pairs[pair].recv].worker, self.nodes[self.pairs[pair].send].worker

    def of(self, worker: int, *kinds: NodeKind) -> tuple[int, ...]:
        """The nodes of a worker, of some kinds or of all kinds."""
        return tuple(k for k, n in enumerate(self.nodes) if n.worker == worker and (not kinds or n.kind in kinds))

    def sends(self, worker: int) -> tuple[int, ...]:
        """The pairs whose gradient this worker takes."""
        return tuple(p for p, pair in enumerate(self.pairs) if self.nodes[pair.send].worker == worker)

    def recvs(self, worker: int) -> tuple[int, ...]:
        """The pairs whose gradient this worker ships."""
        return tuple(p for p, pair in enumerate(self.pairs) if self.nodes[pair.recv].worker == worker)

    def feeders(self, node: int) -> tuple[int, ...]:
        """The nodes of the same worker that feed this node, each as often as it does."""
        return tuple(k for k, n in enumerate(self.nodes) for fed in n.feeds if fed == node)

    def local_reach(self, node: int) -> frozenset[int]:
        """The nodes of its worker that a node feeds directly or indirectly, and the node itself."""
        found, todo = {node}, [node]
        while todo:
            new = set(self.nodes[todo.pop()].feeds) - found
            found |= new
            todo += new
        return frozenset(found)

    @cached_property
    def paths(self) -> tuple[int, ...]:
        """The number of paths from the root to each node, over all workers; 0: no gradient reaches it."""
        ways = [int(k == self.root) for k in range(len(self.nodes))]
        for k in reversed(range(len(self.nodes))):  # a node is written before the nodes that feed it
            sent = [self.pairs[self.pair_of[k]].send] if self.nodes[k].kind is NodeKind.RECV else []
            for fed in (*self.nodes[k].feeds, *sent):
                ways[fed] += ways[k]
        return tuple(ways)

    def counts(self, mode: Mode) -> tuple[int, ...]:
        """The gradients that each node waits for: FAST counts from the root and all sends, SMART from used sends."""

        def begins(k: int) -> bool:
            kind = self.nodes[k].kind
            return kind is NodeKind.ROOT or (kind is NodeKind.SEND and (mode is Mode.FAST or self.paths[k] > 0))

        nodes = range(len(self.nodes))
        reached = frozenset[int]().union(*(self.local_reach(k) for k in nodes if begins(k)))
        return tuple(
            int(begins(k)) if self.nodes[k].kind is NodeKind.SEND else sum(f in reached for f in self.feeders(k))
            for k in nodes
        )  # fmt: skip

    @cached_property
    def taking_part(self) -> frozenset[int]:
        """The workers that a pass reaches."""
        return frozenset(node.worker for k, node in enumerate(self.nodes) if self.paths[k])

    @cached_property
    def unused(self) -> frozenset[int]:
        """The pairs without a gradient whose taker takes part: with such a pair FAST cannot succeed."""
        return frozenset(
            p for p, pair in enumerate(self.pairs)
            if not self.paths[pair.send] and self.nodes[pair.send].worker in self.taking_part
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Value:
    """The value of a program's line: a tensor on a worker, and the node that gets its gradient."""

    worker: int
    node: int


class Program:
    """Builds a graph in the way in which a program runs forwards.

    Raises:
        UsageError: values of another worker are used but were not sent.
    """

    def __init__(self) -> None:
        self._nodes: list[Node] = []
        self._pairs: list[Pair] = []
        self._calls: list[str] = []

    def _add(self, worker: int, kind: NodeKind, label: str, feeds: Sequence[Value]) -> Value:
        for value in feeds:
            if value.worker != worker:
                label_of = self._nodes[value.node].label
                raise UsageError(f"{label} on worker {worker} uses {label_of} of worker {value.worker}: send it first")
        self._nodes.append(Node(worker, kind, label, tuple(value.node for value in feeds)))
        return Value(worker, len(self._nodes) - 1)

    def leaf(self, worker: int, label: str) -> Value:
        """A tensor that requires grad."""
        return self._add(worker, NodeKind.ACCUMULATE, label, ())

    def op(self, label: str, *inputs: Value) -> Value:
        """An operator, on the worker of its inputs."""
        return self._add(inputs[0].worker, NodeKind.OP, label, inputs)

    def send(self, to: int, call: str, *values: Value) -> Value:
        """Send values to another worker in one message."""
        number = len(self._pairs) + 1
        sent = self._add(values[0].worker, NodeKind.SEND, f"send{number}", values)
        got = self._add(to, NodeKind.RECV, f"recv{number}", ())
        self._pairs.append(Pair(sent.node, got.node))
        self._calls.append(call)
        return got

    def call(self, to: int, label: str, *values: Value, params: Sequence[Value] = ()) -> Value:
        """A remote operator: its arguments are sent there, and its result comes back."""
        home = values[0].worker
        there = self.send(to, f"{label} by worker {home} on worker {to}", *values)
        result = self.op(label, *(there for _ in values), *params)  # one edge for each output of the recv
        return self.send(home, f"{label} by worker {home} on worker {to}", result)

    def backward(self, name: str, doc: str, *roots: Value) -> Graph:
        """The graph of a pass that begins with these roots."""
        self._add(roots[0].worker, NodeKind.ROOT, "root", roots)
        return Graph(name, doc, tuple(self._nodes), tuple(self._pairs), tuple(self._calls))
