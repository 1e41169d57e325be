"""The moves in the charts of a machine: its claimed moves, numbered as in the system's table of transitions."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from trystate.model.language import Expr, Machine, System, Transition, and_
from trystate.model.language.beginnings import beginnings
from trystate.model.language.expressions import FALSE, const, equal, less, lift, parts, substitute
from trystate.model.language.fields import Cell
from trystate.model.language.quantifiers import expand
from trystate.model.language.text import assignment, show


@dataclass(frozen=True, slots=True)
class Move:
    """A transition that takes a machine from `source` to `dest`.

    `whose` names the machine's owner, unless it is only the machine of the transition's own index. A move that `must`
    happen somewhere is the purpose of the transition; any other is a possible side effect.
    """

    number: int
    transition: Transition
    source: enum.Enum
    dest: enum.Enum
    whose: str
    must: bool


def moves(machine: Machine) -> list[Move]:
    """Every claimed move from a state that the edition has, by transition and then in the order of the states."""
    order = {state: k for k, state in enumerate(machine.states)}
    found: list[Move] = []
    for number, t in enumerate(machine.system.transitions, 1):
        own = {(a.source, a.dest) for a in machine.arcs(t)}
        others = {(a.source, a.dest) for a in machine.arcs(t, "others")} if machine.params else set()
        for source, dest in sorted(own | others, key=lambda pair: (order[pair[0]], order[pair[1]])):
            whose = _whose(machine, t, (source, dest) in own) if (source, dest) in others else ""
            must = any(a.must for a in t.arcs if (a.source, a.dest) == (source, dest))
            found.append(Move(number, t, source, dest, whose, must))
    there = _reached(machine, found)
    return [m for m in found if m.source in there]


def control_states(machine: Machine) -> list[enum.Enum]:
    """The states that the edition has: the states to which the claimed moves lead."""
    there = _reached(machine, moves(machine))
    return [state for state in machine.states if state in there]


def _reached(machine: Machine, found: list[Move]) -> set[enum.Enum]:
    there: set[enum.Enum] = set()
    more = set(initial_states(machine))
    while more - there:
        there |= more
        more = {m.dest for m in found if m.source in there}
    return there


def _whose(machine: Machine, t: Transition, own_too: bool) -> str:
    sort = machine.params[0].sort
    if own_too or not any(p.sort is sort for p in t.own):
        return f"any {sort.name}"
    return f"other {sort.name}"


def initial_states(machine: Machine) -> list[enum.Enum]:
    """The control states in which the machine (of several, any of them) may start."""
    cells = machine.system.cells
    one = {cell.read: const(cell.initial[0], cell.sort) for cell in cells if len(cell.initial) == 1}
    where = substitute(expand(machine.system.initial_condition), one)
    members: list[Expr | None] = [const(k, p.sort) for p in machine.params for k in range(p.sort.size)] or [None]
    controls = {substitute(expand(machine.of(who)), one) for who in members}
    return [s for s in machine.states if any(_begins(cells, and_(where, equal(c, lift(s)))) for c in controls)]


def _begins(cells: Sequence[Cell], tree: Expr) -> bool:
    """Whether the tree holds in an initial state; only the cells that it reads are given values: there may be many."""
    read = {*parts(tree)}
    return tree is not FALSE and next(beginnings([cell for cell in cells if cell.read in read], tree), None) is not None


def guard_parts(t: Transition, *, budget: bool = True) -> list[str]:
    """The conditions as text. Without `budget`, how often a fault may still happen is left out."""
    budgets = {less(lift(0), counter) for counter in _counters(t)} if not budget else set()
    return [show(c) for c in t.conditions if c not in budgets]


def effect_parts(t: Transition, *, budget: bool = True) -> list[str]:
    """The assignments as text. Without `budget`, how often a fault may still happen is left out."""
    skip = {counter.name for counter in _counters(t)} if not budget else set()
    return [assignment(w.field, w.indices, w.value) for w in t.writes if w.field not in skip]


def _counters(t: Transition) -> list[Expr]:
    """The counter of how often the fault of a transition may still happen."""
    effects = [effect for field, effect in t.effects.items() if field in (f"{t.fault}_left", "faults_left")]
    return [part for effect in effects for part in parts(effect) if t.fault and part.op == "read"]


def state_doc(state: enum.Enum) -> str:
    """The sentence that explains a control state: the value of the enum's member."""
    return state.value if isinstance(state.value, str) else ""


def system_title(system: System) -> str:
    """The title of the system for a reader, with its edition."""
    edition = f", {system.edition.name} edition" if system.edition is not None else ""
    return (system.title or system.name) + edition
