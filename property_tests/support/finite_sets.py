"""Trees, and formulas of the solver, are evaluated on one finite state: a law must be true of each such state.

The symbols for counts get the numbers that the counts have; the solver is not used.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from itertools import product
from random import Random
from typing import Any

from trystate.model.language import Expr, System
from trystate.model.language.expressions import MEMBERS
from trystate.model.language.quantifiers import instantiate, loop_variable
from trystate.model.prover.formulas import Formulas, load

Values = dict[str, dict[tuple[int, ...], int]]  # field -> indices -> value
Env = Mapping[Expr, int]  # values of the variables


def random_state(system: System, size: int, random: Random) -> Values:
    """A state with `size` members of each index without a fixed size; all values are equally likely."""
    state: Values = {}
    for slot in system.slots.values():
        high = int(min(size, slot.sort.most)) if slot.sort.kind == "int" else slot.sort.high
        places = product(*(range(size if dim.is_open else dim.size) for dim in slot.dims))
        state[slot.name] = {at: random.randint(int(max(-size, slot.sort.least)), high) for at in places}
    return state


def value(tree: Expr, state: Values, env: Env, size: int) -> int:
    """The value of a tree."""
    if tree.op == "const":
        return tree.value
    if tree.op == "var":
        return env[tree]
    if tree.op == "read" and tree.name.endswith(MEMBERS):
        return size
    if tree.op == "read":
        return state[tree.name][tuple(value(x, state, env, size) for x in tree.args[1:])]
    if tree.op in ("any", "count"):
        v = _own(tree)
        each = [value(instantiate(tree, v), state, {**env, v: i}, size) for i in range(size)]
        return int(any(each)) if tree.op == "any" else sum(each)
    if tree.op == "ite":
        chosen = tree.args[1] if value(tree.args[0], state, env, size) else tree.args[2]
        return value(chosen, state, env, size)
    if tree.op == "and":
        return int(all(value(x, state, env, size) for x in tree.args))
    a = [value(x, state, env, size) for x in tree.args if isinstance(x, Expr)]
    made: dict[str, Any] = {
        "eq": lambda: int(a[0] == a[1]), "lt": lambda: int(a[0] < a[1]), "not": lambda: 1 - a[0],
        "add": lambda: a[0] + a[1], "sub": lambda: a[0] - a[1], "int": lambda: a[0], "ord": lambda: a[0],
        "named": lambda: a[0],
    }  # fmt: skip
    number: int = made[tree.op]()
    return number


@cache
def _own(quantifier: Expr) -> Expr:
    return loop_variable(quantifier.args[0])


class Finite:
    """Formulas of the solver over a state of a given size."""

    def __init__(self, formulas: Formulas, state: Values, params: Env, size: int) -> None:
        self.formulas, self.state, self.params, self.size = formulas, state, params, size
        self.z3 = load()
        self.named = {str(formulas(p)): i for p, i in params.items()}
        self.symbols = formulas.counting.meanings()
        self.wrong: dict[str, int] = {}  # symbol -> the error of its count, or member
        self._memo: dict[Any, Any] = {}

    def forget(self) -> None:
        """Forget evaluations, because a symbol has another value."""
        self._memo.clear()

    def __call__(self, formula: Any, bound: tuple[int, ...] = ()) -> Any:
        """The value of a formula; `bound` has the values of the variables around it, the innermost first."""
        z3 = self.z3
        if z3.is_quantifier(formula):
            ways = product(range(self.size), repeat=formula.num_vars())
            held = (self(formula.body(), (*reversed(way), *bound)) for way in ways)
            return all(held) if formula.is_forall() else any(held)
        if z3.is_var(formula):
            return bound[z3.get_var_index(formula)]
        if z3.is_int_value(formula):
            return formula.as_long()
        key = formula.get_id(), bound
        if key not in self._memo:
            self._memo[key] = self._applied(formula, bound)
        return self._memo[key]

    def _applied(self, formula: Any, bound: tuple[int, ...]) -> Any:
        z3, parts, kind = self.z3, formula.children(), formula.decl().kind()
        lazy: dict[int, Any] = {
            z3.Z3_OP_TRUE: lambda: True, z3.Z3_OP_FALSE: lambda: False,
            z3.Z3_OP_AND: lambda: all(self(x, bound) for x in parts),
            z3.Z3_OP_OR: lambda: any(self(x, bound) for x in parts),
            z3.Z3_OP_NOT: lambda: not self(parts[0], bound),
            z3.Z3_OP_IMPLIES: lambda: not self(parts[0], bound) or self(parts[1], bound),
            z3.Z3_OP_ITE: lambda: self(parts[1] if self(parts[0], bound) else parts[2], bound),
        }  # fmt: skip
        if kind in lazy:
            return lazy[kind]()
        a = [self(x, bound) for x in parts]
        eager: dict[int, Any] = {
            z3.Z3_OP_EQ: lambda: a[0] == a[1], z3.Z3_OP_LT: lambda: a[0] < a[1], z3.Z3_OP_LE: lambda: a[0] <= a[1],
            z3.Z3_OP_GT: lambda: a[0] > a[1], z3.Z3_OP_GE: lambda: a[0] >= a[1], z3.Z3_OP_ADD: lambda: sum(a),
            z3.Z3_OP_SUB: lambda: a[0] - a[1], z3.Z3_OP_MUL: lambda: a[0] * a[1],
        }  # fmt: skip
        return eager[kind]() if kind in eager else self._symbol(formula, a)

    def _symbol(self, formula: Any, given: list[int]) -> Any:
        name = formula.decl().name().removesuffix("!")
        if name in self.symbols:
            v, body, slots = self.symbols[name]
            env = {**self.params, **dict(zip(slots, given, strict=True))}
            number = sum(value(body, self.state, {**env, v: i}, self.size) for i in range(self.size))
            return number + self.wrong.get(name, 0)
        if name.endswith("<"):
            return given[0] < given[1]
        if name.endswith(MEMBERS):
            return self.size
        if name.endswith("!member"):
            return (given[0] + self.wrong.get(name, 0)) % self.size
        if name in self.named:
            return self.named[name]
        if name in self.state:
            found = self.state[name][tuple(given)]
            return bool(found) if formula.sort() == self.z3.BoolSort() else found
        sort = formula.sort()
        return next(k for k in range(sort.num_constructors()) if sort.constructor(k).name() == name)
