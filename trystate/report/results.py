"""What `trystate verify` found, before anybody prints it. Rule: the exit code follows from this alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from trystate.model.checker.expectations import Judgement, Run, gaps
from trystate.model.checker.verdicts import Report, Status, Verdict
from trystate.property_tests.harness.checks import Outcome

from .. import registry
from ..exits import Exit

Judged = tuple[Verdict, Judgement]


@dataclass(frozen=True, slots=True)
class Checked:
    """One run, and each of its verdicts beside what was declared."""

    run: Run
    report: Report
    judged: tuple[Judged, ...]

    @property
    def label(self) -> str:
        return self.report.system.label

    @property
    def edition(self) -> str:
        return self.run.edition.name if self.run.edition is not None else ""

    def judged_as(self, judgement: Judgement) -> list[Judged]:
        return [pair for pair in self.judged if pair[1] is judgement]

    @property
    def declared(self) -> list[Verdict]:
        """Violations that were declared."""
        return [v for v, j in self.judged if v.status is Status.VIOLATED and j is Judgement.AS_DECLARED]

    def explanations(self, verdict: Verdict) -> list[str]:
        """The numbers of the findings that explain a verdict."""
        return [registry.finding_number(label) for label in self.run.findings.get(verdict.property.name, ())]

    def summary(self) -> str:
        """`18 hold, 3 as declared (R1 R2 R3), 1 not decided`: what is not as declared is named elsewhere."""
        violated = self.declared
        numbers = sorted({n for v in violated for n in self.explanations(v)}, key=natural)
        idle = [v for v in violated if not self.explanations(v)]
        parts = [f"{sum(v.status is Status.HOLDS for v, _ in self.judged)} hold"]
        if numbers:
            parts.append(f"{len(violated) - len(idle)} as declared ({' '.join(numbers)})")
        if idle:
            parts.append(f"{len(idle)} idle as declared")
        return ", ".join([*parts, *counted(Counter(j for _, j in self.problems))])

    @property
    def problems(self) -> list[Judged]:
        return [pair for pair in self.judged if pair[1] is not Judgement.AS_DECLARED]


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + "s" * (count != 1)


def counted(judgements: Counter[Judgement]) -> list[str]:
    """How many there are of each, in words."""
    words = {
        Judgement.AS_DECLARED: "as declared",
        Judgement.UNDECLARED: "undeclared",
        Judgement.MISSING: "declared but not found",
        Judgement.NOT_DECIDED: "not decided",
    }
    return [f"{judgements[j]} {words[j]}" for j in Judgement if judgements[j]]


def natural(label: str) -> tuple[str, int]:
    """A key to sort by: S2 before S10."""
    letters = label.rstrip("0123456789")
    return letters, int(label[len(letters) :] or 0)


@dataclass(frozen=True, slots=True)
class Conformed:
    """One conformance check; without an outcome, `skipped` says what it lacks, or `stopped` which limit ended it."""

    name: str
    outcome: Outcome | None = None
    skipped: str = ""
    stopped: str = ""

    @property
    def nothing_because(self) -> str:
        """Why there is no outcome, in a line."""
        return f"not decided: {self.stopped}" if self.stopped else f"skipped: {self.skipped}"

    @property
    def disagreements(self) -> tuple[str, ...]:
        """Where the two differ; to have compared nothing is a disagreement too."""
        if self.outcome is None:
            return ()
        return self.outcome.disagreements + ("nothing was compared",) * (not self.outcome.compared)


@dataclass(frozen=True, slots=True)
class Gap:
    """What no run of a system and edition covered: transitions that never fired, claims never used."""

    system: str
    edition: str
    never_fired: tuple[str, ...]
    unreached: tuple[tuple[str, str], ...]

    def lines(self) -> list[str]:
        where = f"{self.system} {self.edition}".strip()
        return [
            *(f"{where}: {t} fired in no run" for t in self.never_fired),
            *(f"{where}: no run makes the move {move} that {t} claims" for t, move in self.unreached),
        ]


@dataclass(slots=True)
class Results:
    """Everything that one call of `verify` found. `seconds` is how long it took."""

    checked: list[Checked] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    conformed: list[Conformed] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def exit(self) -> Exit:
        judgements = {j for c in self.checked for _, j in c.judged}
        differ = any(c.disagreements for c in self.conformed)
        if judgements & {Judgement.UNDECLARED, Judgement.MISSING} or self.gaps or differ:
            return Exit.FAILED
        if Judgement.NOT_DECIDED in judgements or not self.checked or any(c.stopped for c in self.conformed):
            return Exit.INCOMPLETE
        return Exit.OK

    def verdict(self) -> str:
        """The whole in one line."""
        counts = Counter(j for c in self.checked for _, j in c.judged)
        differ = sum(len(c.disagreements) for c in self.conformed)
        parts = counted(counts)
        parts += [plural(sum(len(g.lines()) for g in self.gaps), "coverage gap")] * bool(self.gaps)
        parts += [plural(differ, "conformance disagreement")] * bool(differ)
        parts += ["conformance skipped"] * any(c.skipped for c in self.conformed)
        parts += ["conformance not decided"] * any(c.stopped for c in self.conformed)
        return f"{plural(len(self.checked), 'run')} in {self.seconds:.1f} s: {', '.join(parts)}"


def coverage_gaps(checked: Iterable[Checked]) -> list[Gap]:
    """The gaps of each system class and edition, in the order of the runs."""
    groups: dict[tuple[type, str], list[Report]] = {}
    for one in checked:
        groups.setdefault((one.run.system, one.edition), []).append(one.report)
    found = []
    for (system, edition), reports in groups.items():
        never_fired, unreached = gaps(reports)
        if never_fired or unreached:
            found.append(Gap(system.__name__, edition, tuple(never_fired), tuple(unreached)))
    return found
