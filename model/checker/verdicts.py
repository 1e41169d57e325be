"""The report of a check: one verdict per property, and the gaps in the coverage of the declaration."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..language.properties import Property
from ..language.systems import System
from .kernel import Exploration, Lasso, Path


class Status(enum.Enum):
    """The verdict of a search on a property."""

    HOLDS = "holds"
    VIOLATED = "violated"
    NOT_DECIDED = "not decided"


@dataclass(frozen=True, slots=True)
class Counterexample:
    """A run that shows a violation of a property, or that a `sometimes` can be reached.

    `loop` is the step from which the run repeats for ever, or None for a finite run.
    """

    path: Path
    loop: int | None = None

    @classmethod
    def of(cls, found: Path | Lasso) -> Counterexample:
        return cls(found.path, found.loop) if isinstance(found, Lasso) else cls(found)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A property's status; the run is its counterexample, or the witness of a `sometimes`.

    `reason` is why it is not decided, what contradicts a scenario or a refinement, or why a property of liveness holds
    although no step has to happen.
    """

    property: Property
    status: Status
    run: Counterexample | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Coverage:
    """The `transitions` of a system that no reachable state enables, and the claimed moves that no step makes.

    `unreached` has pairs of a transition and a move as text. Both are gaps in coverage, not violations: a fault that
    is switched off can cause them.
    """

    transitions: tuple[str, ...]
    never_fired: tuple[str, ...] = ()
    unreached: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class Report:
    """The result of checking one system, which `print` shows.

    For `never_fired` and `unreached` see `Coverage`. `expected` has the properties that are known to be
    violated, with the reason.
    """

    system: System
    exploration: Exploration
    verdicts: list[Verdict]
    never_fired: list[str] = field(default_factory=list)
    unreached: list[tuple[str, str]] = field(default_factory=list)
    choice: str = ""
    expected: Mapping[str, str] = field(default_factory=dict)

    @property
    def coverage(self) -> Coverage:
        return Coverage(tuple(t.name for t in self.system.transitions), tuple(self.never_fired), tuple(self.unreached))

    def verdict(self, name: str) -> Verdict:
        return next(v for v in self.verdicts if v.property.name == name)

    @property
    def violated(self) -> list[Verdict]:
        """The violated properties that are not expected to be."""
        return [v for v in self.verdicts if v.status is Status.VIOLATED and v.property.name not in self.expected]

    @property
    def missing(self) -> list[Verdict]:
        """The properties that are expected to be violated but hold."""
        return [v for v in self.verdicts if v.status is Status.HOLDS and v.property.name in self.expected]

    @property
    def undecided(self) -> list[Verdict]:
        return [v for v in self.verdicts if v.status is Status.NOT_DECIDED]

    def __str__(self) -> str:
        """A line for each property, and below them each counterexample that is not expected, with its changes."""
        from .story import sequence_text

        seen = self.exploration
        lines = [f"{self.system.label}: {seen.distinct:,} states, {seen.seconds:.1f} s"]
        width = max((len(v.property.name) for v in self.verdicts), default=0)
        lines += [f"  {v.property.name:{width}}  {self._in_words(v)}" for v in self.verdicts]
        for verdict in self.violated:
            if verdict.run is not None:
                title = f"{verdict.property.name}: {verdict.property.doc}"
                lines += ["", title, "", sequence_text(self.system, verdict.run).rstrip()]
        return "\n".join(lines)

    def _in_words(self, verdict: Verdict) -> str:
        why = self.expected.get(verdict.property.name)
        if verdict.status is Status.NOT_DECIDED:
            return f"not decided: {verdict.reason}"
        if why is None:
            return ": ".join(filter(None, (verdict.status.value, verdict.reason)))
        return f"violated, expected: {why}" if verdict.status is Status.VIOLATED else f"holds, but expected: {why}"
