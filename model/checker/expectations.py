"""Declared known violations: a check fails on any other violation, and on a declared one that it no longer finds."""

from __future__ import annotations

import enum
import pkgutil
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..language.properties import Form
from ..language.systems import System
from .verdicts import Coverage, Status, Verdict

TIMING = ", deliberate timing"
PRACTICE: Mapping[str, str] = {
    "often": "ordinary use meets it: nodes that come back, spares, a call of a documented function",
    "sometimes": "it needs a failure, a pause, a mistake, or an option that is not the default",
    "rarely": "it needs two such events at once, a peer that sends its own requests, or an unusual size",
}
"""How likely a job meets a finding. After the word `TIMING` may follow: the script places an operation between two
others that are milliseconds apart in a job."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A known defect of an edition: `name` is the argument of `trystate replay`, `number` its short label.

    For people who run torch: the symptom (`seen`), the options, calls or conditions that cause it (`exposed`),
    and a workaround in torch itself (`workaround`).
    `since` and `until` are the first and the last release known to have it, such as `2.12`; empty: no such limit.
    `of` is the package with the defect. For another package than torch they may be the commits that introduced and
    repaired it. `practice`: how likely a job meets it (`PRACTICE`); `answer`: the answer of the package's maintainers.
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
    of: str = "torch"
    practice: str = ""
    answer: str = ""


def read_findings(module: str) -> dict[str, Finding]:
    """The findings in `findings.toml` in the folder of a module, by name."""
    rows = tomllib.loads((pkgutil.get_data(module, "findings.toml") or b"").decode())
    return {row["name"]: Finding(number=number, **row) for number, row in rows.items()}


@dataclass(frozen=True, slots=True)
class Run:
    """One system to check, and its known violations: property -> the findings that explain its violation.

    `idle` names each `sometimes` that this size or set of faults cannot reach. With `max_faults`, at most that many
    faults of all kinds together happen in a run.
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
        """The system with its edition, sizes and faults, in one line, without building it."""
        sizes = ", ".join(f"{name}={size}" for name, size in self.sizes.items())
        faults = f" with {', '.join(self.faults)}" if self.faults else ""
        together = f", any {self.max_faults}" if self.max_faults is not None else ""
        edition = f" {self.edition.name}" if self.edition is not None else ""
        return f"{self.system.__name__}({sizes}){edition}{faults}{together}"

    def expecting(self, violations: Mapping[str, tuple[str, ...]]) -> Run:
        """The run with further known violations: property -> its findings."""
        return replace(self, findings={**self.findings, **violations})

    def build(self) -> System:
        return self.system(edition=self.edition, faults=self.faults, max_faults=self.max_faults, **self.sizes)


Found = Mapping[str, Any]
"""Property -> the number of the finding that explains its violation, or the numbers of several."""


def search(
    known: Mapping[str, Finding], system: type[System], edition: enum.Enum, *faults: str,
    sizes: Mapping[str, int] | None = None, idle: tuple[str, ...] = (), max_faults: int | None = None,
    **found: str | tuple[str, ...],
) -> Run:  # fmt: skip
    """One planned search; `found`: for each property, the numbers of the findings that explain its violation."""
    names = {finding.number: name for name, finding in known.items()}
    several = {name: (numbers,) if isinstance(numbers, str) else numbers for name, numbers in found.items()}
    findings = {name: tuple(names[number] for number in numbers) for name, numbers in several.items()}
    return Run(system, sizes or {}, edition, faults, findings, idle, max_faults)


class Judgement(enum.Enum):
    """A verdict compared with the known violations of the run."""

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
    """Compare one verdict of a planned run with the known violations of the run."""
    if verdict.status is Status.NOT_DECIDED:
        return Judgement.NOT_DECIDED
    name = verdict.property.name
    idle = verdict.property.form is Form.SOMETIMES and name in run.idle
    if verdict.status is Status.VIOLATED:
        return Judgement.KNOWN if name in run.findings else Judgement.OUT_OF_REACH if idle else Judgement.NEW
    return Judgement.MISSING if idle or name in run.findings else Judgement.HOLDS


def adopt(system: System, runs: Iterable[Run]) -> Run:
    """The run that the plan implies for a system outside it.

    A violation that some faults cause also happens with more faults; nothing is implied about other editions. A state
    that some planned run cannot reach need not be reachable at another size. Findings adopted in this way are allowed,
    but not required: see `judge_adopted`.
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
    """The name of the system whose coverage a run counts towards.

    A class that adds steps to an edition counts with the edition's own runs, which cover the steps that it inherits.
    """
    of_edition = system.__family__.classes.get(system.edition, type(system))
    return of_edition.__family__.named.__name__


def gaps(coverages: Iterable[Coverage]) -> tuple[list[str], list[tuple[str, str]]]:
    """Transitions that fired in no run of a system and edition, and claimed moves that no run made.

    A transition counts only where it exists, and a move only where its transition does.
    """
    runs = list(coverages)
    known = {t for run in runs for t in run.transitions}
    fired = {t for run in runs for t in run.transitions if t not in run.never_fired}
    claims = {claim for run in runs for claim in run.unreached}
    never = {c for c in claims if all(c in run.unreached or c[0] not in run.transitions for run in runs)}
    return sorted(known - fired), sorted(never)
