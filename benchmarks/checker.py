"""Compares the explicit engine with Spin, on the same two graphs.

    python benchmarks/checker.py [--rounds N] [--quick]

Each run is a separate process, and the tools take turns: a busy machine slows all of them. The CPU times of the search
(user and system, as the operating system counts them) are compared. The time before it, such as building the model or
compiling the verifier, is shown next to it. Every tool visits all states and checks the same invariants in each. The
numbers of states must agree, or the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from trystate.model.checker.explicit.engine import ExplicitEngine
from trystate.model.checker.kernel import Kernel, Limits, Watch, WatchKey, WatchKind
from trystate.model.language import Form, System, not_
from trystate.property_tests.support.systems.small_rendezvous import small_rendezvous
from trystate.property_tests.support.systems.two_phase_commit import TwoPhaseCommit

MODELS = Path(__file__).resolve().parent / "models"
OURS, SPIN, SPIN_FULL = "trystate", "Spin", "Spin, no reduction"
HEADS = ["tool", "states", "CPU s", "before, CPU s", "M states per CPU s", "bytes per state", "times trystate"]


@dataclass(frozen=True)
class Case:
    """One graph. `depth` and `hash_bits` are Spin's best settings: large enough, but not wasteful."""

    model: str
    size: int
    depth: int
    hash_bits: int

    @property
    def title(self) -> str:
        unit = "nodes" if self.model == "rendezvous" else "resource managers"
        return f"{self.model}, {self.size} {unit}"


FULL = (
    Case("two phase commit", 8, depth=100, hash_bits=21),
    Case("rendezvous", 3, depth=10_000, hash_bits=19),
    Case("rendezvous", 4, depth=100_000, hash_bits=24),
)
QUICK = (
    Case("two phase commit", 3, depth=100, hash_bits=12),
    Case("rendezvous", 2, depth=1_000, hash_bits=14),
)


@dataclass(frozen=True)
class Run:
    """The cost of one run: CPU seconds of the search and of the time before it, and its peak memory in bytes."""

    states: int
    search: float
    before: float
    peak: int


# ---- ours, in a separate process


def peak_bytes(usage: resource.struct_rusage) -> int:
    return usage.ru_maxrss << 10


SYSTEMS: dict[str, Callable[[int], System]] = {
    "two phase commit": lambda n: TwoPhaseCommit(rm=n),
    "rendezvous": small_rendezvous,
}


def invariants(system: System) -> list[Watch]:
    """The watches for the violations of each `always`."""
    asked = [p for p in system.properties if p.form is Form.ALWAYS]
    return [Watch(WatchKey(WatchKind.ALWAYS, p.name), not_(p.exprs[0]), {}) for p in asked]


def search(system: System) -> None:
    """Search, and print the cost."""
    engine = ExplicitEngine(Kernel(system), Limits())
    base = peak_bytes(resource.getrusage(resource.RUSAGE_SELF))
    before = time.process_time()
    seen = engine.explore(invariants(system))
    after = time.process_time()
    assert seen.complete and not seen.found, seen
    peak = peak_bytes(resource.getrusage(resource.RUSAGE_SELF)) - base
    print(json.dumps({"states": seen.distinct, "search": after - before, "before": before, "peak": peak}))


# ---- the runs


def child(argv: list[str], folder: str) -> tuple[str, float, int]:
    """Run a program; returns its output, the CPU seconds of it and its children, and its peak memory in bytes."""
    with tempfile.TemporaryFile("w+") as out:
        started = subprocess.Popen(argv, cwd=folder, stdout=out, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(started.pid, 0)
        started.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        text = out.read()
    if started.returncode:
        raise SystemExit(f"{' '.join(argv)}: exit code {started.returncode}\n{text}")
    return text, usage.ru_utime + usage.ru_stime, peak_bytes(usage)


def run_ours(case: Case, folder: str) -> Run:
    argv = [sys.executable, __file__, "--case", case.model, str(case.size)]
    text, _, _ = child(argv, folder)
    return Run(**json.loads(text.splitlines()[-1]))


def run_spin(case: Case, folder: str, *options: str) -> Run:
    """Generate, compile and run Spin's verifier."""
    before = child(["spin", f"-DN={case.size}", "-a", str(MODELS / f"{case.model.replace(' ', '_')}.pml")], folder)[1]
    before += child(["gcc", "-O2", "-w", "-DSAFETY", *options, "-o", "pan", "pan.c"], folder)[1]
    text, search, peak = child(["./pan", f"-m{case.depth}", f"-w{case.hash_bits}"], folder)
    stored = re.search(r"([\d.e+]+) states, stored", text)
    if stored is None or "errors: 0" not in text or "max search depth too small" in text:
        raise SystemExit(f"Spin did not finish on {case.title}\n{text}")
    return Run(int(float(stored[1])), search, before, peak)


SUBJECTS: dict[str, Callable[[Case, str], Run]] = {
    OURS: run_ours,
    SPIN: run_spin,
    SPIN_FULL: lambda case, folder: run_spin(case, folder, "-DNOREDUCE"),
}


def measured(case: Case, rounds: int, subjects: list[str]) -> dict[str, list[Run]]:
    """The runs of each subject, round by round."""
    runs: dict[str, list[Run]] = {subject: [] for subject in subjects}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds):
            for subject in subjects:
                print(f"{case.title}: round {number + 1}, {subject} ...", file=sys.stderr, flush=True)
                runs[subject].append(SUBJECTS[subject](case, folder))
    return runs


# ---- what is printed


def spread(values: list[float], digits: int) -> str:
    """The median and the range."""
    middle = f"{statistics.median(values):.{digits}f}"
    return middle if len(values) < 2 else f"{middle} ({min(values):.{digits}f}..{max(values):.{digits}f})"


def rows(runs: dict[str, list[Run]]) -> Iterator[list[str]]:
    for subject, found in runs.items():
        ratios = [r.search / o.search for r, o in zip(found, runs[OURS], strict=True)]
        search = [r.search for r in found]
        yield [
            subject,
            f"{found[0].states:,}",
            spread(search, 2),
            spread([r.before for r in found], 2),
            f"{found[0].states / max(statistics.median(search), 1e-6) / 1e6:.2f}",
            f"{statistics.median(r.peak / r.states for r in found):.0f}",
            spread(ratios, 1),
        ]


def show(title: str, heads: list[str], lines: list[list[str]]) -> None:
    """Print a table."""
    table = [heads, *lines]
    widths = [max(len(line[k]) for line in table) for k in range(len(heads))]
    print(f"\n### {title}\n")
    for number, line in enumerate(table):
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |")
        if not number:
            print("|" + "|".join("-" * (width + 2) for width in widths) + "|")
    sys.stdout.flush()


def about() -> str:
    """The machine and the versions."""
    parts = [f"{os.cpu_count()} cores", f"Python {platform.python_version()}"]
    for argv in (["spin", "-V"], ["gcc", "-dumpfullversion"]):
        if shutil.which(argv[0]):
            said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split("\n")[0]
            parts.append(f"gcc {said}" if argv[0] == "gcc" else said)
    return ", ".join(parts)


def options(doc: str | None, rounds: int) -> argparse.ArgumentParser:
    """The options that all comparisons have."""
    parser = argparse.ArgumentParser(description=(doc or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=rounds, help="measurements of each figure (default %(default)s)")
    parser.add_argument("--quick", action="store_true", help="a few small measurements")
    return parser


def main() -> int:
    parser = options(__doc__, 3)
    parser.add_argument("--case", nargs=2, metavar=("MODEL", "SIZE"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.case:
        search(SYSTEMS[args.case[0]](int(args.case[1])))
        return 0
    subjects = [*SUBJECTS]
    if not (shutil.which("spin") and shutil.which("gcc")):
        subjects = [OURS]
        print("without Spin: it needs `spin` and `gcc` (apt-get install spin gcc)")
    print(about())
    agree = True
    for case in QUICK if args.quick else FULL:
        runs = measured(case, 1 if args.quick else max(1, args.rounds), subjects)
        show(case.title, HEADS, [*rows(runs)])
        counts = {r.states for found in runs.values() for r in found}
        if len(counts) != 1:
            agree = False
            print(f"\nthe tools do not agree on the states: {sorted(counts)}")
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
