"""The report directory: report.json, report.md, and the counterexamples, a folder for each run.

Rule: every place is tried before the search. The files of an earlier report are removed then, and no others.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from trystate.diagrams import render, sequence_dot, sequence_mermaid, sequence_text
from trystate.diagrams.style import slug
from trystate.model.checker.verdicts import Counterexample
from trystate.model.errors import UnavailableError
from trystate.model.language import System

from ..exits import TRACEBACK
from ..outputs import make_folder, try_file, write_text, writing
from .itf import itf_trace
from .json import results_json
from .junit import results_junit
from .markdown import results_markdown
from .results import Results

JSON, MARKDOWN = "report.json", "report.md"


@dataclass(frozen=True, slots=True)
class Places:
    """Where a report is written: a directory, and further files that options name."""

    out: Path
    json: Path | None = None
    junit: Path | None = None
    html: Path | None = None

    def prepare(self) -> None:
        """Make the directory, remove an existing report, and try every place.

        Raises:
            UsageError: a file or folder cannot be written.
        """
        make_folder(self.out, "--out")
        own = (self.out / JSON, "--out"), (self.out / MARKDOWN, "--out")
        places = (*own, (self.json, "--json"), (self.junit, "--junit"), (self.html, "--html"))
        for path, option in places:
            try_file(path, option)
        with writing(self.out, "--out"):
            _remove_earlier(self.out)
        for path, option in places:
            # A search that ends without a report leaves none. A link is not replaced: it may be /dev/stdout.
            if path is not None and path.is_file() and not path.is_symlink():
                with writing(path, option):
                    path.unlink()

    def write(self, results: Results) -> None:
        """Write everything but the counterexamples, which `draw` has written.

        Raises:
            UsageError: a file or folder cannot be written.
        """
        text = json.dumps(results_json(results), indent=1, ensure_ascii=False) + "\n"
        write_text(self.out / JSON, text, "--out")
        write_text(self.out / MARKDOWN, results_markdown(results), "--out")
        if self.json is not None:
            write_text(self.json, text, "--json")
        if self.junit is not None:
            write_text(self.junit, results_junit(results), "--junit")


def folder(number: int, system: str, edition: str) -> str:
    """The folder of a run's counterexamples, below the report's."""
    return "-".join([f"{number:02}", *(slug(name) for name in (system, edition) if name)])


def draw(
    out: Path, below: str, name: str, title: str, system: System, run: Counterexample, *, pictures: bool = True
) -> list[str]:
    """Write a counterexample in every form, or only as text; returns the files, relative to `out`.

    Without Graphviz no picture is written: see `problem`.

    Raises:
        UsageError: a file or folder cannot be written.
    """
    texts = {".txt": f"{title}\n\n{sequence_text(system, run)}"}
    if pictures:
        dot = sequence_dot(system, run, title)
        texts[".dot"], texts[".mmd"] = dot, sequence_mermaid(system, run)
        texts[".itf.json"] = json.dumps(itf_trace(system, run, title), indent=1, ensure_ascii=False) + "\n"
    paths = [out / below / f"{name}{ending}" for ending in texts]
    with writing(out / below, "--out"):
        (out / below).mkdir(parents=True, exist_ok=True)
        for path, text in zip(paths, texts.values(), strict=True):
            path.write_text(text, encoding="utf-8")
        if pictures:
            try:
                render(dot, out / below / f"{name}.svg")
                paths.append(out / below / f"{name}.svg")
            except UnavailableError:
                pass
    return sorted(str(path.relative_to(out)) for path in paths)


def _remove_earlier(out: Path) -> None:
    """The old report names its files; a name that leads out of the directory is not one of ours."""
    (out / TRACEBACK).unlink(missing_ok=True)
    try:
        report = json.loads((out / JSON).read_text(encoding="utf-8"))
        old = report["files"] if "trystate" in report else ()
    except (OSError, ValueError, KeyError, TypeError):
        return
    for name in old if isinstance(old, list) else ():
        path = out / str(name)
        if path.resolve().is_relative_to(out.resolve()) and path.is_file():
            path.unlink()
            if not any(path.parent.iterdir()):
                path.parent.rmdir()
