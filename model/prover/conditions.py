"""The conditions of a proof by induction, as trees. No solver is needed to make them.

*Theory of operation.* The invariant is the conjunction of the `always` properties, of lemmas, and of the ranges of the
numbers with constant bounds. Two kinds of conditions exist:

    init      a property holds in the initial states
    a step    where the invariant and the step's guard hold, the property holds after the step; a `step` property holds
              for the step

The state after a step is not a second state: in the tree of the property, each read of a field is replaced by the
step's effect on that field (Dijkstra's weakest precondition). So the constructors of the language fold what they can. A
condition that folds to true, or to the property itself, needs no solver, and most conditions do.

A fault's counter has the number of times that the fault may still happen. In a proof it may happen any number of times:
the guard on its counter is always true, and a step or property that otherwise reads or writes a counter is refused. A
quantifier over an index of one size (`sizes_in_proofs`) is expanded over its members.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NoReturn

from ..language import Expr, Form, Sort, System, Transition, and_, as_int, ite, not_, or_, source
from ..language.expressions import (
    FALSE,
    QUANTIFIERS,
    TRUE,
    Role,
    const,
    equal,
    less,
    lift,
    parts,
    rebuild,
    substitute,
    subtract,
)  # fmt: skip
from ..language.fields import Slot
from ..language.quantifiers import abstract, instantiate, loop_variable
from . import sizes

INIT = "initial-state"  # not a name of Python, so no step has it


@dataclass(frozen=True, slots=True, eq=False)
class Condition:
    """A condition to prove: `goal` holds wherever the assumptions and `guard` hold.

    where: the step's name, or INIT. what: the property's name. trivial: its tree needs no solver.
    """

    where: str
    what: str
    params: tuple[Expr, ...]
    guard: Expr
    goal: Expr
    trivial: bool

    @property
    def members(self) -> dict[Expr, Expr]:
        """The fields of members that the guard fixes, each with the step's own member: counts and sums then have it."""
        pairs = [c.args for c in conjuncts(self.guard) if c.op == "eq" and c.args[0].sort.kind == "index"]
        found = (one for pair in pairs for one in (pair, pair[::-1]) if one[0].op == "read")
        return {x: y for x, y in found if any(y is mine for mine in self.params)}


class Claims:
    """The invariant of a system of any size, and the conditions of its proof.

    start: the value of each field with one initial value. begins: the condition on the initial values of the others.
    """

    def __init__(self, system: System) -> None:
        self.system = system
        _refuse_counters(system)
        self._plain: dict[Expr, Expr] = {}
        always = {p.name: p.exprs[0] for p in system.properties if p.form is Form.ALWAYS}
        self.invariant = {name: self.plain(tree) for name, tree in always.items()}
        self.ranges = {f"range of {slot.name}": slot for slot in system.slots.values() if _may_leave(system, slot)}
        self.steps = {p.name: p.conditions or {} for p in system.properties if p.form is Form.STEP}
        self.allowed = tuple(lift(c) for c in system.sizes_allowed())
        self.sizes = and_(*self.allowed, *_built(system))
        self.properties = [*always, *self.steps]
        self.start = {slot.name: _begins(slot)[0] for slot in system.slots.values()
                      if len(slot.initial) == 1 and not sizes.is_counter(system, slot.name)}  # fmt: skip
        self.begins = after(self.plain(and_(*_starts(system), system.initial_condition)), self.start, {})

    def plain(self, tree: Expr) -> Expr:
        """The tree without names of values, and without quantifiers over an index of one size."""
        return after(tree, {}, self._plain)

    def conditions(self) -> Iterator[Condition]:
        """All conditions: `init` first, then step by step."""
        memo: dict[Expr, Expr] = {}
        for name, tree in self.invariant.items():
            goal = after(tree, self.start, memo)
            yield Condition(INIT, name, (), self.begins, goal, goal is TRUE)  # a field begins in its range: `make_slot`
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
        """The condition that a step can be taken, after any number of faults."""
        return self.plain(and_(*_without_counter(self.system, t)))


def _without_counter(system: System, t: Transition) -> list[Expr]:
    """The conditions of a step, without the condition that its fault may still happen."""
    if not t.fault:
        return [*t.conditions]
    left = less(lift(0), system.slots[system.fault_counter(t.fault)].identity())
    return [c for c in t.conditions if c is not left]


def _refuse_counters(system: System) -> None:
    """Refuse uses of fault counters: in a proof a fault may happen any number of times, so a counter has no value."""
    for t in system.transitions:
        own = system.fault_counter(t.fault) if t.fault else ""
        for field, effect in t.effects.items():
            left = system.slots[field].identity()
            if sizes.is_counter(system, field) and not (field == own and effect is subtract(left, lift(1))):
                _refuse_counter(t.name, field, t.at)
        effects = (tree for field, tree in t.effects.items() if field != own)
        _refuse_reads(system, t.name, (*_without_counter(system, t), *effects), t.at)
    for p in system.properties:
        if p.form in (Form.ALWAYS, Form.STEP):
            _refuse_reads(system, p.name, (*p.exprs, *(p.conditions or {}).values()), p.at)


def _refuse_reads(system: System, name: str, trees: Iterable[Expr], at: str) -> None:
    for e in (e for tree in trees for e in parts(tree)):
        if e.op == "read" and sizes.is_counter(system, e.name):
            _refuse_counter(name, e.name, at)


def _refuse_counter(name: str, counter: str, at: str) -> NoReturn:
    source.refuse(
        f"{name} depends on {counter}, which has no value in a proof: each fault may happen any number of times. "
        "Count in a field that the step of the fault writes",
        at=at,
    )


def _built(system: System) -> Iterator[Expr]:
    """The conditions on the bounds and initial values that each system checks when it is built."""
    for slot in system.slots.values():
        if slot.sort.kind == "int" and not sizes.is_counter(system, slot.name):
            low, high = map(lift, slot.bounds)
            begins = [lift(v) for v in slot.initial]
            yield from (not_(less(high, low)), *(not_(less(v, low)) for v in begins))
            yield from (not_(less(high, v)) for v in begins)


def _begins(slot: Slot) -> list[Expr]:
    """The initial values of a field."""
    return [v if isinstance(v, Expr) else const(v, slot.sort) for v in slot.initial]


def _may_leave(system: System, slot: Slot) -> bool:
    """Whether a step may give a field a value outside its range; for a member, from a field that may have none."""
    if slot.sort.kind == "int":
        return not sizes.is_counter(system, slot.name)
    effects = (t.effects[slot.name] for t in system.transitions if slot.name in t.effects)
    return slot.sort.kind == "index" and slot.sort.least == 0 and any(effect.sort.least < 0 for effect in effects)


def _in_range(slot: Slot, value: Expr) -> Expr:
    """The condition that a step leaves each number in its range, and each member; a size as a bound is not checked.

    The constructors of the language use the ranges before the step, which are assumed.
    """
    indices = tuple(loop_variable(dim) for dim in slot.dims)
    after_ = substitute(value, dict(zip(slot.placeholders(), indices, strict=True)))
    wrong = after_.absent if slot.sort.kind == "index" else FALSE
    if slot.sort.kind == "int":
        wrong = or_(
            *(less(after_, lift(low)) for low in (slot.sort.least,) if isinstance(low, int)),
            *(less(lift(high), after_) for high in (slot.sort.most,) if isinstance(high, int)),
        )
    for v in reversed(indices):
        wrong = abstract("any", v, wrong)
    return not_(wrong)


def _starts(system: System) -> Iterator[Expr]:
    """The conditions on an initial state for the fields that have several initial values."""
    for slot in system.slots.values():
        if len(slot.initial) == 1 or sizes.is_counter(system, slot.name):
            continue
        indices = tuple(loop_variable(dim) for dim in slot.dims)
        value = substitute(slot.identity(), dict(zip(slot.placeholders(), indices, strict=True)))
        other = not_(or_(*(equal(value, v) for v in _begins(slot))))
        for members, begins in slot.own.items():
            own = substitute(value, {v: const(k, v.sort) for v, k in zip(indices, members, strict=True)})
            yield or_(*(equal(own, const(v, slot.sort)) for v in begins))
        for v in reversed(indices):
            other = abstract("any", v, other)
        yield not_(other)


def conjuncts(tree: Expr) -> tuple[Expr, ...]:
    """The parts of a conjunction; of another tree, the tree."""
    return tree.args if tree.op == "and" else (tree,)


@lru_cache(maxsize=100_000)
def inside(quantifier: Expr) -> tuple[Expr, Expr]:
    """A variable for a quantifier's index, always the same one, and the body with it: equal parts stay equal."""
    v = loop_variable(quantifier.args[0])
    return v, instantiate(quantifier, v)


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
        found = _value(expr, tuple(after(x, effects, memo) if isinstance(x, Expr) else x for x in expr.args), effects)
    memo[expr] = found
    return found


def _quantified(expr: Expr, effects: dict[str, Expr], memo: dict[Expr, Expr]) -> Expr:
    sort: Sort = expr.args[0]
    if sort.is_open:
        v, body = inside(expr)
        return abstract(expr.op, v, after(body, effects, memo))
    each = [after(instantiate(expr, const(k, sort)), effects, memo) for k in range(sort.size)]
    return or_(*each) if expr.op == "any" else sum((as_int(x) for x in each), lift(0))


def _value(expr: Expr, args: tuple[Any, ...], effects: dict[str, Expr]) -> Expr:
    """The tree with these operands; of a read, the value that a step leaves at its place, or a choice of values."""
    body = effects.get(expr.name) if expr.op == "read" else None
    if body is None:
        return rebuild(expr, args)
    for k, x in enumerate(args[1:], 1):
        if x.op == "ite":
            ways = (_value(expr, (*args[:k], y, *args[k + 1 :]), effects) for y in x.args[1:])
            return ite(x.args[0], *ways)
    return substitute(body, {v: args[1 + v.number] for v in body.free if v.role is Role.PLACEHOLDER})
