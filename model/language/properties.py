"""Properties: what is asked of every edition of a protocol alike, as far as it has what they speak of.

*Theory of operation.* A decorator records a function as a `Claim`. When a system is built, `trace_property` runs the
function once on symbolic states and keeps the trees: a condition (`always`, `sometimes`), a premise and a goal
(`leads_to`, under weak fairness), or for each transition a condition over the state before it (`step`: what the state
after reads is replaced by the transition's effects). Engines never see a property: `checker/check.py` turns the trees
into watches and lassos. Three things can go wrong, and are refused with the line of the function: it assigns a field,
it returns something else than conditions, or an index of a loop is left over in one.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import bodies, source
from .expressions import Expr, Role
from .state import SymbolicState, parameters

if TYPE_CHECKING:
    from .systems import System
    from .transitions import Transition


class Form(enum.Enum):
    """The form of a property's claim."""

    ALWAYS = "always"
    SOMETIMES = "sometimes"
    STEP = "step"
    LEADS_TO = "leads to"
    DEADLOCK = "no deadlock"


@dataclass(frozen=True, slots=True)
class Claim:
    """A decorator's record of a property function."""

    body: Callable[..., Any]
    form: Form
    each: tuple[str, ...]
    on: tuple[str, ...]
    except_: tuple[str, ...]
    witness: str
    needs: tuple[str, ...]
    editions: tuple[enum.Enum, ...]
    cite: str

    def concerns(self, t: Transition) -> bool:
        """Is a step property asked of this transition?"""
        if t.name in self.except_ or (self.on and t.name not in self.on):
            return False
        return not self.each or tuple(p.sort.name for p in t.params) == self.each

    def is_asked(self, system: System) -> bool:
        """Of a system of this edition, with these faults?"""
        return set(self.needs) <= set(system.faults) and (not self.editions or system.edition in self.editions)


Decorator = Callable[[Callable[..., Any]], Claim]


@dataclass(frozen=True, slots=True, eq=False)
class Property:
    """A traced property. `exprs` is (condition,), or (premise, goal) for leads-to.

    A step property's condition is over the state before, with the effects of each transition that it
    names put in for the state after: `conditions[transition]`.
    """

    name: str
    form: Form
    doc: str
    cite: str
    at: str
    witness: str = ""
    params: tuple[Expr, ...] = ()
    exprs: tuple[Expr, ...] = ()
    conditions: dict[str, Expr] | None = None


def _claim(
    form: Form,
    *,
    each: Any = (),
    on: Any = (),
    except_: Any = (),
    witness: str = "",
    needs: Any,
    editions: Any,
    cite: str,
) -> Decorator:
    faults = (needs,) if isinstance(needs, str) else tuple(needs)

    def decorate(body: Callable[..., Any]) -> Claim:
        if not (body.__doc__ or "").strip():
            source.refuse(f"{body.__name__} has no docstring: say in one line what it claims")
        bodies.check_plain(body)
        dims = (each,) if isinstance(each, str) else tuple(each)
        return Claim(
            body, form, each=dims, on=tuple(on), except_=tuple(except_), witness=witness, needs=faults,
            editions=tuple(editions), cite=cite,
        )  # fmt: skip

    return decorate


def always(
    *, witness: str, needs: str | tuple[str, ...] = (), editions: Iterable[enum.Enum] = (), cite: str = ""
) -> Decorator:
    """An invariant. `witness` names the `sometimes` that shows it is not safe merely because nothing happens.

    A property that names editions is asked of no other: theirs have not what it speaks of.
    """
    return _claim(Form.ALWAYS, witness=witness, needs=needs, editions=editions, cite=cite)


def sometimes(*, needs: str | tuple[str, ...] = (), editions: Iterable[enum.Enum] = (), cite: str = "") -> Decorator:
    """A state that must be reachable. `needs` names faults without which it is not asked for."""
    return _claim(Form.SOMETIMES, needs=needs, editions=editions, cite=cite)


def step(
    *,
    witness: str,
    on: tuple[str, ...] = (),
    except_: tuple[str, ...] = (),
    each: str | tuple[str, ...] = (),
    needs: str | tuple[str, ...] = (),
    editions: Iterable[enum.Enum] = (),
    cite: str = "",
) -> Decorator:
    """A condition on a step's before and after: `def p(self, before, after, node)`.

    Args:
        witness: the `sometimes` that shows that the property is not safe merely because nothing happens.
        on: the transitions that are asked; none: all.
        except_: the transitions that are not asked.
        each: only transitions over exactly these indices are asked, and the body gets theirs.
        needs: faults without which the property is not asked.
        editions: only these are asked; none: all.
        cite: the source of the claim.
    """
    return _claim(
        Form.STEP, each=each, on=on, except_=except_, witness=witness, needs=needs, editions=editions, cite=cite
    )


def leads_to(
    *,
    each: str | tuple[str, ...] = (),
    needs: str | tuple[str, ...] = (),
    editions: Iterable[enum.Enum] = (),
    cite: str = "",
) -> Decorator:
    """Under weak fairness, a state where the premise holds is followed by one where the goal holds.

    The body returns `(premise, goal)`. With `each`, it is asked of every member on its own.
    """
    return _claim(Form.LEADS_TO, each=each, needs=needs, editions=editions, cite=cite)


def trace_property(system: System, name: str, claim: Claim) -> Property:
    """Run a property's body on symbolic states."""
    at = source.line_of(claim.body.__code__)
    doc = (claim.body.__doc__ or "").strip().split("\n")[0]
    params = parameters(system, name, claim.each, at)
    state = SymbolicState(system, frozen=f"the property {name}")
    if claim.form is Form.STEP:
        conditions = {}
        for t in system.transitions:
            if not claim.concerns(t):
                continue
            after = SymbolicState(system, frozen=f"the property {name}", effects=t.effects)
            given = (state, after, *(t.params if claim.each else ()))
            (conditions[t.name],) = _conditions(system, name, claim, given)
        return Property(
            name, claim.form, doc=doc, cite=claim.cite, at=at, witness=claim.witness, params=params,
            conditions=conditions,
        )  # fmt: skip
    traced = _conditions(system, name, claim, (state, *params))
    return Property(
        name, claim.form, doc=doc, cite=claim.cite, at=at, witness=claim.witness, params=params, exprs=traced
    )


def _conditions(system: System, name: str, claim: Claim, given: tuple[Any, ...]) -> tuple[Expr, ...]:
    at = source.line_of(claim.body.__code__)

    def run() -> tuple[Expr, ...]:
        result = bodies.call(name, claim.body, system, *given)
        exprs = result if isinstance(result, tuple) else (result,)
        if len(exprs) != (2 if claim.form is Form.LEADS_TO else 1):
            source.refuse(
                f"{name}: return (premise, goal) from leads_to, one condition from always and sometimes", at=at
            )
        return tuple(_condition(name, at, e) for e in exprs)

    return bodies.settled(claim.body, run, lambda exprs: ((e, at) for e in exprs))


def _condition(name: str, at: str, value: Any) -> Expr:
    expr = bodies.value(name, value, at)
    if expr.sort.kind != "bool":
        source.refuse(f"{name} returned {expr}, which is not a condition", at=at)
    if any(v.role is Role.LOOP for v in expr.free):
        source.refuse(f"{name}: a loop index is left over, close it with all_() or any_()", at=at)
    return expr
