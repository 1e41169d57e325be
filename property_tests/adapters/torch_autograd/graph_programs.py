"""A graph of the model `Backward` as a program of torch's workers, of which each node notes that it runs.

A pair of the model is an answer: the worker of the recv fetches the values from the worker of the send, in the context
of worker A. An operator adds its inputs up, so that a gradient is the number of ways that it came, as in the model. An
operator waits at a gate until it is told to go on, or to fail: so the test chooses the order of operators.

Rule: the functions below run in the workers; notes are times of the one clock of the machine, with the node.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from trystate.model.autograd.graphs import Graph
from trystate.model.autograd.vocabulary import NodeKind as K

from .calls import dist_autograd, enter, failure, leave, rpc

NAMES = "ABCD"
HELD_S = 60.0  # at most: what is held is let go when the test says so


class Note(NamedTuple):
    """A node ran, or an operator failed. An operator began when it came to its gate."""

    ns: int
    node: int
    failed: bool
    gradient: float | None
    began_ns: int


class _Program:
    """This worker's part of the graph."""

    def __init__(self, graph: Graph, failing: Iterable[int]) -> None:
        self.graph, self.failing = graph, frozenset(failing)
        self.values: dict[int, tuple[Tensor, ...]] = {}
        self.uses: Counter[int] = Counter()
        self.sends: list[int] = []  # in the order in which they were made
        self.gates = {k: threading.Event() for k, node in enumerate(graph.nodes) if node.kind is K.OP}
        self.entered: dict[int, int] = {}  # when, in ns
        self.notes: list[Note] = []
        self.context = 0

    def note(self, node: int, *gradients: Any) -> None:
        known = [float(each) for each in gradients if isinstance(each, Tensor)]
        gradient = sum(known) if known else None
        now = time.monotonic_ns()
        self.notes.append(Note(now, node, node in self.failing, gradient, self.entered.get(node, now)))

    def input(self, node: int) -> Tensor:
        """A value of the node: of a recv, the next of its tensors."""
        values = self.values[node]
        self.uses[node] += 1
        return values[(self.uses[node] - 1) % len(values)]


_programs: list[_Program] = []  # the last is the one that runs


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
            raise TimeoutError("nobody opened the gate")
        program.note(ctx.node, gradient)
        if ctx.node in program.failing:
            raise RuntimeError("this node fails")
        return None, *([gradient] * ctx.inputs)


def prepare(graph: Graph, failing: Iterable[int]) -> None:
    """On every worker: the program that runs next."""
    _programs.append(_Program(graph, failing))


def make(node: int) -> None:
    """On the worker of a node, in the context: the node's value."""
    program, graph = _programs[-1], _programs[-1].graph
    kind, feeds = graph.nodes[node].kind, graph.nodes[node].feeds
    if kind is K.ACCUMULATE:
        leaf = torch.ones(1, requires_grad=True)
        leaf.register_hook(partial(program.note, node))  # type: ignore[no-untyped-call]
        program.values[node] = (leaf,)
    elif kind is K.OP:
        program.values[node] = (Operator.apply(node, *map(program.input, feeds)),)  # type: ignore[no-untyped-call]
    elif kind is K.RECV:
        send = graph.pairs[graph.pair_of[node]].send
        values = rpc.rpc_sync(NAMES[graph.nodes[send].worker], fetched, (send,))
        values[0].grad_fn.register_prehook(lambda gradients: program.note(node, *gradients))
        program.values[node] = values


def fetched(send: int) -> tuple[Tensor, ...]:
    """On the worker of a send: the values that leave by it."""
    program = _programs[-1]
    program.sends.append(send)
    return tuple(map(program.input, program.graph.nodes[send].feeds))


def watch_sends(context: int) -> None:
    """Note when a send runs; torch numbers messages in the order in which they leave."""
    program = _programs[-1]
    made = dist_autograd._retrieve_context(context)._send_functions()
    for send, (_, function) in zip(program.sends, sorted(made.items()), strict=True):
        function.register_prehook(lambda _, send=send: program.note(send))


def run_pass() -> str:
    """On A: the graph forwards, and a pass over it; the error of the pass, or nothing. The context stays."""
    context, graph = enter(), _programs[-1].graph
    _programs[-1].context = context
    for k, node in enumerate(graph.nodes):
        if node.worker == graph.home:
            make(k)
        elif node.kind is not K.SEND:
            rpc.rpc_sync(NAMES[node.worker], make, (k,))
    for worker in range(graph.workers):
        if worker == graph.home:
            watch_sends(context)
        else:
            rpc.rpc_sync(NAMES[worker], watch_sends, (context,))
    roots = [_programs[-1].input(feed) for feed in graph.nodes[graph.root].feeds]
    return failure(context, torch.stack(roots).sum() if len(roots) > 1 else roots[0].sum())


def has_entered(node: int) -> bool:
    return node in _programs[-1].entered


def go_on(node: int) -> None:
    _programs[-1].gates[node].set()


def notes() -> list[Note]:
    return [*_programs[-1].notes]


def context_of_pass() -> int:
    """On A."""
    return _programs[-1].context


def gradients(context: int) -> dict[int, float]:
    """Those of this worker's leaves, by node."""
    program = _programs[-1]
    found = dist_autograd.get_gradients(context)
    return {
        node: float(found[value])
        for node, (value, *_) in program.values.items()
        if program.graph.nodes[node].kind is K.ACCUMULATE and value in found
    }


def end_pass() -> None:
    """On A: out of the context."""
    leave()
