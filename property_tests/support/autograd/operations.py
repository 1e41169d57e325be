"""The parts of programs: operations on small tensors, each with its operands, and hooks.

Rule: values stay small, since an operation multiplies two values at most. So sums in another order are close.
"""

from __future__ import annotations

import enum
import itertools
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.autograd.graph import saved_tensors_hooks

SIDE = 4  # side of a square
SQUARE = (SIDE, SIDE)
INDICES = (1, 2, 2, 3)  # the rows that an embedding looks up
ROWS = 6  # rows of an embedding


Gradient = Callable[[Tensor], Tensor | None]  # the gradient of the gradient that came


class Feature(enum.Enum):
    """A feature of programs beyond arithmetic on squares of float64, calls and shared parameters."""

    BROADCAST = "operands of different shapes"
    DTYPES = "float32, float64 and bfloat16 mixed"
    COMPLEX = "complex numbers"
    IN_PLACE = "operations in place, on views and on results of calls"
    HOOKS = "hooks on tensors"
    CLAMPS = "hooks that are not linear: right only on a complete gradient"
    AFTER_HOOKS = "hooks on parameters, for after their gradient is accumulated"
    NODE_HOOKS = "hooks on the nodes that accumulate, for before and after"
    SEVERAL_RESULTS = "functions of several results, not all of which are used"
    CUSTOM = "torch.autograd.Function"
    CHECKPOINT = "what is made again in the backward pass, as by torch.utils.checkpoint"
    EMBEDDING = "embedding"
    SPARSE = "embedding with sparse gradients"
    DETACHED = "values that need no gradient"
    STRIDES = "parameters, values and gradients that are not contiguous, overlap or have gaps"
    UNDEFINED = "gradients that are not defined, and functions that run on them"
    KEPT = "gradients that something else holds"
    ASYNC = "calls that are not waited for at once"
    REMOTE = "results of calls that stay where they are, and are fetched"
    SELF_CALLS = "a worker that calls itself"
    SEVERAL_ROOTS = "several roots"
    SEVERAL_PASSES = "several passes over a graph that is retained"
    UNUSED = "results of calls that lead to no root, calls that raise"


class Cube(torch.autograd.Function):
    """One result that needs a gradient, and one that has none."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, k: float) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(x)
        sign = x.detach().sign() * k
        ctx.mark_non_differentiable(sign)
        return x**3, sign

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return grad * 3 * x * x, None


class Fork(torch.autograd.Function):
    """Two results. Its backward is run even if one of them gets no gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx: Any, first: Tensor | None, second: Tensor | None) -> Tensor | None:
        parts = [g * k for g, k in ((first, 2), (second, 3)) if g is not None]
        return sum(parts[1:], parts[0]) if parts else None


class Gives(torch.autograd.Function):
    """The identity. A function changes the gradient that arrives; an undefined one is zeros for the function."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, function: Gradient) -> Tensor:
        ctx.function = function
        return x * 1

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, None]:
        return ctx.function(gradient), None


class Nothing(torch.autograd.Function):
    """The sum of its operands. The first operand gets no gradient."""

    @staticmethod
    def forward(ctx: Any, *operands: Tensor) -> Tensor:
        return sum(operands[1:], operands[0] * 1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return tuple(grad * 0.5 if number else None for number, needed in enumerate(ctx.needs_input_grad))


def hold(gradient: Tensor) -> Tensor:
    """Keep the gradient that is passed on."""
    KEPT.append(gradient)
    return gradient


KEPT: deque[Tensor] = deque(maxlen=64)  # more than programs that run at once can keep


def turned(x: Tensor) -> Tensor:
    """The same tensor, with the first dimension innermost in memory."""
    reversed_ = tuple(reversed(range(x.ndim)))
    return x.permute(reversed_).contiguous().permute(reversed_)


def spread(x: Tensor) -> Tensor:
    """The mean of the tensor in each place."""
    return x.mean().expand(x.shape)


def with_gaps(x: Tensor) -> Tensor:
    return torch.stack([x, x], -1)[..., 0]


def windows(x: Tensor) -> Tensor:
    """Rows that overlap."""
    return (x * 1).contiguous().as_strided((SIDE, SIDE), (3, 1))


def last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)


LAYOUTS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "": torch.Tensor.contiguous,
    "turned": turned,
    "spread": lambda x: x[:1].expand(x.shape) if x.ndim else x,
    "gaps": with_gaps,
    "channels_last": lambda x: last(x) if x.ndim == 4 else turned(x),
}


def applied(function: type[torch.autograd.Function], *arguments: object) -> Any:
    return function.apply(*arguments)  # type: ignore[no-untyped-call]


def gives(x: Tensor, function: Gradient) -> Tensor:
    """The same tensor; `function` changes its gradient."""
    return applied(Gives, x, function)  # type: ignore[no-any-return]


def real(x: Tensor) -> Tensor:
    return torch.view_as_real(x).sum(-1) if x.is_complex() else x


def mix(first: Tensor, *rest: Tensor) -> Tensor:
    """The sum of the first value and a small part of each other value."""
    return first + sum(real(x).mean().to(first.dtype) * (0.5 + k) for k, x in enumerate(rest)) / 8


def root(*values: Tensor) -> Tensor:
    """A weighted sum of the values; each has another weight."""
    total: Any = sum(real(x).mean() * (1 + 0.5 * k) for k, x in enumerate(values))
    return total  # type: ignore[no-any-return]


def in_views(x: Tensor, y: Tensor) -> Tensor:
    fresh = x * 1
    fresh[:, 0].mul_(2)
    fresh.add_(y.to(x.dtype))
    return fresh.t()[1:3]


def again(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Compute the values that the function saves for its backward a second time there, as torch.utils.checkpoint does.

    torch.utils.checkpoint itself imports dynamo, which takes seconds in each process.
    """
    numbers = itertools.count()

    def made_again(number: int) -> Tensor:
        saved: list[Tensor] = []
        with torch.enable_grad(), saved_tensors_hooks(lambda t: saved.append(t.detach()), lambda _: x):
            function(x)
        return saved[number]

    with saved_tensors_hooks(lambda _: next(numbers), made_again):
        return function(x)


def embedded(weight: Tensor, sparse: bool) -> Tensor:
    return torch.nn.functional.embedding(torch.tensor(INDICES), weight, sparse=sparse)


# ---- conditions on operands


def any_number(x: Tensor) -> bool:
    return True


def of_real(x: Tensor) -> bool:
    return not x.is_complex()


def of_matrix(x: Tensor) -> bool:
    return x.ndim == 2


def fit(x: Tensor, y: Tensor) -> bool:
    """Whether the shapes broadcast. Products of bfloat16 and complex numbers are not defined everywhere."""
    if {x.is_complex(), y.is_complex()} == {True, False} and torch.bfloat16 in (x.dtype, y.dtype):
        return False
    return all(a == b or 1 in (a, b) for a, b in zip(reversed(x.shape), reversed(y.shape), strict=False))


def multiply(x: Tensor, y: Tensor) -> bool:
    return x.ndim == y.ndim == 2 and x.dtype == y.dtype and x.shape[1] == y.shape[0]


def same_square(x: Tensor, y: Tensor) -> bool:
    return of_real(x) and of_real(y) and x.shape == y.shape == SQUARE


def alike(x: Tensor, y: Tensor) -> bool:
    return x.shape == y.shape and x.dtype == y.dtype


def is_table(x: Tensor) -> bool:
    """Whether it is an embedding's table: a leaf, because the gradient of a non-leaf cannot be sparse everywhere."""
    return of_real(x) and x.shape == (ROWS, SIDE) and x.is_leaf


def may_be_sparse(x: Tensor) -> bool:
    """Whether it is a table that may have sparse gradients: a CPU cannot add two of them with 16 bits."""
    return is_table(x) and x.dtype in (torch.float32, torch.float64)


def are_tables(x: Tensor, y: Tensor) -> bool:
    return may_be_sparse(x) and may_be_sparse(y) and x.dtype == y.dtype


@dataclass(frozen=True)
class Operation:
    """`do` takes `takes` tensors, each accepted by `accepts`."""

    do: Callable[..., Any]
    takes: int
    accepts: Callable[..., bool]
    feature: Feature | None = None
    fresh: bool = False  # the result is not a view, and no node saves it: it may be changed in place

    def __call__(self, *operands: Tensor) -> tuple[Tensor, ...]:
        found = self.do(*operands)
        return tuple(found) if isinstance(found, tuple | list) else (found,)


OPERATIONS: Mapping[str, Operation] = {
    "tanh": Operation(torch.tanh, 1, any_number),
    "sigmoid": Operation(torch.sigmoid, 1, of_real),
    "sin": Operation(torch.sin, 1, any_number),
    "scale": Operation(lambda x: x * 0.5, 1, any_number, fresh=True),
    "transpose": Operation(torch.t, 1, of_matrix),
    "row": Operation(lambda x: x[-1], 1, of_matrix, Feature.BROADCAST),
    "cumsum": Operation(lambda x: x.cumsum(0), 1, lambda x: x.ndim > 0 and of_real(x)),
    "add": Operation(torch.add, 2, fit, fresh=True),
    "sub": Operation(torch.sub, 2, fit, fresh=True),
    "mul": Operation(torch.mul, 2, fit, fresh=True),
    "matmul": Operation(lambda x, y: x @ y / SIDE, 2, multiply, fresh=True),
    "both": Operation(lambda x: (x * 2, x.sin()), 1, any_number, Feature.SEVERAL_RESULTS),
    "halves": Operation(lambda x: x.chunk(2), 1, lambda x: x.ndim == 2 and x.shape[0] == SIDE, Feature.SEVERAL_RESULTS),
    "float64": Operation(torch.Tensor.double, 1, of_real, Feature.DTYPES),
    "float32": Operation(torch.Tensor.float, 1, of_real, Feature.DTYPES),
    "bfloat16": Operation(torch.Tensor.bfloat16, 1, of_real, Feature.DTYPES),
    "complex": Operation(
        lambda x: x * (0.5 + 0.25j), 1, lambda x: x.dtype in (torch.float32, torch.float64), Feature.COMPLEX
    ),
    "parts": Operation(real, 1, torch.is_complex, Feature.COMPLEX),
    "in_views": Operation(in_views, 2, same_square, Feature.IN_PLACE),
    "cube": Operation(lambda x: applied(Cube, x, 2.0)[0], 1, of_real, Feature.CUSTOM),
    "fork": Operation(lambda x: applied(Fork, x), 1, any_number, Feature.CUSTOM),
    "checkpoint": Operation(lambda x, w: again(lambda t: (t @ w).tanh(), x), 2, multiply, Feature.CHECKPOINT),
    "embedding": Operation(lambda w: embedded(w, False), 1, is_table, Feature.EMBEDDING),
    "sparse": Operation(lambda w: embedded(w, True), 1, may_be_sparse, Feature.SPARSE),
    "held": Operation(lambda w: embedded(gives(w, hold), True), 1, may_be_sparse, Feature.SPARSE),
    "sparse_sum": Operation(lambda v, w: embedded(v + w, True), 2, are_tables, Feature.SPARSE),
    "detach": Operation(torch.detach, 1, any_number, Feature.DETACHED),
    "turned": Operation(turned, 1, any_number, Feature.STRIDES),
    "spread": Operation(spread, 1, any_number, Feature.STRIDES),
    "gaps": Operation(with_gaps, 1, any_number, Feature.STRIDES),
    "windows": Operation(windows, 1, lambda x: x.shape == SQUARE, Feature.STRIDES),
    "turns": Operation(lambda x: gives(x, turned), 1, any_number, Feature.STRIDES, fresh=True),
    "spreads": Operation(lambda x: gives(x, spread), 1, any_number, Feature.STRIDES, fresh=True),
    "flat": Operation(lambda x: x.reshape(-1), 1, any_number, Feature.KEPT),
    "holds": Operation(lambda x: gives(x, hold), 1, any_number, Feature.KEPT, fresh=True),
    "keeps": Operation(
        lambda x: gives(x, lambda g: hold(torch.full_like(g, 0.0625))), 1, any_number, Feature.KEPT, fresh=True
    ),
    "nothing": Operation(lambda x: applied(Nothing, x), 1, any_number, Feature.UNDEFINED, fresh=True),
    "one": Operation(lambda x, y: applied(Nothing, x, y), 2, alike, Feature.UNDEFINED, fresh=True),
    "adds": Operation(lambda x: gives(x, lambda g: g + 0.125), 1, any_number, Feature.UNDEFINED, fresh=True),
}
FOLDS: Mapping[str, Callable[..., Tensor]] = {"mix": mix, "root": root}  # functions of any number of values
IN_PLACE: Mapping[str, Callable[[Tensor, Tensor], object]] = {
    "add_": lambda x, y: x.add_(real(y).mean().to(x.dtype)),
    "mul_": lambda x, y: x.mul_(real(y).mean().to(x.dtype)),
}
HOOKS: Mapping[str, Callable[[Tensor | None], Tensor | None]] = {
    "double": lambda g: None if g is None else g * 2,
    "clamp": lambda g: None if g is None else g.clamp(-0.02, 0.02),
}
