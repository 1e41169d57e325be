"""The results of `trystate verify` as plain values, which a process can send; each report is made from them.

Rule: the exit code follows from this alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trystate.model.checker.expectations import Judgement, gaps
from trystate.model.checker.verdicts import Coverage, Status
from trystate.property_tests.harness.checks import Outcome

from ..exits import Exit


@dataclass(frozen=True, slots=True)
class KnownDefect:
    """A known defect: `number` and `name` of a finding, or the words of an `expect=`."""

    number: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.number} {self.name}".strip()

    @property
    def short(self) -> str:
        """`R3`, or `expected` for the words of an `expect=`."""
        return self.number if self.name else "expected"

    @property
    def remark(self) -> str:
        """`known as R3 fast-exit: trystate replay R3`."""
        return f"known as {self}: trystate replay {self.number}" if self.name else f"expected: {self.number}"


@dataclass(frozen=True, slots=True)
class PropertyResult:
    """The verdict on one property of one run.

    `steps` counts the steps of its counterexample, or of the witness of a `sometimes`; None if it has neither. `trace`
    (as in report.json) and `text` contain a counterexample; `files`, relative to the report's folder, show it.
    """

    name: str
    form: str
    doc: str
    status: Status
    judgement: Judgement
    known: tuple[KnownDefect, ...] = ()
    reason: str = ""
    steps: int | None = None
    trace: Mapping[str, Any] | None = None
    text: str = ""
    files: tuple[str, ...] = ()

    def shown(self, trace: Mapping[str, Any], text: str, files: Iterable[str]) -> PropertyResult:
        """The answer, with the files that show it."""
        return replace(self, trace=trace, text=text, files=tuple(files))

    @property
    def verdict(self) -> str:
        """The answer in words: `violated, known as R3 fast-exit: trystate replay R3`."""
        remarks = ", ".join(known.remark for known in self.known)
        match self.judgement:
            case Judgement.KNOWN:
                return f"violated, {remarks}"
            case Judgement.MISSING:
                return (
                    f"{self.judgement.value}: holds, but it is {remarks or 'expected to be out of reach at this size'}"
                )
            case Judgement.NOT_DECIDED:
                return f"not decided: {self.reason}"
            case Judgement.NEW:
                return f"violated: {self.told}"
            case _:
                return ": ".join(filter(None, (self.judgement.value, self.reason)))

    @property
    def told(self) -> str:
        """The property's sentence, what contradicts it, and the length of the counterexample."""
        told = " ".join(filter(None, (self.doc, self.reason)))
        if self.steps is None:
            return told if self.reason else f"never reached: {told}"
        return f"{told} (the counterexample has {plural(self.steps, 'step')})"


@dataclass(frozen=True, slots=True)
class Checked:
    """One run, and the verdict on each of its properties."""

    number: int  # the run's number in the report
    label: str
    system: str
    edition: str
    sizes: Mapping[str, int]
    faults: Mapping[str, int]
    max_faults: int | None
    engine: str
    choice: str
    states: int
    edges: int
    depth: int
    seconds: float
    bytes_per_state: float
    complete: bool
    stopped: str
    answers: tuple[PropertyResult, ...]
    coverage: Coverage
    covered_with: str  # the system in whose coverage it counts

    @property
    def problems(self) -> list[PropertyResult]:
        return [a for a in self.answers if not a.judgement.is_expected]

    def having(self, judgement: Judgement) -> list[PropertyResult]:
        return [a for a in self.answers if a.judgement is judgement]

    def summary(self) -> str:
        """`18 hold, 3 violated (known: R1 R2), 1 not decided`."""
        numbers = {known.short for a in self.having(Judgement.KNOWN) for known in a.known}
        counts = Counter(a.judgement for a in self.answers)
        return ", ".join(counted(counts, " ".join(sorted(numbers, key=natural))))


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun if count == 1 else many(noun)}"


def many(noun: str) -> str:
    """The plural of a noun."""
    return f"{noun}es" if noun.endswith(("s", "ch", "x")) else f"{noun}s"


def counted(judgements: Mapping[Judgement, int], known: str = "") -> list[str]:
    """The count of each, in words; `known` names what the known violations are known as."""
    words = {
        Judgement.HOLDS: "hold",
        Judgement.KNOWN: f"violated (known: {known})",
        Judgement.OUT_OF_REACH: "not reachable at this size",
        Judgement.NEW: "VIOLATED",
        Judgement.MISSING: "known violations not found",
        Judgement.NOT_DECIDED: "not decided",
    }
    found = [f"{judgements[j]:,} {words[j]}" for j in Judgement if judgements.get(j)]
    return found or ["no property was checked"]


def natural(label: str) -> tuple[str, int]:
    """A key to sort by: S2 before S10."""
    letters = label.rstrip("0123456789")
    return letters, int(label[len(letters) :] or 0)


@dataclass(frozen=True, slots=True)
class Compared:
    """One comparison; without an outcome, `skipped` names what it lacks, or `stopped` the limit that ended it."""

    name: str
    outcome: Outcome | None = None
    skipped: str = ""
    stopped: str = ""

    @property
    def nothing_because(self) -> str:
        """The reason for a missing outcome, in a line."""
        return f"not decided: {self.stopped}" if self.stopped else f"skipped: {self.skipped}"

    @property
    def disagreements(self) -> tuple[str, ...]:
        """The differences of the two; to have compared nothing is a disagreement too."""
        if self.outcome is None:
            return ()
        return self.outcome.disagreements + ("nothing was compared",) * (not self.outcome.compared)


@dataclass(frozen=True, slots=True)
class Gap:
    """The gaps of a system and edition over all runs: transitions that never fired, claims never used."""

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


LOSS = "a loss"  # the loss of workers, instead of a signal
ENDED = {"SIGTERM": Exit.TERMINATED, LOSS: Exit.INCOMPLETE}


@dataclass(slots=True)
class Results:
    """Everything that one call of `verify` found.

    `seconds` is how long it took. If a signal or a loss of workers ended it early, `interrupted` names that, and `left`
    what was not done.
    """

    checked: Sequence[Checked] = ()
    gaps: Sequence[Gap] = ()
    compared: Sequence[Compared] = ()
    seconds: float = 0.0
    interrupted: str = ""
    left: Sequence[str] = ()

    @property
    def exit(self) -> Exit:
        judgements = {a.judgement for c in self.checked for a in c.answers}
        differ = any(c.disagreements for c in self.compared)
        if self.interrupted:
            return ENDED.get(self.interrupted, Exit.INTERRUPTED)
        if judgements & {Judgement.NEW, Judgement.MISSING} or self.gaps or differ:
            return Exit.FAILED
        if Judgement.NOT_DECIDED in judgements or not self.checked or any(c.stopped for c in self.compared):
            return Exit.INCOMPLETE
        return Exit.OK

    def verdict(self) -> str:
        """The whole in one line."""
        answers = [a for c in self.checked for a in c.answers]
        findings = {known for a in answers if a.judgement is Judgement.KNOWN for known in a.known if known.name}
        differ = sum(len(c.disagreements) for c in self.compared)
        parts = counted(
            Counter(a.judgement for a in answers), plural(len(findings), "finding") if findings else "expected"
        )
        parts += [plural(sum(len(g.lines()) for g in self.gaps), "coverage gap")] * bool(self.gaps)
        parts += [plural(differ, "conformance disagreement")] * bool(differ)
        skipped = sum(bool(c.skipped) for c in self.compared)
        parts += [f"{plural(skipped, 'comparison')} skipped"] * bool(skipped)
        parts += ["conformance not decided"] * any(c.stopped for c in self.compared)
        parts += [f"{len(self.left)} not done: ended by {self.interrupted}"] * bool(self.interrupted)
        return f"{plural(len(self.checked), 'run')} in {self.seconds:.1f} s: {', '.join(parts)}"


def coverage_gaps(checked: Iterable[Checked]) -> list[Gap]:
    """The gaps of each system and edition, in the order of the runs."""
    groups: dict[tuple[str, str], list[Coverage]] = {}
    for one in checked:
        groups.setdefault((one.covered_with, one.edition), []).append(one.coverage)
    found = []
    for (system, edition), coverages in groups.items():
        never_fired, unreached = gaps(coverages)
        if never_fired or unreached:
            found.append(Gap(system, edition, tuple(never_fired), tuple(unreached)))
    return found
