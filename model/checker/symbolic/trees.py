"""Expression trees as decision diagrams: a condition becomes one diagram, a number a vector of diagrams.

A number is in two's complement, lowest bit first, with its sign as the last bit and no longer than needed.
A cell is stored as its value minus its sort's low, in plain binary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

from ...language.expressions import Expr
from ...language.fields import Cell
from ...language.systems import State
from ..engine import Clock
from ..kernel import Kernel
from .diagrams import Diagrams, Function

Vector = tuple[Function, ...]

WIDE_BITS = 12  # narrower cells stay next to their member's cells: `x == y` in a bad order has at most 2^12 nodes


def width(cell: Cell) -> int:
    return max(1, (cell.sort.size - 1).bit_length())


def bit_names(cell: Cell) -> tuple[str, ...]:
    """The bits of a cell, lowest first."""
    return tuple(f"{cell.name}.{k}" for k in range(width(cell)))


def variable_order(cells: Sequence[Cell]) -> list[str]:
    """Shared cells first, then member by member, then pairs: the cells that a step reads and writes are close.

    Wide cells come last, interleaved bit by bit: in this order a comparison or sum of two cells of n bits takes O(n)
    nodes, and with one cell after the other O(2^n) (Bryant, 1986).
    """
    together = sorted(cells, key=lambda cell: (len(cell.indices) > 1, cell.indices[:1]))
    narrow = [bit for cell in together if width(cell) < WIDE_BITS for bit in reversed(bit_names(cell))]
    wide = [bit_names(cell) for cell in together if width(cell) >= WIDE_BITS]
    return narrow + [
        names[k] for k in reversed(range(max(map(len, wide), default=0))) for names in wide if k < len(names)
    ]


class Encoding:
    """Converts states to assignments of bits, and back; `bits` has the order of a state's values, high bits first."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.names = [bit_names(cell) for cell in kernel.cells]
        self.bits = tuple(bit for names in self.names for bit in reversed(names))

    def assign(self, state: State) -> dict[str, bool]:
        return {
            name: bool((value - cell.sort.low) >> k & 1)
            for cell, names, value in zip(self.kernel.cells, self.names, state, strict=True)
            for k, name in enumerate(names)
        }

    def decode(self, values: Mapping[str, bool]) -> State:
        return tuple(
            cell.sort.low + sum(values[name] << k for k, name in enumerate(names))
            for cell, names in zip(self.kernel.cells, self.names, strict=True)
        )


class Trees:
    """Translates closed trees, each once. The clock is checked between operations: one tree may take very long."""

    def __init__(self, kernel: Kernel, diagrams: Diagrams, clock: Clock) -> None:
        self.diagrams = diagrams
        self.clock = clock
        self.position = kernel.position
        self.cells = kernel.cells
        self._conditions: dict[Expr, Function] = {}
        self._numbers: dict[Expr, Vector] = {}

    def clear(self) -> None:
        self._conditions.clear()
        self._numbers.clear()

    def condition(self, expr: Expr) -> Function:
        """The states where a closed tree of sort bool holds."""
        found = self._conditions.get(expr)
        if found is None:
            found = self._conditions[expr] = self._condition(expr)
        return found

    def number(self, expr: Expr) -> Vector:
        """The bits of a closed tree of any other sort."""
        found = self._numbers.get(expr)
        if found is None:
            found = self._numbers[expr] = self._trimmed(self._number(expr))
        return found

    def vector(self, expr: Expr) -> Vector:
        """A tree of any sort as a number; a condition is 0 or 1."""
        return (self.condition(expr), self.diagrams.false) if expr.sort.kind == "bool" else self.number(expr)

    def stored(self, cell: Cell, value: Expr) -> tuple[Vector, Function]:
        """The bits of a cell with this value, and the states where the value fits the cell."""
        offset = self.vector(value)
        if cell.sort.low:
            offset = self._add(offset, self.constant(-cell.sort.low))
        fits = self.diagrams.true
        if value.sort.low < cell.sort.low or value.sort.high > cell.sort.high:
            fits = ~offset[-1] & self._less(offset, self.constant(cell.sort.size))
        return self._extended(offset, width(cell)), fits

    def equal(self, a: Vector, b: Vector) -> Function:
        n = max(len(a), len(b))
        pairs = zip(self._extended(a, n), self._extended(b, n), strict=True)
        self.clock.check()
        return reduce(lambda same, p: same & ~self.diagrams.xor(*p), pairs, self.diagrams.true)

    def constant(self, value: int) -> Vector:
        n = max(value, ~value).bit_length() + 1
        return tuple(self.diagrams.constant(bool(value >> k & 1)) for k in range(n))

    def _condition(self, expr: Expr) -> Function:
        if expr.op == "const":
            return self.diagrams.constant(bool(expr.value))
        if expr.op == "read":
            return self.diagrams.bit(bit_names(self._cell(expr))[0])
        if expr.op == "not":
            (denied,) = expr.args
            return ~self.condition(denied)
        if expr.op == "and":
            return self._conjunction(expr.args)
        a, b = map(self.vector, expr.args)
        return self.equal(a, b) if expr.op == "eq" else self._less(a, b)

    def _conjunction(self, parts: Sequence[Expr]) -> Function:
        out = self.diagrams.true
        for part in parts:
            self.clock.check()
            out = out & self.condition(part)
            if out == self.diagrams.false:
                break
        return out

    def _number(self, expr: Expr) -> Vector:
        if expr.op == "const":
            return self.constant(expr.value)
        if expr.op == "read":
            cell = self._cell(expr)
            offset = (*(self.diagrams.bit(name) for name in bit_names(cell)), self.diagrams.false)
            return self._add(offset, self.constant(cell.sort.low)) if cell.sort.low else offset
        if expr.op in ("int", "ord"):
            (value,) = expr.args
            return self.vector(value)
        if expr.op == "ite":
            condition, then, otherwise = expr.args
            return self._choose(self.condition(condition), self.number(then), self.number(otherwise))
        a, b = map(self.number, expr.args)
        return self._add(a, b) if expr.op == "add" else self._subtract(a, b)

    def _cell(self, expr: Expr) -> Cell:
        name, *indices = expr.args
        return self.cells[self.position[name, tuple(i.value for i in indices)]]

    def _choose(self, c: Function, a: Vector, b: Vector) -> Vector:
        self.clock.check()
        n = max(len(a), len(b))
        pairs = zip(self._extended(a, n), self._extended(b, n), strict=True)
        return tuple(self.diagrams.ite(c, x, y) for x, y in pairs)

    def _extended(self, a: Vector, n: int) -> Vector:
        return a[:n] + (a[-1],) * (n - len(a))

    def _trimmed(self, a: Vector) -> Vector:
        n = len(a)
        while n > 1 and a[n - 1] == a[n - 2]:
            n -= 1
        return a[:n]

    def _add(self, a: Vector, b: Vector, carry: bool = False) -> Vector:
        n = max(len(a), len(b)) + 1
        out, c = [], self.diagrams.constant(carry)
        for x, y in zip(self._extended(a, n), self._extended(b, n), strict=True):
            self.clock.check()
            odd = self.diagrams.xor(x, y)
            out.append(self.diagrams.xor(odd, c))
            c = self.diagrams.ite(odd, c, x)
        return self._trimmed(tuple(out))

    def _subtract(self, a: Vector, b: Vector) -> Vector:
        return self._add(a, tuple(~x for x in b), carry=True)

    def _less(self, a: Vector, b: Vector) -> Function:
        return self._subtract(a, b)[-1]
