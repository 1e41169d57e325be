"""The conditions of a proof by induction, as trees: no solver is needed to make it.

*Theory of operation.* The invariant is the conjunction of the `always` properties, of lemmas, and of the ranges of the
numbers with constant bounds. There are two kinds of conditions:

    init      a property holds in the initial states
    a step    where the invariant and the step's guard hold, the property holds after the step; a `step` property holds
              of the step

The state after a step is not a second state: the property is taken as a tree, and each read of a field in it is
replaced by the step's effect on that field (Dijkstra's weakest precondition), on the trees. So the constructors of the
language fold what they can, and what folds to true, or to the property itself, needs no solver: most conditions do.

A fault's counter says how often the fault may still happen. Here it may happen any number of times: the guard on its
counter is always true. A quantifier over an index of one size (`sizes_in_proofs`) is written out, over its members.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from ..errors import UsageError
from ..language import Expr, Form, Sort, System, Transition, and_, as_int, ite, not_, or_
from ..language.expressions import QUANTIFIERS, TRUE, Role, const, equal, less, lift, rebuild, substitute
from ..language.fields import Slot
from ..language.quantifiers import close, loop_variable, opened
from . import sizes

INIT = "init"


@dataclass(frozen=True, slots=True, eq=False)
class Condition:
    """One thing to prove: `goal` holds wherever the assumptions and `guard` do.

    where: the step's name, or `init`. what: the property's name. trivial: it holds as the declarations stand.
    """

    where: str
    what: str
    params: tuple[Expr, ...]
    guard: Expr
    goal: Expr
    trivial: bool


class Claims:
    """The invariant of a system of any size, and the conditions of its proof."""

    def __init__(self, system: System) -> None:
        self.system = system
        _refuse_sizes_as_numbers(system)
        self._plain: dict[Expr, Expr] = {}
        always = {p.name: p.exprs[0] for p in system.properties if p.form is Form.ALWAYS}
        self.invariant = {name: self.plain(tree) for name, tree in always.items()}
        self.ranges = {f"range of {slot.name}": slot for slot in system.slots.values()
                       if slot.sort.kind == "int" and not sizes.is_counter(system, slot.name)}  # fmt: skip
        self.steps = {p.name: p.conditions or {} for p in system.properties if p.form is Form.STEP}
        self.allowed = tuple(lift(c) for c in system.sizes_allowed())
        self.properties = [*always, *self.steps]

    def plain(self, tree: Expr) -> Expr:
        """Without the names of values, and without quantifiers over an index of one size."""
        return after(tree, {}, self._plain)

    def conditions(self) -> Iterator[Condition]:
        """All of them, init first, then step by step."""
        start = {slot.name: const(slot.initial[0], slot.sort) for slot in self.system.slots.values()
                 if len(slot.initial) == 1 and not sizes.is_counter(self.system, slot.name)}  # fmt: skip
        several = self.plain(and_(*_starts(self.system)))
        memo: dict[Expr, Expr] = {}
        for name, tree in self.invariant.items():
            goal = after(tree, start, memo)
            yield Condition(INIT, name, (), several, goal, goal is TRUE)  # a field begins in its range: `make_slot`
        for t in self.system.transitions:
            yield from self._of_step(t)

    def _of_step(self, t: Transition) -> Iterator[Condition]:
        memo: dict[Expr, Expr] = {}
        effects = {k: self.plain(v) for k, v in t.effects.items() if not sizes.is_counter(self.system, k)}
        guard = self.guard(t)
        for name, tree in self.invariant.items():
            goal = after(tree, effects, memo)
            yield Condition(t.name, name, t.params, guard, goal, goal is TRUE or goal is tree)
        for name, slot in self.ranges.items():
            goal = self.plain(_in_range(slot, effects[slot.name])) if slot.name in effects else TRUE
            yield Condition(t.name, name, t.params, guard, goal, goal is TRUE)
        for name, conditions in self.steps.items():
            if t.name in conditions:
                goal = self.plain(conditions[t.name])
                yield Condition(t.name, name, t.params, guard, goal, goal is TRUE)

    def guard(self, t: Transition) -> Expr:
        """When a step can be taken, whatever was the number of faults before."""
        left = self.system.fault_counter(t.fault) if t.fault else ""
        kept = (c for c in t.conditions if not (left and c.op == "lt" and _reads(c.args[1], left)))
        return self.plain(and_(*kept))


def _refuse_sizes_as_numbers(system: System) -> None:
    """`len(s.node)` is a number, and would be the one that stands for any here."""
    steps = [(t.name, tree) for t in system.transitions for tree in (t.guard, *t.effects.values())]
    asked = [(p.name, tree) for p in system.properties for tree in (*p.exprs, *(p.conditions or {}).values())]
    for name, tree in (*steps, *asked):
        for e in parts(tree):
            if e.op == "const" and e.sort.kind == "int" and e.value >= sizes.MANY // 2:
                raise UsageError(
                    f"{name} computes with the number of members of an index, which a proof for any size has not: "
                    "use size_of(), which is a number, or a tree in a proof"
                )


def parts(tree: Expr) -> Iterator[Expr]:
    """A tree and all that is in it, each once."""
    seen: set[Expr] = set()
    todo = [tree]
    while todo:
        here = todo.pop()
        if here not in seen:
            seen.add(here)
            yield here
            todo += [x for x in reversed(here.args) if isinstance(x, Expr)]


def _reads(expr: Expr, field: str) -> bool:
    return expr.op == "read" and expr.name == field


def _in_range(slot: Slot, value: Expr) -> Expr:
    """A step leaves each number in its range: above its lowest, and below its highest if that is no size.

    The constructors decide what follows from the ranges before the step, which are assumed.
    """
    indices = tuple(loop_variable(dim) for dim in slot.dims)
    after_ = substitute(value, dict(zip(slot.placeholders(), indices, strict=True)))
    wrong = less(after_, lift(slot.sort.low))
    if slot.sort.high < sizes.MANY:
        wrong = or_(wrong, less(lift(slot.sort.high), after_))
    for v in reversed(indices):
        wrong = close("any", v, wrong)
    return not_(wrong)


def _starts(system: System) -> Iterator[Expr]:
    """The conditions on an initial state for the fields that have several initial values."""
    for slot in system.slots.values():
        if len(slot.initial) == 1 or sizes.is_counter(system, slot.name):
            continue
        indices = tuple(loop_variable(dim) for dim in slot.dims)
        value = substitute(slot.identity(), dict(zip(slot.placeholders(), indices, strict=True)))
        other = not_(or_(*(equal(value, const(k, slot.sort)) for k in slot.initial)))
        for v in reversed(indices):
            other = close("any", v, other)
        yield not_(other)


@lru_cache(maxsize=100_000)
def inside(quantifier: Expr) -> tuple[Expr, Expr]:
    """A variable for the index of a quantifier, the same each time, and its body with that: equal parts stay equal."""
    v = loop_variable(quantifier.args[0])
    return v, opened(quantifier, v)


def after(expr: Expr, effects: dict[str, Expr], memo: dict[Expr, Expr]) -> Expr:
    """The tree over the state after a step, as a tree over the state before it; names of values are dropped."""
    found = memo.get(expr)
    if found is not None:
        return found
    if expr.op in ("const", "var"):
        found = expr
    elif expr.op in QUANTIFIERS:
        found = _quantified(expr, effects, memo)
    elif expr.op == "named":
        found = after(expr.args[1], effects, memo)
    else:
        found = rebuild(expr, tuple(after(x, effects, memo) if isinstance(x, Expr) else x for x in expr.args))
        if expr.op == "read":
            found = _value(found, effects)
    memo[expr] = found
    return found


def _quantified(expr: Expr, effects: dict[str, Expr], memo: dict[Expr, Expr]) -> Expr:
    sort: Sort = expr.args[0]
    if not sizes.is_fixed(sort):
        v, body = inside(expr)
        return close(expr.op, v, after(body, effects, memo))
    each = [after(opened(expr, const(k, sort)), effects, memo) for k in range(sort.size)]
    return or_(*each) if expr.op == "any" else sum((as_int(x) for x in each), lift(0))


def _value(place: Expr, effects: dict[str, Expr]) -> Expr:
    """The value that a step leaves at a place: a read, or a choice between reads."""
    if place.op == "ite":
        return ite(place.args[0], *(_value(x, effects) for x in place.args[1:]))
    body = effects.get(place.name)
    if body is None:
        return place
    return substitute(body, {v: place.args[1 + v.number] for v in body.free if v.role is Role.PLACEHOLDER})
