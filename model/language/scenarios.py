"""Scenarios: walks that must be possible, steps that must be refused after them, and conditions that must hold there.

*Theory of operation.* When a system is built, the function under `@scenario` runs once with a `Script`, which records a
`Scene` for each call. `checker/scenarios.py` plays the scenes. The spelling of steps, `join(0) crash(1)`, has its home
here: `split` and `normal`.

Failures, each refused with the line of the call: a text is not a walk, the system has no step of that name, a condition
is wrong, or there is no call. That an index has no such member is found when the scenes are played: it depends on the
sizes.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import UsageError, unknown
from . import bodies, source
from .expressions import TRUE, Expr
from .state import SymbolicState

if TYPE_CHECKING:
    from .systems import System

LABEL = re.compile(r"\w+(?:\([^)]*\))?")


def normal(label: str) -> str:
    """The spelling of counterexamples: `vote(0, 1)` for `vote( 0,1 )`, and `tick` for `tick()`."""
    name, _, indices = label.strip().partition("(")
    parts = [part.strip() for part in indices.rstrip().removesuffix(")").split(",")]
    return name.strip() + (f"({', '.join(parts)})" if any(parts) else "")


def split(text: str) -> list[str]:
    """The labels of a walk.

    Args:
        text: labels with blanks, commas or semicolons between them

    Raises:
        UsageError: the text has anything else.
    """
    rest = re.sub(r"[\s,;]+", " ", LABEL.sub(" ", text)).strip()
    if rest:
        raise UsageError(f"the walk has {rest!r}, which is not a step: give steps such as 'join(0) crash(1)'")
    return LABEL.findall(text)


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """One call of a scenario: steps that are taken, or that are `refused`, or a condition. at: the line of the call."""

    at: str
    steps: tuple[str, ...] = ()
    refused: bool = False
    condition: Expr = TRUE


class Script:
    """The argument of a scenario, `run`: it records what must be possible, refused and true, in this order."""

    def __init__(self, system: System, name: str) -> None:
        self._system, self._name = system, name
        self._scenes: list[Scene] = []

    def __call__(self, steps: str) -> None:
        """These steps are possible, one after the other.

        Args:
            steps: such as `"acquire(0) tick"`. A step without members is a step of any member, and a step without the
                values that it chooses makes any choice. Later calls are about every state that the steps may lead to.
        """
        self._scenes.append(Scene(source.line(), self._steps(steps)))

    def refuses(self, steps: str) -> None:
        """None of these steps is possible here.

        Args:
            steps: such as `"renew(0) renew(1)"`. A step without members is a step of any member.
        """
        self._scenes.append(Scene(source.line(), self._steps(steps), refused=True))

    def holds(self, condition: Callable[[SymbolicState], Any]) -> None:
        """The condition is true here: `run.holds(lambda s: s.free)`."""
        state, at = SymbolicState(self._system, frozen=f"the scenario {self._name}"), source.line()
        tree = bodies.value(self._name, condition(state), at)
        if tree.sort.kind != "bool":
            source.refuse(f"{self._name}: {tree} is not a condition", at=at)
        self._scenes.append(Scene(at, condition=tree))

    def _steps(self, text: str) -> tuple[str, ...]:
        try:
            labels = split(text)
        except (UsageError, TypeError) as error:
            source.refuse(f"{self._name}: {error}")
        known = [t.name for t in self._system.transitions]
        for label in labels or [""]:
            if (step := label.partition("(")[0]) in known:
                continue
            if step in self._system.all_declarations():
                remedy = "declare the scenario with needs= or editions="
                source.refuse(f"{self._name}: {self._system.label} does not have the step {step!r}: {remedy}")
            source.refuse(f"{self._name}: {unknown('step', step, known)}")
        return tuple(map(normal, labels))


def scenes(system: System, name: str, body: Callable[..., Any]) -> tuple[Scene, ...]:
    """The scenes that the body of a scenario records."""
    at = source.line_of(body.__code__)
    if len(taken := inspect.signature(body).parameters) != 2:
        source.refuse(f"{name} takes ({', '.join(taken)}): a scenario takes (self, run)", at=at)

    def run() -> tuple[Scene, ...]:
        script = Script(system, name)
        if bodies.call(name, body, system, script) is not None or not script._scenes:
            remedy = "call run(...), run.refuses(...) and run.holds(...), and return nothing"
            source.refuse(f"{name} returns a value, or does not call its run: {remedy}", at=at)
        return tuple(script._scenes)

    def trees(found: tuple[Scene, ...]) -> Iterator[Any]:  # equal texts are one object here, as equal trees are
        return ((tree, s.at) for s in found for tree in (s.condition, *map(sys.intern, s.steps)))

    return bodies.settled(body, run, trees)
