"""Programs of real tensors under a schedule: torch's nodes, run by the runtime and counted by the model as well."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from random import Random
from typing import Any

import torch
from torch import Tensor

from trystate.impl.autograd import torch_graph
from trystate.impl.autograd.container import Container
from trystate.impl.autograd.contexts import Send
from trystate.impl.autograd.dependencies import Edge, Node
from trystate.impl.autograd.effects import AnswerPeer, Asker, Effect, Request, RunPass
from trystate.impl.autograd.errors import PassError
from trystate.impl.autograd.local_pass import Begin, LocalPass
from trystate.impl.autograd.runner import Engine, Runner, Ship
from trystate.model.autograd import graphs as model
from trystate.model.autograd.vocabulary import Mode, NodeKind

from ...adapters.our_autograd.letters import DEADLINE, take
from .outcomes import Outcome
from .programs import Program
from .running import Tensors

MAX_STEPS = 200_000
REGIONS = 0.3  # the probability that a whole region runs, and not one node
Counts = dict[tuple[int, Node], int]  # worker, node: how many gradients it waits for


class Recorded(Tensors):
    """Runs a program; the containers record each call between two workers."""

    def __init__(self, program: Program, workers: TensorWorkers) -> None:
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
    """torch's graph over all workers in one context, as a graph of the model. A send of a container is a node."""

    def __init__(self, workers: TensorWorkers, roots: Iterable[Edge]) -> None:
        here = [(w, c.contexts.get(workers.context)) for w, c in enumerate(workers.containers)]
        contexts = [(w, context) for w, context in here if context is not None]
        self._sends = {send.message: (w, send) for w, context in contexts for send in context.sends.values()}
        self._recvs = {recv.node: recv.message for _, context in contexts for recv in context.recvs.values()}
        self.number: dict[Any, int] = {}  # each node's number, after the nodes that it leads to
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
        """Add a node and all nodes that it leads to. A node is added after the nodes that it feeds."""
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
        due, workers = self.graph.counts(mode), self.graph.taking_part
        counted = ((self._nodes[k].worker, node, due[k]) for node, k in self.number.items() if due[k])
        return {(worker, node): times for worker, node, times in counted if worker in workers}

    def has_unused(self) -> bool:
        """Whether a send gets no gradient on a worker that a pass comes to: then FAST cannot succeed."""
        paths, workers = self.graph.paths, self.graph.taking_part
        return any(not paths[self.number[send]] and worker in workers for worker, send in self._sends.values())


class TensorWorkers:
    """Workers that run a program of real tensors, all in this process: its nodes are torch's, run by the runtime.

    They have one context, and a schedule: any ready node may run next, or any message arrive. The driver's part is
    simulated: RPC, time and threads. `expected` and `found`: for each pass what the model counts, and what the runtime
    does.
    """

    def __init__(self, program: Program, chance: Random) -> None:
        self.chance = chance
        self.containers = [Container(me, program.workers) for me in range(program.workers)]
        self.context = self.containers[0].create().number
        self.moves: list[Callable[[], None]] = []  # any of them may be made next
        self.machine = Recorded(program, self)
        self._program = program
        self.has_unused = False
        self.expected: list[Counts] = []
        self.found: list[Counts] = []
        for container in self.containers:
            container.observe = self._observe

    def _observe(self, kind: str, local_pass: LocalPass, counts: dict[Node, int] | None = None, **_: Any) -> None:
        if kind == "counted" and counts is not None:
            sends = dict.fromkeys(local_pass.counted.values(), 1)
            self.found[-1] |= {(local_pass.me, node): times for node, times in (counts | sends).items()}

    def run(self, mode: Mode) -> Outcome:
        """The whole program."""
        roots: list[Tensor] = []
        for each, retain in self._program.run(self.machine):
            begin = Begin([torch_graph.edge_of(root) for root in each], [torch.ones_like(root) for root in each])
            shape = Shape(self, begin.edges)
            self.has_unused |= shape.has_unused()
            self.expected.append(shape.counts(mode))
            self.found.append({})
            here = self.containers[0]
            local_pass, effects = here.begin(here.get(self.context), begin, mode, retain, DEADLINE)
            self._perform(0, effects)
            self._move_until_quiet()
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

    def _move_until_quiet(self) -> None:
        for _ in range(MAX_STEPS):
            if not self.moves:
                return
            self.moves.pop(self.chance.randrange(len(self.moves)))()
        raise AssertionError(f"still busy after {MAX_STEPS} steps")

    def _perform(self, me: int, effects: Sequence[Effect]) -> None:
        """Perform effects. Deadlines never pass, and the end of the root's part is checked when no move is left."""
        for effect in effects:
            if isinstance(effect, AnswerPeer):
                effect.asker.answer(effect.body, effect.gradients)
            elif isinstance(effect, Request):
                self.moves.append(partial(self._deliver, me, effect, effect.message.pack()))
            elif isinstance(effect, RunPass):
                self.moves.append(partial(self._advance, self._run(effect.local_pass)))

    def _deliver(self, me: int, request: Request, body: bytes) -> None:
        """A request arrives; its answer is a separate move."""

        def answer(said: bytes, gradients: Sequence[Any]) -> None:
            self.moves.append(lambda: self._perform(me, request.done(said, gradients)))

        there = self.containers[request.to]
        self._perform(request.to, take(there, request.kind, body, request.gradients, Asker(me, answer)))

    def _advance(self, run: Iterator[None]) -> None:
        if next(run, True) is None:
            self.moves.append(partial(self._advance, run))

    def _run(self, local_pass: LocalPass) -> Iterator[None]:
        """Run a part node by node. Any other move may come between two nodes."""
        recvs = local_pass.context.by_node
        engine = torch_graph.TorchGraph(self.context, recvs)
        runner = Runner(local_pass, engine, recvs)
        while True:
            yield
            item, effects = local_pass.next()
            self._perform(local_pass.me, effects)
            if item is None:
                return
            try:
                reached = runner.begin(item)
                if reached is not None:
                    self._perform(local_pass.me, local_pass.spread(reached))
                    continue
                work = local_pass.dependencies
                assert work is not None
                while work.ready and not local_pass.is_over:
                    yield
                    if self.chance.random() < REGIONS:
                        runner.run(self._ship(local_pass))
                    else:
                        self._run_one(local_pass, runner, engine, self.chance.choice(list(work.ready)))
            except Exception as error:
                told = error if isinstance(error, PassError) else PassError(str(error), (local_pass.me,))
                self._perform(local_pass.me, local_pass.fail(told))

    def _run_one(self, local_pass: LocalPass, runner: Runner, engine: Engine, node: Any) -> None:
        work = local_pass.dependencies
        assert work is not None
        gradients = work.take(node)
        if not engine.is_leaf(node):
            work.give(engine.next_edges(node), engine.run(node, gradients))
            return
        (hooked,) = engine.run_region({node: gradients}, [node], local_pass.retain)
        runner.deliver({node: hooked}, self._ship(local_pass))

    def _ship(self, local_pass: LocalPass) -> Ship:
        return lambda *ships: self._perform(local_pass.me, local_pass.ship(*ships))


def has_unused(program: Program) -> bool:
    """Whether a call of the program leads to no root of a pass."""
    workers = TensorWorkers(program, Random(0))
    workers.run(Mode.SMART)
    return workers.has_unused
