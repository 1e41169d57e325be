"""The report directory: report.json, report.md, and the counterexamples, a folder for each run.

Rule: what an earlier report wrote is removed before a new one is written, and nothing else is.
"""

from __future__ import annotations

import json
from pathlib import Path

from trystate.diagrams import render, sequence_dot, sequence_mermaid, sequence_text
from trystate.diagrams.style import slug
from trystate.model.checker.verdicts import Counterexample
from trystate.model.errors import UnavailableError, UsageError

from ..exits import TRACEBACK
from .itf import itf_trace
from .json import counterexample, results_json
from .junit import results_junit
from .markdown import results_markdown
from .results import Checked, Results

JSON, MARKDOWN = "report.json", "report.md"


def write_report(results: Results, out: Path, *, json_file: Path | None, junit_file: Path | None) -> str:
    """Write everything; returns why there are no pictures, if there are none.

    Raises:
        UsageError: a file or folder cannot be written.
    """
    try:
        return _write(results, out, json_file, junit_file)
    except OSError as error:
        raise UsageError(
            f"cannot write the report: {error}; choose another place with --out, --json or --junit"
        ) from error


def _write(results: Results, out: Path, json_file: Path | None, junit_file: Path | None) -> str:
    out.mkdir(parents=True, exist_ok=True)
    _remove_earlier(out)
    files: dict[tuple[int, str], list[str]] = {}
    problem = ""
    for number, checked in enumerate(results.checked, 1):
        for verdict, _ in checked.judged:
            run = counterexample(verdict)
            if run is not None:
                name = verdict.property.name
                title = f"{name}: {verdict.property.doc}"
                paths, why = _draw(out / _folder(number, checked), name, title, checked, run)
                files[number, name] = [str(path.relative_to(out)) for path in paths]
                problem = problem or why
    text = json.dumps(results_json(results, files), indent=1, ensure_ascii=False) + "\n"
    for path in (out / JSON, json_file):
        _put(path, text)
    _put(out / MARKDOWN, results_markdown(results, files))
    _put(junit_file, results_junit(results))
    return problem


def _put(path: Path | None, text: str) -> None:
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _folder(number: int, checked: Checked) -> str:
    names = [checked.report.system.name, checked.edition]
    return "-".join([f"{number:02}", *(slug(name) for name in names if name)])


def _draw(folder: Path, name: str, title: str, checked: Checked, run: Counterexample) -> tuple[list[Path], str]:
    system = checked.report.system
    dot = sequence_dot(system, run, title)
    texts = {
        ".dot": dot,
        ".itf.json": json.dumps(itf_trace(system, run, title), indent=1, ensure_ascii=False) + "\n",
        ".mmd": sequence_mermaid(system, run),
        ".txt": f"{title}\n\n{sequence_text(system, run)}",
    }
    paths = [folder / f"{name}{ending}" for ending in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        _put(path, text)
    try:
        render(dot, folder / f"{name}.svg")
    except UnavailableError as error:
        return paths, str(error)
    return sorted([*paths, folder / f"{name}.svg"]), ""


def _remove_earlier(out: Path) -> None:
    """The old report names its files; a name that leads out of the directory is not one of ours."""
    (out / TRACEBACK).unlink(missing_ok=True)
    try:
        old = json.loads((out / JSON).read_text(encoding="utf-8"))["files"]
    except (OSError, ValueError, KeyError, TypeError):
        return
    for name in old if isinstance(old, list) else ():
        path = out / str(name)
        if path.resolve().is_relative_to(out.resolve()) and path.is_file():
            path.unlink()
            if not any(path.parent.iterdir()):
                path.parent.rmdir()
