"""Functions that change the steps of a system; the mutants of a model are made with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from trystate.model.language import Expr, SymbolicState
from trystate.model.language.transitions import Rule

Change = Callable[..., None]  # arguments: a system, a state, and the members that take the step


def then(rule: Rule, change: Change) -> Rule:
    """The same step, with another effect after it."""
    return instead(rule, both(rule.body, change))


def before(rule: Rule, change: Change) -> Rule:
    """The same step, with another effect before it."""
    return instead(rule, both(change, rule.body))


def both(one: Change, other: Change) -> Change:
    def body(self: Any, s: SymbolicState, *indices: Expr) -> None:
        one(self, s, *indices)
        other(self, s, *indices)

    return body


def instead(rule: Rule, change: Change) -> Rule:
    """The same step, with another body."""
    change.__doc__ = "Another step."
    return replace(rule, body=change)


def when(condition: Callable[..., Any]) -> Change:
    """A change by which a step waits for a condition."""
    return lambda self, s, *indices: s.when(condition(self, s, *indices))


def puts(**values: Any) -> Change:
    """A change that gives fields these values: an array gets its value at the indices of the step."""

    def change(self: Any, s: SymbolicState, *indices: Expr) -> None:
        for name, value in values.items():
            field = getattr(s, name)
            if hasattr(field, "__setitem__"):
                field[indices if len(indices) > 1 else indices[0]] = value
            else:
                setattr(s, name, value)

    return change


def changed(system: type[Any], name: str, **members: Any) -> type[Any]:
    """A subclass of a system with other members.

    The value of a step is None (the step is dropped), "unfair" (it need not happen), or a function (its new body).
    """

    def member(key: str, value: Any) -> Any:
        rule = getattr(system, key, None)
        if not isinstance(rule, Rule) or value is None or isinstance(value, Rule):
            return value
        return replace(rule, fair=None) if value == "unfair" else instead(rule, value)

    return type(name, (system,), {key: member(key, value) for key, value in members.items()})
