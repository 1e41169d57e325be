"""Quantifiers that bind by name, as the language had them once: a mutant to plant, which tests have to notice.

The name says how many quantifiers are nested in the body. Folding may take some of these away later: the quantifier
keeps its name, the next one around it gets the same, and the inner one captures what the outer one binds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from trystate.model.checker.interpret import Env, Evaluator, Interpreter
from trystate.model.language import Expr, Sort, State, machines, quantifiers
from trystate.model.language.expressions import QUANTIFIERS, bind, const, substitute, variable


@dataclass(frozen=True, slots=True)
class Named(Sort):
    """The sort of a quantifier's index, with the variable that the quantifier binds."""

    binder: Any = None


def plant(patch: pytest.MonkeyPatch) -> None:
    """Make the language and the interpreter bind by name."""
    for module in (quantifiers, machines):
        patch.setattr(module, "close", close)
        patch.setattr(module, "opened", opened)
    patch.setattr(machines, "loop_variable", lambda over: quantifiers.loop_variable(over.binder.sort))
    patch.setattr(Expr, "free", property(free))
    patch.setattr(Interpreter, "_quantifier", evaluator)


def nested(expr: Expr) -> int:
    inner = max((nested(x) for x in expr.args if isinstance(x, Expr)), default=0)
    return inner + (expr.op in QUANTIFIERS)


def close(op: str, loop: Expr, body: Expr) -> Expr:
    sort = loop.sort
    name = variable(f"{sort.name}.{'jklmnopq'[nested(body)]}", sort)
    over = Named(sort.kind, sort.name, sort.low, sort.high, sort.labels, name)
    return bind(op, over, substitute(body, {loop: name}))


def opened(quantifier: Expr, index: Expr) -> Expr:
    over, body = quantifier.args
    member = const(index.args[0], over.binder.sort) if index.op == "const" else index
    return substitute(body, {over.binder: member})


def free(expr: Expr) -> frozenset[Expr]:
    inner = frozenset[Expr]().union(*(free(x) for x in expr.args if isinstance(x, Expr)))
    if expr.op in QUANTIFIERS:
        return inner.difference([expr.args[0].binder])
    return frozenset((expr,)) if expr.op == "var" else inner


def evaluator(interpreter: Interpreter, expr: Expr) -> Evaluator:
    over, body = expr.args
    inner = interpreter.evaluator(body)

    def values(state: State, env: Env) -> list[int]:
        outer = env.get(over.binder)
        found = [inner(state, env) for env[over.binder] in range(over.size)]
        if outer is not None:
            env[over.binder] = outer
        return found

    if expr.op == "any":
        return lambda state, env: any(values(state, env))
    return lambda state, env: sum(int(v) for v in values(state, env))
