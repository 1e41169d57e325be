"""The design note's end-to-end program does what the note describes, with our modules and with torch's.

The loss is the sum of two parameters, so each gradient is 1 everywhere. A step of SGD subtracts the rate from each
element once, because the two workers own different parameters and each worker has its own context.

Another example draws the committed pictures of a pass; a real run of it draws them again. Where two workers act at
once, either may be drawn first. The order of a worker's own acts, of the requests and of the answers is fixed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from trystate.diagrams.exchange import ANSWER
from trystate.property_tests.adapters.torch_store.server import free_port
from trystate.property_tests.support.nightly import NIGHTLY

PROGRAM = Path(__file__).resolve().parents[3] / "docs" / "examples" / "dist_autograd_simple.py"
SECONDS_MAX = 120.0
RATE, ELEMENTS = 0.05, 9
ROUNDED = 1.5e-4  # both values are printed with four digits
LINE = re.compile(r"worker(\d): rref(\d) on worker(\d): (.*)")
SIDES = ("ours", "torch")
pytestmark = pytest.mark.skipif(not PROGRAM.is_file(), reason="needs a clone: a wheel holds packages only")


def printed(whose: str) -> list[str]:
    """The lines of the program."""
    environment = {**os.environ, "PYTHONSAFEPATH": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port())}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(PROGRAM), whose],
        env=environment, capture_output=True, text=True, timeout=SECONDS_MAX, check=False,
    )  # fmt: skip
    assert not done.returncode, done.stderr
    return [line for line in done.stdout.splitlines() if LINE.fullmatch(line)]


@pytest.mark.parametrize("whose", SIDES if NIGHTLY else SIDES[:1])  # torch's takes 12 s to start processes
def test_each_worker_steps_the_parameters_of_the_other_once(whose: str) -> None:
    """Each line is about a parameter of the other worker, and each element has changed by one step of the rate."""
    lines = [LINE.fullmatch(line).groups() for line in printed(whose)]  # type: ignore[union-attr]
    assert sorted((worker, number) for worker, number, *_ in lines) == [(w, n) for w in "01" for n in "12"]
    for worker, _, owner, pairs in lines:
        values = [[float(value) for value in pair.split(">")] for pair in pairs.split()]
        assert worker != owner and len(values) == ELEMENTS
        assert all(abs(before - after - RATE) <= ROUNDED for before, after in values)


PICTURES = ("autograd-pass-fast.dot", "autograd-pass-smart.dot")


def drawn(dot: str) -> tuple[list[str], list[str]]:
    """The lines of a picture without the numbers of rows and their heights: notes and requests, and answers."""
    lines = re.sub(r'(?<=[,"])-?\d+(\.\d+(?=!")|(?=( from| to)?"))', "", dot).splitlines()
    return [line for line in lines if ANSWER.colour not in line], [line for line in lines if ANSWER.colour in line]


def test_the_example_draws_the_committed_pictures(tmp_path: Path) -> None:
    command = [sys.executable, str(PROGRAM.with_name("watch_a_pass.py")), "--out", str(tmp_path)]
    environment = {**os.environ, "PYTHONSAFEPATH": "1"}
    subprocess.run(command, env=environment, capture_output=True, timeout=SECONDS_MAX, check=True)
    for name in PICTURES:
        assert drawn((tmp_path / name).read_text("utf-8")) == drawn(
            (PROGRAM.parents[1] / "pictures" / name).read_text("utf-8")
        )
        assert (tmp_path / name).with_suffix(".svg").stat().st_size
