"""A graph of the model `Backward` as a program of torch's workers; each node notes that it runs.

A pair of the model is an answer: the worker of the recv fetches the values from the worker of the send, in the context
of worker A. An operator adds its inputs up, so a gradient is the number of ways that it came, as in the model. An
operator waits at a gate until the test lets it continue, or fail: so the test chooses the order of operators.

Rule: the functions below run in the workers; notes are times of the one clock of the machine, with the node.
"""

from __future__ import annotations

import resource
import threading
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import torch.distributed.autograd
import torch.distributed.rpc
from torch import Tensor

from trystate.model.autograd.backward.fields import Outcome
from trystate.model.autograd.graphs import Graph
from trystate.model.autograd.vocabulary import NodeKind

from ..torch_store.isolated import silence

dist_autograd: Any = torch.distributed.autograd  # most of the module has no types
rpc: Any = torch.distributed.rpc
NAMES = "ABCD"
HELD_S = 60.0  # limit for a wait at a gate


class Note(NamedTuple):
    """A node ran, or an operator failed. An operator began when it came to its gate."""

    ns: int
    node: int
    failed: bool
    gradient: float | None
    began_ns: int


class _Program:
    """This worker's part of the graph."""

    def __init__(self, rank: int, graph: Graph, failing: Iterable[int]) -> None:
        self.is_home = rank == graph.home
        self.graph, self.failing = graph, frozenset(failing)
        self.values: dict[int, tuple[Tensor, ...]] = {}
        self.uses: Counter[int] = Counter()
        self.sends: list[int] = []  # ordered by the time at which they were made
        self.gates = {k: threading.Event() for k, node in enumerate(graph.nodes) if node.kind is NodeKind.OP}
        self.entered: dict[int, int] = {}  # when, in ns
        self.notes: list[Note] = []
        self.context: int | None = None  # None: no node of the pass is on this worker
        self.scope, self.outcome = dist_autograd.context(), Future[Outcome]()

    def note(self, node: int, *gradients: Any) -> None:
        known = [float(each) for each in gradients if isinstance(each, Tensor)]
        gradient = sum(known) if known else None
        now = time.monotonic_ns()
        self.notes.append(Note(now, node, node in self.failing, gradient, self.entered.get(node, now)))

    def input(self, node: int) -> Tensor:
        """A value of the node. A recv has several tensors, and each call takes the next."""
        values = self.values[node]
        self.uses[node] += 1
        return values[(self.uses[node] - 1) % len(values)]


_programs: list[_Program] = []  # the last program is the one that runs


class Operator(torch.autograd.Function):
    """The sum of its inputs."""

    @staticmethod
    def forward(ctx: Any, node: int, *inputs: Tensor) -> Tensor:
        ctx.program, ctx.node, ctx.inputs = _programs[-1], node, len(inputs)
        return torch.stack(inputs).sum(0)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        program: _Program = ctx.program
        program.entered[ctx.node] = time.monotonic_ns()
        if not program.gates[ctx.node].wait(HELD_S):
            raise TimeoutError("no worker opened the gate")
        program.note(ctx.node, gradient)
        if ctx.node in program.failing:
            raise RuntimeError("this node fails")
        return None, *([gradient] * ctx.inputs)


def join(rank: int, size: int, store: str, timeout_s: float) -> None:
    """Begin RPC. Hide torch's log of the failures that a test causes, and write no core file."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    silence()
    options = rpc.TensorPipeRpcBackendOptions(
        num_worker_threads=8, rpc_timeout=timeout_s, init_method=f"file://{store}"
    )
    rpc.init_rpc(NAMES[rank], rank=rank, world_size=size, rpc_backend_options=options)


def prepare(rank: int, graph: Graph, failing: Iterable[int]) -> None:
    """Make the program that runs next."""
    _programs.append(_Program(rank, graph, failing))


def make(node: int) -> None:
    """Make the value of a node, on its worker and in the context."""
    program, graph = _programs[-1], _programs[-1].graph
    kind, feeds = graph.nodes[node].kind, graph.nodes[node].feeds
    if kind is NodeKind.ACCUMULATE:
        leaf = torch.ones(1, requires_grad=True)
        leaf.register_hook(partial(program.note, node))  # type: ignore[no-untyped-call]
        program.values[node] = (leaf,)
    elif kind is NodeKind.OP:
        program.values[node] = (Operator.apply(node, *map(program.input, feeds)),)  # type: ignore[no-untyped-call]
    elif kind is NodeKind.RECV:
        send = graph.pairs[graph.pair_of[node]].send
        values = rpc.rpc_sync(NAMES[graph.nodes[send].worker], fetched, (send,))
        values[0].grad_fn.register_prehook(lambda gradients: program.note(node, *gradients))
        program.values[node] = values


def fetched(send: int) -> tuple[Tensor, ...]:
    """The values that a send transfers, on its worker."""
    program = _programs[-1]
    program.sends.append(send)
    return tuple(map(program.input, program.graph.nodes[send].feeds))


def watch_sends(context: int) -> None:
    """Make a note when a send runs. torch numbers messages in the order in which they are sent."""
    program = _programs[-1]
    program.context = context
    made = dist_autograd._retrieve_context(context)._send_functions()
    for send, (_, function) in zip(program.sends, sorted(made.items()), strict=True):
        function.register_prehook(lambda _, send=send: program.note(send))


def begin_pass(rank: int) -> None:
    """Begin the pass in a thread of the root's worker."""
    program = _programs[-1]
    if program.is_home:
        program.outcome = ThreadPoolExecutor(1).submit(_run_pass, program)


def _run_pass(program: _Program) -> Outcome:
    """Run the graph forwards, and a pass over it. The context stays."""
    context, graph = program.scope.__enter__(), program.graph
    for k, node in enumerate(graph.nodes):
        if node.worker == graph.home:
            make(k)
        elif node.kind is not NodeKind.SEND:
            rpc.rpc_sync(NAMES[node.worker], make, (k,))
    for worker in range(graph.workers):
        if worker == graph.home:
            watch_sends(context)
        else:
            rpc.rpc_sync(NAMES[worker], watch_sends, (context,))
    roots = [program.input(feed) for feed in graph.nodes[graph.root].feeds]
    try:
        dist_autograd.backward(context, [torch.stack(roots).sum() if len(roots) > 1 else roots[0].sum()])
    except RuntimeError:
        return Outcome.RAISED
    return Outcome.RETURNED


def outcome(rank: int, seconds: float) -> Outcome | None:
    """How backward() ends; RUNNING: it has not ended in time; None: this is not the root's worker."""
    program = _programs[-1]
    try:
        return program.outcome.result(seconds) if program.is_home else None
    except TimeoutError:
        return Outcome.RUNNING


def has_entered(rank: int, node: int) -> bool:
    return node in _programs[-1].entered


def has_run(rank: int, node: int) -> bool:
    return any(note.node == node for note in _programs[-1].notes)


def go_on(rank: int, nodes: Iterable[int]) -> None:
    for node in nodes:
        _programs[-1].gates[node].set()


def notes(rank: int) -> list[Note]:
    return [*_programs[-1].notes]


def gradients(rank: int) -> dict[int, float]:
    """The gradients of this worker's leaves, by node."""
    program = _programs[-1]
    found = dist_autograd.get_gradients(program.context) if program.context is not None else {}
    return {
        node: float(found[value])
        for node, (value, *_) in program.values.items()
        if program.graph.nodes[node].kind is NodeKind.ACCUMULATE and value in found
    }


def end_pass(rank: int) -> None:
    """Leave the context."""
    if _programs[-1].is_home:
        _programs[-1].scope.__exit__(None, None, None)
