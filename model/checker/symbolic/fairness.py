"""Weakly fair runs on decision diagrams: the region in which a run can stay for ever, and a loop in it.

The semantics is the same as in `reference.engine.fair_region`: a run may stop, so every state steps to itself, and a
fair step is satisfied where it is disabled, would change nothing, or can be taken without leaving the region.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

from ...language.systems import State
from ..interpret import Interpreter
from ..kernel import Instance
from .diagrams import Diagrams, Function
from .steps import Step
from .trees import Encoding

Check = Callable[[], None]  # called before each image: raises when a limit has been passed


class Region:
    """The states of `avoid` from which a weakly fair run stays in it for ever (Emerson and Lei, 1986)."""

    def __init__(self, steps: Sequence[Step], avoid: Function, diagrams: Diagrams, check: Check) -> None:
        self.steps = [s for s in steps if (s.taken & avoid) != diagrams.false]
        self.fair = [s for s in self.steps if s.instance.fair]
        self.diagrams = diagrams
        self.check = check
        self.states = avoid
        while True:
            before = self.states
            for step in self.fair:
                self.states = self._backward(self.satisfied(step))
            if self.states == before:
                break

    def satisfied(self, step: Step) -> Function:
        """The states where the fair step is disabled or can be taken without leaving the region."""
        self.check()
        return self.states & (~step.taken | step.preimage(self.states))

    def before(self, states: Function) -> Function:
        """The states of the region that step into `states`."""
        out = self.diagrams.false
        for step in self.steps:
            self.check()
            out = out | step.preimage(states) & self.states
        return out

    def _backward(self, seeds: Function) -> Function:
        """The states of the region that reach `seeds` in it; the order of steps does not matter here."""
        seen, size = seeds, self.diagrams.false
        while seen != size and seen != self.states:
            size = seen
            for step in self.steps:
                self.check()
                seen = seen | step.preimage(seen) & self.states
        return seen


class Walk:
    """A walk on single states in the region, guided by the distances to its next target."""

    def __init__(self, region: Region, encoding: Encoding, interpreter: Interpreter, start: State) -> None:
        self.region = region
        self.encoding = encoding
        self.interpreter = interpreter
        self.start = start
        self.states: list[State] = []
        self.steps: list[int] = []
        self._rings: dict[int, list[Function]] = {}

    @property
    def here(self) -> State:
        return self.states[-1] if self.states else self.start

    def close_loop(self) -> int:
        """Walk until every fair step was satisfied since some state and the walk is back at that state.

        Returns the number of steps before the loop begins. Each failed attempt has finally left a strongly connected
        component, so one attempt is the last.
        """
        while True:
            began, anchor = len(self.steps), self.here
            for step in self.fair:
                self._satisfy(step)
            if self.here == anchor or self._descend([self.region.diagrams.cube(self.encoding.assign(anchor))]):
                return began

    @cached_property
    def fair(self) -> list[Instance]:
        return [s.instance for s in self.region.fair]

    def _satisfy(self, instance: Instance) -> None:
        after = self.interpreter.step(instance, self.here)
        if after is None:
            return
        if not self._within(after, self.region.states):
            step = next(s for s in self.region.fair if s.instance is instance)
            rings = self._rings.setdefault(instance.number, [self.region.satisfied(step)])
            arrived = self._descend(rings)
            assert arrived, "the fair region promises that every fair step can be satisfied within it"
            after = self.interpreter.step(instance, self.here)
        if after is not None:
            self._go(instance.number, after)

    def _descend(self, rings: list[Function]) -> bool:
        """Walk a shortest path into `rings[0]`; each further ring adds the states that are one step away."""
        while not self._within(self.here, rings[-1]):
            wider = rings[-1] | self.region.before(rings[-1])
            if wider == rings[-1]:
                return False
            rings.append(wider)
        depth = next(k for k, ring in enumerate(rings) if self._within(self.here, ring))
        for ring in reversed(rings[:depth]):
            steps = self.interpreter.successors(self.here)
            self._go(*next((i.number, after) for i, after in steps if self._within(after, ring)))
        return True

    def _go(self, number: int, after: State) -> None:
        self.steps.append(number)
        self.states.append(after)

    def _within(self, state: State, states: Function) -> bool:
        d = self.region.diagrams
        return d.put(self.encoding.assign(state), states) == d.true
