"""Expression trees: the form of guards, effects and properties.

*Theory of operation.* Ordinary Python operators on symbolic values build a tree. Trees are hash-consed: two equal trees
are one object, so `is` compares them and memo tables work by identity. Constructors fold constants, so a tree in which
an index is replaced by one member is as small as if it had been written for that member. Every other module of the
language and the checker makes and reads trees; only this one makes an `Expr`. The table of trees is not locked: systems
are built on one thread. A memo table of `substitute` is valid for one mapping only.

Failures. Each is an error that names the line in the model: a symbolic value is used as a Python bool, two sorts do not
fit, or a value does not belong to the language.

Operators (`op`, its `args`):
    const (value)               read (field, *indices)         var (name, role, number)
    eq (a, b)   lt (a, b)       not (a)   and (*xs)            ite (c, a, b)
    add (a, b)  sub (a, b)      int (a bool as 0 or 1)         ord (an index as an int)
    any (sort, body)            count (sort, body)             bound (level)
    named (label, body, *operands)
In a proof for any size, a `count` whose body is a number is the sum of the numbers; no engine gets such a tree.
The index of a read is any tree of its sort; `quantifiers.expand` turns it into a choice between members. `{0}` in a
label is printed as the first operand. Everything else (or, implies, <=, all, *, sums, ...) is built from these.

A new operator needs a branch in each of these places:
    here: a constructor that folds, and a line of `_BUILD`; if it takes two numbers, also a line of `BINARY`
    `language/text.py` prints it; `language/__init__.py` and `trystate/language.py` export its constructor
    `checker/interpret.py`, `checker/explicit/vectorise.py`, `checker/symbolic/trees.py`: the engines
    `checker/explicit/symmetry.py`: `JUDGED`, and a branch if it can distinguish members
    `checker/export/tla.py`, `checker/export/promela.py`; `prover/formulas.py`; `monitor/rendezvous/stepping.py`
    `page/trees.py`, `page/source/{types,compile,text,refusals}.ts`: the page's engine; `MISTAKES` in its test
    `property_tests/support`: `systems/random_systems.py` draws it, `systems/random_meaning.py` and `finite_sets.py`
    give its meaning

A quantifier binds by position, not by name (de Bruijn indices, 1972). Inside quantifiers, `bound` with level 0 is the
index of the innermost one, and `bound` with level k is the index of the quantifier k further out. In a tree that a
substitution inserts, each `bound` belongs to a quantifier of the same tree, so nothing can be captured. Quantifiers
that differ only in names are the same tree.
"""

from __future__ import annotations

import enum
import itertools
import math
import operator
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from . import source
from .sorts import BOOL, Sort, enum_sort, index_sort, int_sort, optional, ordinal

QUANTIFIERS = ("any", "count")
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "eq": operator.eq, "lt": operator.lt, "add": operator.add, "sub": operator.sub,
}  # fmt: skip
Condition = Any  # an Expr: the attributes of a symbolic state are typed as Any
MEMBERS = ".members"  # the suffix of the symbol for the number of members of an index


class Role(enum.Enum):
    """The role of a variable."""

    PARAMETER = "an index of a declaration with `each`, bound by its instance"
    PLACEHOLDER = "any member, at one position of the indices of a field, in the body of an effect"
    LOOP = "the member of a loop that is running; a quantifier or an effect takes its place"


_serials = itertools.count()
_NONE = frozenset["Expr"]()


class Expr:
    """One node of an expression tree; immutable and interned."""

    __slots__ = ("__weakref__", "args", "free", "op", "reach", "serial", "sort")

    op: str
    args: tuple[Any, ...]
    sort: Sort
    serial: int
    reach: int  # how many quantifiers must enclose it to bind each `bound` in it
    free: frozenset[Expr]  # the variables in it

    def __new__(cls, op: str, args: tuple[Any, ...], sort: Sort) -> Expr:
        key = op, sort, args
        kept = _interned.get(key)
        found = kept() if kept is not None else None
        if found is None:
            found = object.__new__(cls)
            found.op, found.args, found.sort, found.serial = op, args, sort, next(_serials)
            reach, free = args[0] + 1 if op == "bound" else 0, _NONE
            for x in args:
                if isinstance(x, Expr):
                    reach = max(reach, x.reach)
                    free = x.free if not free or free is x.free else free | x.free
            found.reach = reach - 1 if reach and op in QUANTIFIERS else reach
            found.free = frozenset((found,)) if op == "var" else free
            kept = _interned[key] = _Kept(found, _forget)
            kept.key = key
        return found

    @property
    def name(self) -> str:
        """The name of a variable, the field of a read, or the label of a named value."""
        assert self.op in ("var", "read", "named"), f"{self} has no name"
        return str(self.args[0])

    @property
    def value(self) -> int:
        """The int that represents the value of a constant."""
        assert self.op == "const", f"{self} is no constant"
        value: int = self.args[0]
        return value

    @property
    def absent(self) -> Expr:
        """True where a field of the form `one_of(..., optional=True)` has no member."""
        if self.sort.kind != "index":
            source.refuse(f"{self} is of sort {self.sort.name}: only a member of an index can be absent")
        return equal(self, absent(self.sort)) if self.sort.least < 0 else FALSE  # a member that was assigned before

    @property
    def role(self) -> Role | None:
        """The role of a variable; None for other operators."""
        return self.args[1] if self.op == "var" else None

    @property
    def number(self) -> int:
        """The position of a placeholder, or the unique number of a loop variable; 0 for a parameter."""
        assert self.op == "var", f"{self} is no variable"
        return int(self.args[2])

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        source.refuse(
            f"the symbolic value {self} was used as a Python bool: "
            "write & | ~ instead of and/or/not, ite() instead of if, any_() all_() count() instead of a loop"
        )

    def __repr__(self) -> str:
        from .text import show

        return show(self)

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        return equal(self, lift_like(other, self.sort))

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        return not_(equal(self, lift_like(other, self.sort)))

    def __lt__(self, other: Any) -> Expr:
        return less(self, lift_like(other, self.sort))

    def __gt__(self, other: Any) -> Expr:
        return less(lift_like(other, self.sort), self)

    def __le__(self, other: Any) -> Expr:
        return not_(less(lift_like(other, self.sort), self))

    def __ge__(self, other: Any) -> Expr:
        return not_(less(self, lift_like(other, self.sort)))

    def __add__(self, other: Any) -> Expr:
        return add(self, lift_like(other, self.sort))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Expr:
        return subtract(self, lift_like(other, self.sort))

    def __rsub__(self, other: Any) -> Expr:
        return subtract(lift_like(other, self.sort), self)

    def __mul__(self, other: Any) -> Expr:
        from .arithmetic import multiply

        return multiply(self, lift_like(other, self.sort))

    def __rmul__(self, other: Any) -> Expr:
        return lift(other) * self

    def __floordiv__(self, divisor: Any) -> Expr:
        from .arithmetic import quotient

        return quotient(self, divisor)

    def __rfloordiv__(self, other: Any) -> Expr:
        return lift(other) // self

    def __mod__(self, divisor: Any) -> Expr:
        from .arithmetic import remainder

        return remainder(self, divisor)

    def __rmod__(self, other: Any) -> Expr:
        return lift(other) % self

    def __neg__(self) -> Expr:
        from .arithmetic import negative

        return negative(self)

    def __abs__(self) -> Expr:
        from .arithmetic import absolute

        return absolute(self)

    def __xor__(self, other: Any) -> Expr:
        return not_(equal(boolean(self, "^"), boolean(other, "^")))

    __rxor__ = __xor__

    def __and__(self, other: Any) -> Expr:
        return and_(self, other)

    __rand__ = __and__

    def __or__(self, other: Any) -> Expr:
        return or_(self, other)

    __ror__ = __or__

    def __invert__(self) -> Expr:
        return not_(self)

    def __index__(self) -> int:
        source.refuse(
            f"the symbolic value {self} was used as a Python number: "
            "write any_(), all_() or count() over an index instead of a loop over a range"
        )

    def isin(self, values: Iterable[Any]) -> Expr:
        """True where this equals one of `values`."""
        return or_(*(self == value for value in values))


class _Kept(weakref.ref[Expr]):
    """A tree in the table of trees, as long as it is used. A `WeakValueDictionary` does the same in Python code."""

    __slots__ = ("key",)

    key: tuple[Any, ...]


_interned: dict[tuple[Any, ...], _Kept] = {}


def _forget(kept: Any) -> None:
    """The tree is not used any more. Another tree with its key may be in the table already."""
    key = kept.key
    if _interned.get(key) is kept:
        del _interned[key]


def const(value: int, sort: Sort) -> Expr:
    if sort.least < 0 <= value and sort.kind == "index":
        sort = index_sort(sort.name, sort.most + 1)  # a member is one tree, also where it may be absent
    return Expr("const", (value,), sort)


TRUE = const(1, BOOL)
FALSE = const(0, BOOL)


def lift(value: Any) -> Expr:
    """Turn a Python bool, int or enum member into a constant; an expression passes through."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, bool):
        return TRUE if value else FALSE
    if isinstance(value, enum.Enum):
        return const(ordinal(value), enum_sort(type(value)))
    if isinstance(value, int):
        return const(value, int_sort(value, value))
    source.refuse(f"{value!r} is not a value of the language: use a bool, an int, an enum member or a field")


def lift_like(value: Any, like: Sort) -> Expr:
    """Like `lift`, for a place of a sort: there a number may be a member of an index."""
    if like.kind == "index" and value is None:
        return absent(like)
    if like.kind == "index" and isinstance(value, int) and not isinstance(value, bool):
        if not like.least <= value <= like.most:
            source.refuse(f"{value} is not a {like.name}: there are {like.high + 1}, numbered from 0")
        return const(value, like)
    return lift(value)


def absent(index: Sort) -> Expr:
    """The value of a field that has no member of an index."""
    if index.least == 0:
        source.refuse(f"a {index.name} is always a member: declare the field with one_of(..., optional=True)")
    return const(-1, index)


def member_of(value: Any, sort: Sort) -> Expr | None:
    """The tree of a value that is always in a sort, or absent from an index; None for any other value."""
    if sort.kind in ("index", "int") and isinstance(value, int):
        value = +value if isinstance(value, enum.Enum) else value  # the number of an IntEnum, and not its ordinal
        inside = sort.least <= value <= sort.most
        return None if not inside else const(value, sort) if sort.kind == "index" else lift(value)
    found = lift(value)
    if sort.kind == "index":
        return found if found.sort.kind == "index" and found.sort.name == sort.name else None
    if sort.kind == "int":
        own = found.sort
        return found if own.kind == "int" and sort.least <= own.least and own.most <= sort.most else None
    return found if found.sort is sort else None


def lowest(sort: Sort) -> Expr:
    """The lowest value of a sort."""
    return lift(sort.low) if sort.kind == "int" else const(sort.low, sort)


def boolean(value: Any, what: str) -> Expr:
    """The tree of a value, which is a condition; `what` needs it."""
    expr = lift(value)
    if expr.sort.kind != "bool":
        inverted = isinstance(value, int) and value in (~False, ~True)
        hint = "; ~ of a Python bool is a number: write not_()" if inverted else ""
        source.refuse(f"{what} needs a condition, but {expr} is of sort {expr.sort.name}{hint}")
    return expr


def _same_sort(a: Expr, b: Expr, what: str) -> None:
    alike = a.sort.name == b.sort.name if a.sort.kind == "index" else a.sort is b.sort or a.sort.kind == "int"
    if a.sort.kind != b.sort.kind or not alike:
        source.refuse(f"cannot {what} {a} ({a.sort.name}) and {b} ({b.sort.name})")


def equal(a: Expr, b: Expr) -> Expr:
    if a is b:
        return TRUE
    _same_sort(a, b, "compare")
    if a.op == b.op == "const":
        return TRUE if a.args[0] == b.args[0] else FALSE
    if a.op == "const" or (b.op != "const" and a.serial > b.serial):
        a, b = b, a
    if b.op == "const":
        if not a.sort.least <= b.args[0] <= a.sort.most:
            return FALSE
        if a.sort.kind == "bool":
            return a if b.args[0] else not_(a)
        if a.op == "ite" and a.args[1].op == a.args[2].op == "const":
            return ite(a.args[0], equal(a.args[1], b), equal(a.args[2], b))
    return Expr("eq", (a, b), BOOL)


def less(a: Expr, b: Expr) -> Expr:
    _same_sort(a, b, "order")
    if a.sort.kind == "enum":
        source.refuse(f"{a} and {b} are of sort {a.sort.name}, whose values have no order: write isin()")
    if a.sort.kind == "bool":
        return and_(not_(a), b)
    if a.op == b.op == "const":
        return TRUE if a.args[0] < b.args[0] else FALSE
    if a.sort.most < b.sort.least:
        return TRUE
    if a is b or a.sort.least >= b.sort.most:
        return FALSE
    return Expr("lt", (a, b), BOOL)


def refuse_others(what: str, *numbers: Expr) -> None:
    """Refuse operands that are not numbers."""
    for x in numbers:
        if x.sort.kind != "int":
            source.refuse(f"cannot {what} {x}: it is of sort {x.sort.name}, not a number")


def add(a: Expr, b: Expr) -> Expr:
    refuse_others("add", a, b)
    if a.op == b.op == "const":
        return lift(a.args[0] + b.args[0])
    for x, y in ((a, b), (b, a)):
        if x.op == "const" and x.args[0] == 0:
            return y
    return Expr("add", (a, b), int_sort(a.sort.least + b.sort.least, a.sort.most + b.sort.most))


def subtract(a: Expr, b: Expr) -> Expr:
    refuse_others("subtract", a, b)
    if a.op == b.op == "const":
        return lift(a.args[0] - b.args[0])
    if b.op == "const" and b.args[0] == 0:
        return a
    return Expr("sub", (a, b), int_sort(a.sort.least - b.sort.most, a.sort.most - b.sort.least))


def not_(value: Any) -> Expr:
    """True where the condition does not hold; the same as `~`."""
    a = boolean(value, "~")
    if a.op == "const":
        return FALSE if a.args[0] else TRUE
    return a.args[0] if a.op == "not" else Expr("not", (a,), BOOL)


def and_(*values: Any) -> Expr:
    """True where all conditions hold; for two conditions the same as `&`."""
    parts: dict[Expr, None] = {}
    denied: set[Expr] = set()
    for value in values:
        expr = value if type(value) is Expr and value.sort is BOOL else boolean(value, "&")
        for part in expr.args if expr.op == "and" else (expr,):
            if part is FALSE or part in denied or (part.op == "not" and part.args[0] in parts):
                return FALSE
            if part is not TRUE:
                parts[part] = None
                if part.op == "not":
                    denied.add(part.args[0])
    if len(parts) < 2:
        return next(iter(parts), TRUE)
    return Expr("and", tuple(parts), BOOL)


def or_(*values: Any) -> Expr:
    """True where at least one condition holds; for two conditions the same as `|`."""
    return not_(and_(*(not_(boolean(value, "|")) for value in values)))


def implies(premise: Any, conclusion: Any) -> Expr:
    """True where the premise does not hold or the conclusion does."""
    return or_(not_(premise), conclusion)


def _beside(value: Any, other: Any) -> Expr:
    """The tree of a value that is chosen instead of the other value."""
    if not isinstance(other, Expr):
        return lift(value)
    if value is None and other.sort.kind == "index":
        return const(-1, optional(other.sort))
    return lift_like(value, other.sort)


def ite(condition: Any, then: Any, otherwise: Any) -> Expr:
    """`then` where the condition holds, else `otherwise`; both have the same sort, or are records."""
    if not isinstance(then, Expr) and not isinstance(otherwise, Expr):
        for one in (then, otherwise):
            if hasattr(type(one), "_chosen"):  # a record
                chosen: Expr = one._chosen(condition, then, otherwise)
                return chosen
    c = boolean(condition, "ite")
    a = then if isinstance(then, Expr) else _beside(then, otherwise)
    b = otherwise if isinstance(otherwise, Expr) else _beside(otherwise, a)
    _same_sort(a, b, "choose between")
    if c.op == "const":
        return a if c.args[0] else b
    if a is b:
        return a
    if a.sort.kind == "bool":
        return or_(and_(c, a), and_(not_(c), b))
    if c.op == "not":
        c, a, b = c.args[0], b, a
    sort = a.sort
    if sort.kind == "int":
        sort = int_sort(min(sort.least, b.sort.least), max(sort.most, b.sort.most))
    elif sort.kind == "index" and b.sort.least < sort.least:
        sort = b.sort
    return Expr("ite", (c, a, b), sort)


def as_int(value: Any) -> Expr:
    """A condition as a number: 1 where it holds, else 0."""
    a = boolean(value, "as_int")
    return lift(int(a.args[0])) if a.op == "const" else Expr("int", (a,), int_sort(0, 1))


def ord_(index: Expr) -> Expr:
    """The number of an index (which node of 0 .. n-1), for fields that refer to one. Breaks symmetry."""
    if not isinstance(index, Expr) or index.sort.kind != "index":
        source.refuse(f"ord_() gives the number of a member, and {index!r} is not a member of an index: leave it out")
    if index.op == "const":
        return lift(int(index.args[0]))
    return Expr("ord", (index,), int_sort(index.sort.least, index.sort.most))


def named(label: str, value: Any, *operands: Any) -> Expr:
    """The same value, printed as `label`; it gives a condition a name. `{0}` in it is replaced by the first operand."""
    body = lift(value)
    return body if body.op == "const" else Expr("named", (label, body, *operands), body.sort)


def read(field: str, indices: tuple[Expr, ...], sort: Sort) -> Expr:
    for k, index in enumerate(indices):
        if index.op == "const":
            if index.args[0] < 0:
                return lowest(sort)
            if index.sort.kind == "int" and index.sort.least != index.sort.most:  # a place is one tree
                return read(field, (*indices[:k], lift(index.args[0]), *indices[k + 1 :]), sort)
        elif index.op == "ite":
            condition, *chosen = index.args
            return ite(condition, *(read(field, (*indices[:k], i, *indices[k + 1 :]), sort) for i in chosen))
    return Expr("read", (field, *indices), sort)


def variable(name: str, sort: Sort, role: Role = Role.PARAMETER, number: int = 0) -> Expr:
    return Expr("var", (name, role, number), sort)


def placeholder(position: int, sort: Sort) -> Expr:
    """The variable for any member, at this position of the indices of a field."""
    return variable(sort.name, sort, Role.PLACEHOLDER, position)


def bound(level: int, sort: Sort) -> Expr:
    return Expr("bound", (level,), sort)


def quantifier(op: str, over: Sort, body: Expr) -> Expr:
    """`any` or `count` of `body`, whose `bound` of level 0 ranges over a whole sort; a constant body is folded."""
    if body.op == "const":
        if op == "any":
            return body
        if body.value == 0:
            return lift(0)
        if body is TRUE:
            return members(over)
    if op == "count" and body.sort.kind == "int":  # a sum in a proof
        least, most = -math.inf if body.sort.least < 0 else 0, math.inf if body.sort.most > 0 else 0
        return Expr(op, (over, body), int_sort(least, most))
    return Expr(op, (over, body), BOOL if op == "any" else int_sort(0, members(over).sort.most))


def symbol(name: str, least: int = 0) -> Expr:
    """A number for which a proof assumes only a lower bound."""
    return read(name, (), int_sort(least, math.inf))


def members(index: Sort) -> Expr:
    """The number of members of an index: a constant, or its symbol where a proof leaves the number open."""
    return symbol(f"{index.name}{MEMBERS}", 1) if index.is_open else lift(index.size)


_BUILD: dict[str, Callable[..., Expr]] = {
    "eq": equal, "lt": less, "not": not_, "and": and_, "ite": ite, "add": add, "sub": subtract,
    "int": as_int, "ord": ord_, "named": named,
}  # fmt: skip


def rebuild(expr: Expr, args: tuple[Any, ...]) -> Expr:
    """The same operator on other arguments, folded again."""
    build = _BUILD.get(expr.op)
    if build is not None:
        return build(*args)
    if expr.op == "read":
        return read(args[0], args[1:], expr.sort)
    return quantifier(expr.op, args[0], args[1])


def substitute(expr: Expr, mapping: dict[Expr, Expr], memo: dict[Expr, Expr] | None = None) -> Expr:
    """Replace variables (or whole reads) by expressions, also below quantifiers, which capture nothing.

    Calls with the same mapping may share `memo`.
    """
    memo = {} if memo is None else memo
    for value in mapping.values():
        assert value.reach == 0, f"{value} was taken out of a quantifier: open it first"
    memo.update(mapping)
    named = [key.free for key in mapping]
    variables = frozenset[Expr]().union(*named) if all(named) else None
    found = memo.get(expr)
    if found is not None:
        return found
    if variables is not None and variables.isdisjoint(expr.free):
        return expr
    return _substitute(expr, memo, variables)


def _substitute(expr: Expr, memo: dict[Expr, Expr], variables: frozenset[Expr] | None) -> Expr:
    """`memo` has the replacements; if `variables` is given, a tree without any of them stays as it is."""
    if expr.op in ("const", "var", "bound"):
        return expr
    args: list[Any] = []
    same = True
    for x in expr.args:
        if type(x) is Expr and (variables is None or not variables.isdisjoint(x.free)):
            found = memo.get(x)
            if found is None:
                found = _substitute(x, memo, variables)
            same = same and found is x
            args.append(found)
        else:
            args.append(x)
    found = memo[expr] = expr if same else rebuild(expr, tuple(args))
    return found


def literal(expr: Expr) -> tuple[Expr, Expr] | None:
    """The cell that a condition fixes, and its value; None if the condition does not fix one cell."""
    if expr.op == "read":
        return expr, TRUE
    if expr.op == "not" and expr.args[0].op == "read":
        return expr.args[0], FALSE
    if expr.op == "eq" and expr.args[0].op == "read" and expr.args[1].op == "const":
        return expr.args[0], expr.args[1]
    return None


def fixed(expr: Expr) -> dict[Expr, Expr]:
    """The cells that a condition fixes, with their values; if a cell has two values, the first."""
    found = [literal(part) for part in (expr.args if expr.op == "and" else (expr,))]
    return dict(one for one in reversed(found) if one is not None)


def parts(tree: Expr) -> Iterator[Expr]:
    """A tree and all its parts, each once."""
    seen: set[Expr] = set()
    todo = [tree]
    while todo:
        here = todo.pop()
        if here not in seen:
            seen.add(here)
            yield here
            todo += [x for x in reversed(here.args) if isinstance(x, Expr)]


def fields_read(expr: Expr) -> frozenset[str]:
    """The names of the fields that a tree reads."""
    return frozenset(part.name for part in parts(expr) if part.op == "read")


def differing(tree: Expr, same: Expr, places: Sequence[Expr]) -> Iterator[tuple[Expr, ...]]:
    """The members, as constants or parameters, at which `tree` may differ from `same`, a tree over `places` too.

    A step writes few members and names them: its effect compares the place with the index of each, and folds to
    `same` where no comparison holds. Then only the named members are looked at, so closing the steps of N
    members takes time proportional to N. A tree that differs elsewhere too, such as the tree of a loop, yields all.
    """
    if not places:
        if tree is not same:
            yield ()
        return
    place, *others = places
    members = compared(tree, place)
    elsewhere = substitute(tree, {equal(place, member): FALSE for member in members})
    if next(differing(elsewhere, same, others), None) is not None:
        members = [const(k, place.sort) for k in range(place.sort.size)]
    for member in members:
        at = {place: member}
        for rest in differing(substitute(tree, at), substitute(same, at), others):
            yield (member, *rest)


def compared(tree: Expr, place: Expr) -> list[Expr]:
    """The constants and parameters that the variable `place` is compared with."""
    found: dict[Expr, None] = {}  # kept in the order of the tree: a build gives the same trees in each process
    seen: set[Expr] = set()
    todo = [tree]
    while todo:
        here = todo.pop()
        if here in seen or place not in here.free:
            continue
        seen.add(here)
        if here.op == "eq" and any(x is place for x in here.args):
            found |= dict.fromkeys(x for x in here.args if x.op == "const" or x.role is Role.PARAMETER)
        todo += [x for x in here.args if isinstance(x, Expr)]
    return [*found]
