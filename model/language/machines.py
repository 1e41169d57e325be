"""Machines: the control states of one kind of thing, seen in a system, and the transitions that move it."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from . import bodies, source
from .expressions import QUANTIFIERS, Expr, and_, equal, lift, not_, or_, placeholder, read, rebuild, substitute
from .quantifiers import close, loop_variable, opened
from .sorts import enum_sort
from .state import SymbolicState, parameters
from .transitions import Arc, Transition

if TYPE_CHECKING:
    from .systems import System


@dataclass(frozen=True, slots=True)
class View:
    """The record of `@machine`: how to read the control state off a state."""

    body: Callable[..., Any]
    states: type[enum.Enum]
    each: str


def machine(states: type[enum.Enum], *, each: str = "") -> Callable[[Callable[..., Any]], View]:
    """Declare a machine: the decorated function returns its control state, a member of `states`.

    The value of each member of `states` is the sentence that a chart shows under its name.
    """

    def decorate(body: Callable[..., Any]) -> View:
        if not (body.__doc__ or "").strip():
            source.refuse(f"{body.__name__} has no docstring: say in one line what moves")
        bodies.check_plain(body)
        return View(body, states, each)

    return decorate


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
        """Over the state before: the control state is `state`, and will be `dest` after `t`."""
        before = self.of(who)
        return and_(equal(before, lift(state)), equal(self.after(t, before), lift(dest)))

    def after(self, t: Transition, before: Expr) -> Expr:
        """The control expression with the effects of `t` put in for what it reads."""
        return apply_effects(before, t, t.after)

    def unclaimed(self, t: Transition, who: Expr | None, of: str) -> Expr:
        """Over the state before: `t` would move the machine in a way that it does not claim."""
        before = self.of(who)
        after = self.after(t, before)
        claimed = or_(*(self.moved(t, a.source, a.dest, who) for a in self.arcs(t, of)))
        return and_(not_(equal(before, after)), not_(claimed))


def make_machine(system: System, name: str, view: View) -> Machine:
    at = source.line_of(view.body.__code__)
    params = parameters(system, name, (view.each,) if view.each else (), at)
    state = SymbolicState(system, frozen=f"the machine {name}")
    control = bodies.tree(name, view.body, system, state, *params)
    if control.sort is not enum_sort(view.states):
        source.refuse(f"{name} returned {control}, which is not a member of {view.states.__name__}", at=at)
    doc = (view.body.__doc__ or "").strip().split("\n")[0]
    return Machine(name, system, view.states, params, control, doc)


def apply_effects(expr: Expr, t: Transition, memo: dict[Expr, Expr]) -> Expr:
    """`expr` over the state after `t`, as an expression over the state before it."""
    found = memo.get(expr)
    if found is not None:
        return found
    if expr.op == "read":
        indices = tuple(apply_effects(i, t, memo) for i in expr.args[1:])
        slot_body = t.effects.get(expr.name)
        if slot_body is None:
            found = read(expr.name, indices, expr.sort)
        else:
            places = (placeholder(k, i.sort) for k, i in enumerate(indices))
            found = substitute(slot_body, dict(zip(places, indices, strict=True)))
    elif expr.op in ("const", "var"):
        found = expr
    elif expr.op in QUANTIFIERS:
        loop = loop_variable(expr.args[0])
        found = close(expr.op, loop, apply_effects(opened(expr, loop), t, memo))
    else:
        found = rebuild(expr, tuple(apply_effects(x, t, memo) if isinstance(x, Expr) else x for x in expr.args))
    memo[expr] = found
    return found
