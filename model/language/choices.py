"""Choices inside a step: `s.choose(values)` is any of them, and `s.subset(s.node)` any set of members.

*Theory of operation.* A choice is one more parameter of the step, after the members of its `each`: the step has an
instance for each combination, and the label of an instance shows what it chooses. So a run records the choices, a
replay repeats them, and the subject of a comparison gets them. A parameter has a number for each value; for values that
are not an index, an enum or a range, the tree is a choice between them by this number.

Failures: there is nothing to choose, values are not of one sort, or an index has too many subsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, combinations
from typing import Any

from . import source
from .expressions import Expr, and_, const, equal, ite, lift, member_of, named, not_, or_, read, variable
from .fields import sort_of, values_of
from .quantifiers import IndexSet, check_loop
from .records import Composite
from .sorts import BOOL, Sort

MEMBERS_MAX = 8  # an index of this size has 256 subsets, and a step an instance for each


@dataclass(frozen=True, slots=True)
class Choice:
    """A parameter that a step chooses. values: the value of each number; none if the number is the value."""

    variable: Expr
    values: tuple[Any, ...]


class Subset(Composite):
    """A set of members that a step has chosen: `chosen[j]` is true where it has the member, as in a flag."""

    def __init__(self, choice: Choice, members: IndexSet) -> None:
        self._choice, self._members, self._name = choice, members, "a chosen set"

    def __getitem__(self, member: Any) -> Expr:
        here, variable = member_of(member, self._members.sort), self._choice.variable
        if here is None:
            source.refuse(f"{member} is not a {self._members.sort.name}")
        if self._members.sort.is_open:
            return and_(not_(here.absent), read(f"{variable.name}!", (here,), BOOL))
        with_it = [[k for k, one in enumerate(self._choice.values) if j in one] for j in range(len(self._members))]
        has = (variable.isin(const(k, variable.sort) for k in found) for found in with_it)
        each = (and_(equal(here, const(j, self._members.sort)), one) for j, one in enumerate(has))
        return named("{0} ∈ {1}", or_(*each), here, variable)

    def __iter__(self) -> Iterator[Expr]:
        check_loop("a chosen set")
        return (self[j] for j in self._members)

    def __contains__(self, member: Any) -> bool:
        source.refuse(f"{member} in a chosen set: Python makes a bool of this, so write chosen[{member}]")


def choose(made: list[Choice], values: Any) -> Any:
    """Add a choice, and return its tree; for values that are tuples, a tuple of trees."""
    if isinstance(values, IndexSet):
        return _added(made, values.sort)
    if (sort := sort_of(values)) is not None:
        return _added(made, sort, values_of(values))
    listed = [*dict.fromkeys(values)] if isinstance(values, Iterable) else []
    if not listed:
        source.refuse(f"choose({values!r}): give an index, an enum, bool, a range, or one or more values")
    if isinstance(values, set | frozenset):
        listed.sort(key=_label)
    return _picked(_listed(made, listed), listed)


def subset(made: list[Choice], members: IndexSet) -> Subset:
    """Add a choice of a set of members."""
    if isinstance(members, IndexSet) and members.sort.is_open:
        _added(made, BOOL)
        return Subset(made[-1], members)
    if not isinstance(members, IndexSet) or len(members) > MEMBERS_MAX:
        source.refuse(f"subset() chooses among the subsets of an index of at most {MEMBERS_MAX} members, s.NAME")
    size = len(members)
    sets = [frozenset(one) for one in chain(*(combinations(range(size), k) for k in range(size + 1)))]
    _listed(made, sets)
    return Subset(made[-1], members)


def pick(values: Sequence[Any], at: Any) -> Any:
    """The value of a table for a member of an index, a number or a member of an enum: `pick(self.weights, node)`.

    For values that are tuples, it is a tuple of trees.
    """
    number = lift(at)
    if number.sort.low < 0 or number.sort.high >= len(values):
        source.refuse(f"pick() from {len(values)} values at {number}, which is one of {number.sort.span}: give more")
    label = _label(tuple(values)).replace("{", "{{").replace("}", "}}")
    return _picked(number, values[: number.sort.high + 1], f"({label})[{{0}}]")


def _added(made: list[Choice], sort: Sort, values: tuple[Any, ...] = ()) -> Expr:
    made.append(Choice(variable(f"chosen{len(made) or ''}", sort), values))
    return made[-1].variable


def _listed(made: list[Choice], values: Sequence[Any]) -> Expr:
    return _added(made, _choice_sort(tuple(map(_label, values))), tuple(values))


@cache
def _choice_sort(labels: tuple[str, ...]) -> Sort:
    return Sort("enum", f"choice of {'; '.join(labels)}", 0, len(labels) - 1, labels)


def _label(value: Any) -> str:
    if isinstance(value, frozenset):
        return f"{{{', '.join(map(str, sorted(value)))}}}"
    return ", ".join(map(_label, value)) if isinstance(value, tuple) else str(lift(value))


def _picked(number: Expr, values: Sequence[Any], label: str = "{0}") -> Any:
    """The value of a number as a tree, or as a tuple of trees."""
    if all(isinstance(value, tuple) for value in values) and len({len(value) for value in values}) == 1:
        columns = enumerate(zip(*values, strict=True))
        return tuple(_picked(number, column, f"{label}.{k}") for k, column in columns)
    out = lift(values[-1])
    for k, value in reversed([*enumerate(values)][:-1]):
        out = ite(equal(number, const(k, number.sort)), value, out)
    return named(label, out, number)
