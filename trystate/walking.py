"""The core of `trystate explore`: a walk through the states of one system. No I/O.

*Theory of operation.* A walk is a list of stops: an initial state, then the state after each step. `place` is the stop
that the reader sees. Stops after the place stay until another step is taken from the place: a reader can go forward
again. The caller is one thread, `commands/explore.py`, which shows the walk and changes it through the methods that
have the names of its commands.

Steps are named by their labels, as counterexamples print them: `join(0) crash(1)`. The labels up to the place, and the
number of the initial state, are the whole walk: `follow` repeats it, in another process as well.

A run (a counterexample, or the witness of a `sometimes`) can be loaded. Each stop has its place on the run, None off
it; the run of a `leads_to` may end in a cycle.

A property is judged by the walk up to the place, as the checker judges a whole search: `lights`. A `leads_to` of a
finite walk waits; it is violated only where the system may rest for ever, and after its bound.

Failures, each of them a UsageError that changes nothing:

- The system has no such label.
- A step is not enabled (the text has the part of its guard that fails).
- A number is out of range.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from random import Random
from typing import Any

from trystate.model.checker.check import decided
from trystate.model.checker.kernel import Instance
from trystate.model.checker.steps import Disabled, Steps
from trystate.model.checker.story import Change, main_index
from trystate.model.checker.verdicts import Counterexample
from trystate.model.errors import UsageError, unknown
from trystate.model.language import Form, Kind, State, System
from trystate.model.language.fields import Cell
from trystate.model.language.properties import Property, Within
from trystate.model.language.scenarios import normal, split

STEPS_MAX = 10_000  # steps of a walk: each stop keeps a state and the standing of each property
RANDOM_MAX = 1_000  # steps that one command takes: at most some seconds


class Standing(enum.Enum):
    """The standing of a property in a walk."""

    HOLDS = "holds"
    VIOLATED = "violated"
    WAITING = "waiting"


@dataclass(frozen=True, slots=True)
class Light:
    """A property and its standing.

    Args:
        since: the number of steps after which it got this standing; None if it has had it from the beginning
        members: the indices for which a `leads_to` waits
        steps: for each of them, how many steps that its bound counts were taken since
    """

    property: Property
    standing: Standing
    since: int | None = None
    members: tuple[tuple[int, ...], ...] = ()
    steps: tuple[int, ...] = ()


@dataclass(slots=True)
class Stop:
    """A state of a walk, the step that led to it, and its place on the loaded run."""

    state: State
    instance: Instance | None = None
    on_run: int | None = None
    lights: tuple[Light, ...] = field(default=())


class Walk:
    """A walk through the states of a system.

    Args:
        system: the system, built
        initial: the number of the initial state to begin with
    """

    def __init__(self, system: System, initial: int = 0) -> None:
        self.system = system
        self.steps = Steps(system)
        self.interpreter = self.steps.interpreter
        self.instances = {instance.label: instance for instance in self.interpreter.kernel.instances}
        self._simulations: dict[str, Any] = {}  # the name of a refinement -> its judge
        self.run: Counterexample | None = None
        self.initial, self.place = 0, 0
        self.stops: list[Stop] = []
        self.restart(initial)

    # ---- what there is to see

    @property
    def stop(self) -> Stop:
        return self.stops[self.place]

    @property
    def state(self) -> State:
        return self.stop.state

    @property
    def labels(self) -> tuple[str, ...]:
        """The steps that lead to the place."""
        return tuple(stop.instance.label for stop in self.stops[1 : self.place + 1] if stop.instance is not None)

    def enabled(self) -> list[tuple[Instance, State]]:
        """Each step that is enabled, and the state after it, in the order of the declaration."""
        return list(self.interpreter.successors(self.state))

    def disabled(self) -> list[Disabled]:
        """Each step that is not enabled, and why."""
        enabled = {instance.number for instance, _ in self.enabled()}
        return [self.steps.why_not(i, self.state) for i in self.instances.values() if i.number not in enabled]

    def changes(self) -> tuple[Change, ...]:
        """The cells that the last step changed; none in an initial state."""
        if self.place == 0:
            return ()
        before, main = self.stops[self.place - 1].state, main_index(self.system)
        return tuple(
            Change(cell.name, owner(cell, main), cell.sort.show(a), cell.sort.show(b))
            for (cell, a), (_, b) in zip(*map(self.system.shown_cells, (before, self.state)), strict=True)
            if a != b
        )

    def lights(self) -> tuple[Light, ...]:
        """The standing of each property, by the walk up to the place."""
        last = max((k for k, stop in enumerate(self.stops[: self.place + 1]) if stop.lights), default=-1)
        for place in range(last + 1, self.place + 1):
            self.stops[place].lights = tuple(self._judged(place))
        return self.stop.lights

    @property
    def rests(self) -> bool:
        """No step is enabled, and the system may rest in this state."""
        return self.interpreter.holds(self.system.terminal, self.state)

    # ---- what moves

    def take(self, label: str) -> None:
        """Take a step.

        Args:
            label: its name and indices, as `join(0)`

        Raises:
            UsageError: the system has no such step, or it is not enabled.
        """
        instance = self.instances.get(normal(label))
        if instance is None:
            raise UsageError(unknown("step", label, self.instances, show=sorted(
                {i.transition.name + ("(…)" if i.indices else "") for i in self.instances.values()})))  # fmt: skip
        after = self.interpreter.step(instance, self.state)
        if after is None:
            raise UsageError(f"{instance.label} is not enabled here: {self.steps.why_not(instance, self.state).why}")
        self._append(instance, after)

    def take_number(self, number: int) -> None:
        """Take a step by its number among the enabled ones, from 1 on.

        Args:
            number: the number

        Raises:
            UsageError: there are fewer.
        """
        steps = self.enabled()
        if not 1 <= number <= len(steps):
            raise UsageError(f"no step {number}: {f'choose 1 to {len(steps)}' if steps else 'none is enabled here'}")
        self._append(*steps[number - 1])

    def follow(self, text: str) -> None:
        """Take these steps, one after the other.

        Args:
            text: labels with blanks between them, as `join(0) crash(1)`

        Raises:
            UsageError: the system has no such step, or one is not enabled at its place in the list.
        """
        kept, place = self.stops[:], self.place
        labels = split(text)
        for number, label in enumerate(labels, 1):
            try:
                self.take(label)
            except UsageError as error:
                self.stops, self.place = kept, place
                raise UsageError(f"step {number} of {len(labels)} of the walk: {error}") from error

    def wander(self, steps: int, random: Random) -> int:
        """Take random steps, all enabled steps equally likely; returns the number of steps taken.

        Args:
            steps: how many, unless none is enabled before
            random: chooses

        Raises:
            UsageError: more than RANDOM_MAX.
        """
        if not 1 <= steps <= RANDOM_MAX:
            raise UsageError(f"{steps} random steps: give 1 to {RANDOM_MAX}")
        self._refuse_more_than(STEPS_MAX - steps)
        for taken in range(steps):
            enabled = [(instance, after) for instance, after in self.enabled() if self._outside(after) is None]
            if not enabled:
                return taken
            self._append(*random.choice(enabled))
        return steps

    def _outside(self, state: State) -> Cell | None:
        """The first cell whose value is outside its field's range: a wrong step leads there."""
        cells = zip(self.system.cells, state, strict=True)
        return next((cell for cell, value in cells if not cell.sort.low <= value <= cell.sort.high), None)

    def back(self) -> None:
        """Go to the state before the last step. Raises UsageError in the first state."""
        if self.place == 0:
            raise UsageError("nothing to go back to: this is where the walk begins")
        self.place -= 1

    def forward(self) -> None:
        """Go to the next stop again. Raises UsageError in the last one."""
        if self.place == len(self.stops) - 1:
            raise UsageError("nothing to go forward to: this is the last state of the walk")
        self.place += 1

    def jump(self, place: int) -> None:
        """Go to the state after `place` steps of the walk.

        Args:
            place: the number of steps

        Raises:
            UsageError: the walk has fewer.
        """
        if not 0 <= place < len(self.stops):
            raise UsageError(f"the walk has no step {place}: choose 0 to {len(self.stops) - 1}")
        self.place = place

    def restart(self, initial: int = 0) -> None:
        """Restart in an initial state.

        Args:
            initial: its number

        Raises:
            UsageError: there are fewer.
        """
        states = self.system.initial_states
        if not 0 <= initial < len(states):
            raise UsageError(f"the system has no initial state {initial}: choose 0 to {len(states) - 1}")
        self.initial, self.place = initial, 0
        self.stops = [Stop(states[initial])]

    # ---- a run that is followed

    def load(self, run: Counterexample) -> None:
        """Restart at the first state of a run, to follow it.

        Args:
            run: a run of this system, from an initial state
        """
        self.run = run
        self.run_to(0)

    def run_to(self, place: int) -> None:
        """Replace the walk by the loaded run, up to a step of it.

        Args:
            place: the number of steps

        Raises:
            UsageError: no run is loaded, or it has fewer.
        """
        path = self._loaded().path
        if not 0 <= place <= len(path.steps):
            raise UsageError(f"the loaded run has no step {place}: choose 0 to {len(path.steps)}")
        self.restart(self.system.initial_states.index(path.states[0]))
        self.stop.on_run = 0
        for number in path.steps[:place]:
            instance = self.interpreter.kernel.instances[number]
            after = self.interpreter.step(instance, self.state)
            assert after is not None, f"{instance.label} of the loaded run is not enabled"
            self._append(instance, after)

    def next(self) -> None:
        """Take the next step of the loaded run.

        Raises:
            UsageError: no run is loaded, the walk has left it, or it ends here.
        """
        self._loaded()
        if self.stop.on_run is None:
            raise UsageError("you have left the loaded run: i NUMBER returns to it")
        taken = self._taken(self.stop.on_run)
        if taken is None:
            raise UsageError("the loaded run ends here")
        self._append(self.interpreter.kernel.instances[taken[0]], taken[1])

    # ---- inside

    def _append(self, instance: Instance, after: State) -> None:
        if self.place + 1 < len(self.stops):  # a step that was taken here before leaves the stops behind it
            later = self.stops[self.place + 1]
            if later.instance is instance and later.state == after:
                self.place += 1
                return
        self._refuse_more_than(STEPS_MAX - 1)
        cell = self._outside(after)
        if cell is not None:
            raise UsageError(f"{instance.label} leaves the range of {cell.name}, {cell.sort.name}: no walk goes there; "
                             "trystate verify names the line")  # fmt: skip
        at, on_run = self.stop.on_run, None
        if at is not None and self._taken(at) == (instance.number, after):
            on_run = self._after(at)
        self.stops[self.place + 1 :] = [Stop(after, instance, on_run)]
        self.place += 1

    def _refuse_more_than(self, steps: int) -> None:
        if self.place > steps:
            raise UsageError(f"the walk would have more than {STEPS_MAX:,} steps: go back, or restart with r")

    def _loaded(self) -> Counterexample:
        if self.run is None:
            raise UsageError("no run is loaded: c PROPERTY loads one")
        return self.run

    def _taken(self, place: int) -> tuple[int, State] | None:
        """The step that the loaded run takes after `place` steps; a lasso goes round."""
        path, loop = self._loaded().path, self._loaded().loop
        if place == len(path.steps) and loop is not None and loop < place:
            place = loop
        return (path.steps[place], path.states[place + 1]) if place < len(path.steps) else None

    def _after(self, place: int) -> int:
        """Where the step after `place` leads; a lasso goes round."""
        run = self._loaded()
        return run.loop + 1 if place == len(run.path.steps) and run.loop is not None else place + 1

    def _judged(self, place: int) -> Iterator[Light]:
        """The standing of each property at a stop, by that at the stop before."""
        stop = self.stops[place]
        before = self.stops[place - 1].lights if place else ()
        for k, prop in enumerate(p for p in decided(self.system) if p.form is not Form.SCENARIO):
            earlier = before[k] if place else None
            yield self._judge(prop, stop, place, earlier)

    def _judge(self, prop: Property, stop: Stop, place: int, earlier: Light | None) -> Light:
        if prop.form.live:
            return self._live(prop, stop, place, earlier)
        if prop.form is Form.SOMETIMES:
            if earlier is not None and earlier.standing is Standing.HOLDS:
                return earlier
            reached = self.interpreter.holds(prop.exprs[0], stop.state)
            return Light(prop, Standing.HOLDS, place) if reached else Light(prop, Standing.WAITING)
        if earlier is not None and earlier.standing is Standing.VIOLATED:
            return earlier
        return Light(prop, Standing.HOLDS) if self._kept(prop, stop, place) else Light(prop, Standing.VIOLATED, place)

    def _kept(self, prop: Property, stop: Stop, place: int) -> bool:
        if prop.form is Form.ALWAYS:
            return self.interpreter.holds(prop.exprs[0], stop.state)
        if prop.form is Form.DEADLOCK:
            steps = self.interpreter.successors(stop.state)
            goes_on = any(i.transition.kind is not Kind.FAULT for i, _ in steps)
            return goes_on or self.interpreter.holds(self.system.terminal, stop.state)
        if prop.form is Form.REFINES:
            from trystate.model.checker.refinement import Simulation  # needs numpy

            if prop.name not in self._simulations:
                self._simulations[prop.name] = Simulation(self.system, prop)
            kept: bool = self._simulations[prop.name].keeps(self.stops[place - 1].state if place else None, stop.state)
            return kept
        if stop.instance is None:  # a property of steps
            return True
        condition = (prop.conditions or {}).get(stop.instance.transition.name)
        before = self.stops[place - 1].state
        return condition is None or self.interpreter.holds(condition, before, stop.instance.binding)

    def _live(self, prop: Property, stop: Stop, place: int, earlier: Light | None) -> Light:
        if earlier is not None and earlier.standing is Standing.VIOLATED and not earlier.members:  # after its bound
            return earlier
        (premise, goal), state, bound = prop.exprs, stop.state, prop.within or Within(STEPS_MAX + 1)
        asked = dict(zip(earlier.members, earlier.steps, strict=True)) if earlier is not None else {}
        counts = stop.instance is not None and bound.step in ("", stop.instance.transition.name)
        over = prop.form is Form.EVENTUALLY and earlier is not None  # its premise holds in the first state alone
        members = dict[tuple[int, ...], int]()
        for indices in product(*(range(v.sort.size) for v in prop.params)):
            binding = dict(zip(prop.params, indices, strict=True))
            begins = indices in asked or (not over and self.interpreter.holds(premise, state, binding))
            if begins and not self.interpreter.holds(goal, state, binding):
                members[indices] = asked[indices] + counts if indices in asked else 0
        if not members:
            return Light(prop, Standing.HOLDS)
        if max(members.values()) >= bound.times:
            return Light(prop, Standing.VIOLATED, place)
        since = earlier.since if earlier is not None and earlier.members else place
        must = any(i.fair for i, _ in self.interpreter.successors(state))
        return Light(prop, Standing.WAITING if must else Standing.VIOLATED, since, (*members,), (*members.values(),))


def owner(cell: Cell, main: Any) -> int | None:
    """The member of the main index that a cell belongs to; None for a shared one."""
    return next((k for dim, k in zip(cell.slot.dims, cell.indices, strict=True) if dim == main), None)


def told(light: Light, place: int) -> str:
    """A light in words, such as `waiting since step 2, for 1`.

    Args:
        light: the standing of a property
        place: the number of steps up to the state that is shown
    """
    where = "" if light.since is None else "here" if light.since == place else f"after step {light.since}"
    if light.property.form.live and light.members:
        members: Sequence[str] = [", ".join(map(str, indices)) for indices in light.members if indices]
        whom = f", for {' and '.join(members)}" if members else ""
        rest = ": the system may rest here for ever" if light.standing is Standing.VIOLATED else ""
        return f"{light.standing.value} since step {light.since}{whom}{rest}"
    if light.property.form is Form.SOMETIMES:
        return f"holds: reached {where}" if where else "waiting: not reached yet"
    return f"{light.standing.value} {where}".rstrip()
