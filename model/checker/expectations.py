"""Known violations, declared: a check then fails on any other, and on a declared one that is no longer found."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ..language.properties import Form
from ..language.systems import System
from .verdicts import Coverage, Status, Verdict


@dataclass(frozen=True, slots=True)
class Finding:
    """A known defect of an edition: `name` is what `trystate replay` takes, `number` its short label.

    For people who run torch: the symptom (`seen`), the options, calls or conditions that bring it about (`exposed`),
    and a way round it in torch itself (`workaround`).
    `since` and `until` are the first and the last release that is known to have it, as `2.12`; empty: no such end.
    """

    name: str
    number: str
    title: str
    remedy: str = ""
    seen: str = ""
    exposed: str = ""
    workaround: str = ""
    since: str = ""
    until: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    """One system to check, and what it is known to violate: property -> the findings that explain it.

    `idle` names the `sometimes` that this size or set of faults cannot reach. With `max_faults`, at most so many of the
    faults happen in a run, of any kinds.
    """

    system: type[System]
    sizes: Mapping[str, int]
    edition: enum.Enum
    faults: tuple[str, ...] = ()
    findings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    idle: tuple[str, ...] = ()
    max_faults: int | None = None

    @property
    def label(self) -> str:
        """The system with its edition, sizes and faults, in one line, told without building it."""
        sizes = ", ".join(f"{name}={size}" for name, size in self.sizes.items())
        faults = f" with {', '.join(self.faults)}" if self.faults else ""
        together = f", any {self.max_faults}" if self.max_faults is not None else ""
        edition = f" {self.edition.name}" if self.edition is not None else ""
        return f"{self.system.__name__}({sizes}){edition}{faults}{together}"

    def expecting(self, violations: Mapping[str, tuple[str, ...]]) -> Run:
        """The run, with more violations that are known: property -> why."""
        return replace(self, findings={**self.findings, **violations})

    def build(self) -> System:
        return self.system(edition=self.edition, faults=self.faults, max_faults=self.max_faults, **self.sizes)


def explained(found: Mapping[str, str | tuple[str, ...]], *known: Mapping[str, Finding]) -> dict[str, tuple[str, ...]]:
    """Property -> the names of the findings that explain its violation; each may be given as one number or several."""
    names = {finding.number: name for findings in known for name, finding in findings.items()}
    several = {name: (numbers,) if isinstance(numbers, str) else numbers for name, numbers in found.items()}
    return {name: tuple(names[number] for number in numbers) for name, numbers in several.items()}


class Judgement(enum.Enum):
    """A verdict beside what is known of the run."""

    HOLDS = "holds"
    KNOWN = "violated, known"
    OUT_OF_REACH = "not reachable at this size"  # a `sometimes` that the size or the faults of the run exclude
    NEW = "violated"
    MISSING = "known violation not found"
    NOT_DECIDED = "not decided"

    @property
    def is_expected(self) -> bool:
        return self in (Judgement.HOLDS, Judgement.KNOWN, Judgement.OUT_OF_REACH)


def judge(verdict: Verdict, run: Run) -> Judgement:
    """Compare one verdict of a planned run with what is known of the run."""
    if verdict.status is Status.NOT_DECIDED:
        return Judgement.NOT_DECIDED
    name = verdict.property.name
    idle = verdict.property.form is Form.SOMETIMES and name in run.idle
    if verdict.status is Status.VIOLATED:
        return Judgement.KNOWN if name in run.findings else Judgement.OUT_OF_REACH if idle else Judgement.NEW
    return Judgement.MISSING if idle or name in run.findings else Judgement.HOLDS


def adopt(system: System, runs: Iterable[Run]) -> Run:
    """The run that the plan implies for a system outside it.

    A violation found with some faults stays one with more of them; nothing is implied about other editions. A state
    that some planned run cannot reach, another size need not reach either. Findings taken over this way are allowed,
    not demanded: see `judge_adopted`.
    """
    findings: dict[str, tuple[str, ...]] = {}
    idle: set[str] = set()
    for run in runs:
        if run.system is not system.family or run.edition is not system.edition:
            continue
        idle |= set(run.idle)
        if set(run.faults) <= set(system.faults):
            for name, found in run.findings.items():
                findings[name] = tuple(dict.fromkeys((*findings.get(name, ()), *found)))
    return Run(
        system.family, system.sizes, system.edition, tuple(system.faults), findings, tuple(sorted(idle)),
        system.max_faults,
    )  # fmt: skip


def judge_adopted(verdict: Verdict, run: Run) -> Judgement:
    """Like `judge`, for a run whose size may be too small to show every known finding."""
    judgement = judge(verdict, run)
    return Judgement.HOLDS if judgement is Judgement.MISSING else judgement


def covered_with(system: System) -> str:
    """The name of the system in whose coverage a run counts.

    A class that adds steps to an edition counts with the edition's own runs, which cover the steps that it inherits.
    """
    of_edition = system.__family__.classes.get(system.edition, type(system))
    return of_edition.__family__.named.__name__


def gaps(coverages: Iterable[Coverage]) -> tuple[list[str], list[tuple[str, str]]]:
    """Transitions that fired in none of the runs of a system and edition, and claimed moves that none of them made.

    A transition counts only where it exists, and a move only where its transition does.
    """
    runs = list(coverages)
    known = {t for run in runs for t in run.transitions}
    fired = {t for run in runs for t in run.transitions if t not in run.never_fired}
    claims = {claim for run in runs for claim in run.unreached}
    never = {c for c in claims if all(c in run.unreached or c[0] not in run.transitions for run in runs)}
    return sorted(known - fired), sorted(never)
