"""The symbolic state that a transition's body runs on, to record the guard and the effects of the transition.

The current value of a field is a tree over the values before the step. If the field has indices, this tree contains a
placeholder for each index position. It is then the current value of the member at these indices. A write at a given
index wraps the tree in `ite(placeholder == index, value, ...)`. A write in a loop over an index set replaces the tree.
"""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

from . import choices, source
from .choices import Choice
from .expressions import (
    TRUE,
    Expr,
    Role,
    and_,
    boolean,
    const,
    equal,
    ite,
    lift,
    lift_like,
    member_of,
    named,
    or_,
    read,
    substitute,
    variable,
)
from .fields import Slot
from .quantifiers import IndexSet, all_, any_, check_loop, count, running
from .records import Composite, RecordArray, indices_of

if TYPE_CHECKING:
    from .systems import System


CHAIN = 32  # after this number of writes to one field, its tree is made flatter: trees are walked by recursion


@dataclass(frozen=True, slots=True)
class Write:
    """One assignment as its author wrote it, for printing, and with its line, for errors."""

    field: str
    indices: tuple[Expr, ...]
    value: Expr
    line: str


@dataclass(slots=True)
class Trace:
    """The record of a body so far: its guard, each assigned field as a tree over placeholders, and each assignment."""

    bodies: dict[str, Expr] = field(default_factory=dict)
    guard: list[Expr] = field(default_factory=list)
    writes: dict[tuple[str, tuple[Expr, ...]], Write] = field(default_factory=dict)
    choices: list[Choice] = field(default_factory=list)
    chains: dict[str, list[tuple[Expr, Expr]]] = field(default_factory=dict)  # per field: (condition, value) pairs
    # Per sequence: the indices of those whose records may have moved.
    moves: dict[str, list[tuple[Expr, ...]]] = field(default_factory=lambda: defaultdict(list))

    def current(self, slot: Slot, indices: tuple[Expr, ...]) -> Expr:
        """The value of a member after the assignments so far."""
        body = self.bodies.get(slot.name)
        if body is None:
            return read(slot.name, indices, slot.sort)
        return substitute(body, dict(zip(slot.placeholders(), indices, strict=True)))

    def assign(self, slot: Slot, here: Expr, value: Expr) -> None:
        """Assign a value to the members for which `here` holds."""
        before = self.bodies.get(slot.name, slot.identity())
        chain = self.chains.setdefault(slot.name, [(TRUE, before)])
        if here is TRUE:
            chain.clear()
        chain.append((here, value))
        self.bodies[slot.name] = ite(here, value, before) if len(chain) % CHAIN else _chosen(chain)


def trace_of(state: SymbolicState) -> Trace:
    """The trace of a state. It is not a public attribute, since a state's attributes are the fields of the system."""
    return state._trace


class SymbolicState:
    """Fields as attributes: `s.complete`, `s.member[node]`, `for j in s.node`; `s.when(...)` adds to the guard."""

    def __init__(self, system: System, *, frozen: str = "", effects: Mapping[str, Expr] | None = None) -> None:
        put = object.__setattr__
        put(self, "_system", system)
        put(self, "_trace", Trace(dict(effects or {})))
        put(self, "_frozen", frozen)
        put(self, "_outer", running())
        put(self, "_begun", running())
        put(self, "_copy", False)

    _system: System
    _trace: Trace
    _outer: tuple[Expr, ...]  # loops that an error has left open, or in which the copy was made
    _begun: tuple[Expr, ...]  # the same of the state itself
    _copy: bool  # whether this is a fork, whose guard no step has
    _frozen: str  # the purpose of a state to which nothing may be assigned; else empty

    def when(self, *conditions: Any) -> None:
        """The transition is enabled only where all conditions hold."""
        if self._frozen:
            source.refuse(f"when() is for transitions, and not for {self._frozen}")
        if self._copy:
            source.refuse("when() on a copy of the state has no effect: call it on the state itself")
        for given in conditions:
            expr = boolean(given, "when()")
            if any(v.role is Role.LOOP for v in expr.free):
                source.refuse("when() inside a loop over an index: use all_(...) or any_(... for j in s.node)")
            if expr is not TRUE:  # with given sizes, a condition may be constant
                self._trace.guard.append(expr)

    def fork(self) -> SymbolicState:
        """A copy of this state for trial writes: writing to the copy does not change this state."""
        made = SymbolicState(self._system, effects=self._trace.bodies)
        made._trace.choices = self._trace.choices
        object.__setattr__(made, "_begun", self._begun)
        object.__setattr__(made, "_copy", True)
        return made

    def choose(self, values: Any) -> Any:
        """Any member of an index, `s.node`, or any value of an enum, `bool`, a range or a tuple: each is a step."""
        return choices.choose(self._choices("choose"), values)

    def subset(self, members: Any) -> Any:
        """Any set of members of an index, `s.node`: each is a step; `chosen[j]` is true where it has the member."""
        return choices.subset(self._choices("subset"), members)

    def _choices(self, name: str) -> list[Choice]:
        if self._frozen:
            source.refuse(f"{name}() is for transitions, and not for {self._frozen}")
        if any(all(member is not one for one in self._begun) for member in running()):
            source.refuse(
                f"{name}() inside a loop over an index is one choice for all members: choose before the loop, or loop "
                "over the numbers of the members: for j in range(len(s.node))"
            )
        return self._trace.choices

    def __getattr__(self, name: str) -> Any:
        system = self._system
        if name in system.slots:
            slot = system.slots[name]
            return ArrayView(self, slot) if slot.dims else self._trace.current(slot, ())
        if name in system._groups:
            return system._groups[name].view(self, name)
        if name in system.index_sorts:
            return IndexSet(system.index_sorts[name])
        if name in {f"{fault}_left" for fault in system.faults}:
            source.refuse(f"{system.name} reads {name!r}, which max_faults replaces: give each fault a bound instead")
        close = difflib.get_close_matches(name, [*system.slots, *system._groups, *system.index_sorts], 1)
        hint = f", did you mean {close[0]!r}?" if close else f": the system has {', '.join(system.slots)}"
        source.refuse(f"unknown field {name!r}{hint}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._system._groups:
            self._system._groups[name].assign(self, name, value)
            return
        if name not in self._system.slots:
            getattr(self, name)  # refuses an unknown name
            source.refuse(f"{name!r} is an index, not a field: it cannot be assigned")
        slot = self._system.slots[name]
        if slot.dims:
            source.refuse(f"{name!r} has one value per {slot.dims[0].name}: assign {name}[...], or loop over the index")
        _write(self, slot, (), value)


class ArrayView(Composite):
    """One field with indices, as seen from a symbolic state."""

    __slots__ = ("_name", "_slot", "_state")

    def __init__(self, state: SymbolicState, slot: Slot) -> None:
        self._state, self._slot, self._name = state, slot, slot.name

    def _indices(self, key: Any) -> tuple[Expr, ...]:
        out, dims = [], self._slot.dims
        for k, dim in zip(indices_of(key, self._slot.name, dims), dims, strict=True):
            expr = k if isinstance(k, Expr) and k.sort is dim else member_of(k, dim)
            if expr is None:
                source.refuse(f"{self._slot.name}[{k}]: not a {dim.name} ({dim.span})")
            out.append(expr)
        return tuple(out)

    def __getitem__(self, key: Any) -> Expr:
        slot, indices = self._slot, self._indices(key)
        value = self._state._trace.current(slot, indices)
        absent = [i.absent for i in indices if i.sort.least < 0]
        if not absent:
            return value
        return named("{0}", ite(or_(*absent), slot.lowest, value), read(slot.name, indices, slot.sort))

    def __setitem__(self, key: Any, value: Any) -> None:
        _write(self._state, self._slot, self._indices(key), value)

    def __iter__(self) -> Iterator[Expr]:
        if len(self._slot.dims) != 1:
            source.refuse(f"{self._slot.name} has several indices: loop over each index instead")
        check_loop(self._slot.name)
        return (self[j] for j in IndexSet(self._slot.dims[0]))

    def any(self, *values: Any) -> Expr:
        """Some member equals one of `values`; of a flag without `values`, some member holds."""
        return any_(x.isin(values) if values else x for x in self)

    def all(self, *values: Any) -> Expr:
        """Each member equals one of `values`; of a flag without `values`, each member holds."""
        return all_(x.isin(values) if values else x for x in self)

    def count(self, *values: Any) -> Expr:
        """The number of members that equal one of `values`; of a flag without `values`, the number that hold."""
        return count(x.isin(values) if values else x for x in self)


def reset(*fields: Any, at: Any = (), when: Any = True) -> None:
    """Give fields with indices their initial value: the member `at`, or all members whose first indices these are."""
    for view in chain(*(one._fields() if isinstance(one, RecordArray) else (one,) for one in fields)):
        _reset(_with_indices(view, "reset"), at if isinstance(at, tuple) else (at,), when)


def _reset(view: ArrayView, at: tuple[Expr, ...], when: Any) -> None:
    slot = view._slot
    if len(at) < len(slot.dims):
        for j in IndexSet(slot.dims[len(at)]):
            _reset(view, (*at, j), when)
        return
    if len(slot.initial) > 1:
        source.refuse(f"{slot.name} has several initial values: assign one of them")
    first = slot.initial[0]
    view[at] = ite(when, lift(first) if slot.sort.kind == "int" else const(first, slot.sort), view[at])


def move(field: ArrayView, origin: Any, dest: Any, *conditions: Any, at: Any) -> None:
    """A guard and an effect: the member `at` of a field is `origin`, a value or one of several, and becomes `dest`.

    The `conditions` belong to the guard too.
    """
    _with_indices(field, "move")
    field._state.when(field[at].isin(origin if isinstance(origin, tuple) else (origin,)), *conditions)
    field[at] = dest


def _with_indices(field: Any, name: str) -> ArrayView:
    if not isinstance(field, ArrayView):
        source.refuse(f"{field} has no index, and {name}() is for fields with indices: assign it")
    return field


def parameters(system: System, name: str, each: tuple[Any, ...], at: str) -> tuple[Expr, ...]:
    """The variables of a declaration with `each`; variables of an index that occurs more than once are numbered."""
    sorts = [system._known.sort(dim, f"{name}: each=", at) for dim in each]
    names = [sort.name.rpartition(".")[2] for sort in sorts]
    numbered = (one if names.count(one) == 1 else f"{one}{k}" for k, one in enumerate(names))
    return tuple(map(variable, numbered, sorts))


def _write(state: SymbolicState, slot: Slot, indices: tuple[Expr, ...], value: Any) -> None:
    if state._frozen:
        source.refuse(f"{slot.name} is assigned in {state._frozen}: only transitions change the state")
    expr = value if isinstance(value, Expr) else lift_like(value, slot.sort)
    _refuse_misfit(slot, expr)
    # A loop over an index assigns every member there; any other index is compared with the place of the member.
    # Of a copy that was made in a loop, the loop's member is one member and not each.
    given = state._outer if state._copy else ()
    for index in indices:
        if index.role is Role.LOOP and all(index is not one for one in running()):
            source.refuse(f"{slot.name} is assigned at the {index} of a loop that has ended: assign it in the loop")
    loops, here = _place_of(slot, indices, given)
    expr = substitute(expr, dict(loops))
    if any(v.role is Role.LOOP and all(v is not one for one in given) for v in (*expr.free, *here.free)):
        source.refuse(
            f"the loop index escapes into {slot.name}: use sum_(), max_(), min_(), count(), any_() or all_(); "
            "for one record of each member, write for k in range(len(s.node))"
        )
    for member in running():
        if not any(member is i for i in (*indices, *state._outer)):
            name = member.sort.name
            source.refuse(f"{slot.name} is assigned in a loop over {name}, whose lines run once for all members: "
                          f"assign it of the member, or write for k in range(len(s.{name}))")  # fmt: skip
    trace = state._trace
    trace.assign(slot, here, expr)
    shown = tuple(loops.get(i, i) for i in indices)
    trace.writes.pop((slot.name, shown), None)
    trace.writes[slot.name, shown] = Write(slot.name, shown, expr, source.line())


def _refuse_misfit(slot: Slot, expr: Expr) -> None:
    sort = slot.sort
    alike = expr.sort.name == sort.name if sort.kind in ("enum", "index") else True
    if expr.sort.kind != sort.kind or not alike:
        source.refuse(f"{slot.name} holds {_wanted(slot)}, but {expr} is of sort {expr.sort.name}")
    if expr.op == "const" and not sort.least <= expr.value <= sort.most:
        source.refuse(f"{slot.name} holds {_wanted(slot)}, but {expr} is outside")


def _place_of(slot: Slot, indices: tuple[Expr, ...], given: Sequence[Expr]) -> tuple[dict[Expr, Expr], Expr]:
    """The placeholder of each loop index that is not given, and the condition that a member is at the other indices."""
    places = slot.placeholders()
    each = [i.role is Role.LOOP and all(i is not one for one in given) for i in indices]
    loops = {i: p for i, p, is_each in zip(indices, places, each, strict=True) if is_each}
    if len(loops) < sum(each):
        source.refuse(f"{slot.name}: a loop index is used twice; write the diagonal one member at a time, with each=")
    return loops, and_(*(equal(p, i) for i, p in zip(indices, places, strict=True) if i not in loops))


def _chosen(chain: Sequence[tuple[Expr, Expr]]) -> Expr:
    """The value of the last pair whose condition holds; the first always holds. The depth is the logarithm."""
    if len(chain) == 1:
        return chain[0][1]
    middle = len(chain) // 2
    later = chain[middle:]
    return ite(or_(*(here for here, _ in later)), _chosen(later), _chosen(chain[:middle]))


def _wanted(slot: Slot) -> str:
    sort = slot.sort
    return " or ".join(sort.labels) if sort.labels else f"{sort.kind} {sort.span}"
