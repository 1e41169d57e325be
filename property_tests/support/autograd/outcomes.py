"""Outcomes of programs, and the differences between two outcomes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from .operations import KEPT, Feature, real
from .programs import Program

Key = tuple[int, str]  # a parameter: its worker and its name
Seen = tuple[str, float | None]  # a hook, and the mean of the gradient that it got
Layout = tuple[str, tuple[int, ...]]
TOLERANCES = {Feature.DTYPES: 0.25, Feature.COMPLEX: 1e-4}  # relative to the largest entry; bfloat16 has 8 bits
FLOOR = 0.1  # lower bound of the largest entry: a small sum may have larger parts
MARK = 7.0  # larger than any gradient of a program


@dataclass(frozen=True)
class Outcome:
    """Gradients (dense) of parameters that have one, the roots, how gradients lie in memory, what hooks have seen,
    which gradients share memory with another or with what a program keeps, and the errors of refused passes."""

    gradients: Mapping[Key, Tensor]
    roots: tuple[Tensor, ...]
    layouts: Mapping[Key, Layout] = field(default_factory=dict)
    seen: Mapping[Key, Sequence[Seen]] = field(default_factory=dict)
    shared: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()

    @classmethod
    def of(cls, found: Mapping[Key, Tensor], roots: Sequence[Tensor], seen: Mapping[Key, Sequence[Seen]]) -> Outcome:
        """The outcome of these gradients, whose memory is examined in place."""
        layouts = {key: layout(gradient) for key, gradient in found.items()}
        copies = {key: dense(gradient).clone() for key, gradient in found.items()}
        noted = {key: list(each) for key, each in seen.items()}
        return cls(copies, tuple(roots), layouts, noted, tuple(sharing(found)))

    def joined(self, other: Outcome) -> Outcome:
        """This outcome, joined with the outcome of other workers."""
        return Outcome(
            {**self.gradients, **other.gradients},
            self.roots,
            {**self.layouts, **other.layouts},
            {**self.seen, **other.seen},
            self.shared + other.shared,
        )


def dense(x: Tensor) -> Tensor:
    return x.to_dense() if x.is_sparse else x


def values_of(x: Tensor) -> Tensor:
    """The memory of its elements."""
    return (x._values() if x.is_sparse else x).detach()


def mean(x: Tensor | None) -> float | None:
    return None if x is None else float(real(dense(x.detach())).double().mean())


def layout(x: Tensor) -> Layout:
    """The strides in elements. Dimensions of one element are left out: they may have any stride."""
    if x.is_sparse:
        return "sparse", ()
    return "dense", tuple(stride for stride, length in zip(x.stride(), x.shape, strict=True) if length > 1)


def sharing(gradients: Mapping[Key, Tensor]) -> Iterator[str]:
    """Write to each gradient in turn, yield each other tensor that has changed, and restore the gradient."""
    memory = {str(key): values_of(each) for key, each in gradients.items()}
    others = memory | {f"what was kept, {number}": values_of(each) for number, each in enumerate(list(KEPT))}
    before = {name: each.clone() for name, each in others.items()}
    for name, mine in memory.items():
        if mine.numel():
            mine.fill_(MARK)
            for other, there in others.items():
                if other != name and not torch.allclose(there, before[other], rtol=0, atol=0, equal_nan=True):
                    yield f"the gradient of {name} shares memory with {other}"
            mine.copy_(before[name])


def differences(program: Program, expected: Outcome, found: Outcome, zeros_are_none: bool = False) -> list[str]:
    """The differences of two outcomes. With `zeros_are_none`, a gradient of zeros equals no gradient."""
    share = max((TOLERANCES.get(Feature[name], 0.0) for name in program.notes), default=0.0) or 1e-9
    roots = enumerate(zip(expected.roots, found.roots, strict=True))  # a sum depends on its tensor's layout
    wrong = [f"root {k}: {a} and {b}" for k, (a, b) in roots if not _close(a, b, share)]
    for key in sorted(expected.gradients.keys() | found.gradients.keys()):
        a, b = expected.gradients.get(key), found.gradients.get(key)
        if zeros_are_none and all(each is None or not each.any() for each in (a, b)):
            continue
        if not _close(a, b, share):
            wrong.append(f"gradient of {key}: {a} and {b}")
        elif key in expected.layouts and key in found.layouts and expected.layouts[key] != found.layouts[key]:
            wrong.append(f"gradient of {key}: lies {expected.layouts[key]} and {found.layouts[key]}")
    for key in sorted(expected.seen.keys() | found.seen.keys()):
        one, other = (list(each.seen.get(key, ())) for each in (expected, found))
        if [name for name, _ in one] != [name for name, _ in other] or not all(
            _near(a, b, share) for (_, a), (_, b) in zip(one, other, strict=True)
        ):
            wrong.append(f"hooks of {key} saw {one} and {other}")
    return [*wrong, *found.shared]


def _near(a: float | None, b: float | None, share: float) -> bool:
    if a is None or b is None:
        return a is b
    return abs(a - b) <= share * max(FLOOR, abs(a)) or (math.isnan(a) and math.isnan(b))


def _close(a: Tensor | None, b: Tensor | None, share: float) -> bool:
    if a is None or b is None:
        return a is b
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        return False
    a, b = (each.to(torch.complex128 if a.is_complex() else torch.float64) for each in (a, b))
    return torch.allclose(a, b, rtol=0, atol=share * max(FLOOR, float(a.abs().max())), equal_nan=True)
