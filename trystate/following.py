"""Follow the log of a program on its system: the states in which the program may be after each event.

*Theory of operation.* `Following` keeps each state in which the system may be, with one run that leads there. An event
names a step, members of its indices, values of cells after it, or only some of them. `see` takes each step that the
event allows from each possible state, and keeps the states in which the cells have the values of the event. An event
without a step takes no step: it only shows values. The log need not have all steps: any number of `hidden` steps may
happen before each event. One thread calls it; it does no I/O.

Failures:

- No possible state explains an event. `see` raises Disagreement, and the possible states remain as they were. The text
  has the reason in one of the states: the part of a guard that fails, or a cell with another value.
- There are more than `STATES_MAX` possible states, because the log shows too little: LimitReached.
- An event has a step, an index, a cell or a value that the system does not have: UsageError.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from trystate.model.checker.kernel import Instance
from trystate.model.checker.steps import Run, Steps, in_one_of
from trystate.model.errors import LimitReached, UsageError
from trystate.model.language import State, System
from trystate.property_tests.harness.subjects import Disagreement, difference

STATES_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a log.

    Args:
        steps: the steps of the system that it may be; empty if it only shows values
        cells: the name of a cell (`member[0]`) -> its value after the event
        text: the event as the log has it
    """

    steps: tuple[Instance, ...]
    cells: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""


class Following:
    """The possible states of a system whose program writes a log.

    Args:
        system: the system, built
        hidden: the names of steps that the log does not have

    Raises:
        UsageError: the system has no such step.
    """

    def __init__(self, system: System, hidden: Iterable[str] = ()) -> None:
        self.system = system
        self.events = 0
        self._steps = Steps(system)
        self._hidden = tuple(instance for name in hidden for instance in self._steps.called(name))
        self._possible: dict[State, Run] = dict.fromkeys(system.initial_states, ())

    @property
    def states(self) -> tuple[State, ...]:
        """The states in which the program may be."""
        return (*self._possible,)

    @property
    def labels(self) -> tuple[str, ...]:
        """The steps of one run that explains the events, hidden steps included."""
        run, labels = next(iter(self._possible.values())), list[str]()
        while run:
            instance, _, run = run
            labels.append(instance.label)
        return (*reversed(labels),)

    @property
    def initial(self) -> int:
        """The number of the initial state in which that run begins."""
        state, run = next(iter(self._possible.items()))
        while run:
            _, state, run = run
        return self.system.initial_states.index(state)

    def see(self, event: str | Mapping[str, Any]) -> None:
        """Follow one event.

        Args:
            event: a step, such as `"vote(0)"`, or a mapping with any of the keys `step` (`"vote"` or `"vote(0)"`), the
                names of the step's indices (`"node": 0`) and `cells` (`{"voted[0]": True}`)

        Raises:
            Disagreement: no possible state explains the event.
            LimitReached: there are too many possible states.
            UsageError: the event has a name or a value that the system does not have.
        """
        wanted = self._event(event)
        before = self._after_hidden()
        after = self._steps.taken(before, wanted.steps) if wanted.steps else before
        kept = {state: run for state, run in after.items() if not difference(self.system, state, wanted.cells, "event")}
        if not kept:
            raise Disagreement(self._why(wanted, before, after))
        self._limit(len(kept))
        self._possible = kept
        self.events += 1

    def _after_hidden(self) -> dict[State, Run]:
        found, todo = dict(self._possible), dict(self._possible)
        while todo := {s: run for s, run in self._steps.taken(todo, self._hidden).items() if s not in found}:
            found |= todo
            self._limit(len(found))
        return found

    def _limit(self, states: int) -> None:
        if states > STATES_MAX:
            raise LimitReached(
                f"more than {STATES_MAX:,} states are possible after {self.events} events: let the log show more "
                "(steps, or values of cells), hide fewer steps, or choose smaller sizes"
            )

    def _why(self, event: Event, before: Mapping[State, Run], after: Mapping[State, Run]) -> str:
        states = after or before
        if after:
            wrong = difference(self.system, next(iter(states)), event.cells, "event")
            reason = f"{in_one_of(states)}a cell has another value: {wrong}"
        else:
            reason = self._steps.refusal(event.steps, states)
        return f"{event.text} is not possible after {self.events} events: {reason}"

    # ---- events

    def _event(self, given: str | Mapping[str, Any]) -> Event:
        if isinstance(given, str):
            return Event((*self._steps.called(given),), text=given)
        if not isinstance(given, Mapping):
            raise UsageError(f"an event is {given!r}: give the label of a step, or a mapping with step and cells")
        indices = {key: value for key, value in given.items() if key not in ("step", "cells")}
        step, cells = given.get("step", ""), given.get("cells", {})
        if not isinstance(step, str) or not isinstance(cells, Mapping) or not (step or cells):
            raise UsageError(f"the event {given!r} has neither the name of a step nor a mapping of cells: give one")
        if indices and not step:
            raise UsageError(f"the event {given!r} has {', '.join(indices)} without a step: name the step")
        difference(self.system, self.system.initial_states[0], cells, "event")  # refuses unknown cells and values
        return Event((*self._steps.called(step, indices),) if step else (), cells, str(given))


def follow(system: System, events: Iterable[str | Mapping[str, Any]], hidden: Iterable[str] = ()) -> Following:
    """Follow the events of a program on its system, and return the states in which it may be.

    Args:
        system: the system, built
        events: labels of steps, or mappings, as `Following.see` takes them
        hidden: the names of steps that the events do not have; each may happen before any event

    Raises:
        Disagreement: no run of the system explains an event; the text has the event and the reason.
        LimitReached: there are too many possible states.
        UsageError: an event or `hidden` has a name or a value that the system does not have.
    """
    following = Following(system, hidden)
    for event in events:
        following.see(event)
    return following
