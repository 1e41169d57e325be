"""Trees as formulas of a solver: any number of nodes, fields as functions, quantifiers as quantifiers.

*Theory of operation.* An index becomes a sort that may have any finite number of members. The only assumption about
this sort is that `<` orders it strictly and totally. An index of a fixed size becomes a sort with that number of
values. A field becomes a function of its indices. An enum becomes a sort with the enum's values. `any` becomes an
existential quantifier. `ord` of a member becomes the number of members before it. Numbers are unbounded integers.
First-order formulas cannot express counts. So `counting.py` replaces each count by symbols and adds laws about the
symbols, which are true for finite sets. A formula that the solver refutes has no finite model. A formula that it does
not refute may have only infinite models, or no model.

A field that has a member or none becomes two functions: a condition, whether it has one (`has`), and the member, which
may be any where it has none.

Each law is stored with its name, so a proof can list the laws that it uses.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable
from functools import cache
from typing import Any

from ..errors import UnavailableError, UsageError
from ..language import Expr, Sort
from ..language.expressions import FALSE, MEMBERS, Role, equal, lift, members, subtract
from ..language.fields import Slot
from ..language.sorts import required
from .conditions import inside
from .counting import Counting

NO_SYMBOL = re.compile(r"[^\w~!@$%^&*+=<>.?/-]", re.ASCII)  # SMT-LIB has other characters only between bars
Term = Any  # an expression of z3, whose package has no types


@cache
def load() -> Any:
    """The package z3.

    Raises UnavailableError: it is not installed.
    """
    try:
        return importlib.import_module("z3")
    except ImportError:
        raise UnavailableError("a proof needs the package z3-solver: pip install 'trystate[prove]'") from None


class Formulas:
    """The formulas of trees over one state, and the laws about their counts.

    points: the indices of the step that is being proved. Each is counted separately from all other members.
    counted: fields of enums; a count is split by their values first, so all counts have the same cells.
    orders: conditions, with whether each is an order; more are added.
    """

    def __init__(
        self, points: tuple[Expr, ...], counted: frozenset[str], orders: dict[Expr, bool] | None = None
    ) -> None:
        self.z3 = load()
        self.points, self.counted = tuple(p for p in points if p.sort.kind == "index"), counted
        self.laws: list[tuple[str, Term]] = []
        self._terms: dict[Expr, Term] = {}
        self._loops: dict[Expr, int] = {}
        self._ordered: dict[str, Term] = {}
        self.counting = Counting(self, {} if orders is None else orders)

    def fork(self) -> Formulas:
        """A copy with the same formulas so far; a tree that is added to one of the two does not change the other."""
        out = object.__new__(Formulas)
        out.z3, out.points, out.counted, out.laws = self.z3, self.points, self.counted, [*self.laws]
        out._terms, out._loops, out._ordered = {**self._terms}, {**self._loops}, {**self._ordered}
        out.counting = self.counting.fork(out)
        return out

    def __call__(self, tree: Expr) -> Term:
        """The formula of a tree; its laws are added to `laws`."""
        found = self._terms.get(tree)
        if found is None:
            found = self._terms[tree] = self._made(tree)
        return found

    def in_order(self, variables: Iterable[Expr]) -> list[Expr]:
        """Variables in an order that does not depend on other declarations: loop variables by their first use."""
        made = sorted(variables, key=lambda x: x.serial)
        return sorted(made, key=lambda x: (1, self._number(x), "") if x.role is Role.LOOP else (0, x.number, x.name))

    def _number(self, loop: Expr) -> int:
        return self._loops.setdefault(loop, len(self._loops))

    def law(self, name: str, formula: Term) -> None:
        """Add a law."""
        self.laws.append((name, formula))

    def sort(self, sort: Sort) -> Any:
        """The solver's sort."""
        if sort.kind == "enum":
            return _enum(sort)[0]
        if sort.kind == "index":
            return self.z3.DeclareSort(declared(sort.name)) if sort.is_open else _members(required(sort))[0]
        return self.z3.BoolSort() if sort.kind == "bool" else self.z3.IntSort()

    def before(self, index: Sort) -> Any:
        """The order of an index; its laws are added when it is first used."""
        found = self._ordered.get(index.name)
        if found is None:
            z3, sort = self.z3, self.sort(index)
            lt = found = self._ordered[index.name] = z3.Function(f"{index.name}<", sort, sort, z3.BoolSort())
            a, b, c = (z3.Const(f"{index.name}!{x}", sort) for x in "abc")
            self.law("order", z3.ForAll([a], z3.Not(lt(a, a))))
            self.law("order", z3.ForAll([a, b, c], z3.Implies(z3.And(lt(a, b), lt(b, c)), lt(a, c))))
            self.law("order", z3.ForAll([a, b], z3.Or(lt(a, b), a == b, lt(b, a))))
        return found

    def read(self, slot: Slot) -> Any:
        """The function of a field with indices, or the symbol of a field without indices."""
        if not slot.dims:
            return self.z3.Const(declared(slot.name), self.sort(slot.sort))
        return self.z3.Function(declared(slot.name), *(self.sort(dim) for dim in slot.dims), self.sort(slot.sort))

    def has(self, tree: Expr) -> Term:
        """The formula that a tree has a member; its own formula is that member."""
        if tree.sort.least == 0 or tree.op == "const":
            return self.z3.BoolVal(tree.sort.least == 0 or tree.value >= 0)
        if tree.op == "ite":
            return self.z3.If(self(tree.args[0]), *(self.has(x) for x in tree.args[1:]))
        if tree.op == "named":
            return self.has(tree.args[1])
        places = [self(x) for x in tree.args[1:]]
        symbol = f"{declared(tree.name)}has"
        if not places:
            return self.z3.Bool(symbol)
        return self.z3.Function(symbol, *(x.sort() for x in places), self.z3.BoolSort())(*places)

    def range(self, slot: Slot) -> Term:
        """The formula that the values of a field of numbers are in its range; a bound that is a size is left out."""
        z3 = self.z3
        if slot.sort.kind == "index":
            return z3.BoolVal(True)  # its symbol is always a member
        places = [z3.Const(f"{dim.name}!{k}", self.sort(dim)) for k, dim in enumerate(slot.dims)]
        value = self.read(slot)(*places) if places else self.read(slot)
        bounds = [value >= low for low in (slot.sort.least,) if isinstance(low, int)]
        bounds += [value <= high for high in (slot.sort.most,) if isinstance(high, int)]
        inside = bounds[0] if len(bounds) == 1 else z3.And(*bounds)
        return z3.ForAll(places, inside, patterns=[value]) if places else inside

    def chosen(self, params: Iterable[Expr]) -> list[Term]:
        """The formulas that the numbers among a step's parameters are in their ranges: the step may choose any."""
        numbers = [p for p in params if p.sort.kind == "int"]
        return [self.z3.And(self(p) >= p.sort.least, self(p) <= p.sort.most) for p in numbers]

    def _made(self, tree: Expr) -> Term:
        z3, op, args = self.z3, tree.op, tree.args
        if op == "const":
            return self._constant(tree)
        if op == "var":
            name = f"{tree.name}!{self._number(tree)}" if tree.role is Role.LOOP else own(tree)
            return z3.Const(name, self.sort(tree.sort))
        if op == "read":
            places = [self(x) for x in args[1:]]
            if not places:
                symbol = z3.Const(declared(tree.name), self.sort(tree.sort))
                if tree.name.endswith(MEMBERS):
                    self.law("members", symbol >= 1)
                return symbol
            return z3.Function(declared(tree.name), *(x.sort() for x in places), self.sort(tree.sort))(*places)
        if op == "named":
            return self(args[1])
        if op == "any":
            v, body = inside(tree)
            return z3.Exists([self(v)], self(body))
        if op == "count":
            return self.counting.number(*inside(tree))
        if op == "ord":
            place = self.counting.place(args[0]) if args[0].sort.is_open else self._numbered(args[0])
            return place if args[0].sort.least == 0 else z3.If(self.has(args[0]), place, -1)
        if op in ("eq", "lt"):
            found = self._compared(op, *args)
            if found is not None:
                return found
        a = [self(x) for x in args]
        if op == "eq" and args[1].op != "const":
            a.sort(key=lambda x: x.sexpr())  # a tree has them in order of creation
        made = {
            "eq": lambda: a[0] == a[1], "lt": lambda: a[0] < a[1], "not": lambda: z3.Not(a[0]),
            "and": lambda: z3.And(*a), "ite": lambda: z3.If(*a), "add": lambda: a[0] + a[1], "sub": lambda: a[0] - a[1],
            "int": lambda: z3.If(a[0], 1, 0),
        }  # fmt: skip
        return made[op]()

    def _compared(self, op: str, a: Expr, b: Expr) -> Term | None:
        """Comparisons that need no number: two places in the order, a count and 0, or a member that may be absent."""
        if any(x.sort.kind == "index" and x.sort.least < 0 for x in (a, b)):
            return self._same_member(a, b) if op == "eq" else self._earlier(a, b)
        if op == "lt" and a.sort.kind == "index":
            if not a.sort.is_open:
                return self._numbered(a) < self._numbered(b)
            return self.before(a.sort)(self(a), self(b))
        if a.op == b.op == "ord" and a.args[0].sort is b.args[0].sort and _is_place(a):
            if op == "eq":
                return self(equal(a.args[0], b.args[0]))
            return self.before(a.args[0].sort)(self(a.args[0]), self(b.args[0]))
        if op == "eq":
            for one, other in ((a, b), (b, a)):
                if (found := self._placed(one, other)) is not None:
                    return found
        zero, other = (a, b) if op == "lt" else (b, a)
        counts = other.op == "count" and other.args[1].sort.kind == "bool"
        if counts and zero.op == "const" and zero.value == 0:
            none = self.counting.none(*inside(other))
            if none is not None:
                return self.z3.Not(none) if op == "lt" else none
            some = self(Expr("any", other.args, FALSE.sort))
            return some if op == "lt" else self.z3.Not(some)
        return None

    def _same_member(self, a: Expr, b: Expr) -> Term:
        both = self.has(a), self.has(b)
        if self.z3.is_false(both[1]):
            return self.z3.Not(both[0])
        return self.z3.And(both[0] == both[1], self.z3.Implies(both[0], self(a) == self(b)))

    def _earlier(self, a: Expr, b: Expr) -> Term:
        """Whether one member is before the other; none of them is before each."""
        z3, index = self.z3, a.sort
        here, there = (self(x) if index.is_open else self._numbered(x) for x in (a, b))
        less = self.before(index)(here, there) if index.is_open else here < there
        return z3.And(self.has(b), z3.Or(z3.Not(self.has(a)), less))

    def _placed(self, a: Expr, b: Expr) -> Term | None:
        """`ord(x) + k == b` as a formula: x is the member with `b - k` members before it."""
        place, offset = (a.args[0], a.args[1]) if a.op == "add" and a.args[1].op == "const" else (a, lift(0))
        if not _is_place(place):
            return None
        index, number = place.args[0].sort, subtract(b, offset)
        there = self.z3.And(self(number) >= 0, self(number) < self(members(index)))
        return self.z3.And(there, self(place.args[0]) == self.counting.member(index, number))

    def _numbered(self, index: Expr) -> Term:
        """The number of a member of an index of a fixed size."""
        number = self.z3.IntVal(index.sort.high)
        for k in reversed(range(index.sort.high)):
            number = self.z3.If(self(index) == _members(required(index.sort))[1][k], k, number)
        return number

    def _constant(self, tree: Expr) -> Term:
        kind = tree.sort.kind
        if kind == "enum":
            return _enum(tree.sort)[1][tree.value]
        if kind == "index" and tree.value < 0:
            return self.z3.Const(f"{declared(tree.sort.name)}none", self.sort(tree.sort))
        if kind == "index" and not tree.sort.is_open:
            return _members(required(tree.sort))[1][tree.value]
        if kind == "index":
            if tree.value:
                raise UsageError(f"a proof for any size cannot name {tree.sort.name} {tree.value}: only the first, 0")
            return self.counting.first(required(tree.sort))
        return self.z3.BoolVal(bool(tree.value)) if kind == "bool" else self.z3.IntVal(tree.value)


def _is_place(tree: Expr) -> bool:
    """Whether a tree is the place of a member in the order of an index of any size."""
    return tree.op == "ord" and tree.args[0].sort.is_open and tree.args[0].sort.least == 0


def declared(name: str) -> str:
    """The symbol for a declared name, which may also be a word of the solver, such as `select` or `distinct`."""
    return f"{name}!"


def own(parameter: Expr) -> str:
    """The symbol for a step's own member: the two members of `each=("node", "node")` may have the names of fields."""
    return f"{parameter.name}!own"


@cache
def _enum(sort: Sort) -> tuple[Any, list[Term]]:
    """The sort of an enum and its values; its whole name distinguishes two enums with the same name or value.

    Two classes that functions define may have the same whole name: the later one gets a number. The name and the values
    of a choice (`choice of RED, 5; BLUE, 2`) have characters that a symbol does not have.
    """
    plain = NO_SYMBOL.sub("_", sort.name)
    alike = _enums.setdefault(plain, [])
    alike.append(sort)
    name = plain if len(alike) == 1 else f"{plain}!{len(alike)}"
    labels = sort.labels if plain == sort.name else [f"{k}.{NO_SYMBOL.sub('_', x)}" for k, x in enumerate(sort.labels)]
    made: tuple[Any, list[Term]] = load().EnumSort(name, [f"{name}.{label}" for label in labels])
    return made


_enums: dict[str, list[Sort]] = {}


@cache
def _members(index: Sort) -> tuple[Any, list[Term]]:
    """The sort of an index of a fixed size, and its members; in z3, sorts of different sizes need different names."""
    name = f"{index.name}.{index.size}"
    made: tuple[Any, list[Term]] = load().EnumSort(name, [f"{name}.{k}" for k in range(index.size)])
    return made
