"""Fields, sizes and constants, which a system declares in its class body.

`initial=` is a value, a tuple or set of values, `ANY`, or a function that gets the members of the field's indices and
returns one of these. Each value gives further initial states.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from . import source
from .expressions import Expr, const, lift, lift_like, placeholder, read
from .sorts import BOOL, Sort, enum_sort, int_sort

Bound = int | str | Expr  # a number, or the name of a constant or index of the system; in a proof also its symbol


class Any_:
    """The type of `ANY`."""


ANY = Any_()
"""`initial=ANY`: the field begins with any of its values."""


@dataclass(frozen=True, slots=True)
class Index:
    """The size of a set of interchangeable or ordered things (nodes, clients, keys)."""

    default: int
    doc: str = ""


@dataclass(frozen=True, slots=True)
class Constant:
    """A number that is fixed when the system is built."""

    default: int
    doc: str = ""


@dataclass(frozen=True, slots=True)
class Field:
    """One bounded variable, or one per member of an index (or per pair). `initial` is what its author wrote."""

    kind: str
    low: Bound
    high: Bound
    members: type[enum.Enum] | None
    per: tuple[str, ...]
    initial: Any
    editions: tuple[enum.Enum, ...]  # the editions that have it; empty: all
    doc: str
    at: str


def _field(
    kind: str, *, per: Any, initial: Any, editions: Any, doc: str, low: Bound = 0, high: Bound = 0,
    members: type[enum.Enum] | None = None,
) -> Field:  # fmt: skip
    dims = (per,) if isinstance(per, str) else tuple(per)
    return Field(
        kind, low, high, members, per=dims, initial=initial, editions=tuple(editions), doc=doc, at=source.line()
    )


def flag(*, per: str | tuple[str, ...] = (), initial: Any = False, editions: Any = (), doc: str = "") -> Field:
    """A variable that is true or false."""
    return _field("bool", high=1, per=per, initial=initial, editions=editions, doc=doc)


def integer(
    low: Bound, high: Bound, *, per: str | tuple[str, ...] = (), initial: Any = None, editions: Any = (), doc: str = ""
) -> Field:
    """A variable from `low` to `high`, both inclusive; either may be the name of a constant or index."""
    first = low if initial is None else initial
    return _field("int", low=low, high=high, per=per, initial=first, editions=editions, doc=doc)


def choice(
    members: type[enum.Enum], *, per: str | tuple[str, ...] = (), initial: Any = None, editions: Any = (), doc: str = ""
) -> Field:
    """A variable that is one member of an enum; by default initially the first."""
    first = next(iter(members)) if initial is None else initial
    return _field("enum", members=members, per=per, initial=first, editions=editions, doc=doc)


def _check_default(what: str, default: Any, low: int) -> None:
    """Refuse a default that a system would refuse as an argument."""
    if isinstance(default, bool) or not isinstance(default, int) or default < low:
        source.refuse(f"the default of {what} is {default!r}: give a whole number of at least {low}")


def index(default: int, doc: str = "") -> Any:
    """Declare an index: its size is an argument when the system is built."""
    _check_default("an index", default, 1)
    return Index(default, doc)


def constant(default: int, doc: str = "") -> Any:
    """Declare a constant: an argument when the system is built, afterwards a number."""
    _check_default("a constant", default, 0)
    return Constant(default, doc)


@dataclass(frozen=True, slots=True)
class Slot:
    """A field of a system of a given size.

    bounds: its lowest and highest value. Bounds and initial values are ints, or symbols in a proof for any size.
    initial: the values that it begins with. own: those of each member, if a function gives them.
    """

    name: str
    sort: Sort
    dims: tuple[Sort, ...]
    bounds: tuple[Any, Any]
    initial: tuple[Any, ...]
    doc: str
    at: str
    own: Mapping[tuple[int, ...], tuple[int, ...]] = field(default_factory=dict)

    def placeholders(self) -> tuple[Expr, ...]:
        """The variables for the indices in the body of an effect."""
        return tuple(placeholder(k, dim) for k, dim in enumerate(self.dims))

    def identity(self) -> Expr:
        """The body that leaves the field as it is."""
        return read(self.name, self.placeholders(), self.sort)


@dataclass(frozen=True, slots=True)
class Cell:
    """One variable of the state: a field, or its member at the given indices."""

    slot: Slot
    indices: tuple[int, ...] = field(default=())

    @property
    def sort(self) -> Sort:
        return self.slot.sort

    @property
    def initial(self) -> tuple[Any, ...]:
        """The values that it begins with."""
        return self.slot.own.get(self.indices, self.slot.initial)

    @property
    def name(self) -> str:
        return self.slot.name + "".join(f"[{i}]" for i in self.indices)

    @property
    def read(self) -> Expr:
        """The tree of its value."""
        at = (const(i, dim) for i, dim in zip(self.indices, self.slot.dims, strict=True))
        return read(self.slot.name, tuple(at), self.sort)

    @property
    def key(self) -> tuple[str, tuple[int, ...]]:
        return self.slot.name, self.indices


def make_slot(name: str, declared: Field, sizes: dict[str, Any], dims: dict[str, Sort]) -> Slot:
    """Resolve a field's bounds, dimensions and initial values against the sizes of a system."""

    def number(bound: Any) -> Any:
        if not isinstance(bound, str) or isinstance(bound, enum.Enum):
            return bound
        if bound not in sizes:
            source.refuse(
                f"{name}: the bound {bound!r} is neither a constant nor an index of the system", at=declared.at
            )
        return sizes[bound]

    for dim in declared.per:
        if dim not in dims:
            source.refuse(
                f"{name}: per={dim!r} is not an index of the system ({', '.join(dims) or 'it has none'})",
                at=declared.at,
            )
    bounds = lift(number(declared.low)), lift(number(declared.high))
    if declared.members is not None:
        sort = enum_sort(declared.members)
    elif declared.kind == "bool":
        sort = BOOL
    else:
        sort = int_sort(bounds[0].sort.least, bounds[1].sort.most)
        if sort.least > sort.most:
            source.refuse(f"{name}: the range from {sort.least} to {sort.most} is empty", at=declared.at)
    low, high = map(_plain, bounds)
    dims_ = tuple(dims[d] for d in declared.per)
    slot = Slot(name, sort, dims_, (low, high), (), declared.doc, declared.at)
    if not callable(declared.initial):
        return replace(slot, initial=_begins(slot, declared.initial, number))
    if any(dim.is_open for dim in dims_):
        source.refuse(f"{name}: initial= is a function of its members, and a proof for any size has none", at=slot.at)
    members = [*product(*(range(dim.size) for dim in dims_))]
    own = {these: _begins(slot, _of_members(slot, declared.initial, these), number) for these in members}
    return replace(slot, initial=tuple(dict.fromkeys(v for values in own.values() for v in values)), own=own)


def _of_members(slot: Slot, initial: Callable[..., Any], members: tuple[int, ...]) -> Any:
    """What a function returns as the initial value of a field at these members."""
    try:
        return initial(*members)
    except Exception as error:
        shown = ", ".join(map(str, members))
        source.refuse(f"{slot.name}: initial({shown}) raises {type(error).__name__}: {error}", at=slot.at)


def _begins(slot: Slot, initial: Any, number: Callable[[Any], Any]) -> tuple[Any, ...]:
    """The initial values of a field; `number` gives the value of a size."""
    sort = slot.sort
    if initial is ANY:
        return tuple(range(sort.low, sort.high + 1))
    given = [*initial] if isinstance(initial, tuple | set | frozenset) else [initial]
    begins = dict.fromkeys(lift_like(number(v), sort) for v in given)
    for v in begins:
        if v.sort.kind != sort.kind or (sort.kind == "enum" and v.sort is not sort):
            source.refuse(f"{slot.name}: initial value {v} is of sort {v.sort.name}, not {sort.name}", at=slot.at)
        if v.op == "const" and not sort.least <= v.value <= sort.most:
            source.refuse(f"{slot.name}: initial value {v} is outside {sort.span}", at=slot.at)
    if not begins:
        source.refuse(f"{slot.name} has no initial value: give at least one", at=slot.at)
    values = [*map(_plain, begins)]
    return tuple(values if isinstance(initial, tuple) or len(values) < 2 else sorted(values))


def _plain(value: Expr) -> Any:
    """The int of a constant, which can be sent to other processes; a symbol stays a symbol."""
    return value.value if value.op == "const" else value
