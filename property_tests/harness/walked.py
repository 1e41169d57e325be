"""The steps of a system's graph that the runs of one test have taken, so that a next run takes others.

*Theory of operation.* hypothesis repeats and shrinks a run by its draws, and must be offered the same steps after the
same draws. A *place* is the draws of a run so far. The earlier runs decide once which steps a place offers: when
the first run comes there; each later run through it is offered the same. Offered are the steps that no run has taken;
without one, the step on a shortest way to a state that has one; if none is near, the steps to the states that this run
has visited least. While there are steps that no run has taken, a forbidden step is tried once in a state, and where
nothing is left to take, nothing is offered: the run begins again.

After a disagreement a new place is offered what the run alone decides: the shortest failing run, which hypothesis
keeps, then repeats in another process too, as far as its places are new. So it is after `PLACES_MAX` places.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from trystate.model.checker.kernel import Instance
from trystate.model.language import State

AHEAD_STATES_MAX = 10_000  # searched for a step that no run has taken
PLACES_MAX = 1 << 18

Steps = tuple[tuple[Instance, State], ...]
Edge = tuple[State, int]  # a state, and the number of the instance that is taken, or tried, there


@dataclass(slots=True)
class Place:
    """A place in runs: the steps that it offers to take, and to try where they are forbidden; what follows each."""

    take: tuple[str, ...] = ()
    refuse: tuple[str, ...] = ()
    after: dict[tuple[str, str], Place] = field(default_factory=dict)
    offered: bool = False


@dataclass(slots=True)
class Walked:
    """The steps and states of all runs so far; `str` says how many."""

    steps_of: Callable[[State], Steps]
    transitions: tuple[str, ...]
    root_state: State
    steers: bool
    runs: int = 0
    failed: bool = False
    taken: Counter[Edge] = field(default_factory=Counter)
    refused: Counter[Edge] = field(default_factory=Counter)
    by_name: Counter[str] = field(default_factory=Counter)  # how often each transition was taken
    states: set[State] = field(default_factory=set)
    root: Place = field(default_factory=Place)
    _places: int = 0
    _way: dict[State, str] = field(default_factory=dict)  # of this run, to a step that no run has taken
    _all_taken: set[State] = field(default_factory=set)  # no step is left from here, nor from any state behind it

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
        """Say, once, what is offered at a place."""
        if place.offered:
            return
        place.offered = True
        steps = self.steps_of(state)
        place.take = _rarest((i.label, visits[after] if self.steers else 0) for i, after in steps)
        place.refuse = tuple(i.label for i in forbidden)
        if self.steers and not self.failed and self._places < PLACES_MAX:
            new = self._toward_new(state)
            if self.root_state not in self._all_taken:  # while there is something new, nothing is tried twice
                place.refuse = tuple(i.label for i in forbidden if (state, i.number) not in self.refused)
                place.take = () if state in self._all_taken else new or place.take

    def _toward_new(self, state: State) -> tuple[str, ...]:
        """The steps that no run has taken; without one, the step on a shortest way to a state that has one."""
        new = self._new(state)
        if new or state in self._all_taken:
            return new
        if state not in self._way:
            self._way = self._shortest(state)
        return (self._way[state],) if state in self._way else ()

    def _shortest(self, state: State) -> dict[State, str]:
        """Each state on a shortest way to one that has a new step -> the step to take there."""
        before: dict[State, tuple[State, str]] = {state: (state, "")}
        queue = deque([state])  # all of them visited, since a step that is not new has been taken
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
    """Those with the lowest number."""
    known = list(labels)
    least = min((number for _, number in known), default=0)
    return tuple(label for label, number in known if number == least)
