"""A run step by step, in the form from which every kind of sequence diagram is made, and as plain text."""

from __future__ import annotations

import enum
import textwrap
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from ..language import Cell, Kind, State, SymbolicState, System
from ..language.expressions import lift
from ..language.lifelines import LAST, SHARED, Lifelines, Place
from ..language.sorts import Sort
from .interpret import Interpreter
from .kernel import Instance
from .verdicts import Counterexample

RESTS = "rests here for ever: nothing that must happen can"
REPEATS = "repeats for ever"
UNFAIR = "a step that is not fair need not happen; a step under @environment is fair only with fair=True"
TEXT_WIDTH = 100
ABSENT = "·"  # the place of a sequence has no record


@dataclass(frozen=True, slots=True)
class Change:
    """A cell whose value a step changed. `member` is None if it is at the shared lifeline.

    Without `old`, it is a message that the step sends, takes or loses: `cell` has the verb, and `new` is the message.
    """

    cell: str
    member: int | None
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.cell}: {self.old} → {self.new}" if self.old else f"{self.cell}: {self.new}"


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a run. `actor` is None if the shared lifeline or no lifeline takes it (such as time passing)."""

    number: int
    label: str
    kind: Kind
    doc: str
    actor: int | None
    changes: tuple[Change, ...]
    note: str = ""

    def places(self) -> list[tuple[int | None, list[Change]]]:
        """The changes of each member in order, then the changes of shared fields."""
        found: dict[int | None, list[Change]] = {}
        for change in self.changes:
            found.setdefault(change.member, []).append(change)
        return sorted(found.items(), key=lambda place: (place[0] is None, place[0] or 0))


@dataclass(frozen=True, slots=True)
class Flight:
    """A message of a run: the number of the step that sent it, and the number of the step that took it or lost it.

    `ended` is None if it is on its way in the last state.
    """

    cell: str
    answer: bool
    source: Place
    dest: Place
    sent: int
    ended: int | None = None
    taken: bool = False


@dataclass(frozen=True, slots=True)
class Story:
    """A run ready to be drawn: `members` names the lifelines of members, `shared` the shared one."""

    system: System
    members: tuple[str, ...]
    initial: State
    steps: tuple[Step, ...]
    loop: int | None
    shared: str = SHARED
    messages: tuple[Flight, ...] = ()

    @property
    def heads(self) -> tuple[str, ...]:
        """The names of the lifelines that are drawn: the shared one only if something happens there."""
        places = [step.actor for step in self.steps] + [change.member for step in self.steps for change in step.changes]
        places += [end for flight in self.messages for end in (flight.source, flight.dest)]
        return (*self.members, self.shared) if None in places or not self.members else self.members

    @property
    def counts(self) -> str:
        """The number of messages, and how many of them are not taken."""
        lost = sum(not flight.taken and flight.ended is not None for flight in self.messages)
        left = sum(flight.ended is None for flight in self.messages)
        words = [f"{len(self.messages)} messages" if len(self.messages) > 1 else "1 message"]
        words += [f"{lost} lost"] if lost else []
        words += [f"{left} on their way at the end" if left > 1 else "1 on its way at the end"] if left else []
        return ", ".join(words)

    @property
    def rests(self) -> bool:
        """Whether the run ends in a state that it never leaves."""
        return self.loop is not None and self.loop >= len(self.steps)


def tell(system: System, run: Counterexample, *, notes: Sequence[str] = (), budget: bool = False) -> Story:
    """Find the lifeline and the changes of each step of a run; `notes` has a note for each step, or is empty.

    With `budget`, show also how often a fault may still happen, and the messages of a sequence cell by cell.
    """
    interpreter = Interpreter(system)
    main, lifelines = main_index(system), system.lifelines()
    states = run.path.states
    fleet = _Fleet(system, lifelines)
    hidden = frozenset() if budget else fleet.records | {*map(system.fault_counter, system.faults)}
    steps = []
    for number, taken in enumerate(run.path.steps, 1):
        instance = interpreter.kernel.instances[taken]
        ends, said = fleet.move(number, instance, states[number - 1 : number + 1])
        actor = _actor(main, lifelines, instance, ends)
        messages = () if budget else tuple(Change(cell, actor, "", text) for cell, text in said)
        steps.append(_step(interpreter, main, lifelines, hidden, Step(
            number, instance.label, instance.transition.kind, instance.transition.doc, actor, messages,
            notes[number - 1] if notes else "",
        ), states[number - 1 : number + 1]))  # fmt: skip
    members = tuple(f"{main.name} {k}" for k in range(main.size)) if main is not None else ()
    return Story(system, members, states[0], tuple(steps), run.loop, lifelines.shared, tuple(fleet.flights))


def main_index(system: System) -> Sort | None:
    """The index whose members are drawn as lifelines: the index that the system names, or that most fields have."""
    members = system.lifelines().members
    sorts = [sort for sort in system.index_sorts.values() if members in ("", sort.name)]
    fields = {sort.name: sum(sort in slot.dims for slot in system.slots.values()) for sort in sorts}
    return max(sorts, key=lambda sort: fields[sort.name], default=None)


def _owner(main: Sort | None, dims: tuple[Sort, ...], indices: tuple[int, ...], lifelines: Lifelines) -> Place:
    """The lifeline of a cell or step: its member of the main index, or else the home of another of its indices."""
    pairs = [*zip(dims, indices, strict=True)]
    own = next((k for dim, k in pairs if dim == main), None)
    if own is not None:
        return own
    return next((lifelines.homes[dim.name][k] for dim, k in reversed(pairs) if dim.name in lifelines.homes), None)


def _actor(main: Sort | None, lifelines: Lifelines, taken: Instance, ends: Sequence[tuple[Place, bool]]) -> Place:
    """The lifeline that takes a step: the receiver of its messages, else their sender, else the owner of its index."""
    if taken.transition.name in lifelines.places:
        place = lifelines.places[taken.transition.name]
        return taken.indices[LAST] if place == LAST else place
    receivers = {place for place, received in ends if received}
    senders = {place for place, received in ends if not received}
    for places in (receivers, senders):
        if len(places) == 1:
            return places.pop()
    return _owner(main, tuple(p.sort for p in taken.transition.params), taken.indices, lifelines)


def _step(
    interpreter: Interpreter,
    main: Sort | None,
    lifelines: Lifelines,
    hidden: frozenset[str],
    step: Step,
    around: Sequence[State],
) -> Step:
    """The step with its changes; messages on their way change at the lifeline of the step."""
    system = interpreter.system
    at_step = {*lifelines.messages, *lifelines.here, *_records(system, lifelines)}
    after = SymbolicState(system, frozen="the total of a count")

    def member(cell: Cell) -> Place:
        name = cell.slot.name
        if name in at_step:
            return step.actor
        own = _owner(main, cell.slot.dims, cell.indices, lifelines)
        return lifelines.places.get(name, own)

    def total(cell: Cell) -> str:
        """The total that a rising count must reach, as text."""
        total = lifelines.totals.get(cell.slot.name)
        if callable(total):
            total = interpreter.value(lift(total(after, *cell.indices)), around[1])
        return "" if total is None else f" of {total}"

    changes = tuple(
        Change(cell.name, member(cell), cell.sort.show(a), cell.sort.show(b) + (total(cell) if b > a else ""))
        for (cell, a), (_, b) in zip(*map(system.shown_cells, around), strict=True)
        if a != b and cell.slot.name not in hidden
    )
    return replace(step, changes=(*step.changes, *changes))


def _records(system: System, lifelines: Lifelines) -> frozenset[str]:
    """The fields of the sequences that are messages: their lengths and components."""
    names = lifelines.messages.keys() & system.sequences.keys()
    return frozenset(field for name in names for field, _ in system.sequences[name].fields(name))


class _Fleet:
    """The messages of a run, followed from state to state. The messages of one cell and direction have an order."""

    def __init__(self, system: System, lifelines: Lifelines) -> None:
        self.flights: list[Flight] = []
        self._in_flight: dict[tuple[str, bool], list[int]] = {}  # the numbers of flights, in the order of the places
        self.records = _records(system, lifelines)
        self._system = system
        self._lengths = {f"{name}_length": name for name in system.sequences}
        names = [self._lengths.get(cell.slot.name, cell.slot.name) for cell in system.cells]
        self._cells = [(k, cell) for k, cell in enumerate(system.cells) if names[k] in lifelines.messages]
        self._messages = {cell.name: lifelines.messages[names[k]] for k, cell in self._cells}

    def move(
        self, number: int, taken: Instance, around: Sequence[State]
    ) -> tuple[list[tuple[Place, bool]], list[tuple[str, str]]]:
        """Follow a step.

        Returns the places that took a message (True) or sent one (False), and for each record the verb (sent, taken or
        lost) with its contents.
        """
        ends: list[tuple[Place, bool]] = []
        said: list[tuple[str, str]] = []
        for k, cell in self._cells:
            old, new = around[0][k], around[1][k]
            message = self._messages[cell.name]
            ways = [(message.sent, message.taken), (message.answered, message.received)]
            for back, (values, after) in enumerate(ways[: 2 if message.answered else 1]):
                more = self._on_way(cell, values, new) - self._on_way(cell, values, old)
                received = more == -1 and (not after or new in _ordinals(after))
                received = received and taken.transition.kind is Kind.PROTOCOL
                shown, places = self._shown(cell), self._changed(cell, around, old, more)
                flying = self._in_flight.setdefault((shown, bool(back)), [])
                for place, at in [(p, flying[p]) for p in places if more < 0 and p < len(flying)]:
                    flying.remove(at)
                    self.flights[at] = replace(self.flights[at], ended=number, taken=received)
                    ends += [(self.flights[at].dest, True)] if received else []
                    said += self._record("takes" if received else "loses", cell, place, around[0])
                for place in places if more > 0 else ():
                    way = message.ends(cell.indices, lambda name: around[1][self._system.positions[name]])
                    source, dest = way[::-1] if back else way
                    flying.insert(place, len(self.flights))
                    self.flights.append(Flight(shown, bool(back), source, dest, number))
                    ends.append((source, False))
                    said += self._record("sends", cell, place, around[1])
        return ends, sorted(said, key=lambda record: record[0].startswith("sends"))

    def _shown(self, cell: Cell) -> str:
        """The name of a cell in the picture: the cell of a sequence's length has the name of the sequence."""
        name = cell.slot.name
        return self._lengths.get(name, name) + cell.name.removeprefix(name)

    def _record(self, verb: str, cell: Cell, place: int, state: State) -> Iterator[tuple[str, str]]:
        """The text of a record at a place of a sequence: its enumerations, and its other components that are not 0."""
        name = self._lengths.get(cell.slot.name)
        if name is None:
            return
        at, values = cell.name.removeprefix(cell.slot.name), list[str]()
        for component, field in self._system.sequences[name].components:
            k = self._system.positions[f"{name}_{place}_{component}{at}"]
            text = self._system.cells[k].sort.show(state[k])
            if field.kind == "enum":
                values.append(text)
            elif state[k]:
                values.append(f"{component} {text}")
        yield f"{verb} {name}{at}", ", ".join(values)

    def _on_way(self, cell: Cell, values: Collection[enum.Enum], value: int) -> int:
        """The number of messages for a value: the length of a sequence; for a number 1, or 0 if it is 0."""
        if values:
            return int(value in _ordinals(values))
        return value if cell.slot.name in self._lengths else min(value, 1)

    def _changed(self, cell: Cell, around: Sequence[State], old: int, more: int) -> list[int]:
        """The places, in a sequence, of the records that a step adds (`more` of them) or removes."""
        if more >= 0 and self._rows(cell, around[1])[:old] == self._rows(cell, around[0]):
            return [*range(old, old + more)]
        rows, rest = (self._rows(cell, state) for state in (around if more < 0 else around[::-1]))
        places = list[int]()
        for place in reversed(range(len(rows))):  # the first of equal records is taken
            if rest and rest[-1] == rows[place]:
                rest.pop()
            else:
                places.insert(0, place)
        return places if len(places) == abs(more) else [*range(abs(more))]

    def _rows(self, cell: Cell, state: State) -> list[list[int]]:
        """The records of a sequence; none for the cell of another message."""
        name, at = self._lengths.get(cell.slot.name), cell.name.removeprefix(cell.slot.name)
        if name is None:
            return []
        places, names = self._system.positions, [c for c, _ in self._system.sequences[name].components]
        return [[state[places[f"{name}_{p}_{c}{at}"]] for c in names] for p in range(state[places[cell.name]])]


def _ordinals(values: Collection[enum.Enum]) -> set[int]:
    return {[*type(value)].index(value) for value in values}


def sequence_text(system: System, run: Counterexample, notes: Sequence[str] = ()) -> str:
    """The run for a terminal: its first state, then numbered steps with their notes and the cells that each changes."""
    story, absent = tell(system, run, notes=notes, budget=True), [*map(_absent(system), run.path.states)]
    initial = textwrap.wrap(
        ", ".join(_fields(system, story.initial, absent[0])), TEXT_WIDTH - 6, break_long_words=False
    )
    lines = [system.label, "   0  initially", *(f"      {line}" for line in initial)]
    width = max((len(step.label) for step in story.steps), default=0)
    for step in story.steps:
        if story.loop is not None and step.number == story.loop + 1:
            lines.append(_marker(f"steps {step.number} to {len(story.steps)} repeat for ever"))
        kind = "" if step.kind is Kind.PROTOCOL else f"[{step.kind.value}] "
        lines.append(f"{step.number:4}  {step.label:{width}}  {kind}{step.doc}".rstrip())
        lines += [f"      ({step.note})"] if step.note else []
        before, after = absent[step.number - 1 : step.number + 1]
        for change in (one for one in step.changes if one.cell not in after):
            lines.append(f"      {replace(change, old='') if change.cell in before else change}")
    if story.rests:
        lines.append(_marker(RESTS))
    unfair = never_taken(system, run)
    if unfair:
        what = f"possible from here on for ever, and never taken, since fair=False: {', '.join(unfair)}"
        lines += [f"  {line}" for line in textwrap.wrap(f"{what} ({UNFAIR})", TEXT_WIDTH - 2)]
    return "\n".join(lines) + "\n"


def never_taken(system: System, run: Counterexample) -> list[str]:
    """The steps that every state of a run's loop enables, but that need not happen: they are not fair. Without faults.

    Each of them might end the run if it were declared fair: weak fairness applies only to fair steps.
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


def _absent(system: System) -> Callable[[State], set[str]]:
    """The cells of the places of sequences that have no record in a state."""
    named = system.sequences.items()
    components = {f"{name}_length": (name, one.length, [c for c, _ in one.components]) for name, one in named}
    lengths = [(k, cell.name, components[cell.slot.name]) for k, cell in enumerate(system.cells)
               if cell.slot.name in components]  # fmt: skip
    return lambda state: {
        f"{name}_{place}_{component}{at.removeprefix(f'{name}_length')}"
        for k, at, (name, most, parts) in lengths for place in range(state[k], most) for component in parts
    }  # fmt: skip


def _fields(system: System, state: State, absent: Collection[str]) -> Iterator[str]:
    """One `field = values` for each field, its members side by side; a field whose cells are absent is left out."""
    shown: dict[str, list[str]] = {}
    for cell, value in system.shown_cells(state):
        shown.setdefault(cell.slot.name, []).append(ABSENT if cell.name in absent else cell.sort.show(value))
    for name, values in ((name, values) for name, values in shown.items() if {*values} != {ABSENT}):
        same = len(values) > 1 and len(set(values)) == 1
        yield f"{name} = {f'all {values[0]}' if same else ' '.join(values)}"
