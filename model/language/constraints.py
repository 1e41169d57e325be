"""Constraints: conditions on single states that confine a system. A step that leaves them is not taken.

A constraint makes the search of a large or unbounded system finite. It is a conjunct of each guard, over the state
after the step, so engines do not need it. (TLC also judges the states outside, and only does not expand them.) The
label of the system names it: a verdict holds within it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from . import bodies, source
from .expressions import TRUE, Expr, and_, named
from .state import SymbolicState
from .transitions import Transition


class Constraint(bodies.Decorated):
    """The record of `@constraint`."""


@bodies.without_parentheses
def constraint(body: Callable[..., Any]) -> Constraint:
    """Declare a condition that every step keeps: a step into a state without it is not taken."""
    bodies.check_plain(body)
    return Constraint(body)


def conditions(system: Any, declared: Mapping[str, Constraint]) -> dict[str, Expr]:
    """The condition of each constraint."""
    found = {}
    for name, one in declared.items():
        tree = bodies.tree(name, one.body, system, SymbolicState(system, frozen=f"the constraint {name}"))
        if tree.sort.kind != "bool":
            source.refuse(f"{name} returned {tree}, which is not a condition", at=source.line_of(one.body.__code__))
        found[name] = tree
    return found


def confined(system: Any, transition: Transition, declared: Mapping[str, Constraint]) -> Transition:
    """The step where the state after it has the constraints.

    The bodies run again: after the step a value may be outside of its field's range, on which their trees depend.
    """
    kept = []
    for name, one in declared.items():
        after = SymbolicState(system, frozen=f"the constraint {name}", effects=transition.effects)
        tree = bodies.value(name, bodies.call(name, one.body, system, after), source.line_of(one.body.__code__))
        kept += [named(f"within {name}", tree)] if tree is not TRUE else []
    return replace(transition, guard=and_(transition.guard, *kept), conditions=(*transition.conditions, *kept))
