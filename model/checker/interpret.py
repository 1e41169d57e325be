"""The reference: evaluates the traced trees on one state at a time, in plain Python.

Nothing is unrolled, packed or vectorised here; a tree becomes nested closures over a state (a tuple of ints)
and an environment (the value of each variable). Tests compare the other engines with this one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

from ..language.expressions import BINARY, QUANTIFIERS, Expr
from ..language.systems import State, System
from .kernel import Binding, Instance, Kernel


class Env(dict[Expr, int]):
    """The value of each variable; `loops` lists the current members of the enclosing quantifiers, outermost first."""

    __slots__ = ("loops",)

    def __init__(self, binding: Binding | None = None) -> None:
        super().__init__(binding or {})
        self.loops: list[int] = []


Evaluator = Callable[[State, Env], int]


class Interpreter:
    """Evaluates guards, effects and conditions of one system on single states."""

    def __init__(self, system: System) -> None:
        self.kernel = Kernel(system)
        self.system = system
        self._evaluators: dict[Expr, Evaluator] = {}

    def holds(self, expr: Expr, state: State, binding: Binding | None = None) -> bool:
        """Whether the condition holds in this state, with its parameters bound by `binding`."""
        return bool(self.evaluator(expr)(state, Env(binding)))

    def value(self, expr: Expr, state: State, binding: Binding | None = None) -> int:
        return int(self.evaluator(expr)(state, Env(binding)))

    def allowed(self, instance: Instance, state: State) -> bool:
        """Whether the guard holds. (The step may still change nothing.)"""
        return self.holds(instance.transition.guard, state, instance.binding)

    def apply(self, instance: Instance, state: State) -> State:
        """The state after the step's effects, whether its guard holds or not."""
        after = list(state)
        for name, body in instance.transition.effects.items():
            slot = self.system.slots[name]
            value = self.evaluator(body)
            env = Env(instance.binding)
            places = slot.placeholders()
            for indices in product(*(range(d.size) for d in slot.dims)):
                env.update(zip(places, indices, strict=True))
                after[self.kernel.position[name, indices]] = int(value(state, env))
        return tuple(after)

    def step(self, instance: Instance, state: State) -> State | None:
        """The next state, or None where the step is not enabled or would change nothing."""
        if not self.allowed(instance, state):
            return None
        after = self.apply(instance, state)
        return None if after == state else after

    def successors(self, state: State) -> Iterator[tuple[Instance, State]]:
        """Every step from a state, in declaration order."""
        for instance in self.kernel.instances:
            after = self.step(instance, state)
            if after is not None:
                yield instance, after

    def evaluator(self, expr: Expr) -> Evaluator:
        """The tree as a Python function."""
        found = self._evaluators.get(expr)
        if found is None:
            found = self._evaluators[expr] = self._compile(expr)
        return found

    def _compile(self, expr: Expr) -> Evaluator:
        op, args = expr.op, expr.args
        if op == "const":
            value = args[0]
            return lambda state, env: value
        if op == "var":
            return lambda state, env: env[expr]
        if op == "bound":
            place = -1 - args[0]
            return lambda state, env: env.loops[place]
        if op == "read":
            return self._read(expr)
        if op in QUANTIFIERS:
            return self._quantifier(expr)
        if op in ("named", "int", "ord"):
            return self.evaluator(args[op == "named"])
        parts = [self.evaluator(x) for x in args]
        if op == "not":
            a = parts[0]
            return lambda state, env: not a(state, env)
        if op == "and":
            return lambda state, env: all(part(state, env) for part in parts)
        if op == "ite":
            c, a, b = parts
            return lambda state, env: a(state, env) if c(state, env) else b(state, env)
        a, b = parts
        apply = BINARY[op]
        return lambda state, env: apply(a(state, env), b(state, env))

    def _read(self, expr: Expr) -> Evaluator:
        name, *indices = expr.args
        position = self.kernel.position
        if not indices:
            k = position[name, ()]
            return lambda state, env: state[k]
        parts = [self.evaluator(i) for i in indices]
        if len(parts) == 1:
            table = [position[name, (i,)] for i in range(indices[0].sort.high + 1)]
            part = parts[0]
            return lambda state, env: state[table[part(state, env)]]
        return lambda state, env: state[position[name, tuple(p(state, env) for p in parts)]]

    def _quantifier(self, expr: Expr) -> Evaluator:
        sort, body = expr.args
        inner = self.evaluator(body)
        members = range(sort.size)

        def values(state: State, env: Env) -> list[int]:
            env.loops.append(0)
            found = []
            for k in members:
                env.loops[-1] = k
                found.append(int(inner(state, env)))
            env.loops.pop()
            return found

        if expr.op == "any":
            return lambda state, env: any(values(state, env))
        return lambda state, env: sum(values(state, env))
