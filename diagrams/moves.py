"""The moves in the charts of a machine: its claimed moves, numbered as in the system's table of transitions."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from trystate.model.checker.interpret import Interpreter
from trystate.model.language import Machine, System, Transition
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
    """The control states in which the machine (of several, the machine of member 0) may start."""
    interpreter = Interpreter(machine.system)
    binding = dict.fromkeys(machine.params, 0)
    starts = {interpreter.value(machine.control, state, binding) for state in machine.system.initial_states}
    return [state for k, state in enumerate(machine.states) if k in starts]


def guard_parts(t: Transition, *, budget: bool = True) -> list[str]:
    """The conditions as text. Without `budget`, how often a fault may still happen is left out."""
    conditions = t.conditions[:-1] if t.fault and not budget else t.conditions
    return [show(c) for c in conditions]


def effect_parts(t: Transition, *, budget: bool = True) -> list[str]:
    """The assignments as text. Without `budget`, how often a fault may still happen is left out."""
    skip = {f"{t.fault}_left", "faults_left"} if t.fault and not budget else set()
    return [assignment(w.field, w.indices, w.value) for w in t.writes if w.field not in skip]


def state_doc(state: enum.Enum) -> str:
    """The sentence that explains a control state: the value of the enum's member."""
    return state.value if isinstance(state.value, str) else ""


def system_title(system: System) -> str:
    """The title of the system for a reader, with its edition."""
    edition = f", {system.edition.name} edition" if system.edition is not None else ""
    return (system.title or system.name) + edition
