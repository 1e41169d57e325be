"""Bounded sequences of records: queues, logs. A sequence is a group of fields with functions to write.

`sequence(2, per="client", kind=Reply, value=(0, 2))` declares, for each client, at most two replies. In a step,
`s.replies[c].push(kind=Reply.VALUE, value=1)` appends one, `s.replies[c].head.kind` reads the first, `.pop()` drops it.
Rule: a place without a record has the lowest values, so equal sequences are equal states. (`channels` adds steps that
lose or duplicate records.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from . import source
from .expressions import TRUE, Expr, and_, as_int, boolean, equal, ite, less, lift, member_of, named, or_
from .fields import Bound, Declared, Each, Field, Sizes, Slot, integer, several
from .quantifiers import total
from .records import (
    Component,
    Composite,
    Fields,
    Record,
    assign_cell,
    cell_of,
    check_known,
    component_fields,
    components_of,
    indices_of,
    refuse_assignment,
)
from .sorts import int_sort

if TYPE_CHECKING:
    from .state import SymbolicState

ARGUMENTS = ("when", "at", "record")  # arguments of push(), which gets the components by name


@dataclass(frozen=True, slots=True, eq=False)
class Sequence(Declared):
    """The declaration of a sequence: at most `length` records, one sequence per member of the indices in `per`."""

    length: Any  # a number once it is built
    per: tuple[Any, ...]
    components: Fields
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
        field = integer(0, self.length, per=self.per, doc=f"how many: {self.doc}")
        yield f"{name}_length", replace(field, at=self.at)
        for place in range(self.length):
            for component, field in self.components:
                yield _place(name, place, component), replace(field, per=self.per, doc=self.doc, at=self.at)

    def view(self, state: SymbolicState, name: str) -> SequenceView | SequenceArray:
        return (SequenceArray if self.per else self.one)(state, name, self)

    def assign(self, state: SymbolicState, name: str, value: Any) -> None:
        if self.per:
            source.refuse(f"{name!r} is several sequences: assign {name}[...]")
        self.one(state, name, self)._take(value)

    @property
    def one(self) -> type[SequenceView]:
        return SequenceView


def sequence(length: Bound, *, per: Each = (), doc: str = "", **components: Component) -> Any:
    """Declare a sequence of records.

    A component is a field without `initial=`, such as `integer(0, 3)`; or an enum, `bool`, an index, or the lowest and
    highest of its numbers. The length may be a size, such as `2 * node`.

    Raises:
        DeclarationError: the length is below 1, a record has no components, or a component is not one of these.
    """
    return Sequence(length, several(per), checked("sequence", length, components), doc, source.line())


def checked(what: str, length: Any, components: Mapping[str, Component]) -> Fields:
    """The components of a sequence, each with the lowest value where there is no record."""
    if (isinstance(length, int) and length < 1) or not components:
        source.refuse(f"a {what} of at most {length} records of {len(components)} components: give one or more")
    for name in ARGUMENTS:
        if name in components:
            source.refuse(f"a component cannot be called {name!r}: push({name}=...) has another meaning")
    fields = component_fields(components)
    for name, field in fields:
        first = False if field.kind == "bool" else next(iter(field.members)) if field.members else None
        if field.initial is not (field.low if field.kind == "int" else first):
            source.refuse(f"{name}: a place without a record has the lowest values: leave initial= out", at=field.at)
    return fields


def _may_be_one(here: tuple[Expr, ...], there: tuple[Expr, ...]) -> bool:
    """Whether two members of one index may be the same."""
    return all(
        a.op != "const" or b.op != "const" or a is b for a, b in zip(map(lift, here), map(lift, there), strict=True)
    )


def _place(name: str, place: int, component: str) -> str:
    return f"{name}_{place}_{component}"


class SequenceView(Composite):
    """One sequence, as seen from a symbolic state."""

    __slots__ = ("_components", "_declared", "_indices", "_name", "_places", "_state")

    def __init__(self, state: SymbolicState, name: str, declared: Sequence, indices: tuple[Any, ...] = ()) -> None:
        self._state, self._name, self._declared, self._indices = state, name, declared, indices
        self._places = range(declared.length)
        self._components = tuple(dict(declared.components))

    def __eq__(self, other: object) -> Any:
        if not isinstance(other, SequenceView) or len(other._places) != len(self._places):
            source.refuse(f"{self._name} is a sequence, and {other!r} is not one of the same length: compare records")
        same = ((self.length <= p) | (self[p] == other[p]) for p in self._places)  # empty places may differ
        return and_(self.length == other.length, *same)

    def _take(self, other: Any) -> None:
        """Become a copy of another sequence, as it is at this line."""
        alike = type(self) is type(other) is SequenceView and {*self._components} == {*other._components}
        if not alike or len(other._places) > len(self._places):
            source.refuse(
                f"{self._name!r} is a sequence: use {self._name}.push(...), .pop() or .clear(), or assign a sequence "
                "(not a channel) with the same components and no more places"
            )
        now = other._at_this_line()
        for component in self._components:
            for p in self._places:
                value = self._lowest(component)
                if p < len(now._places):
                    value = ite(now.length > p, now.read(p, component), value)
                self._put(p, component, value)
        self._become(now.length)

    @property
    def length(self) -> Expr:
        """The number of records."""
        return cell_of(self._state, f"{self._name}_length", self._indices)

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
        return self._record(lift(0))

    @property
    def last(self) -> Record:
        """The last record: the newest one."""
        return self._record(self.length - 1)

    def __getitem__(self, place: Any) -> Record:
        """The record at a place, counted from 0; a number of the state may be the place."""
        return self._record(self._number(place))

    def __contains__(self, record: Any) -> bool:
        source.refuse(f"{record} in {self._name}: Python makes a bool of this, so write {self._name}.contains(...)")

    def __setitem__(self, place: Any, record: Any) -> None:
        """Change the record at a place, if there is one."""
        self[place]._assign(record)

    def __iter__(self) -> Iterator[tuple[Expr, Record]]:
        """Each place, with the condition that it has a record."""
        for place in self._places:
            yield self.length > place, self[place]

    def contains(self, **components: Any) -> Expr:
        """The condition that a record has these components."""
        check_known(self._name, self._components, components)
        found = [and_(there, *(getattr(r, k) == v for k, v in components.items())) for there, r in self]
        return or_(*found)

    def push(self, record: Any = None, *, when: Any = TRUE, at: Any = None, **components: Any) -> None:
        """Append a record, where `when` holds; a component that is left out is the lowest value.

        A step that appends to a full sequence is an error of the declaration, found when it is explored.

        Args:
            record: another record with these components, instead of the components by name.
            when: a condition.
            at: the place of the record, such as 0 for the front; the records from there on move up.
            components: the value of each component.
        """
        given = components_of(record) if record is not None else components
        if given is None or (record is not None and components):
            names = ", ".join(f"{name}=..." for name in self._components)
            source.refuse(f"push() takes the components by name, and not {record!r}: write {self._name}.push({names})")
        check_known(self._name, self._components, given)
        condition, stays, length = boolean(when, "push(when=)"), self._staying(given, at), self.length
        if stays is not None:
            self._insert(condition, given, stays)
            return
        for p in self._places:
            here = and_(condition, length == p)
            for component, value in given.items():
                self._put(p, component, ite(here, value, self.read(p, component)))
        self._put_length(length + ite(condition, 1, 0))

    def pop(self, place: Any = 0, when: Any = TRUE) -> Record:
        """Drop the first record, or the record at a place, where `when` holds; the later records move up.

        Without a record at the place, the sequence stays as it is. Returns the record.
        """
        at, length, now = self._number(place), self.length, self._at_this_line()
        dropped = Record(f"{self._name}[{at}]", self._components, lambda c: now._read_at(at, c), refuse_assignment)
        condition = and_(boolean(when, "pop(when=)"), ~self.is_empty if at is lift(0) else at < length)

        def moved(p: int, component: str) -> Expr:
            following = self.read(p + 1, component) if p + 1 < self._declared.length else self._lowest(component)
            return ite(less(lift(p), at), self.read(p, component), following)

        self._rewrite(condition, moved, length - ite(condition, 1, 0))
        return dropped

    def keep(self, condition: Callable[[Record], Any], when: Any = TRUE) -> None:
        """Drop the records for which the condition does not hold, where `when` holds: `keep(lambda r: r.kind == X)`."""
        if not callable(condition):
            source.refuse(f"{self._name}.keep({condition}): write {self._name}.keep(lambda r: r.COMPONENT == X)")
        kept = [and_(there, boolean(condition(record), "keep()")) for there, record in self]
        rank = [total([lift(0), *map(as_int, kept[:k])]) for k in self._places]
        old = {(p, c): self.read(p, c) for p in self._places for c in self._components}

        def moved(p: int, component: str) -> Expr:
            value = self._lowest(component)
            for k in reversed(self._places[p:]):
                value = ite(and_(kept[k], equal(rank[k], lift(p))), old[k, component], value)
            return value

        holds = boolean(when, "keep(when=)")
        self._rewrite(holds, moved, ite(holds, total([*map(as_int, kept)]), self.length))

    def clear(self, when: Any = TRUE) -> None:
        """Drop all records, where `when` holds."""
        holds = boolean(when, "clear(when=)")
        self._rewrite(holds, lambda _, component: self._lowest(component), ite(holds, 0, self.length))

    def read(self, place: int, component: str) -> Expr:
        """A component of the record at a place, counted from 0."""
        return cell_of(self._state, _place(self._name, place, component), self._indices)

    def _number(self, place: Any, more: int = 0) -> Expr:
        """The number of a place; with `more`, also of the place behind the last."""
        last = self._declared.length - 1 + more
        found = None if isinstance(place, bool) else member_of(place, int_sort(0, last))
        if found is None:
            source.refuse(
                f"{self._name}[{place}]: a place is one of the numbers 0..{last}; the last record is {self._name}.last"
            )
        return found

    def _at_this_line(self) -> Self:
        """The sequence as it is now, which later assignments do not change."""
        return type(self)(self._state.fork(), self._name, self._declared, self._indices)

    def _record(self, place: Expr) -> Record:
        """The record at a place as it is now; without a record, it has the lowest values."""
        now, moves = self._at_this_line(), self._state._trace.moves[self._name]
        moved = len(moves)

        def put(component: str, value: Any) -> None:
            if any(_may_be_one(self._indices, indices) for indices in moves[moved:]):
                source.refuse(
                    f"{self._name}{shown} was read before the records moved: read it again, and assign that one"
                )
            for view in (self, now):
                view._assign_at(place, component, value)

        shown = "".join(f"[{one}]" for one in (*self._indices, place))
        return Record(f"{self._name}{shown}", self._components, lambda c: now._read_at(place, c), put)

    def _read_at(self, place: Expr, component: str) -> Expr:
        if place.op == "const":
            return self.read(place.value, component)
        value = self.read(0, component)
        for p in self._places[1:]:
            value = ite(equal(place, lift(p)), self.read(p, component), value)
        operands = (*map(lift, self._indices), place)
        label = f"{self._name}{''.join(f'[{{{k}}}]' for k in range(len(operands)))}.{component}"
        return named(label, value, *operands)

    def _assign_at(self, place: Expr, component: str, value: Any) -> None:
        for p in self._places:
            here = and_(equal(place, lift(p)), less(lift(p), self.length))
            self._put(p, component, ite(here, value, self.read(p, component)))

    def _staying(self, given: Mapping[str, Any], at: Any) -> list[Expr] | None:
        """For each place, whether its record stays there when a record is pushed; None where all records stay."""
        if at is None:
            return None
        place = self._number(at, 1)
        return [and_(less(lift(p), place), self.length > p) for p in self._places]

    def _insert(self, condition: Expr, given: Mapping[str, Any], stays: list[Expr]) -> None:
        """Put a record behind the records that stay, which are the first ones."""
        old = {(p, c): self.read(p, c) for p in self._places for c in self._components}

        def moved(p: int, component: str) -> Expr:
            new = given.get(component, self._lowest(component))
            return ite(stays[p], old[p, component], ite(stays[p - 1], new, old[p - 1, component]) if p else new)

        self._rewrite(condition, moved, self.length + ite(condition, 1, 0))

    def _rewrite(self, condition: Expr, row: Callable[[int, str], Expr], length: Expr) -> None:
        """Where the condition holds, give each component at each place the value of `row`."""
        self._state._trace.moves[self._name].append(self._indices)
        for component in self._components:
            for p in self._places:
                self._put(p, component, ite(condition, row(p, component), self.read(p, component)))
        self._become(length)

    def _become(self, length: Expr) -> None:
        """Set the length. Once too long, it remains so to the end of the step: a later pop() hides no error."""
        self._put_length(ite(less(lift(self._declared.length), self.length), self.length, length))

    def _lowest(self, component: str) -> Expr:
        slot: Slot = self._state._system.slots[_place(self._name, 0, component)]
        return slot.lowest

    def _put(self, place: int, component: str, value: Any) -> None:
        if value is not self.read(place, component):
            assign_cell(self._state, _place(self._name, place, component), self._indices, value)

    def _put_length(self, value: Expr) -> None:
        assign_cell(self._state, f"{self._name}_length", self._indices, value)


class SequenceArray(Composite):
    """One sequence per member of an index: `s.replies[client]`."""

    __slots__ = ("_declared", "_name", "_state")

    def __init__(self, state: SymbolicState, name: str, declared: Sequence) -> None:
        self._state, self._name, self._declared = state, name, declared

    def __getitem__(self, key: Any) -> SequenceView:
        indices = indices_of(key, self._name, self._declared.per)
        return self._declared.one(self._state, self._name, self._declared, indices)

    def __setitem__(self, key: Any, value: Any) -> None:
        self[key]._take(value)
