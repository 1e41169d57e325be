"""`trystate diagram`: the committed pictures of every system, table and finding, written anew or compared."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from trystate import diagrams
from trystate.model.checker.verdicts import Status, Verdict
from trystate.model.errors import UsageError
from trystate.model.language import System

from .. import registry
from ..deciding import decide, showcase
from ..exits import Exit
from ..progress import Reporter

COMMITTED = Path("diagrams/generated")
ELSEWHERE = Path("trystate-diagrams")


def diagram(args: argparse.Namespace) -> int:
    """Carry out the command; returns the exit code."""
    out = args.out or (COMMITTED if COMMITTED.is_dir() else ELSEWHERE)
    reporter = Reporter()
    runs = list(_runs(reporter))
    with reporter.doing("drawing"):
        systems, tables, graphs = list(_systems()), registry.titled_tables(), registry.GRAPHS
        if args.check:
            wrong = diagrams.stale(out, systems, tables, runs, graphs)
        else:
            try:
                written = diagrams.generate(out, systems, tables, runs, graphs)
            except OSError as error:
                raise UsageError(f"cannot write to {out}: {error}; choose another folder with --out") from error
    if not args.check:
        print(f"{len(written)} files written to {out}")
        return Exit.OK
    for path in wrong:
        print(f"stale: {path}")
    print(f"{len(wrong)} of the files in {out} are stale: trystate diagram" if wrong else f"{out} is up to date")
    return Exit.FAILED if wrong else Exit.OK


def _systems() -> Iterator[System]:
    """Each system in each edition, with every fault, so that a chart leaves nothing out."""
    for cls in registry.SYSTEMS.values():
        for edition in registry.edition_names(cls) or (None,):
            yield cls(edition=edition, faults=registry.fault_bounds(cls))


def _runs(reporter: Reporter) -> Iterator[diagrams.Run]:
    """The model's counterexample of each finding that the plan shows; each is found once."""
    plan = registry.plan()
    found: dict[tuple[int, str], tuple[System, Verdict]] = {}
    for finding in registry.findings().values():
        shown = showcase(finding, plan)
        if shown is None:
            reporter.done(f"{finding.number} {finding.name}: no run of the plan shows it, so it is not drawn")
            continue
        run, name = shown
        key = id(run), name
        if key not in found:
            system = run.build()
            with reporter.doing(f"checking {name} in {system.label}"):
                found[key] = system, decide(system, name, reporter.search)
        system, verdict = found[key]
        if verdict.status is Status.VIOLATED and verdict.run is not None:
            yield diagrams.Run(finding.name, f"{finding.number} {finding.title}", system, verdict.run)
        else:
            reporter.done(f"{finding.number} {finding.name}: {name} is {verdict.status.value}, so it is not drawn")
