"""`trystate diagram`: the pictures of what is named; without names the committed ones, written anew or compared."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from trystate import diagrams
from trystate.model.checker.expectations import Finding
from trystate.model.checker.verdicts import Status, Verdict
from trystate.model.checker.walks import Walk, walked
from trystate.model.errors import UsageError
from trystate.model.language import DecisionTable, System

from .. import registry
from ..deciding import decide, showcase
from ..exits import Exit
from ..progress import Reporter

COMMITTED = Path("diagrams/generated")
ELSEWHERE = Path("trystate-diagrams")
Named = tuple[Iterable[type[System]], Mapping[str, DecisionTable], Iterable[Finding], Iterable[Walk]]


def diagram(args: argparse.Namespace) -> int:
    """Carry out the command; returns the exit code."""
    if args.names and args.check:
        raise UsageError("--check compares all committed pictures: leave it out, or the names")
    out = args.out or (COMMITTED if COMMITTED.is_dir() and not args.names else ELSEWHERE)
    reporter = Reporter()
    classes, tables, findings, walks = _named(args.names) if args.names else _all()
    runs = [*_walks(walks), *_runs(findings, reporter)]
    with reporter.doing("drawing"):
        systems, graphs = list(_systems(classes)), () if args.names else registry.GRAPHS
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


def _all() -> Named:
    return registry.SYSTEMS.values(), registry.titled_tables(), registry.findings().values(), registry.WALKS


def _named(names: Sequence[str]) -> Named:
    """The declarations of these names: a table, a finding, a walk, a system, one of its machines, or module:Class."""
    classes: list[type[System]] = []
    walks: list[Walk] = []
    tables: dict[str, DecisionTable] = {}
    findings: list[Finding] = []
    known = {label: f for f in registry.findings().values() for label in (f.name, f.number)}
    examples = {walk.name: walk for walk in registry.WALKS}
    for name in names:
        mine = {title: t for title, t in registry.titled_tables().items() if title.partition(",")[0] == name}
        if mine:
            tables |= mine
        elif name in known:
            findings.append(known[name])
        elif name in examples:
            walks.append(examples[name])
        else:
            classes.append(registry.system_named(name, "picture", [*registry.table_names(), *known, *examples]))
    return dict.fromkeys(classes), tables, findings, walks


def _systems(classes: Iterable[type[System]]) -> Iterator[System]:
    """Each system in each edition, with every fault, so that a chart leaves nothing out."""
    for cls in classes:
        for edition in registry.edition_names(cls) or (None,):
            yield cls(edition=edition, faults=registry.fault_bounds(cls))


def _walks(walks: Iterable[Walk]) -> Iterator[diagrams.Run]:
    """The runs that are given step by step."""
    for walk in walks:
        system = walk.run.build()
        yield diagrams.Run(walk.name, walk.title, system, walked(walk, system), walk.notes)


def _runs(findings: Iterable[Finding], reporter: Reporter) -> Iterator[diagrams.Run]:
    """The model's counterexample of each finding that the plan shows; each is found once."""
    plan = registry.plan()
    found: dict[tuple[int, str], tuple[System, Verdict]] = {}
    for finding in findings:
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
