"""The accumulation of a leaf's gradient in a context, with the hooks of its node, like in torch's AccumulateGrad.

torch's own node adds to `.grad`. A parameter has one `.grad` and can be used in many contexts at once, so this node is
not run. The engine returns its input after the hooks of the tensor, and this module does the rest in the engine's order
(engine.cpp, call_function):

1. the node's pre-hooks (`register_prehook`), which may replace the gradient;
2. the sum with the gradients of earlier passes of the context (accumulate_grad.h);
3. post-accumulate-grad hooks of the tensor: they find the sum in `.grad`, and the tensor that they leave there becomes
   the context's gradient;
4. the node's post-hooks (`register_hook`).

The hooks also run when the gradient is not defined; then no sum is made.

Rule: no gradient shares memory with another one, or with a tensor that a program holds. A gradient that nothing else
holds is taken over without a copy if it has the layout that torch would give it (grad_layout_contract.h); any other one
is copied. torch counts references to the tensor. This module counts references to the memory, so views count too. It
counts references to a sparse gradient like torch.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .borrowed_grad import borrowed
from .dependencies import UNDEFINED, Node

Gradients = list[Any]  # the gradients of one node, some may be UNDEFINED; a gradient that is taken over leaves the list
Hook = Callable[..., Any]

_registering = threading.Lock()  # when two hooks are registered at the same time, torch may lose one


class Hooks(NamedTuple):
    """The pre-hooks and post-hooks that users have registered with one node, without the hooks of tensors."""

    before: list[Hook]
    after: list[Hook]

    def around(self, gradients: Gradients, act: Callable[[Gradients], None]) -> None:
        """Act on the gradients between the calls of the hooks.

        Raises:
            TypeError, ValueError: a hook returned neither None nor gradients of the same shapes and types.
        """
        with torch.no_grad():  # like in the engine
            for hook in self.before:
                changed = hook(_shown(gradients))
                if changed is not None:
                    _change(gradients, changed)
            seen = _shown(gradients) if self.after else ()
            act(gradients)
            for hook in self.after:
                hook((), seen)


def _shown(gradients: Gradients) -> tuple[Tensor | None, ...]:
    return tuple(None if gradient is UNDEFINED else gradient for gradient in gradients)


def _change(gradients: Gradients, changed: Any) -> None:
    """Replace the gradients by the gradients that a hook returned."""
    if not isinstance(changed, tuple) or len(changed) != len(gradients):
        raise TypeError(f"a hook of a node returned {changed!r}: return None, or a tuple of {len(gradients)} gradients")
    for at, (one, other) in enumerate(zip(_shown(gradients), changed, strict=True)):
        if other is None and one is not None:
            gradients[at] = UNDEFINED
        elif other is not None:
            if one is None or (one.shape, one.dtype) != (other.shape, other.dtype):
                was, now = ("None" if x is None else f"{x.dtype} {tuple(x.shape)}" for x in (one, other))
                raise ValueError(f"a hook of a node made {now} of a gradient {was}: keep type and shape or return None")
            gradients[at] = other


def hooks_of(node: Node, tensor: Any = None) -> Hooks | None:
    """The hooks of a node; None if neither it nor its `tensor` (post-accumulate-grad hooks) has any.

    Python has no access to the hooks of a node of torch's, but the handle of a new hook refers to their dictionary.
    Hooks of C++ code (DistributedDataParallel's) are not in it.
    """
    found = []
    with _registering:
        for register in (node.register_prehook, node.register_hook):
            handle = register(lambda *_: None)
            hooks = handle.hooks_dict_ref()
            del hooks[handle.id]  # handle.remove() takes longer
            found.append(list(hooks.values()))
    announced = tensor is not None and tensor._post_accumulate_grad_hooks
    return Hooks(*found) if announced or any(found) else None


def add(one: Tensor, other: Tensor) -> Tensor:
    """The sum of two gradients, which may be sparse; neither is changed."""
    if one.is_sparse:
        return other + one  # torch has dense + sparse, but not sparse + dense
    return one.clone().add_(other) if other.is_sparse else one + other  # the first form keeps the strides


class Accumulator:
    """Accumulates the gradients of one pass on one worker."""

    def __init__(self) -> None:
        self._sparse: set[int] = set()  # addresses of the memory of the pass's sparse gradients

    def take(self, into: dict[Any, Any], before: dict[Any, Any], tensor: Any, gradients: Gradients) -> None:
        """Take a tensor's gradient out of `gradients`.

        Args:
            into: receives the sum, by tensor; None if a hook has removed the gradient.
            before: the sums of the context before this pass; they are not changed, since the pass may fail.
        """
        there = into[tensor] if tensor in into else before.get(tensor)
        if gradients[0] is not UNDEFINED and tensor.requires_grad:
            there = into[tensor] = self._own(tensor, gradients) if there is None else add(there, gradients[0].detach())
        hooks = tensor._post_accumulate_grad_hooks
        if hooks:
            with borrowed((tensor,)):
                tensor.grad = there
                for hook in list(hooks.values()):
                    hook(tensor)
                into[tensor] = tensor.grad

    def _own(self, tensor: Tensor, gradients: Gradients) -> Tensor:
        """The gradient in its own memory, with the strides of its tensor."""
        if gradients[0].is_sparse:
            return self._own_sparse(gradients)
        mine: Tensor = gradients.pop().detach()  # a new tensor: if the old one survives, something else holds it
        if type(mine) is not Tensor or mine.layout is not torch.strided:
            return mine.clone()
        strides = _contract(tensor)
        if _holders(mine) == 1 and _obeys(mine, strides):
            return mine
        if strides is None:
            return mine.clone(memory_format=torch.contiguous_format)
        return mine.new_empty_strided(mine.shape, strides).copy_(mine)

    def _own_sparse(self, gradients: Gradients) -> Tensor:
        """A sparse gradient in its own memory. Views of its parts do not count, like in torch; the pass's others do."""
        gradient = gradients.pop()
        shape, is_coalesced, alive = gradient.shape, gradient.is_coalesced(), weakref.ref(gradient)
        parts = gradient._indices(), gradient._values()
        del gradient
        if alive() is not None or _memory(parts) & self._sparse or not all(part.is_contiguous() for part in parts):
            parts = parts[0].clone(), parts[1].clone()
        self._sparse |= _memory(parts)
        return torch.sparse_coo_tensor(*parts, shape, is_coalesced=is_coalesced, check_invariants=False)


def _memory(parts: tuple[Tensor, Tensor]) -> set[int]:
    return {part.untyped_storage().data_ptr() for part in parts}


def _holders(tensor: Tensor) -> int:
    """The number of tensors that have this tensor's memory."""
    storage = tensor.untyped_storage()  # its Python object counts too, before torch 2.12 while it lives
    count: int = torch._C._storage_Use_Count(storage._cdata)
    return count - 1


def _contract(tensor: Tensor) -> tuple[int, ...] | None:
    """The strides that torch gives to the gradient of a tensor; None for contiguous ones."""
    if tensor.layout is not torch.strided:
        return None
    if tensor.is_contiguous() or torch.ops.aten.is_non_overlapping_and_dense(tensor):
        return tensor.stride()
    return None


def _obeys(gradient: Tensor, strides: tuple[int, ...] | None) -> bool:
    if strides is None:
        return gradient.is_contiguous()
    found = gradient.stride()
    return found == strides or all(
        one == other if length != 1 else one != 0
        for length, one, other in zip(gradient.shape, found, strides, strict=True)
    )
