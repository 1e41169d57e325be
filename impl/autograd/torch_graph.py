"""torch's autograd graph as the local part of a distributed one: its send and recv functions, and how it is run.

torch's engine runs the nodes: it runs their hooks, casts and un-broadcasts, and frees what is not retained.
"""

from __future__ import annotations

import itertools
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

# The engine itself: `torch.autograd.grad` spends as much time again on checks that hold here by construction.
_engine_run: Any = torch.autograd.Variable._execution_engine.run_backward
_Accumulate: Any = torch._C._functions.AccumulateGrad  # type: ignore[attr-defined]


class RecvRpc(Function):
    """The function that made received tensors: a leaf of the local graph. Its gradients go back to their sender."""

    @staticmethod
    def forward(ctx: Any, origin: tuple[int, int], link: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.origin, ctx.count = origin, len(tensors)
        ctx.mark_dirty(*tensors)  # the very same tensors, no views of them: they can be changed in place
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
    """Registers hooks of a recv, and notes that it has some: to look for them takes longer."""

    def noting(node: Any, hook: Any) -> Any:
        node.has_hooks = True
        return register(node, hook)

    return noting


_Recv.has_hooks = False
_Recv.register_hook, _Recv.register_prehook = _noted(_Recv.register_hook), _noted(_Recv.register_prehook)


def attach_recv(context: int, peer: int, tensors: Sequence[Tensor]) -> Node:
    """Make tensors that have arrived require a gradient, which goes back to `peer`; the node that stands for them."""
    with outside():  # an answer is taken in by the thread that waited for it
        link = torch.empty(0, requires_grad=True)  # without it torch would not record the function at all
        RecvRpc.apply((context, peer), link, *tensors)  # type: ignore[no-untyped-call]
    return tensors[0].grad_fn


def edge_of(tensor: Tensor) -> Edge:
    """Where a gradient of the tensor goes."""
    if not tensor.is_sparse:
        edge = get_gradient_edge(tensor)
        return torch_release.owning((edge.node, edge.output_nr), lambda: tensor.view_as(tensor))
    with torch.enable_grad():  # torch's function takes a view, and there is none of a sparse tensor
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

    def run(self, node: Node, gradients: Sequence[Any]) -> Sequence[Any]:
        if not _any(gradients):
            return [None] * len(node.next_functions)
        stop = _Stop()
        handle = node.register_hook(stop)
        try:
            with _Roots({node: gradients}) as roots:
                _engine_run(*roots.given(), True, False, (), allow_unreachable=True, accumulate_grad=True)
        except _Stop as stopped:
            if stopped is not stop:
                raise
        finally:
            handle.remove()
        return [UNDEFINED if made is None else made for made in stop.made]

    def run_region(self, starts: dict[Node, list[Any]], leaves: list[Node], retain: bool) -> list[list[Any]]:
        begun = {node: [gradient is not None for gradient in gradients] for node, gradients in starts.items()}
        undefined = [node for node, gradients in starts.items() if not any(map(_is_defined, gradients))]
        fed = {node for node, _ in self._led_to(starts)} if undefined else set()
        for node in undefined:
            if node in fed:  # the engine runs it on what other starts give it, be that undefined too
                del starts[node]
            elif self.is_leaf(node):
                del starts[node]
                if type(node) is _Accumulate:
                    for hook in (node.variable._backward_hooks or {}).values():
                        hook(None)  # as the engine calls it
        wanted = [[GradientEdge(node, at) for at in range(self.inputs_of(node))] for node in leaves]
        results: Iterator[Any] = itertools.repeat(None)
        if starts and leaves:
            edges = tuple(edge for one in wanted for edge in one)
            with _Roots(starts) as roots:
                results = iter(
                    _engine_run(*roots.given(), retain, False, edges, allow_unreachable=True, accumulate_grad=False)
                )
        found = [[next(results) for _ in one] for one in wanted]
        if any(gradient is None for one in found for gradient in one):
            reached = self._reached(begun)
            for node, one in zip(leaves, found, strict=True):
                one[:] = [UNDEFINED if each is None and (node, at) in reached else each for at, each in enumerate(one)]
        return found

    def _reached(self, begun: dict[Node, list[bool]]) -> set[Edge]:
        """The inputs of nodes to which a run from these inputs comes."""
        found = {(node, at) for node, inputs in begun.items() for at, has_come in enumerate(inputs) if has_come}
        return found | self._led_to(node for node, _ in found)

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


class _Roots:
    """The roots of an engine's run: nodes, and gradients for them.

    The engine takes none that is not defined from Python, though it runs nodes on such ones. A node that gets no other
    is given zeros, which are taken away from it after the hooks of its tensors: those see zeros.
    """

    def __init__(self, starts: dict[Node, Any]) -> None:
        self._starts = starts
        self._handles: list[Any] = []

    def __enter__(self) -> _Roots:
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()

    def given(self) -> tuple[tuple[GradientEdge, ...], tuple[Tensor, ...]]:
        """Edges and gradients, once: they are taken out of what was said, since a leaf keeps what nothing else has."""
        edges, defined = [], []
        for node, gradients in self._starts.items():
            if not any(map(_is_defined, gradients)):
                gradients = [torch_release.zeros_for(node)]
                self._handles.append(node.register_prehook(_Undefine()))
            for at, gradient in enumerate(gradients):
                if _is_defined(gradient):
                    edges.append(GradientEdge(node, at))
                    defined.append(gradient)
        self._starts.clear()
        return tuple(edges), tuple(defined)


def _is_defined(gradient: Any) -> bool:
    return gradient is not None and gradient is not UNDEFINED


def _any(gradients: Sequence[Any]) -> bool:
    return any(gradient is not None for gradient in gradients)


class _Undefine:
    """A hook that takes a node's gradients away. It does so to its own thread: another may run the same node."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()

    def __call__(self, gradients: Sequence[Tensor | None]) -> tuple[None, ...] | None:
        return (None,) * len(gradients) if threading.get_ident() == self._thread else None


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
