"""Reduction by symmetry: states that differ only in the numbering of the members are explored once.

The reduction is sound only if no tree can distinguish members by their numbers. An orbit is the set of states that
differ only in this numbering. There are two ways to exactly one state per orbit:

- For the one index of a system (`Lanes`), the cells of each member form a lane of bits, and the lanes are sorted.
- For indices that are named (`Permutations`), all renamings of their members are tried, and the least packed state is
  taken. Fields may be per pairs of members and may hold members. The number of renamings is limited.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import permutations, product
from math import factorial, prod
from typing import Any

from ...errors import UsageError
from ...language.expressions import Expr, parts
from ...language.sorts import Sort
from ...language.systems import State, System
from ..interpret import Interpreter
from ..kernel import Kernel, Path
from .packing import MARK, Columns, Layout, Layouts, Place
from .paths import Trail

REMEDY = "explore without symmetry"
RENAMINGS_MAX = 2_880  # 5! and 4!: each state is renamed in all ways, which takes about 0.1 ms for 20 cells
Renaming = Mapping[str, Sequence[int]]  # the name of an index -> the new name of each member
# The operators that `distinguishes` judges. Any other is refused: if it orders members, merging states is unsound.
JUDGED = {
    "const", "read", "var", "eq", "lt", "not", "and", "ite", "add", "sub", "int", "ord", "any", "count", "bound",
    "named",
}  # fmt: skip


def interchangeable(system: System) -> Sort:
    """The one index whose members can be exchanged.

    Raises:
        UsageError: the system has no index or several, or a tree numbers or orders its members.
    """
    dims = {d.name: d for slot in system.slots.values() for d in slot.dims if d.kind == "index"}
    if len(dims) != 1:
        raise UsageError(
            f"{system.name} has fields per {', '.join(sorted(dims)) or 'no index at all'}: "
            f"symmetry is over exactly one index; {REMEDY}"
        )
    (sort,) = dims.values()
    for slot in system.slots.values():
        if len(slot.dims) > 1:
            raise UsageError(
                f"{slot.at}: {slot.name} is indexed by pairs of {sort.name}, which have no lanes; {REMEDY}"
            )
        if slot.sort.kind == "index":
            raise UsageError(f"{slot.at}: the values of {slot.name} are members of {slot.sort.name}; {REMEDY}")
        if slot.dims and slot.dims[0] is not sort:
            raise UsageError(f"{slot.at}: {slot.name} is indexed by {slot.dims[0].name}, which has no lanes; {REMEDY}")
        if len({*slot.own.values()}) > 1:
            raise UsageError(f"{slot.at}: the members of {slot.name} begin with different values; {REMEDY}")
    _refuse_numbered(system, sort)
    return sort


def permutable(system: System, names: tuple[str, ...]) -> list[Sort]:
    """The indices of these names, whose members can be exchanged.

    Raises:
        UsageError: the system has no such index, there are too many renamings, or a tree numbers or orders members.
    """
    for name in names:
        if name not in system.index_sorts or names.count(name) > 1:
            raise UsageError(f"symmetry has {name!r}: give indices of {system.name}, each once: "
                             f"{', '.join(system.index_sorts) or 'it has none'}")  # fmt: skip
    sorts = [system.index_sorts[name] for name in names]
    if (ways := prod(factorial(sort.size) for sort in sorts)) > RENAMINGS_MAX:
        sizes = ", ".join(f"{sort.name}={sort.size}" for sort in sorts)
        raise UsageError(f"symmetry of {sizes} has {ways:,} renamings, and at most {RENAMINGS_MAX:,} are tried: name "
                         "fewer indices or choose smaller sizes")  # fmt: skip
    for slot in system.slots.values():
        if len({*slot.own.values()}) > 1 and {*slot.dims} & {*sorts}:
            raise UsageError(f"{slot.at}: the members of {slot.name} begin with different values; {REMEDY}")
        starts = [{value for value in start if value >= 0} for start in (slot.own.values() or [slot.initial])]
        numbered = any(len(members) not in (0, slot.sort.high + 1) for members in starts)
        if slot.sort.kind == "index" and slot.sort.name in names and numbered:
            raise UsageError(
                f"{slot.at}: {slot.name} begins with some members of {slot.sort.name}: give all (ANY), or {REMEDY}"
            )
    for sort in sorts:
        _refuse_numbered(system, sort)
    return sorts


def _refuse_numbered(system: System, sort: Sort) -> None:
    for what, expr in _trees(system):
        if reason := distinguishes(expr, sort):
            raise UsageError(f"{what} {reason}, so the members of {sort.name} are not interchangeable; {REMEDY}")


def _trees(system: System) -> Iterator[tuple[str, Expr]]:
    for t in system.transitions:
        for tree in (t.guard, *t.effects.values()):
            yield f"{t.at}: the transition {t.name}", tree
    for p in system.properties:
        for tree in (*p.exprs, *(p.conditions or {}).values()):
            yield f"{p.at}: the property {p.name}", tree
    for m in system.machines.values():
        yield f"the machine {m.name}", m.control
    yield f"the terminal condition of {system.name}", system.terminal
    yield f"the condition of {system.name} on its initial states", system.initial_condition


def distinguishes(expr: Expr, sort: Sort) -> str:
    """How a tree distinguishes members, in words; empty if it does not."""

    def of(tree: Expr) -> bool:  # a field may hold one of the members or none: this is another sort
        return tree.sort.kind == "index" and tree.sort.name == sort.name

    for here in parts(expr):
        if here.op not in JUDGED:
            return f"uses the operator {here.op}, which may order members"
        if here.op == "const" and of(here) and here.value >= 0:
            return f"names {sort.name} {here.value}"
        if here.op == "ord" and of(here.args[0]):
            return f"uses the number of a {sort.name} (ord)"
        if here.op == "lt" and of(here.args[0]):
            return f"orders the members of {sort.name}"
    return ""


def sorting_network(size: int) -> list[tuple[int, int]]:
    """Compare-exchanges that sort `size` values (Batcher's odd-even merge sort, Knuth vol. 3, 5.3.4)."""
    powers = [1 << n for n in range((size - 1).bit_length())]
    return [
        (i, i + k)
        for p in powers
        for k in reversed(powers[: p.bit_length()])
        for j in range(k % p, size - k, 2 * k)
        for i in range(j, min(j + k, size - k))
        if i // (2 * p) == (i + k) // (2 * p)
    ]


class Symmetry:
    """The orbits of one system's states."""

    layout: Layout
    names: bool | tuple[str, ...] = True  # the argument of `check`

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def canonical(self, columns: Columns) -> Columns:
        """For each state the state that represents its orbit."""
        raise NotImplementedError

    def _renaming(self, state: State) -> Renaming:
        """A renaming that leads from the state to the state that represents its orbit."""
        raise NotImplementedError

    def concrete(self, trail: Trail) -> Path:
        """A run of the unreduced system through the given orbits that ends in exactly the last state."""
        orbits, _ = trail
        state = self.layout.unpack(orbits[0])  # the state that represents an initial state is an initial state too
        states, numbers = [state], []
        for orbit in orbits[1:]:
            number, state = next(
                (i.number, after) for i, after in self._interpreter.successors(state) if self._orbit(after) == orbit
            )
            states.append(state)
            numbers.append(number)
        return self._renamed(Path(tuple(states), tuple(numbers)), self._renaming(states[-1]))

    @cached_property
    def _interpreter(self) -> Interpreter:
        return Interpreter(self._kernel.system)

    def _packed(self, state: State) -> tuple[int, ...]:
        return tuple(int(c[0]) for c in self.layout.pack([state]))

    def _orbit(self, state: State) -> tuple[int, ...]:
        return tuple(int(c[0]) for c in self.canonical(self.layout.pack([state])))

    def _renamed(self, path: Path, names: Renaming) -> Path:
        """The same run with each member under its new name."""
        kernel = self._kernel
        numbers = {(i.transition.name, i.indices): i.number for i in kernel.instances}

        def step(number: int) -> int:
            i = kernel.instances[number]
            indices = (_named(names, p.sort, k) for p, k in zip(i.transition.params, i.indices, strict=True))
            return numbers[i.transition.name, tuple(indices)]

        states = (renamed(kernel, state, names) for state in path.states)
        return Path(tuple(states), tuple(map(step, path.steps)))


def _named(names: Renaming, sort: Sort, value: int) -> int:
    """The new name of a value; only members of the renamed indices have one."""
    return names[sort.name][value] if sort.kind == "index" and sort.name in names and value >= 0 else value


def renamed(kernel: Kernel, state: State, names: Renaming) -> State:
    """The state with each member under its new name."""
    new = [0] * len(state)
    for cell, value in zip(kernel.cells, state, strict=True):
        there = tuple(_named(names, dim, k) for dim, k in zip(cell.slot.dims, cell.indices, strict=True))
        new[kernel.position[cell.slot.name, there]] = _named(names, cell.sort, value)
    return tuple(new)


class Lanes(Symmetry):
    """The orbits under all renamings of one index. The lanes of the state that represents an orbit are sorted."""

    def __init__(self, kernel: Kernel, layout: Layouts = Layout) -> None:
        super().__init__(kernel)
        self._sort = interchangeable(kernel.system)
        self.layout = layout(kernel.cells, kernel.constant_cells, self._sort.name)
        self._network = sorting_network(self._sort.size)

    def canonical(self, columns: Columns) -> Columns:
        lanes, minimum, maximum = self.layout.lanes, self.layout.arrays.minimum, self.layout.arrays.maximum
        ones = (1 << lanes[0].bits) - 1
        values = [(columns[lane.word] >> lane.shift) & ones for lane in lanes]
        for a, b in self._network:
            values[a], values[b] = minimum(values[a], values[b]), maximum(values[a], values[b])
        out = list(columns)
        for word in sorted({lane.word for lane in lanes}):
            out[word] = out[word] & ~sum(ones << lane.shift for lane in lanes if lane.word == word)
        for lane, value in zip(lanes, values, strict=True):
            out[lane.word] |= value << lane.shift
        return tuple(out)

    def _renaming(self, state: State) -> Renaming:
        """For each member its position among the sorted lanes."""
        words, lanes = self._packed(state), self.layout.lanes
        values = [(words[lane.word] >> lane.shift) & ((1 << lane.bits) - 1) for lane in lanes]
        order = sorted(range(len(values)), key=values.__getitem__)
        return {self._sort.name: [order.index(member) for member in range(len(values))]}


class Permutations(Symmetry):
    """The orbits under all renamings of several indices. The packed state that represents an orbit is the least."""

    def __init__(self, kernel: Kernel, names: tuple[str, ...], layout: Layouts = Layout) -> None:
        super().__init__(kernel)
        self.names = names
        self.layout = layout(kernel.cells, kernel.constant_cells, "")
        sorts = permutable(kernel.system, names)
        members = (permutations(range(sort.size)) for sort in sorts)
        self._renamings: list[Renaming] = [dict(zip(names, each, strict=True)) for each in product(*members)]
        self._moves = [_Move(kernel, self.layout, names) for names in self._renamings[1:]]

    def canonical(self, columns: Columns) -> Columns:
        where, best = self.layout.arrays.where, columns
        for move in self._moves:
            other = move(columns)
            less = other[-1] < best[-1]
            for a, b in zip(other[-2::-1], best[-2::-1], strict=True):
                less = (a < b) | ((a == b) & less)
            best = tuple(where(less, a, b) for a, b in zip(other, best, strict=True))
        return best

    def _renaming(self, state: State) -> Renaming:
        least = self._orbit(state)
        return next(n for n in self._renamings if self._packed(renamed(self._kernel, state, n)) == least)


class _Move:
    """A renaming of packed states: bits that move by the same distance move at once; values are replaced one by one."""

    def __init__(self, kernel: Kernel, layout: Layout, names: Renaming) -> None:
        self._where = layout.arrays.where
        distances: dict[tuple[int, int, int], int] = {(w, w, 0): MARK for w in range(layout.words)}
        self._values: list[tuple[Place, Place, list[tuple[int, int]]]] = []
        for cell, here in zip(kernel.cells, layout.places, strict=True):
            to = tuple(_named(names, dim, k) for dim, k in zip(cell.slot.dims, cell.indices, strict=True))
            there = layout.places[kernel.position[cell.slot.name, to]]
            held = range(cell.sort.high + 1) if cell.sort.kind == "index" else ()
            values = [(v, _named(names, cell.sort, v)) for v in held]
            if all(old == new for old, new in values):
                key = here.word, there.word, there.shift - here.shift
                distances[key] = distances.get(key, 0) | here.mask
            else:
                self._values.append((here, there, [(a - here.low, b - here.low) for a, b in values if a != b]))
        self._distances = [(*key, mask) for key, mask in distances.items() if mask]

    def __call__(self, columns: Columns) -> Columns:
        out: list[Any] = [0] * len(columns)
        for here, there, distance, mask in self._distances:
            bits = columns[here] & mask
            out[there] = out[there] | (bits << distance if distance >= 0 else bits >> -distance)
        for place, to, values in self._values:
            old = new = (columns[place.word] >> place.shift) & place.ones
            for before, after in values:
                new = self._where(old == before, after, new)
            out[to.word] = out[to.word] | (new << to.shift)
        return tuple(out)


def reduction(kernel: Kernel, symmetry: bool | tuple[str, ...], layout: Layouts = Layout) -> Symmetry | None:
    """The reduction that `check` takes: None, by the only index of the system, or by the indices of these names."""
    if isinstance(symmetry, bool):
        return Lanes(kernel, layout) if symmetry else None
    return Permutations(kernel, symmetry, layout) if symmetry else None
