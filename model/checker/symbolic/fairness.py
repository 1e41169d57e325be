"""Fair runs on decision diagrams: the region in which a run can stay for ever, and a loop in it.

A run may stop, so every state steps to itself. A weak group of steps is satisfied where it is disabled, would change
nothing, or can be taken without leaving the region. A strong group is satisfied where it can be taken without leaving.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from ...language.systems import State
from ..interpret import Interpreter
from ..kernel import Group, Path, fair_groups
from .diagrams import Diagrams, Function
from .steps import Step
from .trees import Encoding

Check = Callable[[], None]  # called before each image: raises when a limit has been passed


class Paths:
    """Steps between states of `avoid`."""

    def __init__(self, steps: Sequence[Step], avoid: Function, diagrams: Diagrams, check: Check) -> None:
        self.steps = [s.within(avoid) for s in steps if (s.taken & avoid) != diagrams.false]
        self.diagrams = diagrams
        self.check = check

    def before(self, states: Function, within: Function, counted: Collection[int] | None = None) -> Function:
        """The states of `within` with a step, or a counted step, into `states`."""
        out = self.diagrams.false
        for step in self.steps:
            if counted is None or step.instance.number in counted:
                self.check()
                out = out | step.preimage(states) & within
        return out

    def backward(self, seeds: Function, within: Function) -> Function:
        """The states of `within` that reach `seeds` in it; the order of steps does not matter here."""
        seen, size = seeds, self.diagrams.false
        while seen != size and seen != within:
            size = seen
            for step in self.steps:
                self.check()
                seen = seen | step.preimage(seen) & within
        return seen


class Region(Paths):
    """The states of `avoid` from which a fair run stays in it for ever (Kesten, Pnueli and Raviv, 1998).

    With weak fairness alone it is the fixpoint of Emerson and Lei (1986). Each such run stays in `core` from some point
    on. With `again`, the run also comes to states of `again` again and again.
    """

    def __init__(
        self, steps: Sequence[Step], avoid: Function, diagrams: Diagrams, check: Check, again: Function | None = None
    ) -> None:
        super().__init__(steps, avoid, diagrams, check)
        self.groups = fair_groups(s.instance for s in self.steps)
        self._steps_of = {g: [s for s in self.steps if s.instance.number in g.numbers] for g in self.groups}
        self.core = avoid
        while True:
            before = self.core
            if again is not None:
                self.core = self.backward(self.core & again, self.core)
            for group in self.groups:
                reaching = self.backward(self.satisfied(group), self.core)
                self.core = reaching | self.core & ~self._enabled(group) if group.strong else reaching
            if self.core == before:
                break
        weak = again is None and not any(group.strong for group in self.groups)
        self.states = self.core if weak else self.backward(self.core, avoid)

    def satisfied(self, group: Group) -> Function:
        """The states of the core where a step of the group does not leave the core, or the weak group is disabled."""
        self.check()
        staying = self.diagrams.union(step.preimage(self.core) for step in self._steps_of[group])
        return self.core & (staying if group.strong else staying | ~self._enabled(group))

    def _enabled(self, group: Group) -> Function:
        return self.diagrams.union(step.taken for step in self._steps_of[group])


class Walk:
    """A walk on single states from the end of `stem`, guided by the distances to its next target."""

    def __init__(self, paths: Paths, encoding: Encoding, interpreter: Interpreter, stem: Path) -> None:
        self.paths = paths
        self.encoding = encoding
        self.interpreter = interpreter
        self.states, self.steps = [*stem.states], [*stem.steps]
        self._rings: dict[Group, list[Function]] = {}

    @property
    def here(self) -> State:
        return self.states[-1]

    @property
    def path(self) -> Path:
        """The walk so far, with the stem."""
        return Path(tuple(self.states), tuple(self.steps))

    def close_loop(self, region: Region, again: Function | None = None) -> int:
        """Walk until every group was satisfied since some state and the walk is back at that state.

        Returns the number of steps before the loop begins. Each failed attempt has finally left a strongly connected
        component, so one attempt is the last.
        """
        self._descend([region.core], region.states)
        while True:
            began, anchor = len(self.steps), self.here
            if again is not None:
                self._descend([region.core & again], region.core)
            for group in region.groups:
                self._satisfy(region, group)
            home = [region.diagrams.cube(self.encoding.assign(anchor))]
            if self.here == anchor or self._descend(home, region.core):
                return began

    def delay(self, avoid: Function, counted: Collection[int], rounds: Sequence[Function]) -> None:
        """Walk in `avoid` with a counted step for each round but the last: each leads to the round before."""
        for goal in reversed(rounds[:-1]):
            self._descend([self.paths.before(goal, avoid, counted)], avoid)
            steps = self.interpreter.successors(self.here)
            self._go(*next((i.number, s) for i, s in steps if i.number in counted and self._within(s, goal)))

    def _satisfy(self, region: Region, group: Group) -> None:
        if not (group.strong or self._taken(group)):
            return
        staying = [(n, after) for n, after in self._taken(group) if self._within(after, region.core)]
        if not staying:
            rings = self._rings.setdefault(group, [region.satisfied(group)])
            arrived = self._descend(rings, region.core)
            assert arrived or group.strong, "the fair region promises that each weak group can be satisfied in its core"
            taken = self._taken(group) if arrived else []
            staying = [(n, after) for n, after in taken if self._within(after, region.core)]
        if staying:
            self._go(*staying[0])

    def _taken(self, group: Group) -> list[tuple[int, State]]:
        """The steps of the group from here, with the states that they lead to."""
        instances = self.interpreter.kernel.instances
        steps = ((number, self.interpreter.step(instances[number], self.here)) for number in group.numbers)
        return [(number, after) for number, after in steps if after is not None]

    def _descend(self, rings: list[Function], within: Function) -> bool:
        """Walk a shortest path into `rings[0]`; each further ring adds the states that are one step away."""
        while not self._within(self.here, rings[-1]):
            wider = rings[-1] | self.paths.before(rings[-1], within)
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
        d = self.paths.diagrams
        return d.put(self.encoding.assign(state), states) == d.true
