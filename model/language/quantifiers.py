"""`any_`, `all_` and `count` over index sets, and their expansion for a given size.

`any_(s.member[j] == X for j in s.node)` looks like Python and is traced once: iterating over an index set
yields one symbolic index, and the quantifier binds the index that its generator made.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from inspect import CO_GENERATOR
from opcode import opmap
from types import FrameType, GeneratorType
from typing import Any, NoReturn

from . import source
from .bodies import refuse_carried
from .expressions import (
    FALSE,
    QUANTIFIERS,
    Expr,
    Role,
    as_int,
    bound,
    compared,
    const,
    equal,
    ite,
    lift,
    member_of,
    named,
    not_,
    or_,
    quantifier,
    read,
    rebuild,
    substitute,
    variable,
)
from .sorts import Sort, int_sort

FROM_THE_LEFT = 64  # the most numbers that are added from the left: engines walk a tree by recursion
_fresh = itertools.count()
_open: dict[Expr, None] = {}  # the loop variables whose loops are running, outermost first
_GET_ITER, _FOR_ITER = opmap["GET_ITER"], opmap["FOR_ITER"]


def running() -> tuple[Expr, ...]:
    """The loop variables of the loops in which the present line is."""
    return tuple(_open)


def check_loop(name: str) -> None:
    """Refuse `sorted(s.x)`: a function of Python gets one symbolic member. Called by the `__iter__` of a view."""
    frame = sys._getframe(2)
    if not source.is_ours(frame.f_code.co_filename) and _opcode(frame) != _GET_ITER:
        _refuse_function(name)


def _check_consumer(name: str) -> None:
    """Refuse `sum(s.x[j] for j in s.node)`. Called as the first member is taken, by the frame that takes it."""
    frame, by_an_author = sys._getframe(2), False
    while frame.f_code.co_flags & CO_GENERATOR and frame.f_back is not None:
        by_an_author |= not source.is_ours(frame.f_code.co_filename)
        frame = frame.f_back
    if source.is_ours(frame.f_code.co_filename):
        return
    within = frame.f_code.co_name in ("<listcomp>", "<setcomp>", "<dictcomp>")
    if (by_an_author and _opcode(frame) != _FOR_ITER) or within or refuse_carried(frame, by_an_author):
        _refuse_function(name)


def _opcode(frame: FrameType) -> int:
    return frame.f_code.co_code[frame.f_lasti]


def _refuse_function(name: str) -> NoReturn:
    source.refuse(f"a function of Python, such as sum() or sorted(), gets one symbolic member of {name}, for all of "
                  "them: use sum_(), max_(), min_(), count(), any_(), all_() or a for loop")  # fmt: skip


class IndexSet:
    """The members of one index, such as all nodes. Iterating yields one symbolic member that represents each."""

    __slots__ = ("sort",)

    def __init__(self, sort: Sort) -> None:
        self.sort = sort

    def __iter__(self) -> Iterator[Expr]:
        check_loop(self.sort.name)
        return self._once()

    def _once(self) -> Iterator[Expr]:
        _check_consumer(self.sort.name)
        member = loop_variable(self.sort)
        _open[member] = None
        try:
            yield member
        finally:
            del _open[member]

    def __len__(self) -> int:
        return self.sort.size

    def __getitem__(self, number: Any) -> Expr:
        """The member of a number: `s.node[0]` the first, `s.node[-1]` the last; also of a number of the state."""
        size = self.sort.size
        if isinstance(number, int):
            if not -size <= number < size:
                source.refuse(f"there is no {self.sort.name} {number}: there are {size}, numbered from 0")
            return const(number % size, self.sort)
        chosen = member_of(number, int_sort(0, size - 1))
        if chosen is None:
            source.refuse(f"{number} may be outside of 0..{size - 1}: write s.{self.sort.name}[... % {size}]")
        return named(f"{self.sort.name}[{{0}}]", self._chosen(lambda k: equal(chosen, lift(k)), 0), chosen)

    def after(self, member: Any) -> Expr:
        """The next member on the ring: after the last comes the first, and after none comes none."""
        return self._moved("after", member, 1)

    def before(self, member: Any) -> Expr:
        """The previous member on the ring: before the first comes the last, and before none comes none."""
        return self._moved("before", member, -1)

    def _moved(self, what: str, member: Any, by: int) -> Expr:
        here = member_of(member, self.sort)
        if here is None:
            source.refuse(f"{what}({member}): not a {self.sort.name}")
        found = self._chosen(lambda k: equal(here, const(k, self.sort)), by)
        return named(f"{what}({{0}})", ite(here.absent, None, found) if here.sort.least < 0 else found, here)

    def _chosen(self, holds: Callable[[int], Expr], by: int) -> Expr:
        """The member whose number is `by` above the number that holds, on the ring."""
        size = self.sort.size
        out = const((size - 1 + by) % size, self.sort)
        for k in reversed(range(size - 1)):
            out = ite(holds(k), const((k + by) % size, self.sort), out)
        return out


def loop_variable(sort: Sort) -> Expr:
    """A new variable that represents each member."""
    return variable(sort.name, sort, Role.LOOP, next(_fresh))


_each = cache(loop_variable)  # one for each sort: equal bodies of two quantifiers are then one tree


def abstract(op: str, loop: Expr, body: Expr) -> Expr:
    """The quantifier whose index is a loop variable of the body."""

    def place(expr: Expr, level: int) -> Expr | None:
        if loop not in expr.free:
            return expr
        return bound(level, loop.sort) if expr is loop else None

    return quantifier(op, loop.sort, _replaced(body, place, 0, {}))


def instantiate(quantified: Expr, index: Expr) -> Expr:
    """The body of a quantifier for one index: a member, or a loop variable that `abstract` binds again."""
    assert quantified.reach == 0, f"{quantified} was taken out of a quantifier: instantiate that first"

    def place(expr: Expr, level: int) -> Expr | None:
        if expr.reach <= level:
            return expr
        return index if expr.op == "bound" else None

    return _replaced(quantified.args[1], place, 0, {})


def _replaced(
    expr: Expr, place: Callable[[Expr, int], Expr | None], level: int, memo: dict[tuple[int, int], Expr]
) -> Expr:
    """`expr` below `level` quantifiers; `place` returns the new form of a part, or None to replace within the part."""
    key = expr.serial, level
    found = memo.get(key)
    if found is None:
        found = place(expr, level)
        if found is None:
            inner = level + (expr.op in QUANTIFIERS)
            parts = (_replaced(x, place, inner, memo) if isinstance(x, Expr) else x for x in expr.args)
            found = rebuild(expr, tuple(parts))
        memo[key] = found
    return found


def looped(values: Iterable[Any]) -> Iterator[tuple[Expr, list[Expr]]]:
    """Consume the generator: the tree of each value, and the loop variables that the generator made."""
    outer = set(_open)
    for value in _unused(values):
        # A copy: the next line allocates, and garbage collection may then end a loop that was left by `break`.
        running = tuple(_open)
        yield lift(value), [v for v in running if v not in outer]


def _unused(values: Iterable[Any]) -> Iterable[Any]:
    if isinstance(values, GeneratorType) and values.gi_frame is None:
        source.refuse("a generator is used a second time, and has no members left: write it again")
    return values


def _consume(op: str, values: Iterable[Any]) -> Expr:
    """Bind the loop variables that the generator made; `count` also binds one that its body ignores."""
    out = []
    for body, loops in looped(values):
        if body.sort.kind != "bool":
            source.refuse(f"{op} needs conditions, but {body} is of sort {body.sort.name}")
        mine = [v for v in loops if op == "count" or v in body.free]
        if op == "count" and len(mine) > 1:
            source.refuse("count() ranges over only one index: nest any_() inside it for more")
        for v in reversed(mine):
            body = abstract(op, v, body)
        out.append(as_int(body) if op == "count" and not mine else body)
    if op == "any":
        return or_(*out)
    return total(out) if out else lift(0)


def total(parts: Sequence[Expr]) -> Expr:
    """The sum of numbers: added from the left, or if there are many, as a tree whose depth is their logarithm."""
    if len(parts) <= FROM_THE_LEFT:
        return sum(parts[1:], parts[0])
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2], strict=False)
        parts = [*(a + b for a, b in pairs), *(parts[-1:] if len(parts) % 2 else ())]
    return parts[0]


def any_(values: Iterable[Any]) -> Expr:
    """True where at least one holds: `any_(s.alive[j] for j in s.node)`, or over a plain list."""
    return _consume("any", values)


def all_(values: Iterable[Any]) -> Expr:
    """True where every one holds."""
    return not_(any_(not_(value) for value in _unused(values)))


def count(values: Iterable[Any]) -> Expr:
    """The number of values that hold."""
    return _consume("count", values)


class Unrolling:
    """The results of `expand` so far, shared by the trees of one system. `fixed` reads are replaced by a value."""

    def __init__(self, fixed: Mapping[Expr, Expr] | None = None) -> None:
        self.fixed = dict(fixed or {})
        self.trees: dict[Expr, Expr] = {}
        self.members: dict[tuple[Sort, Expr], list[Expr]] = {}  # sort and body over `_each` -> the body for each member


def expand(expr: Expr, done: Unrolling | None = None) -> Expr:
    """Unroll every quantifier: only reads with constant indices remain; names are dropped."""
    if done is None:
        done = Unrolling()
    found = done.trees.get(expr)
    if found is not None:
        return found
    if expr.op in QUANTIFIERS:
        each = _unrolled(expr, done)
        found = or_(*each) if expr.op == "any" else total([as_int(x) for x in each])
    elif expr.op == "named":
        found = expand(expr.args[1], done)
    elif expr.op in ("const", "var"):
        found = expr
    elif expr.op == "read":
        found = _at_members(expr.name, tuple([expand(x, done) for x in expr.args[1:]]), expr.sort)
        if done.fixed:
            found = substitute(found, done.fixed)
    else:
        found = rebuild(expr, tuple([expand(x, done) if isinstance(x, Expr) else x for x in expr.args]))
    done.trees[expr] = done.trees[found] = found
    return found


def _at_members(field: str, indices: tuple[Expr, ...], sort: Sort) -> Expr:
    """A read; at a value of the state, which such a read may have given, it is a choice between the members."""
    for k, index in enumerate(indices):
        if index.op in ("const", "var", "bound"):
            continue
        if index.op == "ite":
            condition, *ways = index.args
            return ite(condition, *(_at_members(field, (*indices[:k], i, *indices[k + 1 :]), sort) for i in ways))
        at = [const(v, index.sort) for v in range(max(index.sort.low, 0), index.sort.high + 1)]
        each = [_at_members(field, (*indices[:k], v, *indices[k + 1 :]), sort) for v in at]
        out = each[-1]
        for v, value in zip(at[-2::-1], each[-2::-1], strict=True):
            out = ite(equal(index, v), value, out)
        return out
    return read(field, indices, sort)


def _unrolled(quantified: Expr, done: Unrolling) -> list[Expr]:
    """The body of a quantifier for each member.

    A property of one member's step names that member in the body. For all other members the body does not depend on
    the member that takes the step, so their bodies are computed once, and not again for each member that takes it.
    """
    sort: Sort = quantified.args[0]
    index = _each(sort)
    body = instantiate(quantified, index)
    named = [member for member in compared(body, index) if member.op == "const"]
    elsewhere = substitute(body, {equal(index, member): FALSE for member in named})
    found = done.members.get((sort, elsewhere))
    if found is None:
        found = [expand(substitute(elsewhere, {index: const(i, sort)}), done) for i in range(sort.size)]
        done.members[sort, elsewhere] = found
    if named:
        found = list(found)
        for member in named:
            found[member.value] = expand(substitute(body, {index: member}), done)
    return found
