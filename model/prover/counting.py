"""Laws of counting: the solver's assumptions about the sizes of finite sets. `docs/proofs.md` proves each.

*Theory of operation.* A count of members with a condition takes one of three forms:

    cells     The count is a sum over parts of the members, the *cells*. Each of the step's own members is a cell. The
              other members are split by the values of the fields that the condition reads at them, and by every
              condition in it. The size of a cell is a number. The laws state that this number is not negative, that it
              is zero exactly if no member is in the cell, and that the two halves of a cell add up to it. A cell whose
              members equal one member is 1 or 0
    ranks     The count has the form `count(K(k) & k < j)`, where `<` is any strict total order. It is a function of j,
              the *rank* of j in K. The laws state that a rank is not negative and at most |K|, and less than |K| at
              members of K; that it grows along the order, strictly at members of K; and that in any subset of K at
              most s members have a rank below s
    opaque    The count has any other form. It is a number, or a function of the indices around it. The laws state that
              it is not negative, and that it is zero exactly if no member fulfils the condition

Two counts with the same members are equal. A law states this if one of the two is opaque and the laws `segments` and
`below` do not determine it. Otherwise the other laws imply it.

A count whose body is a number is a sum, whose laws are in `sums`. Only trees of a proof have such counts.

An order is recognised by its properties. A condition on two members is an order if the solver proves that it is
irreflexive, transitive and total in every state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ..language import Expr, Sort, and_, as_int, not_
from ..language.expressions import (
    FALSE,
    QUANTIFIERS,
    TRUE,
    Role,
    const,
    equal,
    less,
    members,
    parts,
    rebuild,
    substitute,
    variable,
)
from ..language.expressions import ord_ as ordinal
from ..language.quantifiers import abstract, instantiate, loop_variable
from ..language.sorts import required
from .conditions import conjuncts, inside
from .sums import Sums, the_one

if TYPE_CHECKING:
    from .formulas import Formulas

Term = Any
ORDER_EFFORT = 1_000_000  # the limit for the question whether a condition is an order, which needs a hundredth of it

LAWS = {
    "order": "the members of an index are ordered, strictly and totally",
    "cells": "a cell is not negative, and zero exactly if it has no member; two halves of a cell add up to it",
    "sums": "a count is the sum of its cells",
    "ranks": "a rank is at least 0, at most |K|, less at members of K, and grows with each member of K before it",
    "first": "of a set with a member, one member has the rank 0",
    "segments": "as many members are before some member of a set as are before its last",
    "below": "as many members have a rank below one of some numbers as the largest of these numbers, or all",
    "members": "an index has a member; each number below that of its members is the rank of one",
    "prefixes": "of a subset of K at most s members have a rank below s, and of K itself s or all",
    "same members": "two counts of the same members are equal",
    "opaque": "a count is not negative, and zero exactly if it has no member",
    "parts": "a sum is the sum of its parts, and a part is a sum too",
    "same parts": "two parts of a sum with one term and the same members are equal",
    "signs": "a sum of numbers from 0 is at least each of them, and zero only if all are; zeros add up to zero",
    "single": "a sum in which all numbers except one are zero is that number",
    "pointwise": "a sum of numbers that are at most others is at most their sum, and less if one of them is less",
}  # fmt: skip


class Counting:
    """The symbols of the counts in some formulas."""

    def __init__(self, formulas: Formulas, orders: dict[Expr, bool]) -> None:
        self.f = formulas
        self._orders = orders
        self._names = 0
        self._known: dict[Any, Any] = {}
        self._counts: list[_Count] = []
        self._meanings: dict[str, tuple[Expr, Expr, tuple[Expr, ...]]] = {}
        self._sums = Sums(self, {}, [], [])

    def meanings(self) -> dict[str, tuple[Expr, Expr, tuple[Expr, ...]]]:
        """Each symbol of a count or sum, with its variable v, its body and its indices."""
        return self._meanings

    def fork(self, formulas: Formulas) -> Counting:
        out = Counting(formulas, self._orders)
        out._names, out._known, out._counts = self._names, {**self._known}, [*self._counts]
        out._meanings, out._sums = {**self._meanings}, self._sums.fork(out)
        return out

    def _name(self, kind: str) -> str:
        self._names += 1
        return f"{kind}!{self._names}"

    def named(self, kind: str, v: Expr, body: Expr, slots: tuple[Expr, ...]) -> str:
        """A new symbol for the count or sum of `body` over all v, as a function of the indices in `slots`."""
        name = self._name(kind)
        self._meanings[name] = v, body, slots
        return name

    def around(self, v: Expr, body: Expr) -> tuple[Expr, ...]:
        """The indices of other loops in a body."""
        return tuple(x for x in self.f.in_order(body.free) if x is not v and x.role is Role.LOOP)

    # ---- the three forms

    def number(self, v: Expr, body: Expr) -> Term:
        """The number of v for which `body` holds; of numbers, their sum."""
        if body.sort.kind == "int":
            return self._sums.number(v, body)
        if body is FALSE:
            return self.f.z3.IntVal(0)
        fixed = self._fixed(v, body)
        if fixed is not None:
            return fixed
        around = self.around(v, body)
        rank = self._ranked(v, body)
        if rank is not None:
            return rank
        if not around and any(True for _ in _values_at(v, body)):
            return self._sum(v, body)
        return self._opaque(v, body, around)

    def none(self, v: Expr, body: Expr) -> Term | None:
        """The formula that `body` holds for no v, if its count is a rank; else None."""
        found = self._ordered(v, body)
        if found is None:
            return None
        z3 = self.f.z3
        x, before, among = found
        a, rank = loop_variable(v.sort), self._rank(v, among, x, before)
        key = "none", abstract("any", v, _with(body, before, substitute(before, {x: variable("%0", x.sort)})))
        if key not in self._known:
            self._known[key] = at = rank(self.f(a))
            some = self.f(abstract("any", v, _with(body, before, substitute(before, {x: a}))))
            self.f.law("cells", self.for_all((a,), (at == 0) == z3.Not(some), at))
        none: Term = rank(self.f(x)) == 0
        return none

    def _ranked(self, v: Expr, body: Expr) -> Term | None:
        """The count as a rank, or None if it is not a rank."""
        found = self._ordered(v, body)
        if found is None:
            return None
        x, before, among = found
        return self._rank(v, among, x, before)(self.f(x))

    def _ordered(self, v: Expr, body: Expr) -> tuple[Expr, Expr, Expr] | None:
        """A member, the conjunct of `body` that v is before it in some order, and the other conjuncts; else None.

        If that member is the step's own, the other conjuncts may mention it too.
        """
        for x in self.f.in_order(body.free):
            if x is not v and x.sort.name == v.sort.name:
                before, among = self._split(v, x, body)
                if before is not None and not _around(v, x, before) and not _around(v, v, among):
                    return x, before, among
        return None

    def place(self, index: Expr) -> Term:
        """The number of members before `index`."""
        sort = required(index.sort)
        v, x = loop_variable(sort), loop_variable(sort)
        return self._rank(v, TRUE, x, less(ordinal(v), ordinal(x)))(self.f(index))

    def member(self, index: Sort, number: Expr) -> Term:
        """The member of an index with `number` members before it; any member if no such member exists."""
        z3, sort, at = self.f.z3, self.f.sort(index), self.f(number)
        made = z3.Function(f"{index.name}!member", z3.IntSort(), sort)
        v, x = loop_variable(index), loop_variable(index)
        place = self._rank(v, TRUE, x, less(ordinal(v), ordinal(x)))
        if ("member", index.name) not in self._known:
            x = z3.Const(f"{index.name}!x", sort)
            self._known["member", index.name] = made
            self.f.law("members", z3.ForAll([x], made(place(x)) == x, patterns=[place(x)]))
        if ("member", index.name, number) not in self._known:
            self._known["member", index.name, number] = made
            there = z3.And(at >= 0, at < self.f(members(index)))
            around = tuple(x for x in self.f.in_order(number.free) if x.role is Role.LOOP)
            self.f.law("members", self.for_all(around, z3.Implies(there, place(made(at)) == at)))
        return made(at)

    def first(self, index: Sort) -> Term:
        """The first member of an index."""
        key = "first", index.name
        if key not in self._known:
            z3, sort = self.f.z3, self.f.sort(index)
            x = z3.Const(f"{index.name}!x", sort)
            self._known[key] = found = z3.Const(f"{index.name}!first", sort)
            self.f.law("order", z3.ForAll([x], z3.Or(x == found, self.f.before(index)(found, x))))
        return self._known[key]

    def _fixed(self, v: Expr, body: Expr) -> Term | None:
        """The count, split by an enum value in it that does not depend on the member; None without such a value."""
        for e in parts(body):
            if e.op == "eq" and e.args[0].sort.kind == "enum" and e.args[1].op != "const" and v in e.free:
                free = [x for x in e.args if v not in x.free]
                if len(free) == 1 and not free[0].reach:
                    kind, sort = free[0], free[0].sort
                    out = self.number(v, substitute(body, {kind: const(sort.high, sort)}))
                    for k in range(sort.high - 1, -1, -1):
                        value = const(k, sort)
                        then = self.number(v, substitute(body, {kind: value}))
                        out = self.f.z3.If(self.f(equal(kind, value)), then, out)
                    return out
        return None

    def _opaque(self, v: Expr, body: Expr, around: tuple[Expr, ...]) -> Term:
        z3 = self.f.z3
        names = {x: loop_variable(x.sort) for x in around}
        key = (
            "opaque",
            substitute(abstract("count", v, body), {x: variable(f"%{k}", x.sort) for k, x in enumerate(around)}),
        )
        if key not in self._known:
            here, slots = substitute(body, names), tuple(names.values())
            name = self.named("count", v, here, slots)
            given = [self.f(x) for x in slots]
            made = z3.Function(name, *(x.sort() for x in given), z3.IntSort()) if given else None
            number = z3.Int(name) if made is None else made(*given)
            self._known[key] = made if made is not None else number
            some = self.f(abstract("any", v, here))
            self.f.law("opaque", self.for_all(slots, z3.And(number >= 0, (number == 0) == z3.Not(some))))
            if not (self._segments(v, here, slots, number) or self._below(v, here, slots, number)):
                self._link(_Count(v, here, slots, number, "opaque"))
        found = self._known[key]
        return found(*(self.f(x) for x in around)) if around else found

    def _segments(self, v: Expr, body: Expr, slots: tuple[Expr, ...], number: Term) -> bool:
        """Add the law of `count(any(F(k) & v < k))`: it is the number of members before the last k with F."""
        if body.op != "any" or body.args[0].name != v.sort.name:
            return False
        k = loop_variable(v.sort)
        before, last = self._split(v, k, instantiate(body, k))
        if before is None or v in last.free or _around(v, k, before):
            return False
        z3, kk = self.f.z3, self.f(k)
        rank, is_one = self._rank(v, TRUE, k, before)(kk), self.f(last)
        most = z3.ForAll([kk], z3.Implies(is_one, rank <= number), patterns=[rank])
        reached = z3.Or(number == 0, z3.Exists([kk], z3.And(is_one, rank == number)))
        self.f.law("segments", self.for_all(slots, z3.And(most, reached)))
        return True

    def _below(self, v: Expr, body: Expr, slots: tuple[Expr, ...], number: Term) -> bool:
        """Add the law of `count(any(F(k) & ord(v) < g(k)))`: the largest g(k), or all. F and `any` may be missing."""
        k = loop_variable(body.args[0]) if body.op == "any" else None
        conditions = conjuncts(body if k is None else instantiate(body, k))
        bounds = [c for c in conditions if v in c.free]
        limits = [c.args[1] for c in bounds if c.op == "lt" and c.args[0] is ordinal(v) and v not in c.args[1].free]
        if not len(bounds) == len(limits) == 1:
            return False
        z3, size, limit = self.f.z3, self.f(members(v.sort)), self.f(limits[0])
        most, some = z3.If(limit < size, limit, size), self.f(and_(*(c for c in conditions if v not in c.free)))
        within, reached = z3.Implies(some, most <= number), z3.And(some, most == number)
        if k is not None:
            within, reached = z3.ForAll([self.f(k)], within), z3.Exists([self.f(k)], reached)
        self.f.law("below", self.for_all(slots, z3.And(within, z3.Or(number == 0, reached))))
        return True

    def _sum(self, v: Expr, body: Expr) -> Term:
        key = "sum", abstract("count", v, body)
        if key not in self._known:
            term = self._known[key] = self._cells(v, body)
            self._link(_Count(v, body, (), term, "sum"))
        return self._known[key]

    def _rank(self, v: Expr, among: Expr, x: Expr, before: Expr) -> Any:
        """The rank function of the order `before` (v is before x), among the v for which `among` holds."""
        z3 = self.f.z3
        key = "rank", abstract("count", v, among), abstract("any", v, substitute(before, {x: variable("%0", x.sort)}))
        if key not in self._known:
            a, b = loop_variable(v.sort), loop_variable(v.sort)
            here = and_(among, substitute(before, {x: b}))
            name = self.named("rank", v, here, (b,))
            made = self._known[key] = z3.Function(name, self.f.sort(v.sort), z3.IntSort())
            ra, rb = made(self.f(a)), made(self.f(b))
            inside = self.f(substitute(among, {v: a}))
            all_of_them = self.number(v, among) if among is not TRUE else self.f(members(v.sort))
            less_ = self.f(substitute(before, {v: a, x: b}))
            bounds = z3.And(ra >= 0, ra <= all_of_them, z3.Implies(inside, ra < all_of_them))
            grows = z3.Implies(less_, z3.If(inside, ra < rb, ra <= rb))
            self.f.law("ranks", self.for_all((a,), bounds, ra))
            self.f.law("ranks", self.for_all((a, b), grows, z3.MultiPattern(ra, rb)))
            some, least = self.f(abstract("any", v, among)), loop_variable(v.sort)
            at_zero = z3.Exists(
                [self.f(least)], z3.And(self.f(substitute(among, {v: least})), made(self.f(least)) == 0)
            )
            self.f.law("first", z3.Implies(some, at_zero))
            self._link(_Count(v, here, (b,), rb, "rank"))
        return self._known[key]

    def for_all(self, variables: tuple[Expr, ...], formula: Term, *patterns: Term) -> Term:
        if not variables:
            return formula
        given = [self.f(x) for x in variables]
        return self.f.z3.ForAll(given, formula, patterns=[*patterns]) if patterns else self.f.z3.ForAll(given, formula)

    def _link(self, new: _Count) -> None:
        """Add the law that two counts of the same members are equal; if one is opaque, no other law implies it."""
        for old in self._counts:
            if "opaque" not in (new.form, old.form) or new.v.sort.name != old.v.sort.name:
                continue
            same = not_(abstract("any", new.v, not_(equal(new.body, substitute(old.body, {old.v: new.v})))))
            equal_then = self.f.z3.Implies(self.f(same), new.term == old.term)
            self.f.law("same members", self.for_all((*new.slots, *old.slots), equal_then))
        self._counts.append(new)

    def _split(self, v: Expr, x: Expr, body: Expr) -> tuple[Expr | None, Expr]:
        """The conjunct that v is before x in some order, or None, and the other conjuncts."""
        parts = conjuncts(body)
        for c in parts:
            if v in c.free and x in c.free and self._is_order(v, x, c):
                return c, and_(*(other for other in parts if other is not c))
        return None, body

    def _is_order(self, v: Expr, x: Expr, before: Expr) -> bool:
        """Whether the condition is a strict total order in every state."""
        if any(e.op in QUANTIFIERS for e in parts(before)):
            return False
        mine, other = variable("%0", v.sort), variable("%1", v.sort)
        key = substitute(before, {v: mine, x: other})
        if key not in self._orders:
            a, b, c = (loop_variable(v.sort) for _ in range(3))
            ab, bc, ac, ba, aa = (substitute(key, {mine: p, other: q}) for p, q in
                                  ((a, b), (b, c), (a, c), (b, a), (a, a)))  # fmt: skip
            fails = not_(
                and_(not_(aa), not_(and_(ab, bc, not_(ac))), not_(and_(not_(ab), not_(ba), not_(equal(a, b)))))
            )
            plain = type(self.f)((), frozenset())
            wrong = plain(fails)
            solver = plain.z3.Solver()
            solver.set("rlimit", ORDER_EFFORT)
            solver.add(wrong, *(formula for _, formula in plain.laws))
            self._orders[key] = solver.check() == plain.z3.unsat
        return self._orders[key]

    # ---- cells

    def _cells(self, v: Expr, body: Expr) -> Term:
        """An exact sum: the step's own members one by one, then the others by the values of the fields read at them."""
        parts = []
        gone: list[Expr] = []
        for x in (p for p in self.f.points if p.sort.name == v.sort.name):
            parts.append(self.f(as_int(and_(*(not_(equal(x, y)) for y in gone), substitute(body, {v: x})))))
            body = substitute(body, {equal(v, x): FALSE})
            gone.append(x)
        reads = [r for r in _values_at(v, body) if r.name in self.f.counted]
        parts.append(self._by_value(v, body, reads, tuple(gone), ()))
        return self._total(parts)

    def _total(self, parts: list[Term]) -> Term:
        return parts[0] if len(parts) == 1 else self.f.z3.Sum(parts)  # some solvers refuse a sum of one part

    def _by_value(
        self, v: Expr, body: Expr, reads: list[Expr], gone: tuple[Expr, ...], chosen: tuple[Expr, ...]
    ) -> Term:
        if not reads:
            return self._by_condition(v, body, gone, chosen)
        one, *others = reads
        values = [const(k, one.sort) for k in range(one.sort.low, one.sort.high + 1)]
        parts = [self._by_value(v, substitute(body, {one: x}), others, gone, (*chosen, equal(one, x))) for x in values]
        return self._total(parts)

    def _by_condition(self, v: Expr, body: Expr, gone: tuple[Expr, ...], chosen: tuple[Expr, ...]) -> Term:
        """Move conditions without the counted member out of the count, and split it by conditions with the member."""
        found = _conditions(body)
        outer = next((c for c in found if v not in c.free), None)
        if outer is not None:
            yes, no = (self._by_condition(v, _outside(body, outer, k), gone, chosen) for k in (TRUE, FALSE))
            return self.f.z3.If(self.f(outer), yes, no)
        splits = (c for c in found if c.op in ("eq", "read") and not any(e.op in QUANTIFIERS for e in parts(c)))
        inner = next((c for c in splits if c is not body), None)
        if inner is not None:
            ways = ((TRUE, inner), (FALSE, not_(inner)))
            return self._total(
                [self._by_condition(v, substitute(body, {inner: k}), gone, (*chosen, c)) for k, c in ways]
            )
        return self._cell(v, body, gone, chosen)

    def _cell(self, v: Expr, body: Expr, gone: tuple[Expr, ...], chosen: tuple[Expr, ...]) -> Term:
        if body is FALSE:
            return self.f.z3.IntVal(0)
        here = and_(*chosen, *(not_(equal(v, x)) for x in gone), body)
        only = the_one(v, conjuncts(here))
        if only is not None:
            return self.f(as_int(and_(not_(only.absent), substitute(here, {v: only}))))
        key = "cell", abstract("count", v, here)
        if key not in self._known:
            cell = self._known[key] = self.f.z3.Int(self.named("cell", v, here, ()))
            some = self.f(abstract("any", v, here))
            self.f.law("cells", self.f.z3.And(cell >= 0, (cell == 0) == self.f.z3.Not(some)))
            if body is not TRUE:
                halves = cell + self._cell(v, not_(body), gone, chosen)
                self.f.law("cells", self._cell(v, TRUE, gone, chosen) == halves)
                self._prefix(v, here, gone, cell)
            elif len(chosen) > 1:
                *some_of, last = chosen
                halves = cell + self._cell(v, TRUE, gone, (*some_of, not_(last)))
                self.f.law("cells", self._cell(v, TRUE, gone, tuple(some_of)) == halves)
        return self._known[key]

    def _prefix(self, v: Expr, here: Expr, gone: tuple[Expr, ...], cell: Term) -> None:
        """Add the law that in a subset of K at most s members have fewer than s of K before them, and in K s or all."""
        z3 = self.f.z3
        for c in conjuncts(here):
            if c.op != "lt" or v in c.args[1].free:
                continue
            addends = [*_addends(c.args[0])]
            counts = [p for p in addends if p.op == "count" and p.args[1].sort.kind == "bool" and v in p.free]
            offset = [p for p in addends if v not in p.free]
            if len(counts) != 1 or len(counts) + len(offset) != len(addends):
                continue
            w = loop_variable(v.sort)
            before, among = self._split(w, v, instantiate(counts[0], w))
            if before is None or v in among.free:
                continue
            rest = and_(*(x for x in conjuncts(here) if x is not c))
            inside = not_(abstract("any", v, and_(rest, not_(substitute(among, {w: v})))))
            room = self.f(c.args[1]) - sum((self.f(p) for p in offset), z3.IntVal(0))
            rank = self._rank(w, among, v, before)
            own = [z3.If(z3.And(self.f(substitute(among, {w: x})), rank(self.f(x)) < room), 1, 0) for x in gone[:1]]
            most, found = z3.If(room > 0, room, 0), self._total([cell, *own])
            self.f.law("prefixes", z3.Implies(self.f(inside), found <= most))
            if len(gone) < 2:
                left = (substitute(among, {w: v}), not_(rest), *(not_(equal(v, x)) for x in gone))
                size = self.number(w, among)
                least = z3.If(size < most, size, most)
                self.f.law("prefixes", z3.Implies(self.f(not_(abstract("any", v, and_(*left)))), found >= least))


class _Count:
    """A count of the v for which `body` holds, over the indices in `slots`. form: one of the three."""

    __slots__ = ("body", "form", "slots", "term", "v")

    def __init__(self, v: Expr, body: Expr, slots: tuple[Expr, ...], term: Term, form: str) -> None:
        self.v, self.body, self.slots, self.term, self.form = v, body, slots, term, form


def _around(v: Expr, x: Expr, *conditions: Expr) -> list[Expr]:
    """The members of other loops in these conditions: a rank is a function of x alone."""
    return [y for tree in conditions for y in tree.free if y.role is Role.LOOP and y is not v and y is not x]


def _values_at(v: Expr, body: Expr) -> Iterator[Expr]:
    """The reads of enums and flags at only the member."""
    for e in parts(body):
        if e.op == "read" and len(e.args) == 2 and e.args[1] is v and e.sort.kind in ("enum", "bool"):
            yield e


def counted(trees: Iterable[Expr]) -> frozenset[str]:
    """The fields of enums by whose values these trees count."""
    found: set[str] = set()
    seen: set[Expr] = set()
    todo = [*trees]
    while todo:
        here = todo.pop()
        if here in seen:
            continue
        seen.add(here)
        if here.op not in QUANTIFIERS:
            todo += [x for x in here.args if isinstance(x, Expr)]
            continue
        v, body = inside(here)  # a quantifier in it may use v, so it has no separate body
        todo.append(body)
        if here.op == "count" and body.sort.kind == "bool":
            found |= {r.name for r in _values_at(v, body) if r.sort.kind == "enum"}
    return frozenset(found)


def _conditions(tree: Expr) -> list[Expr]:
    """The conditions in a tree that no quantifier in it encloses, outermost first."""
    found: dict[Expr, None] = {}
    todo = [tree]
    for e in todo:
        if e.sort.kind == "bool" and e.op != "const":
            found[e] = None
        if e.op not in QUANTIFIERS:
            todo += [x for x in e.args if isinstance(x, Expr)]
    return list(found)


def _outside(tree: Expr, old: Expr, new: Expr) -> Expr:
    """Replace a condition, but not inside quantifiers: a count keeps its members and thus its symbol."""
    if tree is old:
        return new
    if tree.op in ("const", "var", "bound", *QUANTIFIERS):
        return tree
    return rebuild(tree, tuple(_outside(x, old, new) if isinstance(x, Expr) else x for x in tree.args))


def _with(tree: Expr, old: Expr, new: Expr) -> Expr:
    """A conjunction in which `new` replaces the part `old`."""
    return and_(*(new if x is old else x for x in conjuncts(tree)))


def _addends(tree: Expr) -> Iterator[Expr]:
    if tree.op == "add":
        for x in tree.args:
            yield from _addends(x)
    else:
        yield tree
