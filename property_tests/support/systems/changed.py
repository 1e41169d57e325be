"""Steps of a system, changed: what the mutants of a model are made with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from trystate.model.language import Expr, SymbolicState
from trystate.model.language.transitions import Rule


def then(rule: Rule, change: Callable[..., None]) -> Rule:
    """The same step, and one thing more."""

    def body(self: Any, s: SymbolicState, *indices: Expr) -> None:
        """The step, changed."""
        rule.body(self, s, *indices)
        change(self, s, *indices)

    return replace(rule, body=body)


def instead(rule: Rule, change: Callable[..., None]) -> Rule:
    """Another step in its place."""
    change.__doc__ = "Another step."
    return replace(rule, body=change)
