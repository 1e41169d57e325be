"""The contents of a page, as its callers give them: systems, results, walks and findings.

Rule: it has plain values and classes of systems; `export` writes them.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from trystate.model.checker.expectations import Finding, Run
from trystate.model.language import System
from trystate.model.messages import Message


@dataclass(frozen=True, slots=True)
class Choice:
    """A system to show, with the faults that are on.

    cls: the class that a user names.
    name: what the command line calls it.
    edition: None for a system without editions.
    sizes: the sizes of indices and constants; sizes that are left out have their defaults.
    faults: the faults that are on -> how often each may happen at most.
    max_faults: the bound of all faults together, or None.
    """

    cls: type[System]
    name: str
    edition: enum.Enum | None
    sizes: Mapping[str, int] = field(default_factory=dict)
    faults: Mapping[str, int] = field(default_factory=dict)
    max_faults: int | None = None

    @classmethod
    def of(cls, system: System, name: str) -> Choice:
        """The choice that built a system."""
        return cls(system.family, name, system.edition, system.arguments, system.faults, system.max_faults)

    @classmethod
    def planned(cls, run: Run, name: str) -> Choice:
        """The system of a planned run."""
        system = run.build()
        return cls(run.system, name, run.edition, system.arguments, system.faults, run.max_faults)


@dataclass(frozen=True, slots=True)
class Shown:
    """A walk for the player.

    kind: its origin; the counterexamples of `Contents.results` need not be given again.
    title: one sentence.
    choice: the system that it walks.
    steps: the labels of its steps, such as `join(0)`.
    notes: one for each step, or none at all.
    start: the cells that differ from the first initial state at the beginning -> their values.
    loop: the step from which it repeats for ever, or None.
    breaks: the step from which on that property is broken for good, where the walk itself does not show it, or None.
    property: the property that it is about, or "".
    findings: the numbers of the findings that it shows.
    lanes: the names of the members, or none.
    set: a number of steps -> cells and the values that they have then, whatever the system's own step computes.
    """

    kind: Literal["counterexample", "example", "recorded"]
    title: str
    choice: Choice
    steps: Sequence[str]
    notes: Sequence[str] = ()
    start: Mapping[str, int] = field(default_factory=dict)
    loop: int | None = None
    breaks: int | None = None
    property: str = ""
    findings: Sequence[str] = ()
    lanes: Sequence[str] = ()
    set: Mapping[int, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Result:
    """A run of a report, as `report.json` has it, and the system that it searched."""

    choice: Choice
    run: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Contents:
    """Everything that a page shows.

    heading: the title of the page.
    view: the first view, such as `#/overview`; "" explores the first choice.
    choices: systems to explore, in addition to the systems of the results and walks.
    results: the runs of a report.
    shown: walks, in addition to the counterexamples of the results.
    findings: the known defects.
    messages: the messages that people paste from a job, with the findings that cause them.
    torch: the version of the installed torch, or "".
    summary: the verdict of the whole in one line, or "".
    comparisons: as `report.json` has them.
    version: of this package.
    """

    heading: str
    view: str = "#/overview"
    choices: Sequence[Choice] = ()
    results: Sequence[Result] = ()
    shown: Sequence[Shown] = ()
    findings: Sequence[Finding] = ()
    messages: Sequence[Message] = ()
    torch: str = ""
    summary: str = ""
    comparisons: Sequence[Mapping[str, Any]] = ()
    version: str = ""
