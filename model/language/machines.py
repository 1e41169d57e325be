"""Machines: the control states of something in a system, such as a node, and the transitions that move it."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from . import bodies, source
from .expressions import (
    FALSE,
    QUANTIFIERS,
    Expr,
    Role,
    and_,
    differing,
    equal,
    ite,
    lift,
    not_,
    or_,
    placeholder,
    read,
    rebuild,
    substitute,
)
from .fields import Field
from .quantifiers import abstract, instantiate, loop_variable
from .sorts import Sort, enum_sort
from .state import SymbolicState, parameters
from .transitions import Arc, Transition

if TYPE_CHECKING:
    from .systems import System


@dataclass(frozen=True, slots=True)
class View(bodies.Decorated):
    """The record of `@machine`: how to read the control state from a state."""

    states: type[enum.Enum]
    each: str
    shown: Field | None = None  # given to `machine_of`
    at: str = ""


@bodies.with_parentheses
def machine(states: type[enum.Enum], *, each: str = "") -> Callable[[Callable[..., Any]], View]:
    """Declare a machine: the decorated function returns its control state, a member of `states`.

    The value of each member of `states` is the sentence that a chart shows under its name.
    """

    def decorate(body: Callable[..., Any]) -> View:
        bodies.check_plain(body)
        return View(body, states, each)

    return decorate


def machine_of(shown: Field, doc: str) -> View:
    """Declare the machine whose control state is a field: a `choice`, perhaps per index."""

    def body(self: System, s: SymbolicState, *who: Expr) -> Any:
        name = _name_of(shown, self)
        return getattr(s, name)[who] if who else getattr(s, name)

    if shown.members is None or len(shown.per) > 1:
        source.refuse("a machine shows a choice with at most one index: declare other machines with @machine")
    if not doc.strip():
        source.refuse("a machine of a field has no description: describe in one line what moves")
    body.__doc__ = doc
    return View(body, shown.members, "".join(shown.per), shown, source.line())


def _name_of(shown: Field, system: System) -> str:
    """The name of a field of a system; empty if the system does not declare it."""
    return next((k for base in type(system).__mro__ for k, field in vars(base).items() if field is shown), "")


@dataclass(frozen=True, slots=True, eq=False)
class Machine:
    """The control states of a round, a node's membership, ...: `control` is an expression over the state."""

    name: str
    system: System
    states: type[enum.Enum]
    params: tuple[Expr, ...]
    control: Expr
    doc: str
    _members: dict[Expr, Expr] = field(default_factory=dict, repr=False)
    _unclaimed: dict[tuple[str, Expr | None, str], Expr] = field(default_factory=dict, repr=False)

    def of(self, who: Expr | None) -> Expr:
        """The control expression of one member."""
        if not self.params or who is None:
            return self.control
        if who not in self._members:
            self._members[who] = substitute(self.control, {self.params[0]: who})
        return self._members[who]

    def arcs(self, t: Transition, of: str = "self") -> tuple[Arc, ...]:
        """The moves of this machine that a transition claims."""
        return tuple(a for a in t.arcs if type(a.source) is self.states and (a.of == of or not self.params))

    def moved(self, t: Transition, state: enum.Enum, dest: enum.Enum, who: Expr | None) -> Expr:
        """A condition on the state before `t`: the control state is `state`, and is `dest` after `t`."""
        before = self.of(who)
        return and_(equal(before, lift(state)), equal(self.after(t, before), lift(dest)))

    def after(self, t: Transition, before: Expr) -> Expr:
        """The control expression after `t`, as an expression over the state before it."""
        return apply_effects(before, t, t.after)

    def unclaimed(self, t: Transition, who: Expr | None, of: str) -> Expr:
        """A condition on the state before `t`: `t` would move the machine in a way that it does not claim."""
        found = self._unclaimed.get((t.name, who, of))
        if found is None:
            before = self.of(who)
            after = self.after(t, before)
            claimed = or_(*(self.moved(t, a.source, a.dest, who) for a in self.arcs(t, of)))
            found = self._unclaimed[t.name, who, of] = and_(not_(equal(before, after)), not_(claimed))
        return found

    def others(self, t: Transition) -> list[Expr]:
        """The members, as constants or parameters of `t`, whose machine `t` may move although they are not its own."""
        other = placeholder(0, self.params[0].sort)
        asked = [self.moved(t, a.source, a.dest, other) for a in self.arcs(t, "others")]
        return [member for (member,) in differing(or_(self.unclaimed(t, other, "others"), *asked), FALSE, (other,))]


def make_machine(system: System, name: str, view: View) -> Machine:
    at = view.at or source.line_of(view.body.__code__)
    doc = bodies.sentence(view.body)
    if view.shown is not None and not _name_of(view.shown, system):
        source.refuse(f"{name} shows a field that {system.name} does not declare: declare it in the class", at=at)
    each = (view.each,) if view.each else bodies.members(view.body, 1)
    params = parameters(system, name, bodies.indices(each, system.index_sorts), at)
    if len(params) > 1:
        source.refuse(f"{name}: a machine has at most one index, and not {', '.join(map(str, params))}", at=at)
    state = SymbolicState(system, frozen=f"the machine {name}")
    control = bodies.tree(name, view.body, system, state, *params)
    if control.sort is not enum_sort(view.states):
        source.refuse(f"{name} returned {control}, which is not a member of {view.states.__name__}", at=at)
    return Machine(name, system, view.states, params, control, doc)


def apply_effects(expr: Expr, t: Transition, memo: dict[Expr, Expr]) -> Expr:
    """`expr` over the state after `t`, as an expression over the state before it."""
    found = memo.get(expr)
    if found is not None:
        return found
    if expr.op == "read":
        indices = tuple(_inside(apply_effects(i, t, memo), i.sort) for i in expr.args[1:])
        slot_body = t.effects.get(expr.name)
        if slot_body is None:
            found = read(expr.name, indices, expr.sort)
        else:
            places = (v for v in slot_body.free if v.role is Role.PLACEHOLDER)
            found = substitute(slot_body, {v: indices[v.number] for v in places})
    elif expr.op in ("const", "var"):
        found = expr
    elif expr.op in QUANTIFIERS:
        loop = loop_variable(expr.args[0])
        found = abstract(expr.op, loop, apply_effects(instantiate(expr, loop), t, memo))
    else:
        found = rebuild(expr, tuple(apply_effects(x, t, memo) if isinstance(x, Expr) else x for x in expr.args))
    memo[expr] = found
    return found


def _inside(place: Expr, sort: Sort) -> Expr:
    """A number to read a field at, or the last one of the field where a step has raised it beyond: that is reported."""
    if place.sort.kind != "int" or (sort.low <= place.sort.low and place.sort.high <= sort.high):
        return place
    inside = lift(sort.high)
    for number in range(sort.low, sort.high):
        inside = ite(equal(place, lift(number)), lift(number), inside)
    return inside
