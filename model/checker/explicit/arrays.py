"""The functions, besides Python's operators, that generated code calls, for one kind of array.

Values that may leave int64 are arrays of Python ints (`big`, `offset`). Only NumPy has these.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Arrays:
    """One kind of array. Rows are the positions of elements, in ascending order."""

    where: Callable[..., Any]  # (mask, array or number, array or number)
    take: Callable[..., Any]  # (array, rows)
    flatnonzero: Callable[..., Any]  # (mask) -> rows
    every: Callable[..., Any]  # (array) -> its rows
    falses: Callable[..., Any]  # (array) -> a mask of its length
    wide: Callable[..., Any]  # bytes or bools as int64
    byte: Callable[..., Any]  # bools as bytes that hold 0 or 1
    minimum: Callable[..., Any]
    maximum: Callable[..., Any]


def big(values: Any) -> NDArray[np.object_]:
    """Numbers as Python ints."""
    return np.asarray(values, np.object_)


def offset(values: Any, low: int, high: int) -> NDArray[np.int64]:
    """Numbers of any size minus `low`; 0 for each number outside of `low` to `high`."""
    numbers = big(values)
    within = (numbers >= low) & (numbers <= high)
    return np.where(within, numbers - low, 0).astype(np.int64)


NUMPY = Arrays(
    where=np.where, take=np.ndarray.take, flatnonzero=lambda mask: mask.nonzero()[0],
    every=lambda array: np.arange(array.size), falses=lambda array: np.zeros(len(array), np.bool_),
    wide=lambda array: array.astype(np.int64), byte=lambda array: array.view(np.int8),
    minimum=np.minimum, maximum=np.maximum,
)  # fmt: skip


def leaves_int64(lines: Iterable[str]) -> bool:
    """Whether the code computes with numbers that do not fit an int64."""
    text = "\n".join(lines)
    return bool(re.search(r"\b(big|offset)\(", text)) or any(int(n) >= 1 << 63 for n in re.findall(r"\b\d+", text))


def built(arrays: Arrays, name: str, head: Sequence[str], lines: Sequence[str]) -> Callable[..., Any]:
    """The function with the given parameters and body.

    Its whole numbers are the arguments of a function that makes it: the instances of a step often differ in them alone,
    and are compiled once.
    """
    numbers: list[int] = []

    def argument(found: re.Match[str]) -> str:
        numbers.append(int(found[0]))
        return f"k{len(numbers)}"

    text = re.sub(r"\b\d+\b", argument, "\n ".join(["", f"def {name}({', '.join(head)}):", *lines, f"return {name}"]))
    arguments = ", ".join(f"k{k + 1}" for k in range(len(numbers)))
    return _maker(arrays, name, f"def make({arguments}):{text}")(*numbers)  # type: ignore[no-any-return]


@lru_cache(1024)
def _maker(arrays: Arrays, name: str, source: str) -> Callable[..., Any]:
    scope: dict[str, Any] = {name: getattr(arrays, name) for name in Arrays.__slots__} | {"big": big, "offset": offset}
    exec(compile(source, f"<generated {name}>", "exec"), scope)
    return scope["make"]  # type: ignore[no-any-return]
