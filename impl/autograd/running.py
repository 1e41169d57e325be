"""Running the nodes of a part: whole regions where nothing waits, else node by node.

torch's engine runs a region at once if it is closed: if no node in it feeds one that still waits for another worker.
A node that does is run by itself, since an engine call that is asked for the gradient of such a node would run it, on a
part of its gradient, wherever it lies on the way to another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from .part import Begin, Item, LocalPass, Marked
from .records import Recv
from .work import Edge, LocalGraph, Node, Work

Ship = Callable[[Recv, Sequence[Any | None], bool], None]  # the last: what runs next may take long


class Engine(LocalGraph, Protocol):
    """A local graph that can be run."""

    def tolerates(self, node: Node) -> bool:
        """Whether a leaf does not mind to be given its gradient in parts: nobody's hook sees them."""

    def run(self, node: Node, gradients: Sequence[Any | None]) -> Sequence[Any | None]:
        """Run one node that is no leaf; a gradient for each of its next edges."""

    def run_region(
        self, starts: dict[Node, list[Any | None]], leaves: list[Node], retain: bool
    ) -> list[list[Any | None]]:
        """Run everything from the `starts` on, with their gradients; those of each of the leaves."""

    def is_announced(self, node: Node) -> bool:
        """Whether `keep` calls users' functions for this leaf."""

    def keep(self, into: dict[Any, Any], node: Node, gradient: Any) -> None:
        """Add an AccumulateGrad's gradient to those of its pass."""


class Runner:
    """Runs what a part has to run, on the thread that calls it: one at a time for each part."""

    def __init__(self, part: LocalPass, engine: Engine, recvs: dict[Node, Recv]) -> None:
        self._part, self._engine, self._recvs = part, engine, recvs
        self.gradients = part.gradients  # the part takes others when it fails: what still runs then changes nothing

    def begin(self, item: Item) -> Sequence[Recv] | None:
        """Take in an item; the recvs that a wave of marks has come to, if it is one."""
        if isinstance(item, Marked):
            return self._walk(item.edges)
        work = self.count()
        edges = item.edges if isinstance(item, Begin) else item.send.edges
        work.give(edges, item.gradients)
        return None

    def count(self) -> Work:
        """What each node waits for, from the roots and the sends that take part; counted once."""
        part = self._part
        if part.work is None:
            sources: list[Sequence[Edge]] = [send.edges for send in part.counted.values()]
            if part.roots is not None:
                sources.append(part.roots.edges)
            part.work = Work(self._engine, sources)
            if part.observe is not None:
                part.observe("counted", part, counts=dict(part.work.counts))
        return part.work

    def _walk(self, edges: Sequence[Edge]) -> list[Recv]:
        """The recvs that are newly reached."""
        seen, found, engine = self._part.walked, list[Recv](), self._engine
        stack = [node for node, _ in edges if node is not None]
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            if not engine.is_leaf(node):
                stack += [following for following, _ in engine.next_edges(node) if following is not None]
            elif node in self._recvs:
                found.append(self._recvs[node])
        return found

    def run(self, ship: Ship) -> None:
        """Run all that can run, and ship what recvs get."""
        work = self._part.work
        assert work is not None
        while work.ready and not self._part.is_over:
            singly, together, got = work.rest(self._engine.tolerates)
            for node in singly:
                outputs = self._engine.run(node, work.take(node))
                work.give(self._engine.next_edges(node), outputs)
            if singly:
                self._ran(singly)
            else:
                self._region(work, together, got, ship)

    def _region(self, work: Work, nodes: list[Node], got: dict[Node, int], ship: Ship) -> None:
        engine = self._engine
        starts = work.take_all(nodes)
        partly = [node for node in got if node in work.counts]
        leaves = [node for node in nodes if engine.is_leaf(node)]
        results = engine.run_region(starts, leaves + partly, self._part.retain)
        self._ran(nodes)
        found = dict(zip(leaves, results, strict=False))
        kept = [node for node in leaves if node not in self._recvs and found[node][0] is not None]
        at_once = any(map(engine.is_announced, kept))
        for node in leaves:
            if node in self._recvs:
                ship(self._recvs[node], found[node], at_once)
        for node in kept:
            engine.keep(self.gradients, node, found[node][0])
        for node, gradients in zip(partly, results[len(leaves) :], strict=True):
            for at, gradient in enumerate(gradients):
                work.put(node, at, gradient)
            work.spend(node, got[node])

    def _ran(self, nodes: list[Node]) -> None:
        if self._part.observe is not None:
            self._part.observe("ran", self._part, nodes=nodes)
