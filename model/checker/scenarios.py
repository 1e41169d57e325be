"""Plays scenarios: whether their walks are possible, and their refusals and conditions hold.

*Theory of operation.* The scenes of a scenario are played in their order, by the interpreter, on a set of possible
states, which begins with the initial states. A walk leads to all states that its steps may lead to, and must be
possible from one of them. A refusal and a condition must hold in each of them. No search is needed, so a limit of the
search does not leave a scenario open.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from ..errors import UsageError
from ..language.beginnings import beginnings
from ..language.properties import Property
from ..language.scenarios import Scene
from ..language.systems import State, System
from .steps import Run, Steps, path_of
from .verdicts import Counterexample, Status, Verdict

STATES_MAX = 1 << 20  # states in which a scenario may be: some seconds for each of its steps


def played(system: System, p: Property) -> Verdict:
    """The verdict of a scenario; its reason has the line of the scene, the step and why it is not as declared."""
    steps = Steps(system)
    first = beginnings(system.cells, system.initial_condition)
    states: dict[State, Run] = dict.fromkeys(islice(first, STATES_MAX + 1), ())
    if len(states) > STATES_MAX:
        return Verdict(p, Status.NOT_DECIDED, reason=f"there are more than {STATES_MAX:,} initial states")
    before: list[str] = []
    for scene in p.scenes:
        try:
            for label in scene.steps if not scene.refused else ():
                instances = steps.called(label)
                after = steps.taken(states, instances)
                if not after:
                    return _violated(p, scene, f"{label} is not possible{_after(before)}: "
                                     f"{steps.refusal(instances, states)}", states)  # fmt: skip
                if len(after) > STATES_MAX:
                    return Verdict(p, Status.NOT_DECIDED, reason=f"{scene.at}: more than {STATES_MAX:,} states are "
                                   f"possible after {label}: name its members and choices")  # fmt: skip
                states = after
                before.append(label)
            found = next(_contradictions(steps, scene, states, _after(before)), None)
        except UsageError as error:  # a member that this system does not have
            return Verdict(p, Status.NOT_DECIDED, reason=f"{scene.at}: {error}")
        if found is not None:
            return _violated(p, scene, *found)
    return Verdict(p, Status.HOLDS)


def _contradictions(
    steps: Steps, scene: Scene, states: Mapping[State, Run], here: str
) -> Iterator[tuple[str, Mapping[State, Run]]]:
    """The reason, and the states that show it, of each refused step that is possible, and of a condition."""
    for label in scene.steps if scene.refused else ():
        if after := steps.taken(states, steps.called(label)):
            taken = next(iter(after.values()))[0].label
            yield f"{taken} is possible{here}, and must be refused", after
    for state, run in states.items():
        failing = [part for part in steps.parts(scene.condition, state, {}) if not part.holds]
        if failing:
            yield f"this does not hold{here}: {'; '.join(map(str, failing))}", {state: run}


def _after(labels: list[str]) -> str:
    return f" after {' '.join(labels)}" if labels else " at the beginning"


def _violated(p: Property, scene: Scene, reason: str, states: Mapping[State, Run]) -> Verdict:
    run = Counterexample(path_of(*next(iter(states.items()))))
    return Verdict(p, Status.VIOLATED, run, f"{scene.at}: {reason}")
