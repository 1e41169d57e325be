"""Sorts: the kinds of values of expressions. Values themselves are plain ints everywhere below the surface."""

from __future__ import annotations

import enum
import functools
from dataclasses import dataclass
from typing import Literal

SortKind = Literal["bool", "int", "enum", "index"]


@dataclass(frozen=True, slots=True, eq=False)
class Sort:
    """A finite set of consecutive ints, and how they are written. Made once: two sorts are the same or differ.

    `low` and `high` bound the values (both inclusive). For an enum they are ordinals in declaration
    order; for an index they count the members of an index set; for a bool they are 0 and 1.
    """

    kind: SortKind
    name: str
    low: int
    high: int
    labels: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return self.high - self.low + 1

    def show(self, value: int) -> str:
        """Write one value of this sort as a reader expects it."""
        if self.kind == "bool":
            return "yes" if value else "no"
        return self.labels[value] if self.labels else str(value)


BOOL = Sort("bool", "bool", 0, 1)


@functools.cache
def int_sort(low: int, high: int) -> Sort:
    return Sort("int", "int", low, high)


@functools.cache
def enum_sort(cls: type[enum.Enum]) -> Sort:
    labels = tuple(member.name for member in cls)
    return Sort("enum", f"{cls.__module__}.{cls.__qualname__}", 0, len(labels) - 1, labels)


@functools.cache
def index_sort(name: str, size: int) -> Sort:
    return Sort("index", name, 0, size - 1)


@functools.cache
def ordinal(member: enum.Enum) -> int:
    """The position of an enum member in its class: the int that stands for it in a state."""
    return list(type(member)).index(member)
