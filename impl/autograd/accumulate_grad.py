"""The accumulation of a leaf's gradient in a context, with the hooks of its node, as torch's AccumulateGrad does it.

torch's own node adds to `.grad`. A parameter has one `.grad` and can be used in many contexts at once, so that this
node is not run: the engine hands its input out after the hooks of the tensor, and this module does the rest in the
engine's order (engine.cpp, call_function):

1. hooks of the node for before (`register_prehook`), each of which may replace the gradient;
2. the sum with the gradients of earlier passes of the context (accumulate_grad.h);
3. post-accumulate-grad hooks of the tensor: they find the sum in `.grad`, and the tensor that they leave there is the
   context's;
4. hooks of the node for after (`register_hook`).

All of them run too when the gradient is not defined; there is no sum then.

Rule: no two gradients share memory, and none shares it with a tensor that a program holds. A gradient that nothing else
holds is taken over as it is, if it is laid out as torch would lay it out (grad_layout_contract.h); any other one is
copied. torch counts references to the tensor. This module counts references to the memory, so that views count too; of
a sparse gradient it counts as torch does.
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

Gradients = list[Any]  # of one node, some perhaps UNDEFINED; a gradient is taken over by taking it out of the list
Hook = Callable[..., Any]

_registering = threading.Lock()  # of two hooks that are registered at once torch may lose one


class Hooks(NamedTuple):
    """The hooks that users have registered with one node, for before and for after it; not those of tensors."""

    before: list[Hook]
    after: list[Hook]

    def around(self, gradients: Gradients, act: Callable[[Gradients], None]) -> None:
        """Act on the gradients between the calls of the hooks.

        Raises:
            TypeError, ValueError: a hook returned something else than None or gradients like those that it was given.
        """
        with torch.no_grad():  # as in the engine
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
    """Put the gradients that a hook returned in the place of the others."""
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


def _none(*_: object) -> None:
    """A hook that is registered for its handle."""


def hooks_of(node: Node, tensor: Any = None) -> Hooks | None:
    """The hooks of a node; None if it has none, and its `tensor` no post-accumulate-grad hooks.

    Python does not see the hooks of a node of torch's, but the handle of another hook refers to their dictionary. Hooks
    of C++ code (DistributedDataParallel's) are not in it.
    """
    found = []
    with _registering:
        for register in (node.register_prehook, node.register_hook):
            handle = register(_none)
            hooks = handle.hooks_dict_ref()
            del hooks[handle.id]  # handle.remove() takes longer
            found.append(list(hooks.values()))
    announced = tensor is not None and tensor._post_accumulate_grad_hooks
    return Hooks(*found) if announced or any(found) else None


def add(one: Tensor, other: Tensor) -> Tensor:
    """The sum of two gradients, of which either may be sparse; neither is changed."""
    if one.is_sparse:
        return other + one  # torch has no sparse + dense, but dense + sparse
    return one.clone().add_(other) if other.is_sparse else one + other  # the former keeps the strides


class Accumulator:
    """Accumulates the gradients of one pass on one worker."""

    def __init__(self) -> None:
        self._sparse: set[int] = set()  # addresses of the memory of its sparse gradients

    def take(self, into: dict[Any, Any], before: dict[Any, Any], tensor: Any, gradients: Gradients) -> None:
        """Take a tensor's gradient out of `gradients`.

        Args:
            into: gets the sum, by tensor; None if a hook has taken the gradient away.
            before: the sums of the context before this pass, which are not changed: the pass may fail.
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
        """The gradient in memory of its own, with the strides of its tensor."""
        if gradients[0].is_sparse:
            return self._own_sparse(gradients)
        mine: Tensor = gradients.pop().detach()  # another tensor: if the gradient lives on, something else holds it
        if type(mine) is not Tensor or mine.layout is not torch.strided:
            return mine.clone()
        strides = _contract(tensor)
        if _holders(mine) == 1 and _obeys(mine, strides):
            return mine
        if strides is None:
            return mine.clone(memory_format=torch.contiguous_format)
        return mine.new_empty_strided(mine.shape, strides).copy_(mine)

    def _own_sparse(self, gradients: Gradients) -> Tensor:
        """The same of a sparse one. Views of its parts do not count, as in torch; other gradients of the pass do."""
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
    """How many tensors have this one's memory."""
    storage = tensor.untyped_storage()  # its Python object counts too; before torch 2.12 for as long as it lives
    count: int = torch._C._storage_Use_Count(storage._cdata)
    return count - 1


def _contract(tensor: Tensor) -> tuple[int, ...] | None:
    """The strides that torch gives to the gradient of a tensor; None for those of a contiguous one."""
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
