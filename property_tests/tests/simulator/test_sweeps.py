"""The simulator's command: how far a sweep is, what it has found so far, and how it ends at Ctrl-C."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from trystate.property_tests.adapters.forked import Program
from trystate.property_tests.adapters.simulator import swarm
from trystate.property_tests.adapters.simulator.__main__ import main
from trystate.property_tests.adapters.simulator.progress import Progress
from trystate.property_tests.support.mutants import planted
from trystate.property_tests.support.simulator.engine_mutants import MUTANTS
from trystate.property_tests.support.simulator.sweeps import begin

SECONDS = 60.0
BROKEN = "expels without replacing the round"


# ---- progress


class Ticking:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_log_gets_a_line_now_and_then_with_the_rate_and_the_time_that_is_left() -> None:
    clock, said = Ticking(), io.StringIO()
    progress = Progress(4_000, "seeds", clock=clock, stream=said)
    for number in progress.watch(range(4_000), lambda one: one % 1_000 == 999):
        clock.now += 0.01
        if number == 1_499:
            break
    assert said.getvalue().splitlines() == [
        "200 of 4,000 seeds, 100 a second, 38 s left",
        "1,200 of 4,000 seeds, 100 a second, 28 s left, 1 failed",
    ]
    assert (progress.done, progress.failed, progress.interrupted) == (1_500, 1, False)


def test_a_sweep_that_is_over_soon_says_nothing_in_a_log() -> None:
    said = io.StringIO()
    assert list(Progress(3, "seeds", stream=said).watch("abc", bool)) == ["a", "b", "c"]
    assert said.getvalue() == ""


@pytest.mark.parametrize(("seconds", "left"), [(0.09, "90 s"), (1.0, "17 min"), (10.0, "2.8 h")])
def test_the_time_that_is_left_is_given_in_the_unit_that_people_use(seconds: float, left: str) -> None:
    clock = Ticking()
    progress = Progress(1_001, "seeds", clock=clock, stream=io.StringIO())
    for _ in progress.watch(range(1), lambda one: False):
        clock.now += seconds
        assert f", {left} left" in str(progress)


def what_a_terminal_showed(descriptor: int) -> str:
    """All of it: one read returns what has come so far, and the last read of a closed terminal fails."""
    parts = []
    with contextlib.suppress(OSError):
        while part := os.read(descriptor, 1 << 16):
            parts.append(part)
    os.close(descriptor)
    return b"".join(parts).decode()


def test_a_terminal_has_one_live_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as terminal:
        for _ in Progress(5, "seeds", stream=terminal).watch(range(5), lambda one: one == 2):
            time.sleep(0.25)
    said = what_a_terminal_showed(ours)
    assert "of 5 seeds" in said and "1 failed" in said
    assert "\x1b[?25l" in said and "\x1b[?25h" in said, "the cursor is hidden, and comes back"


def test_ctrl_c_ends_a_sweep_between_two_runs_and_a_second_one_at_once() -> None:
    before, progress = signal.getsignal(signal.SIGINT), Progress(9, "seeds", stream=io.StringIO())
    done = []
    for number in progress.watch(range(9), bool):
        done.append(number)
        if number == 3:
            signal.raise_signal(signal.SIGINT)
            assert signal.getsignal(signal.SIGINT) is before
    assert (done, progress.interrupted, signal.getsignal(signal.SIGINT)) == ([0, 1, 2, 3], True, before)


# ---- the command


@contextlib.contextmanager
def running(folder: Path, *argv: str, **variables: str) -> Iterator[Program]:
    program = Program(folder / "log", begin, *argv, variables=variables)
    try:
        yield program
    finally:
        program.kill()


def until(program: Program, so: Callable[[str], object]) -> None:
    ends = time.monotonic() + SECONDS
    while not so(program.said):
        assert time.monotonic() < ends, program.said
        time.sleep(0.02)


def test_a_sweep_that_is_interrupted_says_what_was_done_and_how_to_go_on(tmp_path: Path) -> None:
    with running(tmp_path, "--seeds", "1000000", "--first", "5") as program:
        until(program, lambda said: " left" in said)
        assert re.match(r"\d+ of 1,000,000 seeds, [\d,.e+]+ a second, [\d,.]+ h left\n", program.said)
        program.signal(signal.SIGINT)
        assert program.ends() == 130
        found = re.search(r"interrupted after ([\d,]+) of 1,000,000 seeds: no properties violated", program.said)
        assert found is not None, program.said
        done = int(found[1].replace(",", ""))
        assert (
            f"go on: python -m trystate.property_tests.adapters.simulator --first {5 + done} --seeds {10**6 - done}\n"
            in (program.said)
        )


@pytest.mark.parametrize("side", ["", "torch"])
def test_a_seed_that_fails_is_printed_at_once_with_the_command_that_replays_it(side: str, tmp_path: Path) -> None:
    argv, broken = (["--handlers", side], {}) if side else ([], {"BROKEN": BROKEN})
    with running(tmp_path, "--seeds", "1000000", *argv, **broken) as program:
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


def test_a_sweep_that_ends_shows_the_smallest_run_of_the_first_seed_that_failed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["simulator", "--seeds", "5", "--nodes", "3"])
    with planted(MUTANTS[BROKEN]):
        failed = [one.schedule.seed for one in swarm.sweep(range(5), 3) if one.fails]
        assert main() == 1
    out = capsys.readouterr().out
    assert failed and out.count("again: ") == len(failed) + 1
    assert f"5 seeds: {len({line.split(':')[0] for line in out.splitlines() if 'again: ' in line} - {'again'})}" in out
    assert (
        out.splitlines()[-1]
        == f"again: python -m trystate.property_tests.adapters.simulator --seed {failed[0]} --nodes 3"
    )
