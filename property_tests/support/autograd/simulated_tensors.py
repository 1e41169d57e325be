"""Programs of real tensors under a schedule: torch's nodes, run by the runtime and counted by the model as well."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

import torch
from torch import Tensor

from trystate.impl.autograd import torch_graph
from trystate.impl.autograd.contexts import Send
from trystate.impl.autograd.dependencies import Edge, Node
from trystate.impl.autograd.local_pass import Begin, LocalPass
from trystate.impl.autograd.runner import Engine
from trystate.model.autograd import graphs as model
from trystate.model.autograd.vocabulary import Mode, NodeKind

from ...adapters.our_autograd.simulated import Workers
from .modelled import waits
from .outcomes import Outcome
from .programs import Program
from .running import Tensors

Counts = dict[tuple[int, Node], int]  # worker, node: how many gradients it waits for


class Recorded(Tensors):
    """Steps whose calls the containers record."""

    def __init__(self, program: Program, workers: Workers) -> None:
        super().__init__(program)
        self._workers = workers

    def sent(self, here: int, there: int, values: Sequence[Tensor]) -> list[Tensor]:
        once = {id(tensor): tensor for tensor in values}
        copies = {key: tensor.detach().clone() for key, tensor in once.items()}
        needing = [key for key, tensor in once.items() if tensor.requires_grad]
        number, containers = self._workers.context, self._workers.containers
        source, target = (containers[worker].heard(number, here) for worker in (here, there))
        assert source is not None and target is not None
        edges = [torch_graph.edge_of(once[key]) for key in needing]
        message = containers[here].sent(source, there, edges, "call")
        if needing:
            node = torch_graph.attach_recv(number, here, [copies[key] for key in needing])
            containers[there].received(target, here, message, node)
        return [copies[id(tensor)] for tensor in values]


class Shape:
    """torch's graph over all workers in one context, as the model's graph; sends stand for themselves."""

    def __init__(self, workers: Workers, roots: Iterable[Edge]) -> None:
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

    def counts(self, mode: Mode) -> Counts:
        """Dependency counts of the nodes on the workers that a pass comes to; each send that takes part is counted."""
        due = waits(self.graph, mode)
        return {(self._nodes[k].worker, node): due[k] for node, k in self.number.items() if k in due}


class TensorWorkers(Workers):
    """Workers that run a program of real tensors, all in this process: its nodes are torch's, run by the runtime.

    `expected` and `found`: for each pass what the model counts, and what the runtime does.
    """

    def __init__(self, program: Program, chance: Random) -> None:
        super().__init__(program.workers, chance)
        self.machine = Recorded(program, self)
        self._program = program
        self.expected: list[Counts] = []
        self.found: list[Counts] = []
        for container in self.containers:
            container.observe = self._observe

    def _observe(self, kind: str, local_pass: LocalPass, counts: dict[Node, int] | None = None, **_: Any) -> None:
        if kind == "counted" and counts is not None:
            sends = dict.fromkeys(local_pass.counted.values(), 1)
            self.found[-1] |= {(local_pass.me, node): times for node, times in (counts | sends).items()}

    def engine(self, me: int) -> Engine:
        return torch_graph.TorchGraph(self.context, self.containers[me].get(self.context).by_node)

    def run(self, mode: Mode) -> Outcome:
        """The whole program."""
        roots: list[Tensor] = []
        for each, retain in self._program.run(self.machine):
            begin = Begin([torch_graph.edge_of(root) for root in each], [torch.ones_like(root) for root in each])
            self.expected.append(Shape(self, begin.edges).counts(mode))
            self.found.append({})
            local_pass = self.begin(begin, mode, retain)
            self.until_quiet()
            if local_pass.error is not None:
                raise local_pass.error
            roots += (value.detach() for value in each)
        found = {}
        for (worker, name), parameter in self.machine.parameters.items():
            container = self.containers[worker]
            if self.context in container.contexts:
                mine = container.merge(container.get(self.context))
                if parameter in mine:
                    found[worker, name] = mine[parameter]
        return Outcome.of(found, roots, self.machine.seen)
