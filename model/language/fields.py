"""Fields, sizes and constants, which a system declares in its class body.

`initial=` is a value, a tuple or set of values, `ANY`, or a function that gets the members of the field's indices and
returns one of these. Each value gives further initial states.
"""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from types import NoneType
from typing import Any

from . import source
from .bodies import line_of_author
from .expressions import Expr, const, lift, lift_like, lowest, placeholder, read
from .sorts import BOOL, Sort, enum_sort, int_sort, optional


class Any_:
    """The type of `ANY`."""


ANY = Any_()
"""`initial=ANY`: the field begins with any of its values."""


class Declared:
    """A declaration of a class body. `self.x == 3` has no value of a state: Python would return False."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if isinstance(other, int | enum.Enum | Expr):
            source.refuse(
                f"a declaration is compared with {other}: write s.NAME for a field of the state, and len(s.NAME) or "
                'self.sizes["NAME"] for the size of an index'
            )
        if isinstance(other, Declared) and self is not other and (at := line_of_author()):
            source.refuse("two declarations are compared, and not two values: write s.NAME for both", at=at)
        return self is other

    def __bool__(self) -> bool:
        if at := line_of_author():
            source.refuse("a declaration has no value: write s.NAME for a field of the state", at=at)
        return True

    __hash__ = object.__hash__


class Size(Declared):
    """A number that is known when a system is built: an index, a constant, or arithmetic on these."""

    __slots__ = ()

    def __add__(self, other: Any) -> Size:
        return Computed(operator.add, (self, other))

    def __radd__(self, other: Any) -> Size:
        return Computed(operator.add, (other, self))

    def __sub__(self, other: Any) -> Size:
        return Computed(operator.sub, (self, other))

    def __rsub__(self, other: Any) -> Size:
        return Computed(operator.sub, (other, self))

    def __mul__(self, other: Any) -> Size:
        return Computed(operator.mul, (self, other))

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Size:
        return Computed(operator.floordiv, (self, other))

    def __index__(self) -> int:
        source.refuse("range() of a size that is known when a system is built: write the index itself, as in per=node")


@dataclass(frozen=True, slots=True, eq=False)
class Computed(Size):
    """Arithmetic on sizes: `2 * node - 1`."""

    apply: Callable[[Any, Any], Any]
    operands: tuple[Any, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Index(Size):
    """The size of a set of interchangeable or ordered things (nodes, clients, keys)."""

    default: int
    doc: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Constant(Size):
    """A value that is fixed when the system is built: a number, or a table, which cannot change."""

    default: Any
    doc: str = ""


Bound = Any
"""A number, the name of a constant or index of the system, or arithmetic on these; in a proof also a symbol."""
Each = Any
"""An index, an enum, `bool`, a range from 0, or several: a field has a value for each, or a step an instance."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of one system. names: the name of each declared index and constant, by its identity."""

    values: Mapping[str, Any]
    indices: Mapping[str, Sort]
    names: Mapping[int, str]

    def number(self, bound: Any, what: str, at: str) -> Any:
        """The number of a bound; other values are returned as they are. `what` is for the text of an error."""
        if isinstance(bound, Computed):
            return bound.apply(*(self.number(one, what, at) for one in bound.operands))
        if isinstance(bound, enum.Enum) or not isinstance(bound, str | Size):
            return bound
        name = bound if isinstance(bound, str) else self.names.get(id(bound), "")
        if name not in self.values:
            source.refuse(f"{what}: the bound {name!r} is neither a constant nor an index of the system", at=at)
        return self.values[name]

    def sort(self, given: Any, what: str, at: str) -> Sort:
        """The sort of what a field or a step is for each of."""
        name = self.names.get(id(given), given) if isinstance(given, Index) else given
        if isinstance(name, str) and name in self.indices:
            return self.indices[name]
        if (sort := sort_of(given)) is not None:
            return sort
        known = ", ".join(self.indices) or "it has none"
        source.refuse(f"{what}{name!r} is not an index of the system ({known}), an enum, bool or range(n)", at=at)


def sort_of(given: Any) -> Sort | None:
    """The sort of an enum, of `bool` or of a range from 0; None for anything else."""
    if isinstance(given, range) and given and given[0] == 0 and given.step == 1:
        return int_sort(0, len(given) - 1)
    if given is bool:
        return BOOL
    return enum_sort(given) if isinstance(given, type) and issubclass(given, enum.Enum) else None


def values_of(given: Any) -> tuple[Any, ...]:
    """The values of an enum or of `bool`; none for an index or a range, whose numbers are their values."""
    if given is bool:
        return (False, True)
    return tuple(given) if isinstance(given, type) and issubclass(given, enum.Enum) else ()


def several(given: Any) -> tuple[Any, ...]:
    """One or several of what a field or a step is for each of, as a tuple."""
    return tuple(given) if isinstance(given, tuple | list) else (given,)


@dataclass(frozen=True, slots=True, eq=False)
class Field(Declared):
    """One bounded variable, or one per member of an index (or per pair). `initial` is what its author wrote."""

    kind: str
    low: Bound
    high: Bound
    members: type[enum.Enum] | None
    per: tuple[Any, ...]
    initial: Any
    editions: tuple[enum.Enum, ...]  # the editions that have it; empty: all
    doc: str
    at: str


def _field(
    kind: str, *, per: Any, initial: Any, editions: Any, doc: str, low: Bound = 0, high: Bound = 0,
    members: type[enum.Enum] | None = None,
) -> Field:  # fmt: skip
    return Field(
        kind, low, high, members, per=several(per), initial=initial, editions=tuple(editions), doc=doc, at=source.line()
    )


def flag(*, per: Each = (), initial: Any = False, editions: Any = (), doc: str = "") -> Field:
    """A variable that is true or false."""
    return _field("bool", high=1, per=per, initial=initial, editions=editions, doc=doc)


def integer(
    low: Bound,
    high: Bound,
    *,
    per: Each = (),
    initial: Any = None,
    editions: Any = (),
    doc: str = "",
) -> Field:
    """A variable from `low` to `high`, both inclusive; either may be the name of a constant or index."""
    first = low if initial is None else initial
    return _field("int", low=low, high=high, per=per, initial=first, editions=editions, doc=doc)


def choice(
    members: type[enum.Enum],
    *,
    per: Each = (),
    initial: Any = None,
    editions: Any = (),
    doc: str = "",
) -> Field:
    """A variable that is one member of an enum; by default initially the first."""
    if not (isinstance(members, type) and issubclass(members, enum.Enum)):
        source.refuse(f"choice({members!r}): give an enum, whose members are the values")
    first = next(iter(members)) if initial is None else initial
    return _field("enum", members=members, per=per, initial=first, editions=editions, doc=doc)


def one_of(
    index: Any,
    *,
    optional: bool = False,
    per: Each = (),
    initial: Any = None,
    editions: Any = (),
    doc: str = "",
) -> Field:
    """A variable that is one member of an index; with `optional`, or none of them.

    Initially it is empty if it is optional, and else the first member. `s.at.absent` holds where it is empty.
    """
    return _field("index", low=-1 if optional else 0, high=index, per=per, initial=initial, editions=editions, doc=doc)


def _check_default(what: str, default: Any, low: int) -> None:
    """Refuse a default that a system would refuse as an argument."""
    if isinstance(default, bool) or not isinstance(default, int) or default < low:
        source.refuse(f"the default of {what} is {default!r}: give a whole number of at least {low}")


def index(default: int, doc: str = "") -> Any:
    """Declare an index: its size is an argument when the system is built."""
    _check_default("an index", default, 1)
    return Index(default, doc)


def constant(default: Any, doc: str = "") -> Any:
    """Declare a constant: an argument when the system is built, afterwards a number.

    Other values that cannot change are constants too, such as the edges of a graph as a tuple of pairs.
    """
    if not is_table(default):
        _check_default("a constant", default, 0)
    return Constant(default, doc)


def is_table(value: Any) -> bool:
    """Whether a constant may have this value, which is not a number and cannot change."""
    if isinstance(value, tuple | frozenset):
        return all(isinstance(one, int | str | NoneType) or is_table(one) for one in value)
    return isinstance(value, enum.Enum)


@dataclass(frozen=True, slots=True)
class Slot:
    """A field of a system of a given size.

    bounds: its lowest and highest value. Bounds and initial values are ints, or symbols in a proof for any size.
    initial: the values that it begins with. own: the values of each member, if a function gives them.
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

    @property
    def lowest(self) -> Expr:
        """Its lowest value."""
        return lift(self.bounds[0]) if self.sort.kind == "int" else lowest(self.sort)


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


def make_slot(name: str, declared: Field, sizes: Sizes) -> Slot:
    """Resolve a field's bounds, dimensions and initial values against the sizes of a system."""

    def number(bound: Any) -> Any:
        return sizes.number(bound, name, declared.at)

    if isinstance(declared.initial, type):
        source.refuse(f"{name}: initial={declared.initial.__name__} is a class: write ANY", at=declared.at)
    dims = tuple(sizes.sort(dim, f"{name}: per=", declared.at) for dim in declared.per)
    bounds = lift(number(declared.low)), lift(number(0 if declared.kind == "index" else declared.high))
    if declared.kind == "index":
        sort = sizes.sort(declared.high, f"{name}: one_of ", declared.at)
        sort = optional(sort) if declared.low else sort
    elif declared.members is not None:
        sort = enum_sort(declared.members)
    elif declared.kind == "bool":
        sort = BOOL
    else:
        sort = int_sort(bounds[0].sort.least, bounds[1].sort.most)
        if sort.least > sort.most:
            source.refuse(f"{name}: the range from {sort.least} to {sort.most} is empty", at=declared.at)
    low, high = map(_plain, bounds)
    slot = Slot(name, sort, dims, (low, high), (), declared.doc, declared.at)
    if not callable(declared.initial):
        return replace(slot, initial=_begins(slot, declared.initial, number))
    if any(dim.is_open for dim in dims):
        source.refuse(f"{name}: initial= is a function of its members, and a proof for any size has none", at=slot.at)
    members = [*product(*(range(dim.size) for dim in dims))]
    own = {these: _begins(slot, _of_members(slot, declared.initial, these), number) for these in members}
    return replace(slot, initial=tuple(dict.fromkeys(v for values in own.values() for v in values)), own=own)


def _of_members(slot: Slot, initial: Callable[..., Any], members: tuple[int, ...]) -> Any:
    """The result of the function that gives the initial value of a field at these members."""
    try:
        return initial(*members)
    except Exception as error:
        shown = ", ".join(map(str, members))
        source.refuse(f"{slot.name}: initial({shown}) raises {type(error).__name__}: {error}", at=slot.at)


def _begins(slot: Slot, initial: Any, number: Callable[[Any], Any]) -> tuple[Any, ...]:
    """The initial values of a field; `number` gives the value of a size."""
    sort, initial = slot.sort, number(initial)
    if initial is ANY:
        return tuple(range(sort.low, sort.high + 1))
    given = [*initial] if isinstance(initial, tuple | set | frozenset) else [initial]
    if sort.kind == "index" and initial is None:
        given = [sort.low]
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
