"""`trystate diagram`: draws what is named, or everything.

In a checkout it draws the pictures that the pages show, or compares them with the committed ones (--check). With
--witness it draws the shortest run to a state that satisfies a `sometimes`.
"""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trystate import diagrams
from trystate.diagrams.graph import graph_name
from trystate.diagrams.markdown import system_name
from trystate.diagrams.structure import Structure, structure_name
from trystate.model.autograd.graphs import Graph
from trystate.model.checker.expectations import Finding
from trystate.model.checker.verdicts import Status, Verdict
from trystate.model.checker.walks import Walk, shown_by, walked
from trystate.model.errors import UsageError
from trystate.model.language import DecisionTable, System
from trystate.search.machine import decide, decided
from trystate.search.plans import showcase

from .. import registry
from ..choosing import add_system_options, build, chosen
from ..exits import Exit
from ..outputs import make_folder, writing
from ..progress import Reporter
from ..report.results import plural

COMMITTED = Path("diagrams/generated")
ELSEWHERE = Path("trystate-diagrams")
SHOWN = re.compile(rf"\({COMMITTED.as_posix()}/([\w.-]+)|\(\.\./{COMMITTED.as_posix()}/([\w.-]+)")
LIST_WIDTH = 100  # characters a line


@dataclass(slots=True)
class Chosen:
    """The declarations that are drawn."""

    classes: Iterable[type[System]] = ()
    tables: Mapping[str, DecisionTable] = field(default_factory=dict)
    findings: Iterable[Finding] = ()
    walks: Iterable[Walk] = ()
    structures: Iterable[Structure] = ()
    graphs: Iterable[Graph] = ()
    whole: bool = False  # everything that can be drawn


def diagram_options(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="a system, a machine of a system, module:Class, a table, a walk, a graph, a structure, or a finding "
        "(default: all)",
    )
    p.add_argument(
        "--witness",
        metavar="PROPERTY",
        help="draw the shortest run to a state that satisfies this `sometimes`; name the system if several have it",
    )
    p.add_argument("--check", action="store_true", help="write nothing; name the files that are out of date (exit 1)")
    p.add_argument(
        "--list",
        action="store_true",
        help="print the names that can be drawn; with a system, its machines and witnesses",
    )
    p.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="folder for the files (default: trystate-diagrams; diagrams/generated if it exists and all is drawn)",
    )
    add_system_options(p)


def diagram(args: argparse.Namespace) -> int:
    """Carry out the command; returns the exit code."""
    if args.list:
        if args.witness or args.check or args.out or chosen(args):
            raise UsageError("--list prints names and draws nothing: leave out all but the names of systems")
        return _list(args.names)
    some = bool(args.names or args.witness)
    if some and args.check:
        raise UsageError("--check compares all committed pictures: leave out --check or the names")
    if chosen(args) and not args.witness:
        raise UsageError("sizes, editions and faults need a --witness: give one, or leave them out")
    out = args.out or (COMMITTED if COMMITTED.is_dir() and not some else ELSEWHERE)
    reporter = Reporter()
    what = Chosen() if args.witness else _named(args.names) if args.names else _all()
    only = _shown() if out == COMMITTED and not some else None
    if only is not None:  # a search for each of the others would take most of the time
        what.findings = [finding for finding in what.findings if {f"{finding.name}.md", f"{finding.name}.svg"} & only]
    if args.out and not args.check:
        make_folder(out, "--out")
    # First of all: the operands of ∧ and = stand in the order in which they were made, and another system makes some.
    systems = list(registry.in_each_edition(what.classes))
    runs = [_witness(args, reporter)] if args.witness else [*_walks(what.walks), *_runs(what, reporter)]
    drawn = systems, what.tables, runs, what.graphs, what.structures, only
    with reporter.doing("drawing"):
        if args.check:
            wrong = diagrams.stale(out, *drawn)
        else:
            with writing(out, "--out"):
                written = diagrams.generate(out, *drawn, whole=what.whole)
    if not args.check:
        print(f"{plural(len(written), 'file')} written to {out}")
        return Exit.OK
    for path in wrong:
        print(f"stale: {path}")
    print(f"{plural(len(wrong), 'stale file')}: trystate diagram --out {out}" if wrong else f"{out} is up to date")
    return Exit.FAILED if wrong else Exit.OK


def _list(names: Sequence[str]) -> int:
    """Print the names that can be drawn; of systems that are named, their machines and witnesses alone."""
    classes = {name: registry.system_class(name) for name in names or registry.SYSTEMS}
    if not names:
        for heading, known in {"tables": registry.table_names(), **_drawable()}.items():
            _print(f"{heading}: {' '.join(known)}")
    for name, cls in classes.items():
        machines = " ".join(registry.machine_names(cls))
        _print(f"{name}: {machines}")
        for witness, claim in registry.witnesses(cls).items():
            needs = [*claim.needs, *(edition.name for edition in claim.editions)]
            asked = f" [{', '.join(needs)}]" if needs else ""
            words = (claim.body.__doc__ or "").strip().partition("\n")[0]
            _print(f"    --witness {witness}{asked}: {words}")
    return Exit.OK


def _print(text: str) -> None:
    indent = " " * (len(text) - len(text.lstrip()) + 4)
    print(textwrap.fill(text, LIST_WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False))


def _shown() -> set[str]:
    """The files in `COMMITTED` that the pages of this checkout link to."""
    pages = [*Path().glob("*.md"), *Path("docs").glob("*.md")]
    return {a or b for page in pages for a, b in SHOWN.findall(page.read_text(encoding="utf-8"))}


def _all() -> Chosen:
    return Chosen(
        registry.SYSTEMS.values(), registry.titled_tables(), registry.findings().values(), registry.WALKS,
        registry.STRUCTURES, registry.GRAPHS, whole=True,
    )  # fmt: skip


def _drawable() -> dict[str, Mapping[str, Any]]:
    """The declarations that have names, by kind and name."""
    return {
        "walks": {walk.name: walk for walk in registry.WALKS},
        "graphs": {graph_name(graph): graph for graph in registry.GRAPHS},
        "structures": {structure_name(structure): structure for structure in registry.STRUCTURES},
        "findings": registry.findings(),
    }


def _named(names: Sequence[str]) -> Chosen:
    """The declarations of these names: tables, findings, walks, structures, graphs, systems, machines, module:Class."""
    classes: list[type[System]] = []
    tables: dict[str, DecisionTable] = {}
    known = {**_drawable(), "findings": registry.finding_labels()}
    found: dict[str, Any] = {kind: [] for kind in known}
    for name in names:
        mine = {title: t for title, t in registry.titled_tables().items() if title.partition(",")[0] == name}
        kind = next((kind for kind, labels in known.items() if name in labels), "")
        if mine:
            tables |= mine
        elif kind:
            found[kind].append(known[kind][name])
        else:
            others = [*registry.table_names(), *(label for labels in known.values() for label in labels)]
            classes.append(registry.system_named(name, "picture", others))
    return Chosen(dict.fromkeys(classes), tables, **found)


def _witness(args: argparse.Namespace, reporter: Reporter) -> diagrams.Run:
    """The shortest run to a state that satisfies a `sometimes`; chooses the faults and the edition that the run needs.

    Raises:
        UsageError: no system, or several, have it, or no run of the system comes there.
        LimitReached: it was not decided.
    """
    cls, claim = registry.witness_named(args.witness, map(registry.system_class, args.names))
    given = {text.partition("=")[0] for item in args.fault for text in item.split(",")}
    args.fault = [*args.fault, *(fault for fault in claim.needs if fault not in given)]
    names = [edition.name for edition in claim.editions if edition.name in registry.edition_names(cls)]
    if args.edition is None and names:
        args.edition = registry.DEFAULT_EDITION if registry.DEFAULT_EDITION in names else names[0]
    system = build(cls, args)
    with reporter.doing(f"looking for {args.witness} in {system.label}"):
        verdict = decided(system, args.witness, reporter.search)
    if verdict.run is None:
        raise UsageError(f"no run of {system.label} reaches {args.witness}: choose another size, edition or fault")
    name = f"{system_name(system)}-{args.witness}"
    return diagrams.Run(name, verdict.property.doc, system, verdict.run, ends=verdict.property)


def _walks(walks: Iterable[Walk]) -> Iterator[diagrams.Run]:
    """The runs that are given step by step."""
    for walk in walks:
        system = walk.run.build()
        yield diagrams.Run(walk.name, walk.title, system, walked(walk, system), walk.notes, shown_by(walk, system))


def _runs(what: Chosen, reporter: Reporter) -> Iterator[diagrams.Run]:
    """The model's counterexample of each finding that the plan shows; each is found once."""
    plan = registry.plan()
    found: dict[tuple[int, str], tuple[System, Verdict]] = {}
    for finding in what.findings:
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
            what.whole = False
            reporter.done(f"{finding.number} {finding.name}: {name} is {verdict.status.value}, so it is not drawn")
