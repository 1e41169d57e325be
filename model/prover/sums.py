"""Laws of sums: the solver's assumptions about sums over the members of an index. `docs/proofs.md` proves each.

*Theory of operation.* A sum is a symbol, or a function of the indices around it. It is written as a total:

    the values at the step's own members, one by one
    for the other members, a multiple of each *part*: the sum of one term over the members with some conditions

The value at a member is a polynomial in its conditions: `ite(c, a, b)` is `b + c * (a - b)`, and `~c` is `1 - c`. So
two sums with the same values have the same parts, and a step that writes at its own members changes no part. A part of
the constant 1 is a count, which has the laws of counting. The laws about any other part state its sign, when it is 0,
and its value if one member has a number other than 0. Two sums are compared by their values at each member.

A body with too many conditions is one part with the body as its term.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ..language import Expr, and_, as_int, ite, not_
from ..language.expressions import FALSE, TRUE, const, equal, less, lift, members, rebuild, substitute, variable
from ..language.quantifiers import abstract, loop_variable

if TYPE_CHECKING:
    from .counting import Counting

Term = Any
Parts = dict[tuple[tuple[Expr, ...], Expr], int]  # the conditions of each part, and its term -> its multiple
PARTS_MAX = 40  # a few conditions; a part has about ten laws
ZERO, ONE = lift(0), lift(1)


class Sums:
    """The symbols of the sums in some formulas; `counting` names them, and has their meanings."""

    def __init__(
        self,
        counting: Counting,
        known: dict[Any, Any],
        compared: list[_Sum],
        parts: list[tuple[Expr, Expr, Expr, Term]],
    ) -> None:
        """parts: those without indices around them, each with its variable, its condition and its term."""
        self.counting, self.f = counting, counting.f
        self._known, self._compared, self._parts = known, compared, parts

    def fork(self, counting: Counting) -> Sums:
        return Sums(counting, {**self._known}, [*self._compared], [*self._parts])

    def number(self, v: Expr, body: Expr) -> Term:
        """The sum of `body` over all v."""
        made, slots, is_new = self._symbol("sum", v, body)
        if is_new:
            mine = tuple(loop_variable(x.sort) for x in slots)
            new = _Sum(v, substitute(body, dict(zip(slots, mine, strict=True))), mine, made)
            term = self._at(made, mine)
            self._law("parts", mine, term == self.f.z3.Sum(self._total(v, new.body)), *([term] if mine else ()))
            for old in self._compared:
                self._compare(old, new)
                self._compare(new, old)
            self._compared.append(new)
        return self._at(made, slots)

    def _symbol(self, kind: str, v: Expr, body: Expr) -> tuple[Term, tuple[Expr, ...], bool]:
        """The function of a sum, the indices around it, and whether the function is new."""
        slots = self.counting.around(v, body)
        alike = substitute(abstract("count", v, body), {x: variable(f"%{k}", x.sort) for k, x in enumerate(slots)})
        is_new = (kind, alike) not in self._known
        if is_new:
            name = self.counting.named(kind, v, body, slots)
            sorts = (self.f.sort(x.sort) for x in slots)
            self._known[kind, alike] = self.f.z3.Function(name, *sorts, self.f.z3.IntSort())
        return self._known[kind, alike], slots, is_new

    def _at(self, made: Term, slots: tuple[Expr, ...]) -> Term:
        return made(*(self.f(x) for x in slots))

    def _law(self, name: str, over: tuple[Expr, ...], formula: Term, *patterns: Term) -> None:
        self.f.law(name, self.counting.for_all(over, formula, *patterns))

    def _compare(self, low: _Sum, high: _Sum) -> None:
        """Add the law that the first sum is lower if its numbers are. Sums over the same indices have the same members.

        A sum of zeros and ones, which is a count, is compared with others of its kind.
        """
        if low.v.sort.name != high.v.sort.name or (low.body.sort.most > 1) != (high.body.sort.most > 1):
            return
        z3, same = self.f.z3, [x.sort.name for x in low.slots] == [x.sort.name for x in high.slots]
        other = low.slots if same else high.slots
        body = substitute(high.body, {high.v: low.v, **dict(zip(high.slots, other, strict=True))})
        a, b = self._at(low.made, low.slots), self._at(high.made, other)
        higher, lower = (self.f(abstract("any", low.v, less(x, y))) for x, y in ((body, low.body), (low.body, body)))
        law = z3.Implies(z3.Not(higher), z3.And(a <= b, z3.Implies(lower, a < b)))
        self._law("pointwise", low.slots if same else (*low.slots, *high.slots), law)

    def _total(self, v: Expr, body: Expr) -> list[Term]:
        """The terms whose sum is the sum of `body`."""
        out: list[Term] = []
        gone: list[Expr] = []
        for x in (p for p in self.f.points if p.sort.name == v.sort.name):
            is_other = and_(*(not_(equal(x, y)) for y in gone))
            out.append(self.f(ite(is_other, substitute(body, {v: x}), ZERO)))
            gone.append(x)
        rest = substitute(body, {equal(v, x): FALSE for x in gone})
        try:
            parts = _Polynomials().number(rest)
        except _TooManyError:
            parts = {((), rest): 1}
        for (conditions, term), times in parts.items():
            outer = and_(*(c for c in conditions if v not in c.free))
            part = self._part(v, gone, [c for c in conditions if v in c.free], term)
            out.append(times * (part if outer is TRUE else self.f.z3.If(self.f(outer), part, 0)))
        return out or [self.f(ZERO)]

    def _part(self, v: Expr, gone: list[Expr], conditions: list[Expr], term: Expr) -> Term:
        """The sum of a term over the members with these conditions, except the step's own members."""
        is_one = and_(*(not_(equal(v, x)) for x in gone), *conditions)
        if is_one is FALSE:
            return self.f(ZERO)
        only = the_one(v, conditions)
        if only is not None:
            return self.f(ite(not_(only.absent), substitute(ite(is_one, term, ZERO), {v: only}), ZERO))
        if term is ONE and not conditions:
            left = self.f(members(v.sort))
            for k, x in enumerate(gone):
                left = left - self.f(as_int(and_(*(not_(equal(x, y)) for y in gone[:k]))))
            return left
        made, slots, is_new = self._symbol("part", v, ite(is_one, term, ZERO))
        if is_new:
            self._laws(v, is_one, term, slots, self._at(made, slots))
            if not slots:
                self._alike(v, is_one, term, made())
        return self._at(made, slots)

    def _alike(self, v: Expr, is_one: Expr, term: Expr, part: Term) -> None:
        """Add the law that two parts of the same term are equal if their members are."""
        for w, other, its_term, its_part in self._parts:
            if w.sort is v.sort and substitute(its_term, {w: v}) is term:
                differs = abstract("any", v, not_(equal(is_one, substitute(other, {w: v}))))
                self._law("same parts", (), self.f.z3.Or(self.f(differs), part == its_part))
        self._parts.append((v, is_one, term, part))

    def _laws(self, v: Expr, is_one: Expr, term: Expr, slots: tuple[Expr, ...], part: Term) -> None:
        """The laws of a part: its sign, when it is 0, and the part of a single member."""
        z3, f, other, patterns = self.f.z3, self.f, loop_variable(v.sort), [part] * bool(slots)
        counts = and_(is_one, not_(equal(term, ZERO)))
        some, below = f(abstract("any", v, counts)), abstract("any", v, and_(is_one, less(term, ZERO)))
        most = self.counting.for_all((v,), z3.Implies(f(is_one), f(term) <= part))
        signs = z3.And(part >= 0, z3.Implies(some, part > 0), most)
        self._law("signs", slots, z3.Implies(z3.Not(some), part == 0), *patterns)
        self._law("signs", slots, signs if below is FALSE else z3.Or(f(below), signs), *patterns)
        two = abstract("any", other, and_(substitute(counts, {v: other}), not_(equal(other, v))))
        several = f(abstract("any", v, and_(counts, two)))
        one = z3.Exists([f(v)], z3.And(f(counts), part == f(term)))
        self._law("single", slots, z3.Or(several, z3.Not(some), one), *patterns)


def the_one(v: Expr, conditions: Iterable[Expr]) -> Expr | None:
    """The only member for which all conditions on v can hold, which may be absent; None: several may be."""
    for c in conditions:
        others: list[Expr] = [x for x in c.args if x is not v] if c.op == "eq" else []
        if len(others) == 1 and v not in others[0].free:
            return others[0]
    return None


class _Sum:
    """The sum of `body` over all v, a function of the indices in `slots`."""

    __slots__ = ("body", "made", "slots", "v")

    def __init__(self, v: Expr, body: Expr, slots: tuple[Expr, ...], made: Term) -> None:
        self.v, self.body, self.slots, self.made = v, body, slots, made


class _TooManyError(Exception):
    """A polynomial has too many parts."""


class _Polynomials:
    """Polynomials of trees. The conditions of a part are in the order in which trees have them."""

    def __init__(self) -> None:
        self._order: dict[Expr, int] = {}

    def number(self, tree: Expr) -> Parts:
        """A number as a polynomial in its conditions."""
        if tree.op == "const":
            return {((), ONE): tree.value} if tree.value else {}
        if tree.op == "add":
            return _plus(self.number(tree.args[0]), self.number(tree.args[1]))
        if tree.op == "sub":
            return _plus(self.number(tree.args[0]), self.number(tree.args[1]), -1)
        if tree.op == "int":
            return self.condition(tree.args[0])
        if tree.op == "ite":
            return self._chosen(self.condition(tree.args[0]), *(self.number(x) for x in tree.args[1:]))
        return {((), tree): 1}

    def condition(self, tree: Expr) -> Parts:
        """A condition as a polynomial: 1 where it holds, else 0."""
        if tree.op == "const":
            return {((), ONE): 1} if tree.value else {}
        if tree.op == "not":
            return _plus({((), ONE): 1}, self.condition(tree.args[0]), -1)
        if tree.op == "and":
            out = self.condition(tree.args[0])
            for x in tree.args[1:]:
                out = self._times(out, self.condition(x))
            return out
        if tree.op in ("eq", "lt"):
            a, b = tree.args
            if tree.op == "eq" and a.sort.kind == "bool":
                return self._chosen(self.condition(a), self.condition(b), self.condition(not_(b)))
            for x in (a, b):
                if x.op == "ite":
                    ways = (rebuild(tree, (y, b) if x is a else (a, y)) for y in x.args[1:])
                    return self._chosen(self.condition(x.args[0]), *(self.condition(way) for way in ways))
            if tree.op == "eq" and a.sort.kind == "enum" and b.op == "const" and b.value == a.sort.high:
                others = (equal(a, const(k, a.sort)) for k in range(a.sort.low, a.sort.high))
                return self.condition(and_(*(not_(other) for other in others)))
        self._order.setdefault(tree, len(self._order))
        return {((tree,), ONE): 1}

    def _chosen(self, condition: Parts, then: Parts, otherwise: Parts) -> Parts:
        return _plus(otherwise, self._times(condition, _plus(then, otherwise, -1)))

    def _times(self, condition: Parts, number: Parts) -> Parts:
        out: Parts = {}
        for (some, _), n in condition.items():
            for (others, term), m in number.items():
                if not any(_exclude(x, y) for x in some for y in others):
                    both = tuple(sorted({*some, *others}, key=self._order.__getitem__))
                    out = _plus(out, {(both, term): n * m})
        if len(out) > PARTS_MAX:
            raise _TooManyError
        return out


def _plus(a: Parts, b: Parts, times: int = 1) -> Parts:
    out = {**a}
    for key, number in b.items():
        out[key] = out.get(key, 0) + times * number
    return {key: number for key, number in out.items() if number}


def _exclude(x: Expr, y: Expr) -> bool:
    """Whether two conditions give one value two constants."""
    constants = x.op == y.op == "eq" and x.args[1].op == y.args[1].op == "const"
    return constants and x.args[0] is y.args[0] and x.args[1].value != y.args[1].value
