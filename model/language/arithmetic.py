"""Products, quotients, remainders, sums and extremes: trees of the core that print as their author wrote them.

*Theory of operation.* The core adds, subtracts and compares numbers. A product is a choice between the multiples of one
factor by the values of the other. A quotient, remainder or absolute value is a choice by the values of its operand, or,
if these are many, by intervals of them. A sum over the members of an index is the sum, over the values of the range, of
the number of members that reach the value. So engines and exports need nothing new, and members stay interchangeable.
Over more than `COUNTED_MAX` values, a sum adds the members one by one, and then it names them. In a proof for any size
a sum over an index is a `count` whose body is the number.

Failures, each with the line: an operand is not a number, a divisor is not a positive number that is known when the
system is built, a proof leaves a range open, or a sum ranges over more than one index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any

from . import source
from .expressions import Expr, add, const, equal, ite, less, lift, named, not_, or_, refuse_others, substitute, subtract
from .quantifiers import abstract, looped, total

TABLE_MAX = 64  # values of an operand that a choice lists; above, it compares intervals
COUNTED_MAX = 16  # values of a summand, whose counts are added; above, the members are


def multiply(a: Expr, b: Expr) -> Expr:
    """The product of two numbers."""
    refuse_others("multiply", a, b)
    if a.op == b.op == "const":
        return lift(a.value * b.value)
    many, few = (b, a) if a.op == "const" or (b.op != "const" and a.sort.size < b.sort.size) else (a, b)
    out = _times(many, few.sort.high)
    for value in reversed(range(few.sort.low, few.sort.high)):
        out = ite(equal(few, lift(value)), _times(many, value), out)
    return named("{0} * {1}", out, a, b)


def _times(a: Expr, factor: int) -> Expr:
    """The multiple of a number: as many additions as the factor has bits, or twice as many."""
    if factor < 0:
        return subtract(lift(0), _times(a, -factor))
    if factor < 2:
        return a if factor else lift(0)
    half = _times(a, factor // 2)
    return add(add(half, half), a) if factor % 2 else add(half, half)


def quotient(a: Expr, divisor: Any) -> Expr:
    """The quotient by a known number, rounded down."""
    by = _divisor(a, divisor)
    found = _by_values(a, lambda value: value // by, lambda low: lift(low // by), by)
    return named(f"{{0}} // {by}", found, a)


def remainder(a: Expr, divisor: Any) -> Expr:
    """The remainder of the quotient by a known number, which is from 0 to the divisor less 1."""
    by = _divisor(a, divisor)
    found = _by_values(a, lambda value: value % by, lambda low: subtract(a, lift(low)), by)
    return named(f"{{0}} % {by}", found, a)


def negative(a: Expr) -> Expr:
    """The number with the other sign."""
    refuse_others("negate", a)
    return named("−{0}", subtract(lift(0), a), a)


def absolute(a: Expr) -> Expr:
    """The number without its sign."""
    refuse_others("take the absolute value of", a)
    if a.sort.least >= 0:
        return a
    if a.sort.size <= TABLE_MAX:
        return named("abs({0})", _table(a, abs), a)
    return named("abs({0})", ite(less(a, lift(0)), subtract(lift(0), a), a), a)


def sum_(values: Iterable[Any]) -> Expr:
    """The sum of numbers: `sum_(s.load[j] for j in s.node)`, or over a plain list."""
    return _folded("sum", values, _sum, add)


def max_(values: Iterable[Any]) -> Expr:
    """The largest of numbers: `max_(s.load[j] for j in s.node)`, or over a plain list."""
    return _folded("max", values, _largest, lambda a, b: ite(less(a, b), b, a))


def min_(values: Iterable[Any]) -> Expr:
    """The smallest of numbers: `min_(s.load[j] for j in s.node)`, or over a plain list."""
    return _folded("min", values, _smallest, lambda a, b: ite(less(b, a), b, a))


def _divisor(a: Expr, divisor: Any) -> int:
    refuse_others("divide", a)
    known = lift(divisor)
    if known.op != "const" or known.sort.kind != "int" or known.value < 1:
        source.refuse(f"cannot divide {a} by {known}: the divisor is a number of at least 1 that is always the same")
    return known.value


def _by_values(a: Expr, apply: Callable[[int], int], of: Callable[[int], Expr], by: int) -> Expr:
    """A choice by the values of a number, or if they are many, by its intervals from a multiple of `by` to the next."""
    if a.sort.size <= TABLE_MAX:
        return _table(a, apply)
    first, last = a.sort.low // by, a.sort.high // by
    out = of(last * by)
    for k in reversed(range(first, last)):
        out = ite(less(a, lift((k + 1) * by)), of(k * by), out)
    return out


def _table(a: Expr, apply: Callable[[int], int]) -> Expr:
    """A function of a number as a choice by its values."""
    found: dict[int, list[int]] = {}
    for value in range(a.sort.low, a.sort.high + 1):
        found.setdefault(apply(value), []).append(value)
    results = [*found]
    out = lift(results[-1])
    for result in reversed(results[:-1]):
        out = ite(or_(*(equal(a, lift(value)) for value in found[result])), result, out)
    return out


def _folded(
    what: str, values: Iterable[Any], over: Callable[[Expr, Expr], Expr], two: Callable[[Expr, Expr], Expr]
) -> Expr:
    """The fold of numbers: of each loop over an index, and of all values of a list."""
    parts, shown = list[Expr](), list[Expr]()
    for body, loops in looped(values):
        refuse_others(f"take the {what} of", body)
        if len(loops) > 1:
            source.refuse(f"{what}_() ranges over only one index: nest another {what}_() inside it for more")
        parts.append(over(loops[0], body) if loops else body)
        shown.append(abstract("any", loops[0], body) if loops else body)  # it prints as `j: load[j]`
    if not parts:
        source.refuse(f"{what}_() of no numbers: give at least one")
    label = f"{what}({', '.join(f'{{{k}}}' for k in range(len(shown)))})"
    return named(label, reduce(two, parts), *shown)


def _each(loop: Expr, body: Expr) -> list[Expr]:
    return [substitute(body, {loop: const(k, loop.sort)}) for k in range(loop.sort.size)]


def _sum(loop: Expr, body: Expr) -> Expr:
    if loop.sort.is_open:
        return abstract("count", loop, body)  # only the prover gets it: see `prover/sums.py`
    if body.sort.size > COUNTED_MAX:
        return total(_each(loop, body))
    reached = [abstract("count", loop, not_(less(body, lift(v)))) for v in range(body.sort.low + 1, body.sort.high + 1)]
    return total([_times(abstract("count", loop, lift(True)), body.sort.low), *reached])


def _largest(loop: Expr, body: Expr) -> Expr:
    out = lift(body.sort.low)
    for value in range(body.sort.low + 1, body.sort.high + 1):
        out = ite(abstract("any", loop, not_(less(body, lift(value)))), value, out)
    return out


def _smallest(loop: Expr, body: Expr) -> Expr:
    out = lift(body.sort.high)
    for value in reversed(range(body.sort.low, body.sort.high)):
        out = ite(abstract("any", loop, not_(less(lift(value), body))), value, out)
    return out
