"""The steps of a system of many members, one state at a time. The traced trees are evaluated on arrays.

Theory of operation. A state is a tuple with a bytes object for each field. Bytes are small and hashable, and states
that have the same value of a field may share its object. A tree becomes nested closures, as in the reference
(`checker/interpret.py`), with two differences. A tree without an index of a loop is evaluated on plain numbers, and
only the parts that are needed. A quantifier does not loop: its index becomes an axis of an array, and its body is
evaluated once, for all members. So no transition is instantiated for its members, and a system of 256 nodes is ready as
soon as a system of 2.

The array of an index at nesting depth d has the shape (members, 1, ... 1) with d ones, so arrays of different depths
broadcast. The indices of the field that an effect assigns are the outermost axes. Values are cached for one state and
one binding (`At`). A test compares the results of this module with the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from trystate.model.language.expressions import BINARY, QUANTIFIERS, Expr, Role
from trystate.model.language.fields import Slot
from trystate.model.language.systems import System
from trystate.model.language.transitions import Transition

Bytes = tuple[bytes, ...]
"""A state: for each field its values in the order of the indices, as bytes."""
Values = dict[tuple[str, tuple[int, ...]], int]
"""Values of cells: of a field, at some indices."""


@dataclass(slots=True, eq=False)
class At:
    """One state and one binding, with the values that were computed there."""

    state: Bytes
    indices: tuple[int, ...]
    memo: dict[tuple[int, Axes], Any] = field(default_factory=dict)


class Axes(NamedTuple):
    """The axes around a tree: the axes of the assigned field, then one for each quantifier."""

    depth: int = 0
    places: int = 0


NONE = Axes()
Evaluator = Callable[[At], Any]


@dataclass(frozen=True, slots=True)
class Column:
    """One field of a state as bytes."""

    at: int  # position in a state
    slot: Slot
    width: int  # bytes a value

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(dim.size for dim in self.slot.dims)

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(f"<u{self.width}")

    def array(self, state: Bytes) -> np.ndarray[Any, Any]:
        return np.frombuffer(state[self.at], self.dtype).reshape(self.shape)

    def value(self, state: Bytes, place: int) -> int:
        data = state[self.at]
        if self.width == 1:
            return data[place]
        return int.from_bytes(data[place * self.width : (place + 1) * self.width], "little")

    def pack(self, values: Any) -> bytes:
        return bytes(np.broadcast_to(np.asarray(values), self.shape).astype(self.dtype).tobytes())


class Stepper:
    """Guards, effects and conditions of one system on single states, and the steps from one to the next."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.columns = {
            name: Column(k, slot, _width(slot.sort.high)) for k, (name, slot) in enumerate(system.slots.items())
        }
        self.transitions = {t.name: t for t in system.transitions}
        self._effects = {t.name: list(t.effects.items()) for t in system.transitions}
        self._compiled: dict[tuple[Expr, Axes], Evaluator] = {}
        bound = (*(t.params for t in system.transitions), *(p.params for p in system.properties))
        self._places = {p: k for params in bound for k, p in enumerate(params)}  # the position in a binding
        self.initial: Bytes = tuple(c.pack(c.slot.initial[0]) for c in self.columns.values())

    # ---- states

    def get(self, state: Bytes, name: str, *indices: int) -> int:
        """The value of a cell."""
        column = self.columns[name]
        return column.value(state, _place(column.shape, indices))

    def row(self, state: Bytes, name: str, *indices: int) -> list[int]:
        """The values of a field for all members, or for the last index if the other indices are given."""
        values: list[int] = self.columns[name].array(state)[indices].tolist()
        return values

    def seen(self, state: Bytes) -> list[bool]:
        """For each node, whether another node counts it in its world."""
        found: list[bool] = np.logical_or.reduce(self.columns["saw"].array(state), axis=0).tolist()
        return found

    def put(self, state: Bytes, values: Values) -> Bytes:
        """The state with other values in these cells."""
        changed: list[bytes | bytearray] = list(state)
        shapes = {name: self.columns[name].shape for name, _ in values}
        for name in shapes:
            changed[self.columns[name].at] = bytearray(state[self.columns[name].at])
        for (name, indices), value in values.items():
            column = self.columns[name]
            place = _place(shapes[name], indices) * column.width
            changed[column.at][place : place + column.width] = value.to_bytes(column.width, "little")  # type: ignore[index]
        return tuple(map(bytes, changed))

    # ---- steps and conditions

    def at(self, state: Bytes, *indices: int) -> At:
        """One state and binding for several steps or conditions, whose common parts are computed once."""
        return At(state, indices)

    def step(self, name: str, here: At) -> Bytes | None:
        """The state after a step; None if it is not enabled or would change nothing."""
        after = self.allowed(name, here)
        return None if after == here.state else after

    def allowed(self, name: str, here: At) -> Bytes | None:
        """The state after a step, which may be the same state; None if its guard does not hold."""
        transition = self.transitions[name]
        return self._apply(transition, here) if self._evaluator(transition.guard)(here) else None

    def _apply(self, transition: Transition, here: At) -> Bytes:
        after = list(here.state)
        for name, body in self._effects[transition.name]:
            column = self.columns[name]
            new = column.pack(self._evaluator(body, Axes(len(column.shape), len(column.shape)))(here))
            if new != after[column.at]:
                after[column.at] = new
        return tuple(after)

    def holds(self, condition: Expr, here: At) -> bool:
        return bool(self._evaluator(condition)(here))

    def missing(self, name: str, here: At) -> Iterator[Expr]:
        """The parts of a step's guard that do not hold here."""
        for condition in self.transitions[name].conditions:
            for part in condition.args if condition.op == "and" else (condition,):
                if not self.holds(part, here):
                    yield part

    # ---- trees

    def _evaluator(self, expr: Expr, around: Axes = NONE) -> Evaluator:
        """The tree as a function."""
        around = around if _is_vector(expr) else NONE
        found = self._compiled.get((expr, around))
        if found is None:
            found = self._compiled[expr, around] = self._compile(expr, around)
        return found

    def _compile(self, expr: Expr, around: Axes) -> Evaluator:
        op, args = expr.op, expr.args
        if op == "const":
            value = expr.value
            return lambda here: value
        if op in ("var", "bound"):
            return self._index(expr, around)
        if op == "read":
            return self._read(expr, around)
        if op in ("named", "int", "ord"):
            return self._evaluator(args[op == "named"], around)
        if op in QUANTIFIERS:
            return _remembered(expr, around, self._quantifier(expr, around))
        if op == "and":
            return _remembered(expr, around, self._and(args, around))
        parts = [self._evaluator(x, around) for x in args]
        if op == "not":
            return _not(parts[0], _is_vector(expr))
        if op == "ite":
            return _remembered(expr, around, _ite(parts, _is_vector(args[0])))
        a, b = parts
        apply = BINARY[op]
        return lambda here: apply(a(here), b(here))

    def _index(self, expr: Expr, around: Axes) -> Evaluator:
        axis = _axis(expr, around)
        if axis is None:
            place = self._places[expr]
            return lambda here: here.indices[place]
        members = np.arange(expr.sort.size).reshape((-1,) + (1,) * axis)
        return lambda here: members

    def _and(self, args: tuple[Expr, ...], around: Axes) -> Evaluator:
        """Evaluate the parts without an axis first: if one of them does not hold, nothing else is evaluated."""
        plain = [self._evaluator(x, around) for x in args if not _is_vector(x)]
        arrays = [self._evaluator(x, around) for x in args if _is_vector(x)]
        if not arrays:
            return lambda here: all(part(here) for part in plain)

        def value(here: At) -> Any:
            if not all(part(here) for part in plain):
                return False
            found = arrays[0](here)
            for part in arrays[1:]:
                if found is False or (isinstance(found, np.ndarray) and not found.any()):
                    return False
                found = np.logical_and(found, part(here))
            return found

        return value

    def _quantifier(self, expr: Expr, around: Axes) -> Evaluator:
        sort, body = expr.args
        depth, below = around.depth, Axes(around.depth + 1, around.places)
        rows = self._rows_differ(body, below) if expr.op == "any" else None
        if rows is not None:
            return rows
        inner, size = self._evaluator(body, below), sort.size

        def some(here: At) -> Any:
            found = inner(here)
            if not isinstance(found, np.ndarray) or found.ndim <= depth:
                return found
            found = found.any(axis=0)
            return found if depth and found.ndim else bool(found)

        def total(here: At) -> Any:
            found = inner(here)
            if not isinstance(found, np.ndarray) or found.ndim <= depth:
                return size * found if not isinstance(found, np.ndarray) else size * found.astype(np.int32)
            times = size if found.shape[0] == 1 and size > 1 else 1
            found = found.sum(axis=0, dtype=np.int32) * times
            return found if depth and found.ndim else int(found)

        return some if expr.op == "any" else total

    def _rows_differ(self, body: Expr, around: Axes) -> Evaluator | None:
        """`∃ m: f[j, m] ≠ f[k, m]`: two rows of a field differ. Rows are numbered, which is quadratic, not cubic."""
        if body.op != "not" or body.args[0].op != "eq":
            return None
        left, right = body.args[0].args
        if not (left.op == right.op == "read" and left.name == right.name and len(left.args) == len(right.args) == 3):
            return None
        (_, j, own), (_, k, other) = left.args, right.args
        if not (own is other and own.op == "bound" and own.args[0] == 0):
            return None
        column = self.columns[left.name]
        indices = [self._evaluator(index, around) for index in (j, k)]

        def differ(here: At) -> Any:
            numbers = _row_numbers(column, here)
            a, b = (numbers[index(here)] for index in indices)
            found = np.not_equal(a, b)
            return found if isinstance(found, np.ndarray) and found.ndim else bool(found)

        return differ

    def _read(self, expr: Expr, around: Axes) -> Evaluator:
        column, indices = self.columns[expr.name], expr.args[1:]
        kind = expr.sort.kind
        if not any(map(_is_vector, indices)):
            return self._read_cell(column, indices)
        axes = [_axis(i, around) for i in indices]
        parts = [self._evaluator(i, around) for i in indices]
        direct = len(indices) == 1 and axes[0] is not None
        shape = (-1,) + (1,) * (axes[0] or 0)

        def value(here: At) -> Any:
            found = column.array(here.state)
            found = found.reshape(shape) if direct else found[tuple(part(here) for part in parts)]
            return found.astype(bool) if kind == "bool" else found.astype(np.int32)

        return _remembered(expr, around, value)

    def _read_cell(self, column: Column, indices: tuple[Expr, ...]) -> Evaluator:
        at, value = column.at, column.value
        if not indices:
            return lambda here: value(here.state, 0)
        parts = [self._evaluator(i) for i in indices]
        if len(parts) == 1 and column.width == 1:
            part = parts[0]
            return lambda here: here.state[at][part(here)]
        shape = column.shape
        return lambda here: value(here.state, _place(shape, tuple(part(here) for part in parts)))


def _width(high: int) -> int:
    return 1 if high < 1 << 8 else 2 if high < 1 << 16 else 4


def _place(shape: tuple[int, ...], indices: tuple[int, ...]) -> int:
    place = 0
    for size, index in zip(shape, indices, strict=True):
        place = place * size + index
    return place


def _is_vector(expr: Expr) -> bool:
    """Whether its value differs between the members of a loop around it."""
    return expr.reach > 0 or any(v.role is Role.PLACEHOLDER for v in expr.free)


def _axis(expr: Expr, around: Axes) -> int | None:
    """The axis of an index of a loop. Of k placeholders the last one is the innermost axis of the result, number 0."""
    if expr.op == "bound":
        return around.depth - 1 - int(expr.args[0])
    if expr.op == "var" and expr.role is Role.PLACEHOLDER:
        return around.places - 1 - expr.number
    return None


def _remembered(expr: Expr, around: Axes, compute: Evaluator) -> Evaluator:
    key = expr.serial, around

    def value(here: At) -> Any:
        try:
            return here.memo[key]
        except KeyError:
            found = here.memo[key] = compute(here)
            return found

    return value


def _not(part: Evaluator, vector: bool) -> Evaluator:
    if not vector:
        return lambda here: not part(here)

    def value(here: At) -> Any:
        found = part(here)
        return np.logical_not(found) if isinstance(found, np.ndarray) else not found

    return value


def _ite(parts: list[Evaluator], vector: bool) -> Evaluator:
    c, a, b = parts
    if not vector:
        return lambda here: a(here) if c(here) else b(here)

    def value(here: At) -> Any:
        found = c(here)
        if not isinstance(found, np.ndarray):
            return a(here) if found else b(here)
        return np.where(found, a(here), b(here))

    return value


def _row_numbers(column: Column, here: At) -> np.ndarray[Any, Any]:
    """Numbers for the rows of a field; equal rows have equal numbers."""
    key = -1 - column.at, NONE
    if key not in here.memo:
        data, size = here.state[column.at], column.shape[1] * column.width
        seen: dict[bytes, int] = {}
        rows = (data[k : k + size] for k in range(0, len(data), size))
        here.memo[key] = np.array([seen.setdefault(row, len(seen)) for row in rows])
    return here.memo[key]  # type: ignore[no-any-return]
