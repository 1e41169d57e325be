"""A run told step by step, in a form that every kind of sequence diagram is made from; and as plain text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..language import Cell, Kind, State, System
from ..language.sorts import Sort
from .interpret import Interpreter
from .kernel import Instance, Kernel
from .verdicts import Counterexample

SHARED = "shared"
RESTS = "rests here for ever: nothing that must happen can"
REPEATS = "repeats for ever"
UNFAIR = "a step that is not fair need not happen; those of @environment are fair only with fair=True"
TEXT_WIDTH = 100


@dataclass(frozen=True, slots=True)
class Change:
    """A cell that a step gave another value. `member` is None where no member of the main index owns it."""

    cell: str
    member: int | None
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.cell}: {self.old} → {self.new}"


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a run. `actor` is None where it is nobody's, such as time passing."""

    number: int
    label: str
    kind: Kind
    doc: str
    actor: int | None
    changes: tuple[Change, ...]
    note: str = ""

    def places(self) -> list[tuple[int | None, list[Change]]]:
        """The changes of each member in order, then those of shared fields."""
        found: dict[int | None, list[Change]] = {}
        for change in self.changes:
            found.setdefault(change.member, []).append(change)
        return sorted(found.items(), key=lambda place: (place[0] is None, place[0] or 0))


@dataclass(frozen=True, slots=True)
class Story:
    """A run ready to be drawn: `members` names the lifelines beside the shared one."""

    system: System
    members: tuple[str, ...]
    initial: State
    steps: tuple[Step, ...]
    loop: int | None

    @property
    def rests(self) -> bool:
        """The run ends in a state that it never leaves."""
        return self.loop is not None and self.loop >= len(self.steps)


def tell(system: System, run: Counterexample, *, notes: Sequence[str] = (), budget: bool = False) -> Story:
    """Work out who did what in a run, with a note for each step if there are any.

    With `budget`, also how often a fault may still happen.
    """
    kernel = Kernel(system)
    main = main_index(system)
    states = run.path.states
    hidden = frozenset() if budget else frozenset(map(system.fault_counter, system.faults))
    steps = tuple(
        _step(system, main, hidden, number, kernel.instances[taken], states[number - 1 : number + 1], notes)
        for number, taken in enumerate(run.path.steps, 1)
    )
    members = tuple(f"{main.name} {k}" for k in range(main.size)) if main is not None else ()
    return Story(system, members, states[0], steps, run.loop)


def main_index(system: System) -> Sort | None:
    """The index whose members are drawn as lifelines: the one that most fields have a value per."""
    sorts = list(system.index_sorts.values())
    fields = {sort.name: sum(sort in slot.dims for slot in system.slots.values()) for sort in sorts}
    return max(sorts, key=lambda sort: fields[sort.name], default=None)


def _owner(main: Sort | None, dims: tuple[Sort, ...], indices: tuple[int, ...]) -> int | None:
    return next((k for dim, k in zip(dims, indices, strict=True) if dim == main), None)


def _step(
    system: System,
    main: Sort | None,
    hidden: frozenset[str],
    number: int,
    taken: Instance,
    around: Sequence[State],
    notes: Sequence[str],
) -> Step:
    t = taken.transition
    changes = tuple(
        Change(cell.name, _owner(main, cell.slot.dims, cell.indices), cell.sort.show(a), cell.sort.show(b))
        for cell, a, b in zip(system.cells, *around, strict=True)
        if a != b and cell.slot.name not in hidden
    )
    actor = _owner(main, tuple(p.sort for p in t.params), taken.indices)
    return Step(number, taken.label, t.kind, t.doc, actor, changes, notes[number - 1] if notes else "")


def sequence_text(system: System, run: Counterexample, notes: Sequence[str] = ()) -> str:
    """The run for a terminal: its first state, then numbered steps with their notes and the cells that each changes."""
    story = tell(system, run, notes=notes, budget=True)
    initial = textwrap.wrap(", ".join(_fields(system, story.initial)), TEXT_WIDTH - 6, break_long_words=False)
    lines = [system.label, "   0  initially", *(f"      {line}" for line in initial)]
    width = max((len(step.label) for step in story.steps), default=0)
    for step in story.steps:
        if story.loop is not None and step.number == story.loop + 1:
            lines.append(_marker(f"steps {step.number} to {len(story.steps)} repeat for ever"))
        kind = "" if step.kind is Kind.PROTOCOL else f"[{step.kind.value}] "
        lines.append(f"{step.number:4}  {step.label:{width}}  {kind}{step.doc}".rstrip())
        lines += [f"      ({step.note})"] if step.note else []
        lines += [f"      {change}" for change in step.changes]
    if story.rests:
        lines.append(_marker(RESTS))
    unfair = never_taken(system, run)
    if unfair:
        what = f"possible from here on for ever, and never taken, since fair=False: {', '.join(unfair)}"
        lines += [f"  {line}" for line in textwrap.wrap(f"{what} ({UNFAIR})", TEXT_WIDTH - 2)]
    return "\n".join(lines) + "\n"


def never_taken(system: System, run: Counterexample) -> list[str]:
    """The steps, but for faults, that every state of a run's loop allows, and that are not taken as they are not fair.

    Each of them might end the run, were it declared fair: weak fairness asks only for fair steps.
    """
    if run.loop is None:
        return []
    interpreter = Interpreter(system)
    around, taken = dict.fromkeys(run.path.states[run.loop :]), {*run.path.steps[run.loop :]}
    return [
        i.label
        for i in interpreter.kernel.instances
        if not i.fair and i.transition.kind is not Kind.FAULT and i.number not in taken
        and all(interpreter.step(i, state) is not None for state in around)
    ]  # fmt: skip


def _marker(text: str) -> str:
    return f"  ── {text} ──"


def _fields(system: System, state: State) -> Iterator[str]:
    """One `field = values` for each field, its members side by side."""
    shown: dict[str, list[str]] = {}
    cells: tuple[Cell, ...] = system.cells
    for cell, value in zip(cells, state, strict=True):
        shown.setdefault(cell.slot.name, []).append(cell.sort.show(value))
    for name, values in shown.items():
        same = len(values) > 1 and len(set(values)) == 1
        yield f"{name} = {f'all {values[0]}' if same else ' '.join(values)}"
