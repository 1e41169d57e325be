"""Records: fields with several components, which are read, compared and assigned together.

*Theory of operation.* `slot = record(round=integer(0, 3), who=one_of(node), per=place)` declares the fields
`slot_round` and `slot_who`, so engines and exports see fields alone. A record that is read, `s.slot[k]`, is
a value: it keeps its components when the fields are assigned later. An assignment to a component is an assignment to
its field. The records of a sequence (`sequences`) are read and assigned in the same way.

Failures, each with the line: a component is not declared, or is left out where a whole record is assigned; a record is
used as a Python bool; a component is declared with indices of its own.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from . import source
from .expressions import Expr, and_, ite, not_
from .fields import Declared, Each, Field, Index, choice, flag, integer, one_of, several
from .quantifiers import IndexSet, check_loop

if TYPE_CHECKING:
    from .state import SymbolicState

Component = Any  # a field without indices; or an enum, bool, an index, or the lowest and highest number
Fields = tuple[tuple[str, Field], ...]
SHORT = "an enum, bool, an index, or the lowest and highest of its numbers"


def component_fields(components: Mapping[str, Component]) -> Fields:
    """The field of each component of a record, without indices."""
    return tuple((name, _component(name, given)) for name, given in components.items())


def _component(name: str, given: Component) -> Field:
    if name.startswith("_"):
        source.refuse(f"a component cannot be called {name!r}: let its name begin with a letter")
    if isinstance(given, Field):
        if given.per or given.editions:
            source.refuse(f"{name}: a component has no per= and no editions=: per= is an argument of the whole")
        return given
    if isinstance(given, tuple) and len(given) == 2:
        return integer(*given)
    if isinstance(given, Index):
        return one_of(given)
    if isinstance(given, type) and issubclass(given, enum.Enum | bool):
        return flag() if given is bool else choice(given)
    source.refuse(f"{name}={given!r}: a component is a field such as integer(0, 3), or {SHORT}")


@dataclass(frozen=True, slots=True, eq=False)
class Records(Declared):
    """The declaration of a record, or of one record per member of the indices in `per`."""

    per: tuple[Any, ...]
    components: Fields
    doc: str
    at: str

    def __call__(self, **components: Any) -> Record:
        """A record with these components, for an assignment or a comparison: `self.slot(round=1, who=None)`."""
        made = Record("the record", tuple(dict(self.components)), components.__getitem__, refuse_assignment)
        made._given(components)
        return made

    def fields(self, name: str) -> Iterator[tuple[str, Field]]:
        """The field of each component."""
        for component, field in self.components:
            yield f"{name}_{component}", replace(field, per=self.per, doc=field.doc or self.doc)

    def view(self, state: SymbolicState, name: str) -> Record | RecordArray:
        array = RecordArray(state, name, self)
        return array if self.per else array._at(())

    def assign(self, state: SymbolicState, name: str, value: Any) -> None:
        if self.per:
            source.refuse(f"{name!r} is several records: assign {name}[...]")
        RecordArray(state, name, self)._at(())._assign(value)


def record(*, per: Each = (), doc: str = "", **components: Component) -> Any:
    """Declare a record: a variable with several components, which are fields with their own initial values.

    `s.slot[k].round` is a component, and `s.slot[k] = self.slot(round=1, who=None)` assigns a whole record.

    Args:
        per: the indices; there is a record for each of their members.
        doc: a description.
        components: for each component a field, such as `integer(0, 3, initial=ANY)`; or an enum, `bool`, an index, or
            the lowest and highest of its numbers.

    Raises:
        DeclarationError: there is no component, or a component is not one of these.
    """
    if not components:
        source.refuse("a record of no components: give one or more, such as record(round=integer(0, 3))")
    return Records(several(per), component_fields(components), doc, source.line())


class Composite:
    """A view of several values. Python would decide its truth and its equality alone, so both are refused."""

    __slots__ = ()

    _name: str

    def __bool__(self) -> bool:
        source.refuse(f"{self._name} was used as a Python bool, and is several values: compare one of them")

    def __eq__(self, other: object) -> Any:
        source.refuse(f"{self._name} is several values: compare {self._name}[...]")

    def __ne__(self, other: object) -> Any:
        return not_(self == other)

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return self._name


class Record(Composite):
    """The components of a record as attributes; `==` compares whole records."""

    __slots__ = ("_components", "_get", "_name", "_put")

    _components: tuple[str, ...]
    _get: Callable[[str], Expr]
    _name: str
    _put: Callable[[str, Any], None]

    def __init__(
        self, name: str, components: tuple[str, ...], get: Callable[[str], Expr], put: Callable[[str, Any], None]
    ) -> None:
        for slot, value in (("_name", name), ("_components", components), ("_get", get), ("_put", put)):
            object.__setattr__(self, slot, value)

    def __getattr__(self, component: str) -> Expr:
        check_known(self._name, self._components, (component,))
        return self._get(component)

    def __setattr__(self, component: str, value: Any) -> None:
        check_known(self._name, self._components, (component,))
        self._put(component, value)

    def __eq__(self, other: object) -> Any:
        given = self._given(other)
        return and_(*(getattr(self, c) == given[c] for c in self._components))

    def _given(self, value: Any) -> Mapping[str, Any]:
        """Each component of a record of this form, which is a record or a mapping."""
        given = components_of(value)
        if given is None:
            known = ", ".join(self._components)
            source.refuse(f"{self._name} is a record, and {value!r} is not: give a record, or a dict with {known}")
        check_known(self._name, self._components, given)
        if missing := [c for c in self._components if c not in given]:
            source.refuse(f"{self._name} leaves out {', '.join(missing)}: give each component")
        return given

    def _assign(self, value: Any) -> None:
        for component, one in self._given(value).items():
            self._put(component, one)

    def _chosen(self, condition: Any, then: Any, otherwise: Any) -> Record:
        """The record of `ite`: `then` where the condition holds, else `otherwise`."""
        a, b = self._given(then), self._given(otherwise)
        trees = {c: ite(condition, a[c], b[c]) for c in self._components}
        return Record(self._name, self._components, trees.__getitem__, refuse_assignment)


def refuse_assignment(component: str, value: Any) -> None:
    """Refuse an assignment to a component of a record that is not in a field."""
    source.refuse(f"{component} is a component of a value, which cannot be assigned: assign a component of a field")


def components_of(value: Any) -> Mapping[str, Any] | None:
    """The components of a record or of a mapping; None for another value."""
    if isinstance(value, Record):
        return {c: value._get(c) for c in value._components}
    return value if isinstance(value, Mapping) else None


def check_known(name: str, known: tuple[str, ...], given: Any) -> None:
    """Refuse a component that the records do not have."""
    for one in given:
        if one not in known:
            source.refuse(f"{name} has no component {one!r}: its records have {', '.join(known)}")


def cell_of(state: SymbolicState, field: str, indices: tuple[Any, ...]) -> Expr:
    """The value of a field at its indices, if it has any."""
    value: Expr = getattr(state, field)[indices] if indices else getattr(state, field)
    return value


def assign_cell(state: SymbolicState, field: str, indices: tuple[Any, ...], value: Any) -> None:
    """Assign a field at its indices, if it has any."""
    if indices:
        getattr(state, field)[indices] = value
    else:
        setattr(state, field, value)


class RecordArray(Composite):
    """One record per member of an index: `s.slot[k]`. `s.slot.round` is the field of one component."""

    __slots__ = ("_declared", "_name", "_state")

    _state: SymbolicState
    _declared: Records

    def __init__(self, state: SymbolicState, name: str, declared: Records) -> None:
        for slot, value in (("_state", state), ("_name", name), ("_declared", declared)):
            object.__setattr__(self, slot, value)

    def _at(self, indices: tuple[Any, ...]) -> Record:
        state, now = self._state, self._state.fork()

        def put(component: str, value: Any) -> None:
            for one in (state, now):
                assign_cell(one, f"{self._name}_{component}", indices, value)

        shown = f"{self._name}[{', '.join(map(str, indices))}]" if indices else self._name
        return Record(shown, self._components, lambda c: cell_of(now, f"{self._name}_{c}", indices), put)

    def __getitem__(self, key: Any) -> Record:
        return self._at(indices_of(key, self._name, self._declared.per))

    def __setitem__(self, key: Any, value: Any) -> None:
        self[key]._assign(value)

    def __iter__(self) -> Iterator[Record]:
        """Each record, in a loop over the index."""
        dims = self._state._system.slots[f"{self._name}_{self._components[0]}"].dims
        if len(dims) != 1:
            source.refuse(f"{self._name} has several indices: loop over each index instead")
        check_loop(self._name)
        return (self[j] for j in IndexSet(dims[0]))

    def __setattr__(self, component: str, value: Any) -> None:
        source.refuse(f"{self._name} is several records: assign {self._name}[...].{component}")

    def __getattr__(self, component: str) -> Any:
        check_known(self._name, self._components, (component,))
        return getattr(self._state, f"{self._name}_{component}")

    def _fields(self) -> list[Any]:
        return [getattr(self, name) for name in self._components]

    @property
    def _components(self) -> tuple[str, ...]:
        return tuple(dict(self._declared.components))


def indices_of(key: Any, name: str, per: tuple[Any, ...]) -> tuple[Any, ...]:
    """The indices of `name[key]`, as many as it is declared with."""
    indices = key if isinstance(key, tuple) else (key,)
    if len(indices) != len(per):
        source.refuse(f"{name}: the number of indices is {len(indices)}, but must be {len(per)}")
    return indices
