"""The replays: a script for each finding of torch 2, NVRx and torchft. This module runs and renders a script.

Rule: a script needs torch, the standard library and the modules in this folder. In its report the definitions that it
uses from these modules replace the imports, so the script that is sent needs only torch. A script about NVRx also needs
trystate and NVRx's file, and a script about torchft needs torchft. A script ends with exit code 1 and a last line
`reproduced: ...` if the defect shows, and with 0 and `not reproduced` if it does not. With `--control` as its only
argument it runs a harmless schedule, which must not reproduce the defect. The docstring is the report for the
maintainers, without the parts that the record of the finding contains. The name of a file is the finding's number and
name, so it cannot be imported.
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
SECONDS_MAX = 300.0  # a script takes up to 60 s if nothing else runs
PARTS = ("Versions", "Steps", "Expected", "Seen", "Cause", "Fix", "Related")
"""The parts of a docstring, below the title of the report; only Related may be missing."""


def script(finding: Finding) -> Path:
    """The path of a finding's script, whether or not it exists: the number with two digits, and the name."""
    return FOLDER / f"{finding.number[0]}{int(finding.number[1:]):02}-{finding.name}.py"


def outcome(exit_code: int, last_line: str) -> bool | None:
    """Whether a script with this end has reproduced its defect; None if its schedule did not take place."""
    return {(1, "reproduced"): True, (0, "not reproduced"): False}.get((exit_code, last_line.partition(":")[0]))


def replay(path: Path, say: Callable[[str], None], *, control: bool = False) -> bool:
    """Run a script on the installed torch and pass each line that it prints to `say`; returns whether it reproduced.

    Raises:
        ScheduleError: the script did not end within `SECONDS_MAX`, or ended without a result.
    """
    last = ""
    argv = [sys.executable, str(path), *["--control"] * control]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "RUST_LOG": "error"}
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
    """Kill a script with all processes that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def docstring(path: Path) -> tuple[str, Mapping[str, str]]:
    """The title of a script's report, and the report's parts by name."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    title, *rest = re.split(rf"^({'|'.join(PARTS)}):(?:\n| )", text, flags=re.M)
    return " ".join(title.split()), {name: part.strip() for name, part in zip(rest[::2], rest[1::2], strict=True)}


def alone(path: Path) -> str:
    """A script without its docstring, with the definitions that it uses from the modules here; it needs only torch."""
    _, imports, rest = _parts(path)
    shared: dict[str, str] = {}  # the definitions of the modules, by name
    used, needed = {}, set[str]()
    for line, names in imports.items():
        module = FOLDER / f"{line.split()[1]}.py"
        if not module.is_file():
            used[line] = names
            continue
        definitions, theirs, _ = _parts(module)
        needed |= _closed(names, definitions)
        shared |= definitions
        words = {word for name in needed & definitions.keys() for word in _names(definitions[name])}
        used |= {each: names & words for each, names in theirs.items() if names & words}
    heads = sorted(line for line in used if not line.startswith("from __future__"))
    return "\n\n\n".join(["\n".join(heads), *(text for name, text in shared.items() if name in needed), rest])


def _parts(path: Path) -> tuple[dict[str, str], dict[str, set[str]], str]:
    """The definitions of a file by name, its imports with the names that each binds, and the text after the imports."""
    text = path.read_text(encoding="utf-8")
    definitions, imports, end = dict[str, str](), dict[str, set[str]](), 0
    for node in ast.parse(text).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            end = node.end_lineno or 0
            for alias in node.names:
                line = ast.unparse(type(node)(**{**vars(node), "names": [alias]}))
                imports[line] = {(alias.asname or alias.name).partition(".")[0]}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            definitions[node.name] = "\n".join(text.splitlines()[first - 1 : node.end_lineno])
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            definitions[node.targets[0].id] = "\n".join(text.splitlines()[node.lineno - 1 : node.end_lineno])
    return definitions, imports, "\n".join(text.splitlines()[end:]).strip("\n") + "\n"


def _closed(names: set[str], definitions: Mapping[str, str]) -> set[str]:
    """These names, and all other names that their definitions use."""
    found = set[str]()
    while names := (names - found) & definitions.keys():
        found |= names
        names = {word for name in names for word in _names(definitions[name])}
    return found


def _names(code: str) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)}


def report(finding: Finding) -> str:
    """The report of a finding for the maintainers of its package, as Markdown."""
    path = script(finding)
    title, parts = docstring(path)
    needs = {"NVRx": "torch, trystate and NVRx", "torchft": "torchft"}.get(finding.of, "only torch")
    sections = {
        "Versions": parts["Versions"],
        "Symptom": finding.seen,
        "Conditions": finding.exposed,
        "Steps": parts["Steps"],
        "Script": f"`{path.name}` needs {needs}, and ends with exit code 1 if the defect shows:\n\n"
        f"```python\n{alone(path)}```",
        "Expected": parts["Expected"],
        "Seen": f"```text\n{parts['Seen']}\n```",
        "Cause": parts["Cause"],
        "Suggested fix": parts["Fix"],
        "Workaround": finding.workaround,
        **({"Related": parts["Related"]} if "Related" in parts else {}),
    }
    return f"# {title}\n" + "".join(f"\n## {head}\n\n{text}\n" for head, text in sections.items())
