"""A page from a report, as `report.json` has it: the runs, what shows each finding, and the walks of the articles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import trystate
from trystate.model.checker.verdicts import Verdict
from trystate.model.errors import UsageError
from trystate.model.language import System
from trystate.model.messages import MESSAGES
from trystate.page.contents import Choice, Contents, Result, Shown
from trystate.page.html import build

from .. import registry
from ..outputs import write_text
from ..version import installed
from ..walking import Walk
from .walks import first_cells, of_verdict, ours_beside, walks_beside

HEADING = "The control plane of PyTorch"
Named = tuple[type[System], str]  # a system, and the name that commands take


def contents(report: Mapping[str, Any], others: Mapping[int, Named] | None = None) -> Contents:
    """The page of a report. `others` has the classes that a user names, by the numbers of their runs.

    Raises:
        UsageError: the report has a system that is not known.
    """
    names = registry.planned_names()
    known = {cls.__name__: (cls, name) for cls, name in names.items()}
    given = others or {}
    results = [Result(_choice(r, given.get(r.get("number")) or known.get(r["system"])), r) for r in report["runs"]]
    shown = {run.choice.cls for run in results}
    whole = shown >= {*registry.SYSTEMS.values()}
    labels = {number for result in report["runs"] for p in result["properties"] for number in p["findings"]}
    findings = registry.findings().values()
    walks = [*walks_beside(report, names)] if whole else []
    broken = [r.choice for r in results if any(p["counterexample"] for p in r.run["properties"])]
    return Contents(
        heading=HEADING if whole else ", ".join(sorted(cls.title or cls.__name__ for cls in shown)),
        choices=[*ours_beside(broken + [walk.choice for walk in walks])],
        results=results,
        shown=[*(_examples(names) if whole else ()), *walks],
        findings=[f for f in findings if whole or f.number in labels],
        messages=[*MESSAGES.values()],
        torch=installed("torch"),
        summary=report["summary"],
        comparisons=report["conformance"],
        version=trystate.__version__,
    )


def of_system(system: System, given: str, verdict: Verdict | None = None, walk: Walk | None = None) -> Contents:
    """The page that explores one system, by the name that was `given`.

    It begins with the run of a verdict, or with a walk that has moved.
    """
    choice = Choice.of(system, registry.planned_names().get(system.family, given))
    shown = []
    if walk is not None and (walk.labels or walk.initial):
        start = first_cells(system, system.initial_states[walk.initial])
        shown = [Shown("example", "the walk of the command line", choice, walk.labels, start=start)]
    elif verdict is not None and verdict.run is not None:
        shown = [of_verdict(system, choice, verdict, verdict.run)]
    return Contents(
        heading=system.title or system.name,
        view="#/trace/0" if shown else "",
        choices=[choice],
        shown=shown,
        torch=installed("torch"),
        version=trystate.__version__,
    )


def write_page(path: Path, shown: Contents, option: str) -> None:
    """Write a page into the file that `option` names.

    Raises:
        UsageError: the file cannot be written.
    """
    write_text(path, build(shown), option)


def _choice(run: Mapping[str, Any], named: Named | None) -> Choice:
    if named is None:
        raise UsageError(
            f"the report has a system {run['system']!r} that trystate does not have: "
            "write its page with trystate verify module:Class --html FILE"
        )
    cls, name = named
    edition = next((e for e in cls.Edition or () if e.name == run["edition"]), None)
    if edition is None and run["edition"]:
        raise UsageError(f"the report has an edition {run['edition']!r} that {run['system']} does not have")
    return Choice(cls, name, edition, run["sizes"], run["faults"], run["max_faults"])


def _examples(names: Mapping[type[System], str]) -> Iterable[Shown]:
    for walk in registry.WALKS:
        steps = walk.all_steps
        choice = Choice.planned(walk.run, names[walk.run.system])
        yield Shown("example", walk.title, choice, [one.step for one in steps], [one.note for one in steps])
