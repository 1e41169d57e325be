"""Runs the nodes of a local pass: whole regions in one call of torch's engine if possible, otherwise one by one.

A call of torch's engine (`torch.autograd.grad`) is fast, and runs all nodes between its inputs and its outputs. The
engine can run a region if the region is *closed*: no node in it feeds a node that still waits for a gradient of another
worker. To end at a waiting node, a call would have to request the gradient of this node. But if the node is on the way
to another requested node, the engine also runs the node, with only a part of its gradient. So nodes that feed a waiting
node run one by one (`DependencyCounts.rest` separates them).

Only one thread at a time runs a local pass (`RunPass`), without the driver's lock. A run may take seconds, and may call
users' hooks, which may call other workers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from .contexts import Recv
from .dependencies import DependencyCounts, Edge, LocalGraph, Node
from .local_pass import Begin, Item, LocalPass, Marked

Ship = Callable[[Recv, Sequence[Any | None], bool], None]  # a recv, its gradients, and whether they go at once


class Around(Protocol):
    def around(self, gradients: list[Any], act: Callable[[list[Any]], None]) -> None:
        """Act on the gradients between the calls of hooks, which may replace them."""


class Engine(LocalGraph, Protocol):
    """A local graph that can be run."""

    def tolerates(self, node: Node) -> bool:
        """Whether a leaf may get its gradient in parts, since no hook sees them."""

    def run(self, node: Node, gradients: Sequence[Any | None]) -> Sequence[Any | None]:
        """Run one node that is not a leaf, if a gradient has come. Returns a gradient for each of its next edges."""

    def run_region(
        self, starts: dict[Node, list[Any | None]], leaves: list[Node], retain: bool
    ) -> list[list[Any | None]]:
        """Run the graph from the `starts`, with their gradients. Returns the gradients of each leaf."""

    def hooks_of(self, node: Node) -> Around | None:
        """The users' hooks that are called where a leaf gets its gradients, or None."""

    def keep(self, into: dict[Any, Any], before: dict[Any, Any], node: Node, gradients: list[Any]) -> None:
        """Take an AccumulateGrad's gradient out of `gradients`, and put its sum with `before` into `into`."""


class Runner:
    """Runs the items of one local pass, on the thread that calls it.

    Args:
        local_pass: the local pass with the items to run.
        engine: runs the nodes of the graph.
        recvs: the leaves whose gradients go to other workers.
    """

    def __init__(self, local_pass: LocalPass, engine: Engine, recvs: dict[Node, Recv]) -> None:
        self._local_pass, self._engine, self._recvs = local_pass, engine, recvs
        self.gradients = local_pass.gradients  # a pass that fails gets a new dict: running nodes fill the old one
        self._before = local_pass.context.gradients

    def begin(self, item: Item) -> Sequence[Recv] | None:
        """Take in an item. Returns the recvs that a wave of marks has newly reached; None for another item."""
        if isinstance(item, Marked):
            return self._walk(item.edges)
        work = self.count()
        edges = item.edges if isinstance(item, Begin) else item.send.edges
        work.give(edges, item.gradients)
        return None

    def count(self) -> DependencyCounts:
        """The dependency counts from the roots and the sends that take part, which are made once in a pass."""
        local_pass = self._local_pass
        if local_pass.dependencies is None:
            sources: list[Sequence[Edge]] = [send.edges for send in local_pass.counted.values()]
            if local_pass.roots is not None:
                sources.append(local_pass.roots.edges)
            local_pass.dependencies = DependencyCounts(self._engine, sources)
            if local_pass.observe is not None:
                local_pass.observe("counted", local_pass, counts=dict(local_pass.dependencies.counts))
        return local_pass.dependencies

    def _walk(self, edges: Sequence[Edge]) -> list[Recv]:
        """The recvs that are newly reached."""
        seen, found, engine = self._local_pass.visited, list[Recv](), self._engine
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
        """Run all nodes that can run, and ship the gradients of recvs."""
        work = self._local_pass.dependencies
        assert work is not None
        while work.ready and not self._local_pass.is_over:
            singly, together, got = work.rest(self._engine.tolerates)
            for node in singly:
                if self._local_pass.is_over:
                    return
                outputs = self._engine.run(node, work.take(node))
                work.give(self._engine.next_edges(node), outputs)
            if singly:
                self._ran(singly)
            else:
                self._region(work, together, got, ship)

    def _region(self, work: DependencyCounts, nodes: list[Node], got: dict[Node, int], ship: Ship) -> None:
        engine = self._engine
        starts = work.take_all(nodes)
        partly = [node for node in got if node in work.counts]
        leaves = [node for node in nodes if engine.is_leaf(node)]
        results = engine.run_region(starts, leaves + partly, self._local_pass.retain)
        self._ran(nodes)
        for node, gradients in zip(partly, results[len(leaves) :], strict=True):
            for at, gradient in enumerate(gradients):
                work.put(node, at, gradient)
            work.spend(node, got[node])
        self.deliver(dict(zip(leaves, results, strict=False)), ship)

    def deliver(self, found: dict[Node, list[Any]], ship: Ship) -> None:
        """Ship the gradients of recvs, then keep the gradients of other leaves, which may call users' functions."""
        reached = [node for node, gradients in found.items() if any(each is not None for each in gradients)]
        hooks = {node: self._engine.hooks_of(node) for node in reached}
        kept = [node for node in reached if node not in self._recvs]
        at_once = any(hooks[node] is not None for node in kept)
        for node in [node for node in found if node in self._recvs] + kept:
            if self._local_pass.is_over:
                return  # no hook of a pass that is over begins
            recv, around = self._recvs.get(node), hooks.get(node)
            if recv is None:
                act = partial(self._engine.keep, self.gradients, self._before, node)
            else:
                act = partial(_shipped, ship, recv, at_once)
            if around is None:
                act(found[node])
            else:
                around.around(found[node], act)

    def _ran(self, nodes: list[Node]) -> None:
        if self._local_pass.observe is not None:
            self._local_pass.observe("ran", self._local_pass, nodes=nodes)


def _shipped(ship: Ship, recv: Recv, at_once: bool, gradients: list[Any]) -> None:
    ship(recv, gradients, at_once)
