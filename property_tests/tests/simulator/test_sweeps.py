"""The simulator's command: its progress, its findings so far, and its end at Ctrl-C."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from trystate.property_tests.adapters.forked import Program
from trystate.property_tests.support.simulator.sweeps import begin

SECONDS = 60.0
BROKEN = "expels without replacing the round"


def running(folder: Path, *argv: str, **variables: str) -> Program:
    return Program(folder / "log", begin, *argv, variables=variables)


def until(program: Program, so: Callable[[str], object]) -> None:
    ends = time.monotonic() + SECONDS
    while not so(program.said):
        assert time.monotonic() < ends, program.said
        time.sleep(0.02)


def test_a_sweep_that_is_interrupted_says_what_was_done_and_how_to_go_on(tmp_path: Path) -> None:
    with running(tmp_path, "--seeds", "100000", "--first", "5") as program:
        until(program, lambda said: " left" in said)
        assert re.match(r"\d+ of 100,000 seeds, \d+\.\d min left", program.said)
        program.signal(signal.SIGINT)
        assert program.ends() == 130
        found = re.search(r"interrupted after ([\d,]+) of 100,000 seeds: no properties violated", program.said)
        assert found is not None, program.said
        done = int(found[1].replace(",", ""))
        assert (
            "continue: python -m trystate.property_tests.adapters.simulator "
            f"--first {5 + done} --seeds {10**5 - done}\n" in (program.said)
        )


@pytest.mark.parametrize("side", ["", "torch"])
def test_a_failing_seed_is_printed_at_once_with_its_command(side: str, tmp_path: Path) -> None:
    argv, broken = (["--handlers", side], {}) if side else ([], {"BROKEN": BROKEN})
    with running(tmp_path, "--seeds", "100000", *argv, **broken) as program:
        until(program, lambda said: "again: " in said)
        line = next(line for line in program.said.splitlines() if "again: " in line)
        name, _, command = line.partition(": again: ")
        program.signal(signal.SIGINT)
        assert program.ends() == 1
        assert f"\n{name}: " in program.said and "properties violated" in program.said
    again = command.split()[3:]
    assert command.startswith("python -m trystate.property_tests.adapters.simulator --seed ")
    with running(tmp_path, *again, "--whole", **broken) as program:
        assert program.ends() == 1
        assert f"violated: {name}" in program.said
