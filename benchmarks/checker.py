"""The explicit engine beside Spin and a search in plain Python, on the same two graphs.

    python benchmarks/checker.py [--rounds N] [--quick]

Each run is a process of its own, and the tools take turns, so that a busy machine slows all of them. The comparison is
of the CPU time of the search (user and system, of the operating system's account); the time before it, such as building
the model or compiling the verifier, is shown beside it. Every tool visits all states and checks the same invariants in
each. The numbers of states must agree, or the exit code is 1.
"""

from __future__ import annotations

import argparse
import importlib.util
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
from typing import Any

MODELS = Path(__file__).resolve().parent / "models"
OURS, PYTHON, SPIN, SPIN_FULL = "trystate", "plain Python", "Spin", "Spin, no reduction"


@dataclass(frozen=True)
class Case:
    """One graph. `depth` and `hash_bits` are what Spin needs to be at its best: neither short nor wasteful."""

    model: str
    size: int
    depth: int
    hash_bits: int
    python_rounds: int = 99  # the plain search takes minutes and gigabytes on the largest graph

    @property
    def title(self) -> str:
        unit = "resource managers" if self.model == "two_phase_commit" else "nodes"
        return f"{self.model.replace('_', ' ')}, {self.size} {unit}"


FULL = (
    Case("two_phase_commit", 8, depth=100, hash_bits=21),
    Case("rendezvous", 3, depth=10_000, hash_bits=19),
    Case("rendezvous", 4, depth=100_000, hash_bits=24, python_rounds=1),
)
QUICK = (
    Case("two_phase_commit", 3, depth=100, hash_bits=12),
    Case("rendezvous", 2, depth=1_000, hash_bits=14),
)


@dataclass(frozen=True)
class Run:
    """The cost of one run: CPU seconds of the search and of the time before it; bytes at its peak."""

    states: int
    search: float
    before: float
    peak: int


# ---- the subjects, each in a process of its own


def cpu() -> float:
    return time.process_time()


def peak_bytes(usage: resource.struct_rusage) -> int:
    return usage.ru_maxrss << 10


def answer(search: Callable[[], int]) -> None:
    """Search, and print what it took."""
    base = peak_bytes(resource.getrusage(resource.RUSAGE_SELF))
    before = cpu()
    states = search()
    after = cpu()
    peak = peak_bytes(resource.getrusage(resource.RUSAGE_SELF)) - base
    print(json.dumps({"states": states, "search": after - before, "before": before, "peak": peak}))


def ours(case: Case) -> None:
    from trystate.model.checker.explicit.engine import ExplicitEngine
    from trystate.model.checker.kernel import Kernel, Limits, Watch, WatchKey, WatchKind
    from trystate.model.language import Form, System, not_
    from trystate.property_tests.support.systems.small_rendezvous import small_rendezvous
    from trystate.property_tests.support.systems.two_phase_commit import TwoPhaseCommit

    system: System
    system = TwoPhaseCommit(rm=case.size) if case.model == "two_phase_commit" else small_rendezvous(case.size)
    asked = {WatchKey(WatchKind.ALWAYS, p.name): p.exprs for p in system.properties if p.form is Form.ALWAYS}
    invariants = [Watch(key, not_(exprs[0]), {}) for key, exprs in asked.items() if exprs]
    engine = ExplicitEngine(Kernel(system), Limits())

    def search() -> int:
        seen = engine.explore(invariants)
        assert invariants and seen.complete and not seen.found, seen
        return seen.distinct

    answer(search)


def plain(case: Case) -> None:
    spec = importlib.util.spec_from_file_location(case.model, MODELS / f"{case.model}.py")
    assert spec is not None and spec.loader is not None
    model: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(model)

    def search() -> int:
        frontier = [model.initial(case.size)]
        seen = set(frontier)
        successors, holds = model.successors, model.holds
        while frontier:
            following = []
            for state in frontier:
                assert holds(state), state
                for after in successors(state):
                    if after not in seen:
                        seen.add(after)
                        following.append(after)
            frontier = following
        return len(seen)

    answer(search)


SUBJECTS = {OURS: ours, PYTHON: plain}

# ---- the runs


def child(argv: list[str], folder: str) -> tuple[str, float, int]:
    """Run a program: what it printed, its CPU seconds with those of its children, its peak in bytes."""
    with tempfile.TemporaryFile("w+") as out:
        started = subprocess.Popen(argv, cwd=folder, stdout=out, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(started.pid, 0)
        started.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        text = out.read()
    if started.returncode:
        raise SystemExit(f"{' '.join(argv)}: exit code {started.returncode}\n{text}")
    return text, usage.ru_utime + usage.ru_stime, peak_bytes(usage)


def run_python(subject: str, case: Case, folder: str) -> Run:
    argv = [sys.executable, __file__, "--subject", subject, "--case", case.model, str(case.size)]
    text, _, _ = child(argv, folder)
    return Run(**json.loads(text.splitlines()[-1]))


def run_spin(case: Case, folder: str, *options: str) -> Run:
    """Generate, compile and run Spin's verifier."""
    before = child(["spin", f"-DN={case.size}", "-a", str(MODELS / f"{case.model}.pml")], folder)[1]
    before += child(["gcc", "-O2", "-w", "-DSAFETY", *options, "-o", "pan", "pan.c"], folder)[1]
    text, search, peak = child(["./pan", f"-m{case.depth}", f"-w{case.hash_bits}"], folder)
    stored = re.search(r"([\d.e+]+) states, stored", text)
    if stored is None or "errors: 0" not in text or "max search depth too small" in text:
        raise SystemExit(f"Spin did not finish on {case.title}\n{text}")
    return Run(int(float(stored[1])), search, before, peak)


def measured(case: Case, rounds: int, subjects: list[str]) -> dict[str, list[Run | None]]:
    """The runs of each subject, round by round; None where it sits out."""
    runs: dict[str, list[Run | None]] = {subject: [] for subject in subjects}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds):
            for subject in subjects:
                print(f"{case.title}: round {number + 1}, {subject} ...", file=sys.stderr, flush=True)
                run: Run | None = None
                if subject == SPIN:
                    run = run_spin(case, folder)
                elif subject == SPIN_FULL:
                    run = run_spin(case, folder, "-DNOREDUCE")
                elif subject != PYTHON or number < case.python_rounds:
                    run = run_python(subject, case, folder)
                runs[subject].append(run)
    return runs


# ---- what is printed


def spread(values: list[float], digits: int) -> str:
    """The median, and from where to where."""
    middle = f"{statistics.median(values):.{digits}f}"
    return middle if len(values) < 2 else f"{middle} ({min(values):.{digits}f}..{max(values):.{digits}f})"


def rows(runs: dict[str, list[Run | None]]) -> Iterator[list[str]]:
    for subject, found in runs.items():
        done = [r for r in found if r is not None]
        ratios = [r.search / o.search for r, o in zip(found, runs[OURS], strict=True) if r and o]
        search = [r.search for r in done]
        yield [
            subject,
            f"{done[0].states:,}",
            spread(search, 2),
            spread([r.before for r in done], 2),
            f"{done[0].states / max(statistics.median(search), 1e-6) / 1e6:.2f}",
            f"{statistics.median(r.peak / r.states for r in done):.0f}",
            spread(ratios, 1),
        ]


def show(case: Case, runs: dict[str, list[Run | None]]) -> None:
    heads = ["tool", "states", "CPU s", "before, CPU s", "M states per CPU s", "bytes per state", "times trystate"]
    lines = [heads, *rows(runs)]
    widths = [max(len(line[k]) for line in lines) for k in range(len(heads))]
    print(f"\n### {case.title}\n")
    for number, line in enumerate(lines):
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |")
        if not number:
            print("|" + "|".join("-" * (width + 2) for width in widths) + "|")


def about() -> str:
    """The machine and the versions."""
    parts = [f"{os.cpu_count()} cores", f"Python {platform.python_version()}"]
    for argv in (["spin", "-V"], ["gcc", "-dumpfullversion"]):
        if shutil.which(argv[0]):
            said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split("\n")[0]
            parts.append(f"gcc {said}" if argv[0] == "gcc" else said)
    return ", ".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3, help="runs of each tool (default 3)")
    parser.add_argument("--quick", action="store_true", help="one round of the smallest sizes")
    parser.add_argument("--subject", choices=SUBJECTS, help=argparse.SUPPRESS)
    parser.add_argument("--case", nargs=2, metavar=("MODEL", "SIZE"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.subject:
        name, size = args.case
        SUBJECTS[args.subject](next(c for c in FULL + QUICK if (c.model, c.size) == (name, int(size))))
        return 0
    subjects = [OURS, PYTHON]
    if shutil.which("spin") and shutil.which("gcc"):
        subjects[1:1] = [SPIN, SPIN_FULL]
    else:
        print("without Spin: it needs `spin` and `gcc` (apt-get install spin gcc)")
    print(about())
    agree = True
    for case in QUICK if args.quick else FULL:
        runs = measured(case, 1 if args.quick else max(1, args.rounds), subjects)
        show(case, runs)
        counts = {r.states for found in runs.values() for r in found if r is not None}
        if len(counts) != 1:
            agree = False
            print(f"\nthe tools do not agree on the states: {sorted(counts)}")
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
