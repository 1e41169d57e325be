"""A system prepared for the engines: its transitions per binding, and the conditions that a search looks for.

*Theory of operation.* A kernel lists the cells of a state (a field, or its member at given indices) and the instances
of the transitions. It closes trees: it substitutes parameters, unrolls quantifiers, and replaces each cell that no step
assigns by its value. Trees are closed on demand and cached, so one kernel serves all engines of a check, on one thread.
To close an effect, the kernel considers only the members that the tree names (`expressions.differing`), which it finds
once for each transition. So its work is proportional to the number of members of a system.

An engine answers only two kinds of question. A *watch* requests the nearest reachable state in which a condition holds.
If the watch names an instance, this step must also be taken from the state. Invariants, reachable states, step
properties, claimed moves, effects out of range, deadlocks and steps that never happen are all watches. A *lasso*
requests a fair infinite run on which a goal stays false.

A step that changes nothing is not a step.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import product
from typing import Any, NamedTuple, TypeVar

from ..language.beginnings import beginnings
from ..language.expressions import Expr, Role, and_, const, differing, equal, lift_like, not_, or_, read, substitute
from ..language.fields import Cell
from ..language.properties import Within
from ..language.quantifiers import Unrolling, expand
from ..language.state import Write
from ..language.systems import State, System
from ..language.transitions import Kind, Transition

Binding = Mapping[Expr, int]  # the index for each parameter
Seen = TypeVar("Seen")


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
    def members(self) -> tuple[int, ...]:
        """The members of its `each`, without what the step itself chooses."""
        return self.indices[: len(self.transition.own)]

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The members and choices as values of Python: the number of a member, a member of an enum, a set."""
        values, params = self.transition.values, self.transition.params
        return tuple(values[p][k] if p in values else k for p, k in zip(params, self.indices, strict=True))

    @property
    def label(self) -> str:
        shown = (p.sort.show(k) for p, k in zip(self.transition.params, self.indices, strict=True))
        return self.transition.name + (f"({', '.join(shown)})" if self.indices else "")

    @property
    def fair(self) -> bool:
        return bool(self.transition.fair) and self.transition.kind is not Kind.FAULT

    @property
    def group(self) -> tuple[object, ...]:
        """The key of its `Group`: the step and its members, or the declared group, and the member that has it."""
        declared = self.transition.fair
        if declared is None or not declared.group:
            return self.transition.name, self.members
        own = zip(self.transition.own, self.members, strict=True)
        members = (k for p, k in own if p.sort.name == declared.per)
        return str(declared), next(members, None)


@dataclass(frozen=True, slots=True)
class Group:
    """Instances that are fair together, by their numbers: most groups have one.

    In a fair run, again and again no instance of the group is possible, or one is taken. If the group is `strong` and
    one is possible again and again, one is taken again and again.
    """

    numbers: tuple[int, ...]
    strong: bool


def fair_groups(instances: Iterable[Instance]) -> list[Group]:
    """The groups of the fair instances, in the order of their first instance."""
    members: dict[object, list[Instance]] = {}
    for i in instances:
        if i.fair:
            members.setdefault(i.group, []).append(i)
    return [Group(tuple(i.number for i in of), bool(of[0].transition.fair and of[0].transition.fair.strong))
            for of in members.values()]  # fmt: skip


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
    """A claimed move of a machine by a transition: of the transition's own member ("self") or of another ("others")."""

    machine: str
    transition: str
    of: str
    source: str
    dest: str


class WatchKey(NamedTuple):
    """The name of a watch. Watches with the same key are one question: the first occurrence of any answers it.

    `subject` is a property, a transition (fired), a line of source (range), a machine (unclaimed) or a claimed move;
    `instance` is the number of the step, if each step is a separate question. A key is a tuple of strings, because a
    search looks keys up very often.
    """

    kind: WatchKind
    subject: str | Move
    instance: int | None = None


@dataclass(frozen=True, eq=False)
class Watch:
    """Find a reachable state where `expr` holds under `binding`, and `instance` (if given) takes a step.

    No instance of `idle` takes a step there. If `path` is false, the watch needs no run, and an engine may answer with
    `NO_PATH`. A condition that is a function is built when it is first needed: in a small search of a system with many
    members, most declared steps are never taken, and their conditions are never needed.
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


def traced(end: Seen, origin: Callable[[Seen], tuple[Seen, int] | None]) -> tuple[list[Seen], list[int]]:
    """The states to the last one and the steps between them; `origin` is None for the first state."""
    states, steps = [end], list[int]()
    while (before := origin(states[-1])) is not None:
        states.append(before[0])
        steps.append(before[1])
    return states[::-1], steps[::-1]


NO_PATH = Path((), ())


@dataclass(frozen=True, slots=True)
class Lasso:
    """A path whose last state equals the state at `loop`: from there it repeats for ever.

    A lasso with `loop == len(path.steps)` stays in its last state: no fair step is enabled there.
    """

    path: Path
    loop: int


@dataclass(slots=True)
class Exploration:
    """The result of a search. `stopped` names the limit that ended it early, if a limit did.

    `unanswered` has the watches that were too large although the search was complete: key -> the limit. `resumed` is
    the number of states that were resumed from an earlier search.
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

    Decision diagrams count states without holding them: the engine symbolic stops only at memory and seconds.
    `memory_bytes` bounds the data of an engine. Its default is not measured: the command line and `trystate.check`
    pass a share of the memory that the machine has left.
    """

    states: int = 200_000_000
    memory_bytes: int = 8 << 30
    seconds: float = 3600.0


class Kernel:
    """One system's cells and instances, and ground (index-free) trees for the engines that need them."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.cells: tuple[Cell, ...] = system.cells
        self.position = {cell.key: k for k, cell in enumerate(self.cells)}
        steps = ((t, k) for t in system.transitions for k in product(*(range(p.sort.size) for p in t.params)))
        self.instances = tuple(Instance(number, t, indices) for number, (t, indices) in enumerate(steps))
        self.constant_cells = self._constant_cells()
        constants = {
            self.cell_read(*self.cells[k].key): const(v, self.cells[k].sort) for k, v in self.constant_cells.items()
        }
        self._unrolling = Unrolling(constants)
        self._effects: dict[int, dict[int, Expr]] = {}
        self._writes: dict[str, list[tuple[str, tuple[Expr, ...], Expr]]] = {}
        self._substitutions: dict[tuple[tuple[int, int], ...], tuple[dict[Expr, Expr], dict[Expr, Expr]]] = {}

    def counted(self, within: Within) -> frozenset[int]:
        """The numbers of the instances that a bound counts."""
        return frozenset(i.number for i in self.instances if within.step in ("", i.transition.name))

    def initial_states(self) -> Iterator[State]:
        """Yield the initial states one by one: they may be more than any limit allows."""
        return beginnings(self.cells, self.system.initial_condition)

    def _constant_cells(self) -> dict[int, int]:
        """Position -> value of each cell that no step assigns, such as the fields of a fault that is switched off."""
        written = {name for t in self.system.transitions for name in t.effects}
        return {
            k: cell.initial[0]
            for k, cell in enumerate(self.cells)
            if cell.slot.name not in written and len(cell.initial) == 1
        }

    def substituted(self, expr: Expr, binding: Binding) -> Expr:
        """The tree with its parameters substituted."""
        if not expr.free:
            return expr
        key = tuple([(var.serial, value) for var, value in binding.items()])
        if key not in self._substitutions:
            self._substitutions[key] = ({var: const(value, var.sort) for var, value in binding.items()}, {})
        return substitute(expr, *self._substitutions[key])

    def ground(self, expr: Expr, binding: Binding) -> Expr:
        """The tree with parameters substituted and quantifiers unrolled: it reads cells and has no variables."""
        return expand(self.substituted(expr, binding), self._unrolling)

    def guard(self, instance: Instance) -> Expr:
        return self.ground(instance.transition.guard, instance.binding)

    def effects(self, instance: Instance) -> dict[int, Expr]:
        """Position of each cell that the step may change -> the tree of its new value."""
        found = self._effects.get(instance.number)
        if found is None:
            found = self._effects[instance.number] = self._ground_effects(instance)
        return found

    def _ground_effects(self, instance: Instance) -> dict[int, Expr]:
        binding, out = instance.binding, {}
        for name, members, body in self._written(instance.transition):
            indices = tuple(member.value if member.op == "const" else binding[member] for member in members)
            value = self.ground(body, binding)
            if value is not self.cell_read(name, indices):
                out[self.position[name, indices]] = value
        return dict(sorted(out.items()))

    def _written(self, t: Transition) -> list[tuple[str, tuple[Expr, ...], Expr]]:
        """Each member of a field that a transition may change, as constants or its parameters, and the new value."""
        found = self._writes.get(t.name)
        if found is None:
            found = self._writes[t.name] = []
            for name, body in t.effects.items():
                slot = self.system.slots[name]
                places = slot.placeholders()
                for members in differing(body, slot.identity(), places):
                    at = dict(zip(places, members, strict=True))
                    found.append((name, members, substitute(body, at)))
        return found

    def cell_read(self, name: str, indices: tuple[int, ...]) -> Expr:
        slot = self.system.slots[name]
        return read(name, tuple(const(i, d) for i, d in zip(indices, slot.dims, strict=True)), slot.sort)

    def changes(self, instance: Instance) -> Expr:
        """Closed condition: the step would change something."""
        effects = self.effects(instance).items()
        return or_(*(not_(equal(self.cell_read(*self.cells[k].key), value)) for k, value in effects))

    def out_of_range(self, instance: Instance) -> Iterator[tuple[str, Callable[[], Expr]]]:
        """For each line that could leave a value out of its field's range: the line, and the condition that it does so.

        A value that a later line replaces does not count: two lines may name the same member by two indices.
        """
        for number, write in enumerate(instance.transition.writes, 1):
            if self.may_leave_range(write):
                later = [w for w in instance.transition.writes[number:] if w.field == write.field]
                yield write.line, partial(self._leaves_range, instance, write, later)

    def may_leave_range(self, write: Write) -> bool:
        """Whether some value of an assignment is outside the range of its field."""
        sort, values = self.system.slots[write.field].sort, write.value.sort
        return sort.kind in ("int", "index") and (values.low < sort.low or values.high > sort.high)

    def _leaves_range(self, instance: Instance, write: Write, later: Sequence[Write]) -> Expr:
        """Closed condition: this line leaves a value out of its field's range, and no later line replaces the value."""
        sort = self.system.slots[write.field].sort
        loops = [i for i in write.indices if i.role is Role.PLACEHOLDER]
        out = []
        for members in product(*(range(v.sort.size) for v in loops)):
            binding = {**instance.binding, **dict(zip(loops, members, strict=True))}
            tree = self.ground(write.value, binding)
            place = [self.ground(i, binding) for i in write.indices]
            replaced = or_(*(self._assigns(w, instance, place) for w in later))
            nowhere = or_(*(i.absent for i in place if i.sort.kind == "index"))
            out.append(and_(or_(lift_like(sort.low, sort) > tree, tree > sort.high), not_(replaced), not_(nowhere)))
        return or_(*out)

    def _assigns(self, write: Write, instance: Instance, place: Sequence[Expr]) -> Expr:
        """Closed condition: this line assigns the member at these indices. A loop assigns every member."""
        pairs = [(i, at) for i, at in zip(write.indices, place, strict=True) if i.role is not Role.PLACEHOLDER]
        return and_(*(equal(self.ground(i, instance.binding), at) for i, at in pairs))
