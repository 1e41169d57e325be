"""A system made ready for the engines: its transitions per binding, and what a search has to watch for.

*Theory of operation.* A kernel lists the cells of a state (a field, or its member at given indices) and the instances
of the transitions, and closes trees: parameters are put in, quantifiers unrolled, cells that no step assigns replaced
by their value. Closing is lazy and remembered, so one kernel serves all engines of a check, on one thread; its work
grows with the members of a system, since only the members that a tree names are looked at (`expressions.differing`).

An engine answers two kinds of question only. A *watch* asks for the nearest reachable state in which a
condition holds (and, if it names an instance, from which that step is taken): invariants, reachable states,
step properties, claimed moves, effects out of range, deadlocks and steps that never happen are all watches.
A *lasso* asks for a weakly fair infinite run on which a goal stays false.

A step that changes nothing is not a step.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import product
from typing import NamedTuple

from ..language.expressions import Expr, Role, and_, const, differing, equal, lift, not_, or_, read, substitute
from ..language.fields import Cell
from ..language.quantifiers import Unrolling, expand
from ..language.state import Write
from ..language.systems import State, System
from ..language.transitions import Kind, Transition

Binding = Mapping[Expr, int]  # the index for each parameter


@dataclass(frozen=True, slots=True, eq=False)
class Instance:
    """A transition for given indices."""

    number: int
    transition: Transition
    indices: tuple[int, ...]

    @property
    def binding(self) -> dict[Expr, int]:
        return dict(zip(self.transition.params, self.indices, strict=True))

    @property
    def label(self) -> str:
        return self.transition.name + (f"({', '.join(map(str, self.indices))})" if self.indices else "")

    @property
    def fair(self) -> bool:
        return self.transition.fair and self.transition.kind is not Kind.FAULT


class WatchKind(enum.StrEnum):
    """The question that a watch answers."""

    ALWAYS = "always"
    SOMETIMES = "sometimes"
    STEP = "step"
    DEADLOCK = "deadlock"
    FIRED = "fired"
    RANGE = "range"
    UNCLAIMED = "unclaimed"
    CLAIM = "claim"


class Move(NamedTuple):
    """A claimed move: which machine, made by which transition, of its own member ("self") or of "others"."""

    machine: str
    transition: str
    of: str
    source: str
    dest: str


class WatchKey(NamedTuple):
    """The name of a watch. Watches with one key are one question: it is answered where the first of them occurs.

    `subject` is a property, a transition (fired), a line of source (range), a machine (unclaimed) or a claimed move;
    `instance` is the number of the step, where each is asked on its own. A tuple of strings, because a search looks
    keys up again and again.
    """

    kind: WatchKind
    subject: str | Move
    instance: int | None = None


@dataclass(frozen=True, eq=False)
class Watch:
    """Ask for a reachable state where `expr` holds under `binding`, and `instance` (if given) takes a step.

    No instance of `idle` takes a step there. Where only whether it happens is asked, not how (`path` is false), an
    engine may answer with `NO_PATH`. A condition that is a function is built when it is asked for: most steps that a
    system of many members declares are never taken in a small search, and nothing is asked of those.
    """

    key: WatchKey
    condition: Expr | Callable[[], Expr]
    binding: Binding
    instance: Instance | None = None
    path: bool = True
    idle: tuple[Instance, ...] = ()

    @cached_property
    def expr(self) -> Expr:
        return self.condition if isinstance(self.condition, Expr) else self.condition()


@dataclass(frozen=True, slots=True)
class Path:
    """States from an initial one, and the number of the instance that leads from each to the next."""

    states: tuple[State, ...]
    steps: tuple[int, ...]


NO_PATH = Path((), ())


@dataclass(frozen=True, slots=True)
class Lasso:
    """A path whose last state equals the state at `loop`: from there on it goes round for ever.

    A lasso with `loop == len(path.steps)` stays in its last state: nothing that must happen can.
    """

    path: Path
    loop: int


@dataclass(slots=True)
class Exploration:
    """The result of a search. `stopped` says which limit ended it early, if one did.

    `unanswered` has the watches that were too large although the search was complete: key -> which limit. It went on
    from `resumed` states that an earlier search had kept.
    """

    engine: str
    distinct: int
    edges: int
    depth: int
    seconds: float
    bytes_per_state: float
    found: dict[WatchKey, Path]
    stopped: str = ""
    unanswered: dict[WatchKey, str] = field(default_factory=dict)
    resumed: int = 0

    @property
    def complete(self) -> bool:
        return not self.stopped


@dataclass(frozen=True, slots=True)
class Limits:
    """Where a search stops: distinct states, memory in bytes, wall-clock seconds.

    Decision diagrams count states without holding them: the engine symbolic stops at memory and seconds only.
    `memory_bytes` bounds the data of an engine. Its default is not measured: the command line and `trystate.check`
    pass a share of the memory that the machine has left.
    """

    states: int = 200_000_000
    memory_bytes: int = 8 << 30
    seconds: float = 3600.0


class Kernel:
    """One system's cells and instances, and closed (index-free) trees for the engines that want them."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.cells: tuple[Cell, ...] = system.cells
        self.position = {cell.key: k for k, cell in enumerate(self.cells)}
        instances: list[Instance] = []
        for t in system.transitions:
            for indices in product(*(range(p.sort.size) for p in t.params)):
                instances.append(Instance(len(instances), t, indices))
        self.instances = tuple(instances)
        self.frozen = self._frozen()
        constants = {self.cell_read(*self.cells[k].key): const(v, self.cells[k].sort) for k, v in self.frozen.items()}
        self._unrolling = Unrolling(constants)
        self._effects: dict[int, dict[int, Expr]] = {}
        self._bound: dict[tuple[tuple[int, int], ...], tuple[dict[Expr, Expr], dict[Expr, Expr]]] = {}

    def initial_states(self) -> Iterator[State]:
        """The initial states, one by one: there may be more than any limit allows."""
        return product(*(cell.slot.initial for cell in self.cells))

    def _frozen(self) -> dict[int, int]:
        """Position -> value of the cells that no step assigns: a fault that is off leaves its fields alone."""
        written = {name for t in self.system.transitions for name in t.effects}
        return {
            k: cell.slot.initial[0]
            for k, cell in enumerate(self.cells)
            if cell.slot.name not in written and len(cell.slot.initial) == 1
        }

    def bound(self, expr: Expr, binding: Binding) -> Expr:
        """The tree with its parameters put in."""
        key = tuple(sorted((var.serial, value) for var, value in binding.items()))
        if key not in self._bound:
            self._bound[key] = ({var: const(value, var.sort) for var, value in binding.items()}, {})
        return substitute(expr, *self._bound[key])

    def closed(self, expr: Expr, binding: Binding) -> Expr:
        """The tree with its parameters put in and its quantifiers unrolled: reads of cells, no variables."""
        return expand(self.bound(expr, binding), self._unrolling)

    def guard(self, instance: Instance) -> Expr:
        return self.closed(instance.transition.guard, instance.binding)

    def effects(self, instance: Instance) -> dict[int, Expr]:
        """Position of each cell that the step may change -> the tree of its new value."""
        found = self._effects.get(instance.number)
        if found is None:
            found = self._effects[instance.number] = self._close_effects(instance)
        return found

    def _close_effects(self, instance: Instance) -> dict[int, Expr]:
        out: dict[int, Expr] = {}
        for name, body in instance.transition.effects.items():
            slot = self.system.slots[name]
            places = slot.placeholders()
            taken = self.bound(body, instance.binding)
            for indices in differing(taken, slot.identity(), places):
                value = self.closed(taken, dict(zip(places, indices, strict=True)))
                if value is not self.cell_read(name, indices):
                    out[self.position[name, indices]] = value
        return out

    def cell_read(self, name: str, indices: tuple[int, ...]) -> Expr:
        slot = self.system.slots[name]
        return read(name, tuple(const(i, d) for i, d in zip(indices, slot.dims, strict=True)), slot.sort)

    def changes(self, instance: Instance) -> Expr:
        """Closed condition: the step would change something."""
        effects = self.effects(instance).items()
        return or_(*(not_(equal(self.cell_read(*self.cells[k].key), value)) for k, value in effects))

    def out_of_range(self, instance: Instance) -> Iterator[tuple[str, Callable[[], Expr]]]:
        """For each line that could leave a value out of its field's range: the line, and the condition that it does.

        A value that a later line replaces does not count: two lines may name one member by two indices.
        """
        for number, write in enumerate(instance.transition.writes, 1):
            slot = self.system.slots[write.field]
            if slot.sort.kind != "int":
                continue
            value = write.value
            if value.sort.low >= slot.sort.low and value.sort.high <= slot.sort.high:
                continue
            later = [w for w in instance.transition.writes[number:] if w.field == write.field]
            yield write.line, partial(self._leaves_range, instance, write, later)

    def _leaves_range(self, instance: Instance, write: Write, later: Sequence[Write]) -> Expr:
        """Closed condition: this line leaves a value out of its field's range, and no later one replaces it."""
        sort = self.system.slots[write.field].sort
        loops = [i for i in write.indices if i.role is Role.PLACEHOLDER]
        out = []
        for members in product(*(range(v.sort.size) for v in loops)):
            binding = {**instance.binding, **dict(zip(loops, members, strict=True))}
            tree = self.closed(write.value, binding)
            place = [self.closed(i, binding) for i in write.indices]
            replaced = or_(*(self._assigns(w, instance, place) for w in later))
            out.append(and_(or_(lift(sort.low) > tree, tree > sort.high), not_(replaced)))
        return or_(*out)

    def _assigns(self, write: Write, instance: Instance, place: Sequence[Expr]) -> Expr:
        """Closed condition: this line assigns the member at these indices. A loop assigns every member."""
        pairs = [(i, at) for i, at in zip(write.indices, place, strict=True) if i.role is not Role.PLACEHOLDER]
        return and_(*(equal(self.closed(i, instance.binding), at) for i, at in pairs))

    @cached_property
    def progress_instances(self) -> tuple[Instance, ...]:
        """The instances that are no faults."""
        return tuple(i for i in self.instances if i.transition.kind is not Kind.FAULT)

    def decode(self, state: State) -> dict[str, str]:
        return self.system.decode(state)
