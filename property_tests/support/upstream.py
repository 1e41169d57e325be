"""The reports for torch's maintainers: docs/upstream has a page and a script for each finding of the newest torch.

Rule: a script needs torch and the standard library alone, ends with exit code 1 if the defect shows, and says so last.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping
from importlib.metadata import version
from pathlib import Path

import pytest
from trystate.model import releases
from trystate.model.checker.expectations import Finding

from .nightly import by_night

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "upstream"
HEADINGS = ("Versions", "Symptom", "Conditions", "Steps", "Script", "Expected", "Seen", "Cause", "Suggested fix")
SECONDS_MAX = 300.0  # a script takes up to 60 s where nothing else runs


def stem(finding: Finding) -> str:
    """The name of a finding's page and script: its number with two digits, and its name."""
    return f"{finding.number[0]}{int(finding.number[1:]):02}-{finding.name}"


def upstream_tests(
    findings: Mapping[str, Finding], replayed: Collection[str]
) -> tuple[Callable[[], None], Callable[[str], None], Callable[[str], None]]:
    """Three tests, to be given names in a test file: of the list of reports, of each page, and of each script.

    `replayed` names the findings that have a replay; those that the newest release has are reported. By day a sample
    of the scripts is run. A script of what the installed torch lacks is skipped.
    """
    needs_clone = pytest.mark.skipif(not FOLDER.is_dir(), reason="needs a clone: a wheel holds packages only")
    reports = [f for name, f in findings.items() if name in replayed and releases.has(releases.NEWEST.tried, f)]
    stems = [stem(finding) for finding in reports]
    sample = stems[:: -(-len(stems) // by_night("reports for torch", 2))]
    absent = {stem(f): releases.absence(version("torch"), f) for f in reports}

    @needs_clone
    def is_complete() -> None:
        letter = reports[0].number[0]
        there = {path.name for path in FOLDER.glob(f"{letter}[0-9]*")}
        assert there == {f"{name}.{ending}" for name in stems for ending in ("md", "py")}
        table = (FOLDER / "README.md").read_text(encoding="utf-8")
        rows = [line.split("|")[1].strip() for line in table.splitlines() if line.startswith("| ")]
        filed = {f.number: f"[{f.number}]({stem(f)}.md)" for f in reports}
        assert [row for row in rows if row.lstrip("[").startswith(letter)] == [
            filed.get(finding.number, finding.number) for finding in findings.values()
        ]
        assert [f.name for f in reports if not (f.seen and f.exposed and f.workaround)] == []

    @needs_clone
    @pytest.mark.parametrize("name", stems)
    def is_ready(name: str) -> None:
        page = (FOLDER / f"{name}.md").read_text(encoding="utf-8")
        script = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
        positions = [page.find(f"\n## {heading}\n") for heading in HEADINGS]
        assert -1 not in positions and positions == sorted(positions)
        assert f"```python\n{script}```" in page
        assert seen(name).startswith("reproduced: ")
        assert imported(script) <= {*sys.stdlib_module_names, "torch"}

    @needs_clone
    @pytest.mark.parametrize("name", sample)
    def reproduces(name: str) -> None:
        if absent[name]:
            pytest.skip(absent[name])
        argv = [sys.executable, "-I", str(FOLDER / f"{name}.py")]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
        assert done.stdout.splitlines()[-1:] == [seen(name)], done.stdout + done.stderr
        assert done.returncode == 1

    return is_complete, is_ready, reproduces


def seen(name: str) -> str:
    """The last line of the output that a page shows."""
    page = (FOLDER / f"{name}.md").read_text(encoding="utf-8")
    return page.partition("\n## Seen\n\n```text\n")[2].partition("\n```\n")[0].splitlines()[-1]


def imported(script: str) -> set[str]:
    """The packages that a script imports."""
    found = set[str]()
    for node in ast.walk(ast.parse(script)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(str(node.module).partition(".")[0])
    return found
