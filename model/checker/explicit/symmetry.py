"""Reduction by symmetry: states that differ only in the numbering of the members are explored once.

The reduction is sound only if no tree can distinguish members by their numbers. The cells of each member form a lane of
bits. An orbit is the set of states that differ only in this numbering: sorting the lanes gives exactly one state per
orbit.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from ...errors import UsageError
from ...language.expressions import Expr, parts
from ...language.sorts import Sort
from ...language.systems import State, System
from ..interpret import Interpreter
from ..kernel import Kernel, Path
from .packing import Columns, Layout, Layouts
from .paths import Trail

REMEDY = "explore without symmetry"
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
    for what, expr in _trees(system):
        reason = distinguishes(expr, sort)
        if reason:
            raise UsageError(f"{what} {reason}, so the members of {sort.name} are not interchangeable; {REMEDY}")
    return sort


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
    for here in parts(expr):
        if here.op not in JUDGED:
            return f"uses the operator {here.op}, which may order members"
        if here.op == "const" and here.sort is sort:
            return f"names {sort.name} {here.value}"
        if here.op == "ord" and here.args[0].sort is sort:
            return f"uses the number of a {sort.name} (ord)"
        if here.op == "lt" and here.args[0].sort is sort:
            return f"orders the members of {sort.name}"
    return ""


def sorting_network(size: int) -> list[tuple[int, int]]:
    """Compare-exchanges that sort `size` values (Batcher's odd-even merge sort, Knuth vol. 3, 5.3.4)."""
    pairs = []
    p = 1
    while p < size:
        k = p
        while k:
            for j in range(k % p, size - k, 2 * k):
                for i in range(j, min(j + k, size - k)):
                    if i // (2 * p) == (i + k) // (2 * p):
                        pairs.append((i, i + k))
            k //= 2
        p *= 2
    return pairs


class Symmetry:
    """The orbits of one system's states."""

    def __init__(self, kernel: Kernel, layout: Layouts = Layout) -> None:
        self._kernel = kernel
        self.sort = interchangeable(kernel.system)
        self.layout = layout(kernel.cells, kernel.constant_cells, self.sort.name)
        self._network = sorting_network(self.sort.size)

    def canonical(self, columns: Columns) -> Columns:
        """For each state the state of its orbit whose lanes are sorted."""
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

    def concrete(self, trail: Trail) -> Path:
        """A run of the unreduced system through the given orbits that ends in exactly the last state."""
        orbits, _ = trail
        state = self.layout.unpack(orbits[0])  # an initial state with sorted lanes is an initial state too
        states, numbers = [state], []
        for orbit in orbits[1:]:
            number, state = next(
                (i.number, after) for i, after in self._interpreter.successors(state) if self._orbit(after) == orbit
            )
            states.append(state)
            numbers.append(number)
        return self._renamed(Path(tuple(states), tuple(numbers)), self._ranks(states[-1]))

    @cached_property
    def _interpreter(self) -> Interpreter:
        return Interpreter(self._kernel.system)

    def _orbit(self, state: State) -> tuple[int, ...]:
        return tuple(int(c[0]) for c in self.canonical(self.layout.pack([state])))

    def _ranks(self, state: State) -> list[int]:
        """For each member its position among the sorted lanes."""
        words = [int(c[0]) for c in self.layout.pack([state])]
        lanes = self.layout.lanes
        values = [(words[lane.word] >> lane.shift) & ((1 << lane.bits) - 1) for lane in lanes]
        order = sorted(range(len(values)), key=values.__getitem__)
        return [order.index(member) for member in range(len(values))]

    def _renamed(self, path: Path, names: list[int]) -> Path:
        """The same run with each member under its new name."""
        kernel = self._kernel
        numbers = {(i.transition.name, i.indices): i.number for i in kernel.instances}
        places = [kernel.position[c.slot.name, tuple(names[i] for i in c.indices)] for c in kernel.cells]

        def state(old: State) -> State:
            new = dict(zip(places, old, strict=True))
            return tuple(new[k] for k in range(len(new)))

        def step(number: int) -> int:
            i = kernel.instances[number]
            pairs = zip(i.transition.params, i.indices, strict=True)
            indices = tuple(names[k] if p.sort is self.sort else k for p, k in pairs)
            return numbers[i.transition.name, indices]

        return Path(tuple(map(state, path.states)), tuple(map(step, path.steps)))
