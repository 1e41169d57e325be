"""A machine of the `transitions` library as a system, which can be searched, drawn, proved and followed.

Rule: the states of the library's machine are the values of the field `state`, and each trigger is a step. A condition
is a flag that the step `change_CONDITION` may set or clear at any time, because its code is not known here. The first
transition of a state whose conditions hold is taken, as in the library. Callbacks are not run.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Iterable
from typing import Any

import transitions
from transitions.extensions.nesting import HierarchicalMachine

from ..errors import UsageError
from ..language import System, always, arc, choice, environment, flag, ite, machine_of, terminal, transition
from ..language.expressions import Expr, and_, or_


def from_transitions(machine: transitions.Machine, name: str = "Imported") -> type[System]:
    """The system of a machine of the `transitions` library, as a class from which yours may derive.

    The system may stop in the machine's final states; if no state is final, in each state that no trigger leaves.

    Args:
        machine: the machine, with its states, triggers and conditions.
        name: the name of the class.

    Raises:
        UsageError: the machine has nested states, or no initial state, or a name that a system cannot have.
    """
    if isinstance(machine, HierarchicalMachine):
        raise UsageError("the machine has nested states: give a machine of transitions.Machine")
    if machine.initial is None:
        raise UsageError("the machine has no initial state: give it initial=")
    names = [*machine.states]
    try:
        states: Any = enum.Enum(f"{name}State", {state: f"the state {state}" for state in names})  # type: ignore[misc]
    except ValueError as error:
        raise UsageError(f"the machine has a state that no enum can have ({error}): rename it") from None
    automatic = {f"to_{name}" for name in names if machine.auto_transitions}  # the library itself made these triggers
    events = {k: v for k, v in machine.events.items() if k not in automatic}
    rows = {k: [row for each in event.transitions.values() for row in each] for k, event in events.items()}
    conditions: dict[str, Any] = {}
    for condition in (c for each in rows.values() for row in each for c in row.conditions):
        if conditions.setdefault(_name(condition), condition.func) != condition.func:
            raise UsageError(f"the machine has two conditions with the name {_name(condition)!r}: rename one")
    flags = sorted(conditions)
    field = choice(states, initial=states[machine.initial])
    body: dict[str, Any] = {"state": field, "control": machine_of(field, "The machine.")}
    for known in flags:
        body[known] = flag(doc=f"whether {known} holds")
        if f"change_{known}" in conditions:
            raise UsageError(f"the machine has the conditions {known!r} and 'change_{known}': rename one")
        body[f"change_{known}"] = environment()(_change(known))
    for trigger, each in rows.items():
        if trigger in (*body, "at_end", "a_state_is_left") or not trigger.isidentifier():
            raise UsageError(f"the machine has a trigger {trigger!r}, which cannot be the name of a step: rename it")
        moves = dict.fromkeys((row.source, row.dest) for row in each if row.dest not in (None, row.source))
        arcs = [arc(states[source], states[dest]) for source, dest in moves]
        body[trigger] = transition(moves=arcs)(_step(trigger, each, states))
    final = [state for state in names if getattr(machine.states[state], "final", False)]
    left = {row.source for each in rows.values() for row in each if row.dest not in (None, row.source)}
    body["at_end"] = terminal(_end([states[state] for state in final or [s for s in names if s not in left]]))
    stuck = [states[state] for state in names if final and state not in left and state not in final]
    if stuck and flags:  # the flags change for ever, so the system itself has no deadlock there
        body["a_state_is_left"] = always()(_never(stuck))
    return types.new_class(name, (System,), exec_body=lambda own: own.update(body))


def _name(condition: Any) -> str:
    """The name of a condition: the library has a function or its name."""
    name = condition.func if isinstance(condition.func, str) else getattr(condition.func, "__name__", "")
    if not name.isidentifier() or name in ("state", "control", "at_end", "a_state_is_left"):
        raise UsageError(
            f"the machine has a condition {condition.func!r}, which cannot be the name of a flag: rename it"
        )
    return name


def _change(name: str) -> Any:
    def change(self: System, s: Any) -> None:
        setattr(s, name, ~getattr(s, name))

    change.__doc__ = f"The program sets or clears {name}."
    return change


def _step(name: str, rows: Iterable[Any], states: Any) -> Any:
    def step(self: System, s: Any) -> None:
        value = s.state
        possible: list[Expr] = []
        for row in reversed([*rows]):  # the first one that is possible decides
            conditions = (getattr(s, _name(c)) == c.target for c in row.conditions)
            taken = and_(s.state == states[row.source], *conditions)
            value = ite(taken, s.state if row.dest is None else states[row.dest], value)
            possible.append(taken)
        s.when(or_(*possible))
        s.state = value

    step.__name__, step.__doc__ = name, f"The trigger {name}."
    return step


def _never(stuck: Iterable[enum.Enum]) -> Any:
    def a_state_is_left(self: System, s: Any) -> Any:
        """The machine is in no state that no trigger leaves, except final states."""
        return and_(*(s.state != state for state in stuck))

    return a_state_is_left


def _end(ends: Iterable[enum.Enum]) -> Any:
    def at_end(self: System, s: Any) -> Any:
        return or_(*(s.state == state for state in ends))

    return at_end
