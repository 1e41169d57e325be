"""torch's autograd graph as the local part of a distributed one: its send and recv functions, and how it is run.

torch's engine runs the nodes: it runs their hooks, casts and un-broadcasts, and frees what is not retained.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.graph import GradientEdge, get_gradient_edge

from .borrowing import borrowed
from .errors import ContextError, GraphFreedError
from .ids import worker_of
from .records import Recv
from .work import Edge, Node

# The engine itself: `torch.autograd.grad` spends as much time again on checks that hold here by construction.
_engine_run: Any = torch.autograd.Variable._execution_engine.run_backward
_Accumulate: Any = torch._C._functions.AccumulateGrad  # type: ignore[attr-defined]


class RecvRpc(Function):
    """What received tensors are made by: a leaf of the local graph. Its gradients go back to their sender."""

    @staticmethod
    def forward(ctx: Any, origin: tuple[int, int], link: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.origin = origin
        ctx.mark_dirty(*tensors)  # the very same tensors, no views of them: they can be changed in place
        return tensors

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        context, peer = ctx.origin
        raise ContextError(
            f"a tensor that came from worker {peer} in context {context} has no local history: "
            "call trystate.impl.autograd.backward(context_id, roots) inside that context"
        )


_Recv: Any = RecvRpc._backward_cls


def attach_recv(context: int, peer: int, tensors: Sequence[Tensor]) -> Node:
    """Make tensors that have arrived require a gradient, which goes back to `peer`; the node that stands for them."""
    link = torch.empty(0, requires_grad=True)  # what makes torch record the function at all
    with torch.enable_grad():
        RecvRpc.apply((context, peer), link, *tensors)  # type: ignore[no-untyped-call]
    return tensors[0].grad_fn


def add(one: Tensor, other: Tensor) -> Tensor:
    """The sum of two gradients, of which either may be sparse; neither is changed."""
    return other + one if one.is_sparse else one + other  # torch has no sparse + dense, but dense + sparse


def edge_of(tensor: Tensor) -> Edge:
    """Where a gradient of the tensor goes."""
    if tensor.is_sparse:  # torch's function takes a view, and there is none of a sparse tensor
        with torch.enable_grad():
            node, output_nr = tensor.clone().grad_fn.next_functions[0]  # type: ignore[union-attr]
        return node, output_nr
    edge = get_gradient_edge(tensor)
    return edge.node, edge.output_nr


class TorchGraph:
    """The local graph of one context, for one pass. It implements `Engine`."""

    def __init__(self, context: int, recvs: dict[Node, Recv]) -> None:
        self._context, self._recvs = context, recvs
        self._kept: set[int] = set()  # the memory of the gradients that are kept

    def next_edges(self, node: Node) -> Sequence[Edge]:
        edges: Sequence[Edge] = node.next_functions
        return edges

    def inputs_of(self, node: Node) -> int:
        return len(node._input_metadata)

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
                f"what came from worker {peer} was used in an earlier pass, which has freed the graph there: "
                "that one needs retain_graph=True"
            )
        raise ContextError(
            f"the roots depend on what came from worker {peer} in context {context} (of worker {worker_of(context)}), "
            f"which is not {self._context}: detach() it, or run all that belongs together in one context"
        )

    def add(self, one: Tensor, other: Tensor) -> Tensor:
        return add(one, other)

    def tolerates(self, node: Node) -> bool:
        return type(node) is _Accumulate and not node.variable._backward_hooks

    def run(self, node: Node, gradients: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        there = [(GradientEdge(node, at), one) for at, one in enumerate(gradients) if one is not None]
        if not there:
            return [None] * len(node.next_functions)
        edges, defined = zip(*there, strict=True)
        stop = _Stop()
        handle = node.register_hook(stop)
        try:
            _engine_run(edges, defined, True, False, (), allow_unreachable=True, accumulate_grad=True)
        except _Stop as stopped:
            if stopped is not stop:
                raise
        finally:
            handle.remove()
        return stop.made

    def run_region(
        self, starts: dict[Node, list[Tensor | None]], leaves: list[Node], retain: bool
    ) -> list[list[Tensor | None]]:
        roots = [
            (GradientEdge(node, at), gradient)
            for node, gradients in starts.items()
            for at, gradient in enumerate(gradients)
            if gradient is not None
        ]
        wanted = [[GradientEdge(node, at) for at in range(len(node._input_metadata))] for node in leaves]
        if not roots or not leaves:
            return [[None] * len(edges) for edges in wanted]
        edges, gradients = zip(*roots, strict=True)
        results = iter(_run(edges, gradients, tuple(edge for one in wanted for edge in one), retain))
        return [[next(results) for _ in one] for one in wanted]

    def is_announced(self, node: Node) -> bool:
        return bool(node.variable._post_accumulate_grad_hooks)

    def keep(self, into: dict[Any, Any], node: Node, gradient: Tensor) -> None:
        tensor = node.variable
        into[tensor] = self._own(gradient) if tensor not in into else self.add(into[tensor], gradient)
        for hook in (tensor._post_accumulate_grad_hooks or {}).values():
            _call_hook(hook, tensor, into)

    def _own(self, gradient: Tensor) -> Tensor:
        """The gradient for one tensor alone: a copy where another's has the same memory, or where it has gaps."""
        if gradient.layout is not torch.strided:
            return gradient
        memory = gradient.untyped_storage().data_ptr()
        if memory in self._kept or not gradient.is_contiguous():
            gradient = gradient.clone(memory_format=torch.contiguous_format)
            memory = gradient.untyped_storage().data_ptr()
        self._kept.add(memory)
        return gradient


class _Stop(Exception):
    """A hook that ends the engine's run right after its node: there is no way to ask for a single one.

    It ends those of its own thread: another context may run the same node on another.
    """

    made: Sequence[Tensor | None] = ()

    def __init__(self) -> None:
        super().__init__()
        self._thread = threading.get_ident()

    def __call__(self, made: Sequence[Tensor | None], _: object) -> None:
        if threading.get_ident() == self._thread:
            self.made = made
            raise self


def _run(
    edges: tuple[GradientEdge, ...], gradients: tuple[Tensor, ...], wanted: tuple[GradientEdge, ...], retain: bool
) -> Sequence[Tensor | None]:
    results: Sequence[Tensor | None] = _engine_run(
        edges, gradients, retain, False, wanted, allow_unreachable=True, accumulate_grad=False
    )
    return results


def _call_hook(hook: Any, tensor: Tensor, into: dict[Any, Any]) -> None:
    """A post-accumulate-grad hook finds the gradient in `.grad`, and what it leaves there is the context's."""
    with borrowed((tensor,)):
        tensor.grad = into[tensor]
        hook(tensor)
        after = tensor.grad
    if after is None:
        del into[tensor]
    else:
        into[tensor] = after
