"""The steps of a system's graph that the runs of one test have taken. The next run prefers other steps.

*Theory of operation.* hypothesis repeats and shrinks a run by its draws, so after the same draws it must be offered
the same steps. A *place* is the sequence of draws of a run so far. The steps that a place offers are fixed when the
first run reaches it; later runs are offered the same steps. A place offers the steps that no run has taken. If it has
none, it offers the step on a shortest way to a state that has one. If no such state is near, it offers the steps to
the states that this run has visited least. Until every step has been taken by some run, a forbidden step is tried
only once in each state. In a state from which every step has been taken, no step is offered, and the run begins
again.

After a disagreement, the steps of a new place depend only on its own run. So the shortest failing run, which hypothesis
keeps, can be repeated in another process. The same holds after `PLACES_MAX` places.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from trystate.model.checker.kernel import Instance
from trystate.model.language import State

AHEAD_STATES_MAX = 10_000  # limit of the search for a step that no run has taken
PLACES_MAX = 1 << 18

Steps = tuple[tuple[Instance, State], ...]
Edge = tuple[State, int]  # a state, and the number of an instance that is taken or tried in it


@dataclass(slots=True)
class Place:
    """A place in runs: the steps that it offers to take, the forbidden steps to try, and the places after them."""

    take: tuple[str, ...] = ()
    refuse: tuple[str, ...] = ()
    after: dict[tuple[str, str], Place] = field(default_factory=dict)
    offered: bool = False


@dataclass(slots=True)
class Walked:
    """The steps and states of all runs so far; `str` gives their numbers."""

    steps_of: Callable[[State], Steps]
    transitions: tuple[str, ...]
    root_states: tuple[State, ...]
    steers: bool
    runs: int = 0
    failed: bool = False
    taken: Counter[Edge] = field(default_factory=Counter)
    refused: Counter[Edge] = field(default_factory=Counter)
    by_name: Counter[str] = field(default_factory=Counter)  # how often each transition was taken
    states: set[State] = field(default_factory=set)
    root: Place = field(default_factory=Place)
    _places: int = 0
    _way: dict[State, str] = field(default_factory=dict)  # the way of this run to a new step
    _all_taken: set[State] = field(default_factory=set)  # states from which no new step can be reached

    def __str__(self) -> str:
        known = sum(len(self.steps_of(state)) for state in self.states)
        never = [name for name in self.transitions if not self.by_name[name]]
        return (
            f"{self.runs:,} runs: {len(self.states):,} states, {len(self.taken):,} of the {known:,} steps from them, "
            f"{len(self.refused):,} refusals; never taken: {', '.join(never) or 'none'}"
        )

    def follow(self, place: Place, what: str, label: str) -> Place:
        """The place after a step."""
        after = place.after.get((what, label))
        if after is None:
            after = Place()
            if self._places < PLACES_MAX:
                place.after[what, label] = after
                self._places += 1
        return after

    def begin(self) -> Place:
        """The place where each run begins."""
        self.runs += 1
        self._way.clear()
        return self.root

    def offer(self, place: Place, state: State, forbidden: Iterable[Instance], visits: Counter[State]) -> None:
        """Decide which steps a place offers, if this is not decided yet."""
        if place.offered:
            return
        place.offered = True
        steps = self.steps_of(state)
        place.take = _rarest((i.label, visits[after] if self.steers else 0) for i, after in steps)
        place.refuse = tuple(i.label for i in forbidden)
        if self.steers and not self.failed and self._places < PLACES_MAX:
            new = self._toward_new(state)
            if not self._all_taken.issuperset(self.root_states):  # while new steps exist, no step is tried twice
                place.refuse = tuple(i.label for i in forbidden if (state, i.number) not in self.refused)
                place.take = () if state in self._all_taken else new or place.take

    def _toward_new(self, state: State) -> tuple[str, ...]:
        """The new steps of a state; if it has none, the first step of a shortest way to a state that has one."""
        new = self._new(state)
        if new or state in self._all_taken:
            return new
        if state not in self._way:
            self._way = self._shortest(state)
        return (self._way[state],) if state in self._way else ()

    def _shortest(self, state: State) -> dict[State, str]:
        """Each state on a shortest way to one that has a new step -> the step to take there."""
        before: dict[State, tuple[State, str]] = {state: (state, "")}
        queue = deque([state])  # all these states were visited, because their steps are not new
        while queue and len(before) <= AHEAD_STATES_MAX:
            here = queue.popleft()
            if here != state and self._new(here):
                way: dict[State, str] = {}
                while here != state:
                    here, label = before[here]
                    way[here] = label
                return way
            for i, after in self.steps_of(here):
                if after not in before:
                    before[after] = here, i.label
                    queue.append(after)
        if not queue:
            self._all_taken |= before.keys()
        return {}

    def _new(self, state: State) -> tuple[str, ...]:
        return tuple(i.label for i, _ in self.steps_of(state) if (state, i.number) not in self.taken)


def _rarest(labels: Iterable[tuple[str, int]]) -> tuple[str, ...]:
    """The labels with the lowest number."""
    known = list(labels)
    least = min((number for _, number in known), default=0)
    return tuple(label for label, number in known if number == least)
