"""Bounded sequences of records: FIFO channels, queues, logs. A sequence is a group of fields with functions to write.

`sequence(2, per="client", kind=Reply, value=(0, 2))` declares, for each client, at most two replies. In a step,
`s.replies[c].push(kind=Reply.VALUE, value=1)` appends one, `s.replies[c].head.kind` reads the first, `.pop()` drops it.
Rule: a place without a record has the lowest values, so equal sequences are equal states.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from . import source
from .expressions import TRUE, Expr, and_, ite, lift, lowest, or_
from .fields import Bound, Each, Field, Index, Sizes, Slot, choice, flag, integer, one_of, several

if TYPE_CHECKING:
    from .state import SymbolicState

Component = Any  # an enum, bool, an index, or the lowest and highest number


@dataclass(frozen=True, slots=True)
class Sequence:
    """The declaration of a sequence: at most `length` records, one sequence per member of the indices in `per`."""

    length: Any  # a number once it is built
    per: tuple[Any, ...]
    components: tuple[tuple[str, Component], ...]
    doc: str
    at: str

    def built(self, name: str, sizes: Sizes) -> Sequence:
        """The sequence of a system with these sizes."""
        length = sizes.number(self.length, name, self.at)
        if not isinstance(length, int) or length < 1:
            found = "a size that a proof leaves open" if isinstance(length, Expr) else repr(length)
            source.refuse(
                f"{name}: the most records of the sequence are {found}: give a number of at least 1", at=self.at
            )
        return replace(self, length=length)

    def fields(self, name: str) -> Iterator[tuple[str, Field]]:
        """The fields of the sequence: its length, and each component at each place."""
        yield f"{name}_length", self._field((0, self.length), f"how many: {self.doc}")
        for place in range(self.length):
            for component, sort in self.components:
                yield _place(name, place, component), self._field(sort, self.doc)

    def _field(self, sort: Component, doc: str) -> Field:
        if isinstance(sort, tuple):
            made = integer(*sort, per=self.per, doc=doc)
        elif isinstance(sort, Index):
            made = one_of(sort, per=self.per, doc=doc)
        else:
            made = choice(sort, per=self.per, doc=doc) if issubclass(sort, enum.Enum) else flag(per=self.per, doc=doc)
        return replace(made, at=self.at)


def sequence(length: Bound, *, per: Each = (), doc: str = "", **components: Component) -> Any:
    """Declare a sequence of records.

    A component is an enum, `bool`, an index, or the lowest and highest of its numbers. The length may be a size, such
    as `2 * node`.

    Raises:
        DeclarationError: the length is below 1, a record has no components, or a component is not one of these.
    """
    if (isinstance(length, int) and length < 1) or not components:
        source.refuse(f"a sequence of at most {length} records of {len(components)} components: give one or more")
    if "when" in components:
        source.refuse("a component cannot be called 'when': push(when=...) is the condition")
    for name, sort in components.items():
        if not (isinstance(sort, tuple | Index) or (isinstance(sort, type) and issubclass(sort, enum.Enum | bool))):
            source.refuse(
                f"{name}={sort!r}: a component is an enum, bool, an index, or the lowest and highest of its numbers"
            )
    return Sequence(length, several(per), tuple(components.items()), doc, source.line())


def _place(name: str, place: int, component: str) -> str:
    return f"{name}_{place}_{component}"


class Record:
    """One place of a sequence, with its components as attributes. Without a record, they are the lowest values."""

    __slots__ = ("_place", "_view")

    def __init__(self, view: SequenceView, place: int) -> None:
        self._view = view
        self._place = place

    def __getattr__(self, component: str) -> Expr:
        return self._view.read(self._place, component)


class SequenceView:
    """One sequence, as seen from a symbolic state."""

    __slots__ = ("_declared", "_indices", "_name", "_state")

    def __init__(self, state: SymbolicState, name: str, declared: Sequence, indices: tuple[Any, ...] = ()) -> None:
        self._state, self._name, self._declared, self._indices = state, name, declared, indices

    @property
    def length(self) -> Expr:
        """The number of records."""
        return self._get(f"{self._name}_length")

    @property
    def is_empty(self) -> Expr:
        return self.length == 0

    @property
    def is_full(self) -> Expr:
        full: Expr = self.length == self._declared.length
        return full

    @property
    def head(self) -> Record:
        """The first record: the oldest one."""
        return Record(self, 0)

    def __getitem__(self, place: int) -> Record:
        """The record at a place, counted from 0."""
        if isinstance(place, bool) or not isinstance(place, int) or not 0 <= place < self._declared.length:
            source.refuse(f"{self._name}[{place}]: a place is one of the numbers 0..{self._declared.length - 1}")
        return Record(self, place)

    def __iter__(self) -> Iterator[tuple[Expr, Record]]:
        """Each place, with the condition that it has a record."""
        for place in range(self._declared.length):
            yield self.length > place, Record(self, place)

    def contains(self, **components: Any) -> Expr:
        """The condition that a record has these components."""
        self._known(components)
        found = [and_(there, *(getattr(r, k) == v for k, v in components.items())) for there, r in self]
        return or_(*found)

    def push(self, when: Any = TRUE, **components: Any) -> None:
        """Append a record, where `when` holds; a component that is left out is the lowest value.

        A step that appends to a full sequence is an error of the declaration, found when it is explored.
        """
        self._known(components)
        if lift(when).sort.kind != "bool":
            names = ", ".join(f"{name}=..." for name, _ in self._declared.components)
            source.refuse(f"push() takes the components by name, and not {when!r}: write {self._name}.push({names})")
        condition, length = lift(when), self.length
        for place in range(self._declared.length):
            here = and_(condition, length == place)
            for component, value in components.items():
                old = self.read(place, component)
                self._put(_place(self._name, place, component), ite(here, value, old))
        self._put(f"{self._name}_length", length + ite(condition, 1, 0))

    def pop(self, when: Any = TRUE) -> None:
        """Drop the first record, where `when` holds; the others move up. An empty sequence stays as it is."""
        condition, length = and_(lift(when), ~self.is_empty), self.length
        last = self._declared.length - 1
        for component, _ in self._declared.components:
            for place in range(last + 1):
                following = self.read(place + 1, component) if place < last else self._lowest(component)
                old = self.read(place, component)
                self._put(_place(self._name, place, component), ite(condition, following, old))
        self._put(f"{self._name}_length", length - ite(condition, 1, 0))

    def clear(self, when: Any = TRUE) -> None:
        """Drop all records, where `when` holds."""
        condition = lift(when)
        for component, _ in self._declared.components:
            for place in range(self._declared.length):
                name = _place(self._name, place, component)
                self._put(name, ite(condition, self._lowest(component), self.read(place, component)))
        self._put(f"{self._name}_length", ite(condition, 0, self.length))

    def read(self, place: int, component: str) -> Expr:
        """A component of the record at a place, counted from 0."""
        self._known((component,))
        return self._get(_place(self._name, place, component))

    def _lowest(self, component: str) -> Expr:
        slot: Slot = self._state._system.slots[_place(self._name, 0, component)]
        return lift(slot.bounds[0]) if slot.sort.kind == "int" else lowest(slot.sort)

    def _known(self, components: Any) -> None:
        known = [name for name, _ in self._declared.components]
        for name in components:
            if name not in known:
                source.refuse(f"{self._name} has no component {name!r}: its records have {', '.join(known)}")

    def _get(self, field: str) -> Expr:
        value: Expr = getattr(self._state, field)[self._indices] if self._declared.per else getattr(self._state, field)
        return value

    def _put(self, field: str, value: Any) -> None:
        if self._declared.per:
            getattr(self._state, field)[self._indices] = value
        else:
            setattr(self._state, field, value)


class SequenceArray:
    """One sequence per member of an index: `s.replies[client]`."""

    __slots__ = ("_declared", "_name", "_state")

    def __init__(self, state: SymbolicState, name: str, declared: Sequence) -> None:
        self._state, self._name, self._declared = state, name, declared

    def __getitem__(self, key: Any) -> SequenceView:
        indices = key if isinstance(key, tuple) else (key,)
        if len(indices) != len(self._declared.per):
            source.refuse(
                f"{self._name}: the number of indices is {len(indices)}, but must be {len(self._declared.per)}"
            )
        return SequenceView(self._state, self._name, self._declared, indices)


def view_of(state: SymbolicState, name: str, declared: Sequence) -> SequenceView | SequenceArray:
    """The sequence of a system."""
    return (SequenceArray if declared.per else SequenceView)(state, name, declared)
