"""Compares the explicit engine with TLC and Spin on the published specifications.

    python benchmarks/published.py [--rounds N] [--quick] [--only NAME ...]

TLC and Spin search the models that trystate exports. Each tool visits all states, with one worker and without
reduction, and checks the same invariants in each. Each run is a separate process, the tools take turns, and the numbers
of states must agree, or the exit code is 1. A cell has the CPU seconds of all processes of a tool, with the start of
Python or Java and with Spin's compiler, and in brackets the CPU seconds of the search alone, if the tool reports them.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import tempfile
from pathlib import Path

from checker import about, child, options, search, show, spread

from trystate.model.checker.export.promela import promela
from trystate.model.checker.export.tla import tla
from trystate.model.language import Form, System
from trystate.property_tests.support.export.tlc import tlc_jar
from trystate.property_tests.support.published import SPECIFICATIONS, BakeryInvariant

Measured = tuple[int, float, float]  # states, CPU seconds, and CPU seconds of the search; 0 where they are not known
SPECIFIED = {one.build().label: one for one in SPECIFICATIONS}
# Spin's model of BakeryInvariant has a line for each of its many initial states.
FULL = [label for label, one in SPECIFIED.items() if 1_000 < one.states < 1_000_000 and one.of is not BakeryInvariant]
QUICK = [label for label, one in SPECIFIED.items() if one.states < 10]


def checked(of: System) -> list[str]:
    return [p.name for p in of.properties if p.form is Form.ALWAYS]


def ours(label: str, folder: str) -> Measured:
    text, total, _ = child([sys.executable, __file__, "--search", label], folder)
    cost = json.loads(text.splitlines()[-1])
    return cost["states"], total, cost["search"]


def tlc(label: str, folder: str) -> Measured:
    of = SPECIFIED[label].build()
    for ending, text in zip(("tla", "cfg"), tla(of, checked(of), "Exported"), strict=True):
        Path(folder, f"Exported.{ending}").write_text(text, encoding="utf-8")
    java = ["java", "-XX:+UseSerialGC", "-Xss64m", "-Xmx4g", f"-Djava.io.tmpdir={folder}", "-cp", str(tlc_jar())]
    said, total, _ = child([*java, "tlc2.TLC", "-deadlock", "-workers", "1", "-metadir", "states", "Exported"], folder)
    assert "No error has been found" in said, said
    return int(re.findall(r"(\d+) distinct states found", said)[-1]), total, 0


def spin(label: str, folder: str) -> Measured:
    of = SPECIFIED[label].build()
    Path(folder, "model.pml").write_text(promela(of, checked(of)), encoding="utf-8")
    before = child(["spin", "-a", "-o2", "model.pml"], folder)[1]
    before += child(["gcc", "-O1", "-w", "-DSAFETY", "-DNOREDUCE", "-o", "pan", "pan.c"], folder)[1]
    said, took, _ = child(["./pan", f"-m{1_000 + 2 * SPECIFIED[label].states}", "-n"], folder)
    assert "errors: 0" in said and "max search depth too small" not in said, said
    found = re.search(r"(\d+) nominal states", said) or re.search(r"(\d+) states, stored", said)
    assert found is not None, said
    several = any(len(cell.initial) > 1 for cell in of.cells)  # one more state, before the initial one is chosen
    return int(found[1]) - several, before + took, took


TOOLS = {"trystate": ours, "TLC": tlc, "Spin": spin}


def row(label: str, rounds: int) -> tuple[list[str], bool]:
    """The cells of a specification, and whether the tools agree."""
    runs: dict[str, list[Measured]] = {name: [] for name in TOOLS}
    for number in range(rounds):
        for name, run in TOOLS.items():
            print(f"{label}: round {number + 1}, {name} ...", file=sys.stderr, flush=True)
            with tempfile.TemporaryDirectory() as folder:
                runs[name].append(run(label, folder))
    cells = [f"{SPECIFIED[label].states:,}"]
    for found in runs.values():
        took = statistics.median(m[2] for m in found)
        cells.append(spread([m[1] for m in found], 1) + (f" [{took:.2f}]" if took else ""))
    for name in [*TOOLS][1:]:
        cells.append(spread([a[1] / b[1] for a, b in zip(runs[name], runs["trystate"], strict=True)], 1))
    return [label, *cells], {m[0] for found in runs.values() for m in found} == {SPECIFIED[label].states}


def main() -> int:
    parser = options(__doc__, 3)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="the specifications of these names")
    parser.add_argument("--search", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.search:
        search(SPECIFIED[args.search].build())
        return 0
    labels = QUICK if args.quick else [x for x in SPECIFIED if x.split("(")[0] in args.only] or FULL
    rows = [row(label, 1 if args.quick else args.rounds) for label in labels]
    print(about())
    heads = ["specification", "states", *(f"{name}, CPU s" for name in TOOLS), "TLC / trystate", "Spin / trystate"]
    show("Published specifications", heads, [cells for cells, _ in rows])
    return 0 if all(agree for _, agree in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
