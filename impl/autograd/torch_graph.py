"""torch's autograd graph as the local part of a distributed graph, with its send and recv functions.

torch's engine runs the nodes: it runs their hooks, casts and un-broadcasts, and frees graphs that are not retained.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.graph import GradientEdge, get_gradient_edge

from .. import torch_release
from ..rpc.modes import outside
from .accumulate_grad import Accumulator, Hooks, add, hooks_of
from .contexts import Recv
from .dependencies import UNDEFINED, Edge, Node
from .errors import ContextError, GraphFreedError
from .ids import worker_of

# The engine itself: `torch.autograd.grad` needs twice the time, for checks that hold here by construction.
_engine_run: Any = torch.autograd.Variable._execution_engine.run_backward
_Accumulate: Any = torch._C._functions.AccumulateGrad  # type: ignore[attr-defined]


class RecvRpc(Function):
    """The function that made received tensors: a leaf of the local graph. Its gradients go back to their sender."""

    @staticmethod
    def forward(ctx: Any, origin: tuple[int, int], link: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.origin, ctx.count = origin, len(tensors)
        ctx.mark_dirty(*tensors)  # the same tensors and not views, so they can be changed in place
        return tensors

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        context, peer = ctx.origin
        raise ContextError(
            f"a tensor that came from worker {peer} in context {context} has no local history: "
            "call trystate.autograd.backward(context_id, roots) inside that context"
        )


_Recv: Any = RecvRpc._backward_cls


def _noted(register: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Register a hook of a recv, and note that the recv has hooks: to search for them takes longer."""

    def noting(node: Any, hook: Any) -> Any:
        node.has_hooks = True
        return register(node, hook)

    return noting


_Recv.has_hooks = False
_Recv.register_hook, _Recv.register_prehook = _noted(_Recv.register_hook), _noted(_Recv.register_prehook)


def attach_recv(context: int, peer: int, tensors: Sequence[Tensor]) -> Node:
    """Let received tensors require a gradient, which goes back to `peer`. Returns the node that outputs them."""

    def attach() -> None:
        link = torch.empty(0, requires_grad=True)  # without it torch would not record the function
        RecvRpc.apply((context, peer), link, *tensors)  # type: ignore[no-untyped-call]

    outside(attach)  # the thread that waited for an answer takes it in
    return tensors[0].grad_fn


def edge_of(tensor: Tensor) -> Edge:
    """The edge along which a gradient of the tensor goes."""
    if not tensor.is_sparse:
        edge = get_gradient_edge(tensor)
        return torch_release.owning((edge.node, edge.output_nr), lambda: tensor.view_as(tensor))
    with torch.enable_grad():  # torch's function makes a view, which a sparse tensor does not have
        node, output_nr = tensor.clone().grad_fn.next_functions[0]  # type: ignore[union-attr]
    return torch_release.owning((node, output_nr), tensor.clone)


class TorchGraph:
    """The local graph of one context, for one pass. It implements `Engine`."""

    def __init__(self, context: int, recvs: dict[Node, Recv]) -> None:
        self._context, self._recvs = context, recvs
        self._accumulator = Accumulator()

    def next_edges(self, node: Node) -> Sequence[Edge]:
        edges: Sequence[Edge] = node.next_functions
        return edges

    def inputs_of(self, node: Node) -> int:
        kind = type(node)
        if kind is _Recv:
            return int(node.count)
        return 1 if kind is _Accumulate else 0

    def is_leaf(self, node: Node) -> bool:
        kind = type(node)
        if kind is _Accumulate:
            return True
        if kind is not _Recv:
            return False
        if node not in self._recvs:
            self._foreign(node)
        return True

    def _foreign(self, node: Node) -> None:
        context, peer = node.origin
        if context == self._context:
            raise GraphFreedError(
                f"a tensor from worker {peer} was used in an earlier pass, which has freed the graph there: "
                "the earlier pass needs retain_graph=True"
            )
        raise ContextError(
            f"the roots depend on a tensor from worker {peer} in context {context} (of worker {worker_of(context)}), "
            f"which is not {self._context}: detach() it, or run all of its calls in one context"
        )

    def add(self, one: Tensor, other: Tensor) -> Tensor:
        return add(one, other)

    def tolerates(self, node: Node) -> bool:
        return type(node) is _Accumulate and not node.variable._backward_hooks

    def run(self, node: Node, gradients: Sequence[Any]) -> Sequence[Any]:
        if all(gradient is None for gradient in gradients):
            return [None] * len(node.next_functions)
        stop = _Stop()
        handle = node.register_hook(stop)
        try:
            _run_from({node: gradients}, True, (), True)
        except _Stop as stopped:
            if stopped is not stop:
                raise
        finally:
            handle.remove()
        return [UNDEFINED if made is None else made for made in stop.made]

    def run_region(self, starts: dict[Node, list[Any]], leaves: list[Node], retain: bool) -> list[list[Any]]:
        begun = [(node, at) for node, gradients in starts.items() for at, g in enumerate(gradients) if g is not None]
        undefined = [node for node, gradients in starts.items() if not any(map(_is_defined, gradients))]
        fed = {node for node, _ in self._led_to(starts)} if undefined else set()
        for node in undefined:
            if node in fed:  # the engine runs it with the gradients that other starts give it, even undefined ones
                del starts[node]
            elif self.is_leaf(node):
                del starts[node]
                if type(node) is _Accumulate:
                    for hook in (node.variable._backward_hooks or {}).values():
                        hook(None)  # like the engine
        counts = [self.inputs_of(node) for node in leaves]
        results: Iterator[Any] = itertools.repeat(None)
        if starts and leaves:
            wanted = zip(leaves, counts, strict=True)
            edges = tuple([GradientEdge(node, at) for node, count in wanted for at in range(count)])
            results = iter(_run_from(starts, retain, edges, False))
        found = [list(itertools.islice(results, count)) for count in counts]
        if any(gradient is None for one in found for gradient in one):
            reached = {*begun, *self._led_to(node for node, _ in begun)}  # the inputs that the run has reached
            for node, one in zip(leaves, found, strict=True):
                one[:] = [UNDEFINED if each is None and (node, at) in reached else each for at, each in enumerate(one)]
        return found

    def _led_to(self, nodes: Iterable[Node]) -> set[Edge]:
        """The inputs of nodes that get a gradient when these nodes run."""
        found, seen, stack = set[Edge](), set[Node](), list(nodes)
        while stack:
            node = stack.pop()
            if node not in seen and not self.is_leaf(node):
                edges = [edge for edge in self.next_edges(node) if edge[0] is not None]
                found.update(edges)
                stack += [following for following, _ in edges]
            seen.add(node)
        return found

    def hooks_of(self, node: Node) -> Hooks | None:
        if type(node) is _Accumulate:
            return hooks_of(node, node.variable)
        return hooks_of(node) if node.has_hooks else None

    def keep(self, into: dict[Any, Any], before: dict[Any, Any], node: Node, gradients: list[Any]) -> None:
        self._accumulator.take(into, before, node.variable, gradients)


def _run_from(starts: dict[Node, Any], retain: bool, wanted: tuple[GradientEdge, ...], accumulates: bool) -> Any:
    """Run the engine from nodes, with their gradients. Returns the gradients of the wanted edges.

    The engine does not take an undefined gradient from Python, although it runs nodes with such gradients. A node that
    only gets undefined ones is given zeros. They are removed after the hooks of its tensors, which see zeros.
    """
    handles: list[Any] = []
    try:
        edges, defined = _given(starts, handles)
        return _engine_run(edges, defined, retain, False, wanted, allow_unreachable=True, accumulate_grad=accumulates)
    finally:
        for handle in handles:
            handle.remove()


def _given(starts: dict[Node, Any], handles: list[Any]) -> tuple[tuple[GradientEdge, ...], tuple[Tensor, ...]]:
    """The edges and gradients of `starts`, which is emptied: a leaf keeps a gradient that nothing else holds."""
    edges, defined = [], []
    for node, gradients in starts.items():
        given = [(at, gradient) for at, gradient in enumerate(gradients) if _is_defined(gradient)]
        if not given:
            given = [(0, torch_release.zeros_for(node))]
            handles.append(node.register_prehook(_undefined()))
        for at, gradient in given:
            edges.append(GradientEdge(node, at))
            defined.append(gradient)
    starts.clear()
    return tuple(edges), tuple(defined)


def _is_defined(gradient: Any) -> bool:
    return gradient is not None and gradient is not UNDEFINED


def _undefined() -> Callable[[Sequence[Tensor | None]], tuple[None, ...] | None]:
    """A hook that removes a node's gradients, only on this thread: another thread may run the same node."""
    thread = threading.get_ident()
    return lambda gradients: (None,) * len(gradients) if threading.get_ident() == thread else None


class _Stop(Exception):
    """A hook that ends the engine's run right after its node, since the engine cannot run a single node.

    It only ends runs on its own thread: another context may run the same node on another thread. A hook may run the
    engine through the same node too, with `torch.autograd.grad`: that run is not ended.
    """

    made: Sequence[Tensor | None] = ()

    def __init__(self) -> None:
        super().__init__()
        self._thread = threading.get_ident()

    def __call__(self, made: Sequence[Tensor | None], _: object) -> None:
        if threading.get_ident() == self._thread and sys._getframe(1).f_code is _run_from.__code__:
            self.made = made
            raise self
