"""What is already known to be wrong, declared: a check then fails on anything else, and on what is no longer found."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ..language.properties import Form
from ..language.systems import System
from .verdicts import Report, Status, Verdict


@dataclass(frozen=True, slots=True)
class Finding:
    """A known defect of an edition: `name` is what `trystate replay` takes, `number` its short label."""

    name: str
    number: str
    title: str
    remedy: str = ""


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

    def build(self) -> System:
        return self.system(edition=self.edition, faults=self.faults, max_faults=self.max_faults, **self.sizes)


def explained(findings: Iterable[Finding], by: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Turn `{"R3": ("a", "b"), "R2": ("b",)}`, numbers and what they explain, into property -> names of findings."""
    names = {finding.number: finding.name for finding in findings}
    out: dict[str, tuple[str, ...]] = {}
    for number, properties in by.items():
        for name in properties:
            out[name] = (*out.get(name, ()), names[number])
    return out


class Judgement(enum.Enum):
    """A verdict beside what was declared."""

    AS_DECLARED = "as declared"
    UNDECLARED = "undeclared violation"
    MISSING = "declared finding not found"
    NOT_DECIDED = "not decided"


def judge(verdict: Verdict, run: Run) -> Judgement:
    """Compare one verdict of a planned run with its declaration."""
    if verdict.status is Status.NOT_DECIDED:
        return Judgement.NOT_DECIDED
    name = verdict.property.name
    expected = name in run.findings or (verdict.property.form is Form.SOMETIMES and name in run.idle)
    if verdict.status is Status.VIOLATED:
        return Judgement.AS_DECLARED if expected else Judgement.UNDECLARED
    return Judgement.MISSING if expected else Judgement.AS_DECLARED


def adopt(system: System, runs: Iterable[Run]) -> Run:
    """What the plan's runs imply for a system that is not among them.

    A violation found with some faults stays one with more of them; nothing is implied about other editions. What
    some planned run cannot reach, another size need not reach either.
    Findings taken over this way are allowed, not demanded: see `judge_adopted`.
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
    return Judgement.AS_DECLARED if judgement is Judgement.MISSING else judgement


def gaps(reports: Iterable[Report]) -> tuple[list[str], list[tuple[str, str]]]:
    """Transitions that fired in none of the reports, and claimed moves that none of them made.

    Reports of one system class and edition belong together; a transition counts only where it exists.
    """
    reports = list(reports)
    fired = {t.name for r in reports for t in r.system.transitions if t.name not in r.never_fired}
    known = {t.name for r in reports for t in r.system.transitions}
    unreached = [set(r.unreached) | {(t, claim) for t, claim in _absent(r, reports)} for r in reports]
    return sorted(known - fired), sorted(set.intersection(*unreached)) if unreached else []


def _absent(report: Report, reports: list[Report]) -> set[tuple[str, str]]:
    """Claims of other reports whose transition this report's system does not have."""
    own = {t.name for t in report.system.transitions}
    return {(t, claim) for r in reports for t, claim in r.unreached if t not in own}
