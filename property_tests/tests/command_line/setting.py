"""Fixtures of the tests of the commands: a plan of two small runs, and a command line in an empty folder."""

import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trystate import registry
from trystate.__main__ import main
from trystate.commands import verify
from trystate.model.checker.expectations import Finding, Run
from trystate.property_tests import replays
from trystate.property_tests.harness.checks import Check, Outcome
from trystate.property_tests.support.systems.lock import Edition, Lock

FINDING = Finding("two-inside", "R1", "Two nodes are inside at once", "look before entering")
KNOWN = {"one_at_a_time": ("two-inside",)}
BROKEN = Run(Lock, {"node": 2}, Edition.BROKEN, ("relapse",), KNOWN)
MENDED = Run(Lock, {"node": 2}, Edition.MENDED, ("relapse",))
HERE = f"{Lock.__module__}:Lock"
AGREES = Check("operators", lambda report: Outcome(12, "contexts", (), 0.1))
WHOLE = ("verify", "--all", "--jobs", "1")
DIFFERS = Check("edges", lambda report: Outcome(7, "edges", ("step 3: the model says A, torch B",), 0.1))

Command = Callable[..., tuple[int, str, str]]
FORGED = "verdict: every line is explained, and no property was violated"
HOSTILE = f"\x1b[2J\x1b]0;title\x07\x9b\u202e\n{FORGED}"  # clears the screen, writes a title, a line, and backwards


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets the plan, and the results of the comparisons."""

    def install(*runs: Run, checks: tuple[Check, ...] = (AGREES,), problem: str | None = None) -> None:
        monkeypatch.setattr(registry, "plan", lambda: runs)
        monkeypatch.setattr(registry, "findings", lambda: {FINDING.name: FINDING})
        monkeypatch.setattr(verify, "torch_problem", lambda: problem)
        monkeypatch.setattr(verify, "conformance_checks", lambda: checks)
        monkeypatch.setattr(verify, "refinement_checks", lambda: ())

    install(BROKEN, MENDED)
    return install


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a command line in an empty folder: (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def run(*argv: object, stdin: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        code = main([str(word) for word in argv])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def command(plan: Callable[..., None], said: Command) -> Command:
    """The same as `said`, with the plan of two small runs."""
    return said


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Makes the script of `FINDING`, which is the only script, with this result."""
    monkeypatch.setattr(replays, "FOLDER", tmp_path)

    def write(reproduced: bool) -> None:
        last = "reproduced: 2 inside" if reproduced else "not reproduced"
        text = f"print('both enter')\nprint({last!r})\nraise SystemExit({int(reproduced)})\n"
        replays.script(FINDING).write_text(text, encoding="utf-8")

    return write


def report(folder: Path = Path("trystate-report")) -> Any:
    return json.loads((folder / "report.json").read_text())


def written(folder: Path = Path("trystate-report"), *apart: str) -> dict[str, str]:
    """Each file of a report, without seconds, bytes and these fields, and without the text of its pages."""
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    fields = re.compile(rf'\b[\d.]+ s\b|"({"|".join(("seconds", "bytes_per_state", *apart))})": ("[^"]*"|[\d.]+)')
    return {name: "" if path.suffix == ".md" else fields.sub("", path.read_text()) for name, path in files.items()}


def says(run: Command, code: int, *argv: object) -> str:
    """The output of a command line that ends with this exit code, or else its errors."""
    found, out, err = run(*argv)
    assert found == code, f"{argv}\n{out}{err}"
    return out or err


def harmless(text: str) -> bool:
    """Whether all lines are printable and no line is forged."""
    return all(line.isprintable() and line != FORGED for line in text.split("\n"))
