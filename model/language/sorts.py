"""Sorts: the kinds of values of expressions. Internally, all values are plain ints."""

from __future__ import annotations

import enum
import functools
import math
from dataclasses import dataclass
from typing import Literal

from . import source

SortKind = Literal["bool", "int", "enum", "index"]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Sort:
    """A finite set of consecutive ints, and how they are written. Each sort is made once, so `is` compares sorts.

    `least` and `most` bound the values (both inclusive). For an enum they are ordinals in declaration
    order; for an index they are the first and last member of an index set; for a bool they are 0 and 1.

    A sort is *open* if a proof leaves a bound of it open: `most` is then infinite (`least` only for a difference).
    An open bound is not a number: `low`, `high` and `size` are refused, and comparisons with infinity decide only
    what is true for every size.
    """

    kind: SortKind
    name: str
    least: float  # a whole number, or minus infinity
    most: float  # a whole number, or infinity
    labels: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """This text is part of the fingerprint of a search that is kept in files."""
        bounds = f"low={self.least}, high={self.most}"
        return f"Sort(kind={self.kind!r}, name={self.name!r}, {bounds}, labels={self.labels!r})"

    @property
    def is_open(self) -> bool:
        return math.inf in (-self.least, self.most)

    @property
    def low(self) -> int:
        return self._known(self.least)

    @property
    def high(self) -> int:
        return self._known(self.most)

    @property
    def size(self) -> int:
        return self.high - self.low + 1

    def _known(self, bound: float) -> int:
        if not isinstance(bound, int):
            source.refuse(
                f"the number of values of {self.name} was used as a Python number, but a proof holds for all: "
                "write size_of() in a condition, and any_(), all_() or count() instead of a loop"
            )
        return bound

    @property
    def span(self) -> str:
        """The values, for a message: `0..3`, or `0..` where the last is open."""
        return f"{_shown(self.least)}..{_shown(self.most)}"

    def show(self, value: int) -> str:
        """The text of one value of this sort."""
        if self.kind == "bool":
            return "yes" if value else "no"
        if self.kind == "index" and value < 0:
            return "none"
        return self.labels[value] if self.labels else str(value)


def _shown(bound: float) -> str:
    return str(bound) if isinstance(bound, int) else ""


BOOL = Sort("bool", "bool", 0, 1)


@functools.cache
def int_sort(least: float, most: float) -> Sort:
    return Sort("int", "int", least, most)


@functools.cache
def enum_sort(cls: type[enum.Enum]) -> Sort:
    labels = tuple(member.name for member in cls)
    return Sort("enum", f"{cls.__module__}.{cls.__qualname__}", 0, len(labels) - 1, labels)


@functools.cache
def index_sort(name: str, size: float) -> Sort:
    return Sort("index", name, 0, size - 1)


@functools.cache
def optional(index: Sort) -> Sort:
    """The members of an index, and none of them, which is -1."""
    return Sort("index", index.name, -1, index.most) if index.least == 0 else index


@functools.cache
def required(index: Sort) -> Sort:
    """The members of an index alone, also if the sort is optional."""
    return index_sort(index.name, index.most + 1)


@functools.lru_cache(maxsize=None, typed=True)  # members of two enums of texts or numbers may be equal
def ordinal(member: enum.Enum) -> int:
    """The position of an enum member in its class: the int that represents it in a state."""
    return list(type(member)).index(member)
