"""The walks and systems that a page has in addition to its report.

A report has the cheapest runs that show each finding. A reader also wants each property that a finding breaks on torch,
in its smallest run, and the same steps in our edition. The first needs short searches, the second none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from trystate.model.checker.expectations import Run
from trystate.model.checker.story import tell
from trystate.model.checker.verdicts import Counterexample, Verdict
from trystate.model.errors import DeclarationError, UsageError
from trystate.model.language import Form, State, System
from trystate.page.contents import Choice, Shown
from trystate.search import plans
from trystate.search.machine import decide

from .. import registry

OURS = "TRYSTATE"
STATES_MAX = 1_000  # states of a run that is searched for a walk: this takes a moment


def ours_beside(broken: Iterable[Choice]) -> Iterator[Choice]:
    """Our edition of systems, in the same sizes: a page plays the two side by side.

    broken: systems that have a counterexample.
    """
    known = set()
    for choice in broken:
        ours = next((e for e in choice.cls.Edition or () if e.name == OURS), None)
        key = (choice.cls, *choice.sizes.items())
        if key in known or ours is None or choice.edition is ours:
            continue
        known.add(key)
        try:
            yield Choice.of(choice.cls(edition=ours, faults=(), max_faults=None, **choice.sizes), choice.name)
        except (UsageError, DeclarationError):
            continue  # it has other sizes


def walks_beside(report: Mapping[str, Any], names: Mapping[type[System], str]) -> Iterator[Shown]:
    """Counterexamples on torch that the report lacks: for a finding and a property, from the smallest planned run.

    report: as `report.json` has it.
    names: of the systems, as the command line has them.
    """
    there = {
        (number, prop["name"])
        for run in report["runs"]
        if run["edition"] == registry.DEFAULT_EDITION
        for prop in run["properties"]
        if prop["counterexample"]
        for number in prop["findings"]
    }
    for run in sorted(_small_runs(), key=plans.cost):
        for name, found in run.findings.items():
            number = registry.findings()[found[0]].number
            if len(found) == 1 and (number, name) not in there:
                there.add((number, name))
                yield from _counterexample(run, names[run.system], name, number)


def _small_runs() -> Iterator[Run]:
    states = plans.states()
    for run in registry.plan():
        edition = run.edition.name if run.edition is not None else ""
        if edition == registry.DEFAULT_EDITION and states.get(run.label, STATES_MAX + 1) <= STATES_MAX:
            yield run


def _counterexample(run: Run, system_name: str, name: str, number: str) -> Iterator[Shown]:
    system = run.build()
    verdict = decide(system, name)
    if verdict.run is not None:
        yield of_verdict(system, Choice.planned(run, system_name), verdict, verdict.run, [number])


def of_verdict(
    system: System, choice: Choice, verdict: Verdict, run: Counterexample, findings: Sequence[str] = ()
) -> Shown:
    """The run of a verdict as a walk: a witness is an example."""
    name = verdict.property.name
    return Shown(
        "example" if verdict.property.form is Form.SOMETIMES else "counterexample", name, choice,
        [step.label for step in tell(system, run).steps], start=first_cells(system, run.path.states[0]),
        loop=run.loop, property=name, findings=findings,
    )  # fmt: skip


def first_cells(system: System, state: State) -> dict[str, int]:
    """The cells with their values, where a walk begins."""
    return dict(zip((cell.name for cell in system.cells), state, strict=True))
