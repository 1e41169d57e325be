"""The replays: one script for each finding of torch 2; this module runs a script, and renders it as a report.

Rule: a script needs torch and the standard library alone. It ends with exit code 1 and a last line `reproduced: ...` if
the defect shows, with 0 and `not reproduced: ...` if it does not. With `--control` as its only argument it runs a
schedule that does no harm, and must not reproduce the defect. The docstring is the report for torch's maintainers, but
for the parts that the record of the finding has. A file has the finding's number and name: it cannot be imported.
"""

from __future__ import annotations

import ast
import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from trystate.model.checker.expectations import Finding

from ..adapters.replays import ScheduleError

FOLDER = Path(__file__).parent
SECONDS_MAX = 300.0  # a script takes up to 60 s where nothing else runs
PARTS = ("Versions", "Steps", "Expected", "Seen", "Cause", "Fix", "Related")
"""The parts of a docstring, below the title of the report; only Related may be missing."""


def script(finding: Finding) -> Path:
    """The script of a finding, whether or not there is one: its number with two digits, and its name."""
    return FOLDER / f"{finding.number[0]}{int(finding.number[1:]):02}-{finding.name}.py"


def outcome(exit_code: int, last_line: str) -> bool | None:
    """Whether a script that ended so has reproduced its defect; None if its schedule was not brought about."""
    return {(1, "reproduced"): True, (0, "not reproduced"): False}.get((exit_code, last_line.partition(":")[0]))


def replay(path: Path, say: Callable[[str], None], *, control: bool = False) -> bool:
    """Run a script on the installed torch, and pass on each line that it prints; returns whether it reproduced.

    Raises:
        ScheduleError: the script did not end in `SECONDS_MAX`, or without a result.
    """
    last = ""
    argv = [sys.executable, str(path), *["--control"] * control]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, start_new_session=True, env=environment) as child:
        end = partial(_end, child.pid)
        limit = threading.Timer(SECONDS_MAX, end)
        limit.start()
        try:
            for line in child.stdout or ():
                last = line.rstrip("\n")
                say(last)
            child.wait()
        finally:
            limit.cancel()
            end()
    if (reproduced := outcome(child.returncode, last)) is None:
        raise ScheduleError(f"{path.name} ended with exit code {child.returncode} and without a result")
    return reproduced


def _end(group: int) -> None:
    """End a script with all processes that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def docstring(path: Path) -> tuple[str, Mapping[str, str]]:
    """The title of a script's report, and its parts by name."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    title, *rest = re.split(rf"^({'|'.join(PARTS)}):(?:\n| )", text, flags=re.M)
    return " ".join(title.split()), {name: part.strip() for name, part in zip(rest[::2], rest[1::2], strict=True)}


def report(finding: Finding) -> str:
    """The report of a finding for torch's maintainers, as Markdown."""
    path = script(finding)
    title, parts = docstring(path)
    text = path.read_text(encoding="utf-8")
    code = "".join(text.splitlines(keepends=True)[ast.parse(text).body[0].end_lineno :]).lstrip("\n")
    sections = {
        "Versions": parts["Versions"],
        "Symptom": finding.seen,
        "Conditions": finding.exposed,
        "Steps": parts["Steps"],
        "Script": f"`{path.name}` needs torch alone, and ends with exit code 1 if the defect shows:\n\n"
        f"```python\n{code}```",
        "Expected": parts["Expected"],
        "Seen": f"```text\n{parts['Seen']}\n```",
        "Cause": parts["Cause"],
        "Suggested fix": parts["Fix"],
        "Workaround": finding.workaround,
        **({"Related": parts["Related"]} if "Related" in parts else {}),
    }
    return f"# {title}\n" + "".join(f"\n## {head}\n\n{text}\n" for head, text in sections.items())
