"""The benchmarks run and compare equal results; their durations are not tested here."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from trystate.property_tests.support.nightly import NIGHTLY

FOLDER = Path(__file__).resolve().parents[3] / "benchmarks"
ALONE = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="needs a clone: a wheel holds no benchmarks")


def printed(folder: Path, line: str) -> str:
    """The output of a benchmark, which must end with exit code 0."""
    name, *options = line.split()
    done = subprocess.run(
        [sys.executable, str(FOLDER / f"{name}.py"), *options],
        capture_output=True, text=True, cwd=folder, check=False, env={**os.environ, **ALONE}, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def by_night(line: str, shown: str, why: str) -> object:
    return pytest.param(line, shown, marks=pytest.mark.skipif(not NIGHTLY, reason=f"{why}: by night"))


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        by_night("checker --quick", r"trystate +\| 288 .*trystate +\| 8,541 ", "compiles, and searches in each tool"),
        by_night("published --quick", r"Consensus\S+ +\| 4 ", "starts TLC and compiles"),
    ],
)  # fmt: skip
def test_a_benchmark_runs_and_its_sides_count_the_same(line: str, shown: str, tmp_path: Path) -> None:
    assert re.search(shown, printed(tmp_path, line), re.S)


# The parts of each benchmark. By day only the first part of some runs, because parts need processes and time.
PARTS = {
    "store": ("operations", "record", "kept", "growth"),
    "adversity": ("descriptors", "crowd", "disk", "memory", "names", "six", "clock"),
    "rooms": ("real",),
    "rendezvous": ("rounds",),
    "autograd": ("linear", "contexts"),
}
BY_DAY = [("store", "operations"), ("adversity", "descriptors")]
RUN = [(name, part) for name, parts in PARTS.items() for part in parts] if NIGHTLY else BY_DAY


@pytest.mark.parametrize(("name", "part"), RUN)
def test_both_libraries_do_the_same(name: str, part: str, tmp_path: Path) -> None:
    pytest.importorskip("torch.distributed.rpc")
    assert printed(tmp_path, f"{name} --quick --only {part}").count("\n| ") >= 2
