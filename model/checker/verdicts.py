"""What a check answers: one verdict per property, and what was wrong with the declaration itself."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from ..language.properties import Property
from ..language.systems import System
from .kernel import Exploration, Lasso, Path


class Status(enum.Enum):
    """What a search found out about a property."""

    HOLDS = "holds"
    VIOLATED = "violated"
    NOT_DECIDED = "not decided"


@dataclass(frozen=True, slots=True)
class Counterexample:
    """A run that shows something: why a property is violated, or that a `sometimes` can be reached.

    `loop` is the step from which the run repeats for ever, or None for a finite run.
    """

    path: Path
    loop: int | None = None

    @classmethod
    def of(cls, found: Path | Lasso) -> Counterexample:
        return cls(found.path, found.loop) if isinstance(found, Lasso) else cls(found)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A property's status; the run is its counterexample, or the witness of a `sometimes`."""

    property: Property
    status: Status
    run: Counterexample | None = None
    reason: str = ""


@dataclass(slots=True)
class Report:
    """The result of checking one system.

    `never_fired` lists transitions that no reachable state enables; `unreached` lists claimed moves that
    no step made, as (transition, claim in words). Both are gaps in coverage, not violations: a fault that is
    switched off can cause them.
    """

    system: System
    exploration: Exploration
    verdicts: list[Verdict]
    never_fired: list[str] = field(default_factory=list)
    unreached: list[tuple[str, str]] = field(default_factory=list)
    choice: str = ""

    def verdict(self, name: str) -> Verdict:
        return next(v for v in self.verdicts if v.property.name == name)

    @property
    def violated(self) -> list[Verdict]:
        return [v for v in self.verdicts if v.status is Status.VIOLATED]

    @property
    def undecided(self) -> list[Verdict]:
        return [v for v in self.verdicts if v.status is Status.NOT_DECIDED]
