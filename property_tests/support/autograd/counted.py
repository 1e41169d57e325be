"""Dependency counts of programs of real tensors: what the model counts over torch's nodes, and what the runtime does.

Nodes of other processes cannot be told apart here, so that there kinds of nodes are compared, with their counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any

from trystate.impl.autograd.contexts import Send
from trystate.impl.autograd.dependencies import Edge, Node
from trystate.impl.autograd.local_pass import Begin, LocalPass
from trystate.impl.autograd.observer import Event
from trystate.model.autograd import graphs as model
from trystate.model.autograd.vocabulary import Mode, NodeKind

from trystate import autograd

from .modelled import waits
from .programs import Program
from .simulated_tensors import TensorWorkers

Counts = Counter[tuple[int, str, int]]  # worker, kind of node, what it waits for: how many there are
Counted = Mapping[tuple[int, Node], int]  # worker, node: what it waits for


class Shape:
    """What torch has recorded on all workers in one context, as the model's graph; sends stand for themselves."""

    def __init__(self, workers: TensorWorkers, roots: Iterable[Edge]) -> None:
        here = [(w, c.contexts.get(workers.context)) for w, c in enumerate(workers.containers)]
        contexts = [(w, context) for w, context in here if context is not None]
        self._sends = {send.message: (w, send) for w, context in contexts for send in context.sends.values()}
        self._recvs = {recv.node: recv.message for _, context in contexts for recv in context.recvs.values()}
        self.number: dict[Any, int] = {}  # of each node, after those that it leads to
        self._nodes: list[model.Node] = []
        begins = [(0, node) for node, _ in roots]
        for worker, node in [*begins, *self._sends.values()]:
            self._add(worker, node)
        self._nodes.append(model.Node(0, NodeKind.ROOT, "root", tuple(self.number[node] for _, node in begins)))
        pairs = tuple(
            model.Pair(self.number[self._sends[message][1]], self.number[node])
            for node, message in self._recvs.items()
            if node in self.number
        )
        self.graph = model.Graph("program", "a random program", tuple(self._nodes), pairs, ("call",) * len(pairs))

    def _add(self, worker: int, start: Any) -> None:
        """A node, and all that it leads to, each before what leads to it."""
        stack = [(worker, start, False)]
        while stack:
            at, node, done = stack.pop()
            if node in self.number:
                continue
            local = [] if node in self._recvs else [after for after, _ in node.next_functions if after is not None]
            if done:
                self.number[node] = len(self._nodes)
                feeds = tuple(self.number[after] for after in local)
                self._nodes.append(model.Node(at, self._kind(node), type(node).__name__, feeds))
                continue
            away = [self._sends[self._recvs[node]]] if node in self._recvs else []
            stack += [(at, node, True), *((w, send, False) for w, send in away), *((at, one, False) for one in local)]

    def _kind(self, node: Any) -> NodeKind:
        if isinstance(node, Send):
            return NodeKind.SEND
        if node in self._recvs:
            return NodeKind.RECV
        return NodeKind.OP if node.next_functions else NodeKind.ACCUMULATE

    def counts(self, mode: Mode) -> Counted:
        """What each node waits for, on the workers that a pass comes to."""
        due = waits(self.graph, mode)
        numbered = {node: k for node, k in self.number.items() if k in due and not isinstance(node, Send)}
        return {(self._nodes[k].worker, node): due[k] for node, k in numbered.items()}


class CountingWorkers(TensorWorkers):
    """Keeps what the model says of each pass, and what is counted."""

    def __init__(self, program: Program, chance: Random) -> None:
        super().__init__(program, chance)
        self.expected: list[Counted] = []
        self.found: list[dict[tuple[int, Node], int]] = []
        for container in self.containers:
            container.observe = self._observe

    def _observe(self, kind: str, local_pass: LocalPass, counts: Mapping[Node, int] | None = None, **_: Any) -> None:
        if kind == "counted" and counts is not None:
            self.found[-1] |= {(local_pass.me, node): times for node, times in counts.items()}

    def begin(self, begin: Begin, mode: Mode, retain: bool) -> LocalPass:
        self.expected.append(Shape(self, begin.edges).counts(mode))
        self.found.append({})
        return super().begin(begin, mode, retain)


def kinds(counted: Counted) -> Counts:
    return Counter((worker, type(node).__name__, times) for (worker, node), times in counted.items())


# ---- in real processes: tasks


_seen: list[tuple[int, int, Counts]] = []  # context, pass, what was counted


def watch(rank: int) -> None:
    """From now on note what this worker counts."""
    _seen.clear()
    autograd.observe(_note)


def _note(event: Event) -> None:
    if event.kind == "counted" and event.number is not None:
        mine = {(event.worker, node): times for node, times in event.detail["counts"].items()}
        _seen.append((event.context, event.number, kinds(mine)))


def noted(rank: int) -> list[tuple[int, int, Counts]]:
    autograd.observe(None)
    return list(_seen)


def by_pass(everywhere: Sequence[Sequence[tuple[int, int, Counts]]]) -> list[list[Counts]]:
    """Of each context, of each of its passes, what all workers have counted."""
    found: dict[int, dict[int, Counts]] = {}
    for context, number, counts in (each for worker in everywhere for each in worker):
        found.setdefault(context, {}).setdefault(number, Counter()).update(counts)
    return [[passes[number] for number in sorted(passes)] for _, passes in sorted(found.items())]
