"""Spin on an exported system: the states that it counts, and the assertions that fail, with the depth of the first.

The search is breadth-first: the depth is the length of the shortest run. Nothing is reduced: counts can be compared. A
violation does not end it. `-o2` keeps Spin from leaving out variables that no step reads.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from trystate.model.checker.kernel import Kernel, Limits
from trystate.model.checker.reference.engine import ReferenceEngine
from trystate.model.checker.verdicts import Report, Status
from trystate.model.language import Form, Kind
from trystate.model.language.expressions import TRUE

SECONDS_MAX = 300  # limit of one program
PROCESSES = 3  # processes of an exported system
COUNTED_MAX = 3_000  # states; the reference engine evaluates each condition in each
MEMORY_MIB = 3000  # memory limit of the verifier
GCC = ("gcc", "-O0", "-w", "-DSAFETY", "-DNOREDUCE", "-DBFS", f"-DMEMLIM={MEMORY_MIB}", "-o", "pan", "pan.c")
REQUIRED = "TRYSTATE_SPIN"  # set: without Spin the tests fail

_FAILED = re.compile(r"pan:\d+: assertion violated (\w+) \(at depth (\d+)\)")


@dataclass
class Seen:
    """The search of the verifier: `failed` has the name of each assertion that fails -> the least depth."""

    states: int = 0
    transitions: int = 0
    failed: dict[str, int] = field(default_factory=dict)


def require_spin() -> None:
    """Skip the test if Spin or a C compiler is missing; fail it if the environment requires them."""
    missing = [name for name in ("spin", "gcc") if shutil.which(name) is None]
    if missing:
        why = f"{' and '.join(missing)} not found: apt-get install spin gcc"
        assert REQUIRED not in os.environ, why
        pytest.skip(why)


def verify(model: str, folder: Path) -> Seen:
    """Generate, compile and run the verifier of a model."""
    _compile(model, folder)
    return _read(_lines(folder))


def shown(model: str, folder: Path) -> list[str]:
    """The labels of the steps of the first run to a violation, as Spin replays it."""
    _compile(model, folder)
    _run(["./pan"], folder)
    said = _run(["spin", "-t", "-T", "model.pml"], folder)
    run = said.partition("spin: model.pml")[0]  # the end of the run and the values of all variables follow
    # Spin warns at times that the model is newer than the run, which was made after it.
    labels = [word for line in run.splitlines() if not line.startswith("spin: warning") for word in line.split()]
    assert labels, said
    return labels


def _compile(model: str, folder: Path) -> None:
    (folder / "model.pml").write_text(model, encoding="utf-8")
    _run(["spin", "-a", "-o2", "model.pml"], folder)
    _run(GCC, folder)


def _run(argv: Sequence[str], folder: Path) -> str:
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _lines(folder: Path) -> Iterator[str]:
    """The lines of the verifier, one by one: it prints one for each violation."""
    argv = ["./pan", "-c0", "-n", "-w20"]
    with subprocess.Popen(["timeout", str(SECONDS_MAX), *argv], cwd=folder, stdout=subprocess.PIPE, text=True) as pan:
        assert pan.stdout is not None
        yield from pan.stdout
    assert pan.returncode == 0, f"{argv} ended with {pan.returncode}"


def _read(lines: Iterator[str]) -> Seen:
    seen, rest = Seen(), []
    for line in lines:
        found = _FAILED.match(line)
        if found is None:
            rest.append(line)
        else:
            seen.failed[found[1]] = min(int(found[2]), seen.failed.get(found[1], 1 << 31))
    text = "".join(rest)
    stored = re.search(r"(\d+) nominal states", text)  # those between the choices of an initial state do not count
    transitions = re.search(r"(\d+) transitions", text)
    assert stored and transitions and "reached" in text and "out of memory" not in text, text
    seen.states, seen.transitions = int(stored[1]), int(transitions[1])
    return seen


def differences(report: Report, seen: Seen) -> list[str]:
    """How Spin's search of an exported system differs from ours, in words; empty if it does not."""
    choices = sum(len(cell.initial) > 1 for cell in report.system.cells)
    choices = choices if report.system.initial_condition is TRUE else min(choices, 1)
    before = choices + PROCESSES if choices else 0  # steps of Spin's before an initial state is complete
    found = []
    if seen.states - (choices > 0) != report.exploration.distinct:
        found.append(f"states: {report.exploration.distinct}, Spin {seen.states - (choices > 0)}")
    for verdict in report.verdicts:
        prop, run = verdict.property, verdict.run
        if prop.form.live:
            continue
        assert verdict.status is not Status.NOT_DECIDED
        # A step property is evaluated before its step is done; Spin counts the step when it is done.
        ours = len(run.path.steps) - (prop.form is Form.STEP) + before if run is not None else None
        spins = seen.failed.get(("never_" if prop.form is Form.SOMETIMES else "holds_") + prop.name)
        if ours != spins:
            found.append(f"{prop.name}: {_depth(ours)}, Spin {_depth(spins)}")
    if "in_range" in seen.failed:
        found.append("a step leaves a field's range, in Spin alone")
    if not choices and report.exploration.distinct <= COUNTED_MAX:
        ours = _transitions(report)
        if ours != seen.transitions:
            found.append(f"steps and failed conditions: {ours}, Spin {seen.transitions}")
    return found


def _transitions(report: Report) -> int:
    """Spin's count of transitions: the beginning, each step, each failed condition of a state, each rest."""
    engine = ReferenceEngine(Kernel(report.system), Limits())
    engine.explore([])
    properties = [verdict.property for verdict in report.verdicts]
    asked = [p for p in properties if p.form in (Form.ALWAYS, Form.SOMETIMES)]
    rests = any(p.form is Form.DEADLOCK for p in properties)
    found = 1 + engine.edges
    for state, steps in engine.graph.items():
        found += sum(engine.interpreter.holds(p.exprs[0], state) is (p.form is Form.SOMETIMES) for p in asked)
        found += rests and all(engine.kernel.instances[n].transition.kind is Kind.FAULT for n, _ in steps)
    return found


def _depth(steps: int | None) -> str:
    return "never" if steps is None else f"after {steps} steps"
