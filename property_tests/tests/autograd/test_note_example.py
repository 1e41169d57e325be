"""The design note's end-to-end program does what the note says, with our modules and with torch's.

The loss is the sum of two parameters, so that each gradient is 1 everywhere: a step of SGD takes the rate from each
element, once, since the two workers own different parameters and each has a context of its own.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from trystate.property_tests.adapters.torch_store.server import free_port
from trystate.property_tests.support.nightly import NIGHTLY

PROGRAM = Path(__file__).resolve().parents[3] / "docs" / "examples" / "dist_autograd_simple.py"
SECONDS_MAX = 120.0
RATE, ELEMENTS = 0.05, 9
ROUNDED = 1.5e-4  # both values are printed with four digits
LINE = re.compile(r"worker(\d): rref(\d) on worker(\d): (.*)")
SIDES = ("ours", "torch")


def printed(whose: str) -> list[str]:
    """The lines of the program."""
    environment = {**os.environ, "PYTHONSAFEPATH": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port())}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(PROGRAM), whose],
        env=environment, capture_output=True, text=True, timeout=SECONDS_MAX, check=False,
    )  # fmt: skip
    assert not done.returncode, done.stderr
    return [line for line in done.stdout.splitlines() if LINE.fullmatch(line)]


def mistakes(lines: Sequence[str]) -> list[str]:
    """Mistakes in the lines: each parameter has one, on the other worker, and each element a step of the rate."""
    found, seen = list[str](), list[tuple[int, int]]()
    for line in lines:
        worker, number, owner, pairs = LINE.fullmatch(line).groups()  # type: ignore[union-attr]
        seen.append((int(worker), int(number)))
        changes = [float(after) - float(before) for before, after in (pair.split(">") for pair in pairs.split())]
        if {worker, owner} != {"0", "1"} or len(changes) != ELEMENTS:
            found.append(f"not a parameter of the other worker: {line}")
        found += [f"{change:+.4f} in {line}" for change in changes if abs(change + RATE) > ROUNDED]
    if sorted(seen) != [(0, 1), (0, 2), (1, 1), (1, 2)]:
        found.append(f"parameters: {sorted(seen)}")
    return found


@pytest.mark.skipif(not PROGRAM.is_file(), reason="needs a clone: a wheel holds packages only")
@pytest.mark.parametrize("whose", SIDES if NIGHTLY else SIDES[:1])  # the other takes 12 s of starting processes
def test_each_worker_steps_the_parameters_of_the_other_once(whose: str) -> None:
    assert not mistakes(printed(whose))


RIGHT = [
    f"worker{w}: rref{k} on worker{1 - w}: {' '.join(['0.5000>0.4500'] * ELEMENTS)}" for w in (0, 1) for k in (1, 2)
]


def test_what_a_wrong_program_prints_is_noticed() -> None:
    assert not mistakes(RIGHT)
    for wrong in (
        RIGHT[1:],  # a worker has not stepped one
        [*RIGHT, RIGHT[0]],
        [RIGHT[0].replace("0.5000>0.4500", "0.5000>0.5000", 1), *RIGHT[1:]],  # an element has no gradient
        [RIGHT[0].replace("0.4500", "0.4000"), *RIGHT[1:]],  # the gradient of both workers, or two steps
        [RIGHT[0].replace("on worker1", "on worker0"), *RIGHT[1:]],  # its own parameter
    ):
        assert mistakes(wrong)
