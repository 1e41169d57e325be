"""Each finding has a script, which is its report too. The script shows the defect; its control does not."""

from __future__ import annotations

import ast
import os
import shutil
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from trystate import registry
from trystate.model import releases
from trystate.model.checker.expectations import PRACTICE, TIMING
from trystate.property_tests import replays
from trystate.property_tests.adapters.replays import ScheduleError
from trystate.property_tests.adapters.versions import PACKAGES
from trystate.property_tests.support.nightly import by_night

FINDINGS = registry.findings().values()
SCRIPTS = {replays.script(f).stem: f for f in FINDINGS if replays.script(f).is_file()}


def sample(first: int = 0) -> list[str]:
    """All scripts by night; by day two for each part of torch (the first letter of a name)."""
    found = []
    for letter in dict.fromkeys(name[0] for name in SCRIPTS):
        names = [name for name in SCRIPTS if name[0] == letter]
        step = -(-len(names) // by_night("reports for torch", 2))
        found += names[first % step :: step]
    return found


def replayed(name: str, path: Path, *, control: bool) -> tuple[bool, str]:
    """Whether the script has reproduced its defect, and its last line; skipped where the subject is not here."""
    if SCRIPTS[name].of != "torch":
        absence = PACKAGES[SCRIPTS[name].of].problem() or ""
    else:
        absence = releases.absence(version("torch"), SCRIPTS[name])
    if absence and not releases.is_over(version("torch"), SCRIPTS[name]):
        pytest.skip(absence)
    if "store_exchange" in path.read_text(encoding="utf-8") and shutil.which(os.environ.get("CXX", "c++")) is None:
        pytest.skip("a C++ compiler builds the class of torch's header")
    lines = list[str]()
    reproduced = replays.replay(path, lines.append, control=control)
    print(*lines, sep="\n")
    return reproduced, lines[-1]


def test_every_finding_has_a_script_unless_no_torch_can_replay_it() -> None:
    assert {path.stem for path in replays.FOLDER.glob("*-*")} == {*SCRIPTS}
    without = [f for f in FINDINGS if f not in SCRIPTS.values()]
    assert without == [f for f in FINDINGS if releases.is_out_of_reach(f) or f.of == "torchcomms"]
    assert {f.until for f in without if f.of == "torch"} == {"1.9"}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_report_is_complete(name: str) -> None:
    title, parts = replays.docstring(replays.script(SCRIPTS[name]))
    assert title and [part for part in replays.PARTS if not parts.get(part)] in ([], ["Related"])
    assert SCRIPTS[name].seen and SCRIPTS[name].exposed and SCRIPTS[name].workaround
    assert SCRIPTS[name].practice.removesuffix(TIMING) in PRACTICE
    assert parts["Seen"].splitlines()[-1].startswith("reproduced: ")
    assert imported(replays.alone(replays.script(SCRIPTS[name]))) <= {
        *sys.stdlib_module_names, "torch", *({"torchft"} if SCRIPTS[name].of == "torchft" else ()),
    }  # fmt: skip


def imported(text: str) -> set[str]:
    """The packages that a program imports."""
    found = set[str]()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(str(node.module).partition(".")[0])
    return found


def test_a_report_has_the_record_of_its_finding_and_its_script() -> None:
    finding = registry.finding_named("S3")
    code, report = replays.alone(replays.script(finding)), replays.report(finding)
    assert "class Server:" in code and "def clients" in code and "def served_apart" not in code, (
        "only the definitions that the script uses"
    )
    assert report.startswith("# TCPStore: get() returns b") and f"```python\n{code}```\n\n## Expected\n" in report
    assert f"## Symptom\n\n{finding.seen}\n" in report and f"## Workaround\n\n{finding.workaround}\n" in report


@pytest.mark.parametrize("name", sample())
def test_the_installed_torch_has_the_findings_of_its_release(name: str, tmp_path: Path) -> None:
    """The report's script runs alone in a folder."""
    path = tmp_path / "script.py"
    path.write_text(replays.alone(replays.script(SCRIPTS[name])), encoding="utf-8")
    reproduced, last = replayed(name, path, control=False)
    finding = SCRIPTS[name]
    package = PACKAGES.get(finding.of)
    has = not package.absence(finding) if package else releases.has(version("torch"), finding)
    assert reproduced is has
    if has:
        assert last == replays.docstring(replays.script(finding))[1]["Seen"].splitlines()[-1]


@pytest.mark.parametrize("name", sample(1))
def test_a_control_does_no_harm(name: str) -> None:
    assert replayed(name, replays.script(SCRIPTS[name]), control=True)[0] is False


def test_a_script_without_a_result_is_not_taken_for_one(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    for text, code in (
        ("raise SystemExit(1)", 1),
        ("print('reproduced: it')", 0),
        ("print('not reproduced'); 1/0", 1),
    ):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ScheduleError, match=f"script.py ended with exit code {code} and without a result"):
            replays.replay(path, print)
