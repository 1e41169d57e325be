"""Workers and their children never outlive their agent, and a signal takes effect at any time."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException, start_processes

from trystate.impl.agent import tail
from trystate.impl.agent.processes import killed_when
from trystate.impl.agent.signals import ECHO_SECONDS, Signals
from trystate.impl.agent.tail import follow
from trystate.impl.agent.watchdog import look
from trystate.impl.host import parent_death
from trystate.property_tests.adapters.jobs import alive, eventually
from trystate.property_tests.support.agents import DEAF, runs_deaf, started

LEASH = str(Path(parent_death.__file__))


# ---- the leash


def test_a_process_on_a_leash_dies_with_its_parent() -> None:
    program = f"""
import os, subprocess, sys, time
argv = [sys.executable, "-I", "-S", {LEASH!r}, str(os.getpid()), "", "sleep", "63"]
print(subprocess.Popen(argv, start_new_session=True).pid, flush=True)
time.sleep(60)
"""
    with started(sys.executable, "-c", program) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        eventually("it sleeps", lambda: b"sleep" in Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")[0])
        parent.kill()
        eventually("it dies as well", lambda: not alive(child))


def test_a_process_whose_parent_is_gone_already_does_not_begin() -> None:
    with started(sys.executable, "-I", "-S", LEASH, "1", "", "echo", "begun") as process:
        out, _ = process.communicate(timeout=10)
        assert (process.returncode, out) == (1, "")


def test_a_command_that_is_not_there_is_named() -> None:
    with started(*parent_death.leash(""), "/no/such/command") as process:
        _, said = process.communicate(timeout=10)
        assert process.returncode == parent_death.COMMAND_NOT_FOUND
        assert said == "trystate: cannot run /no/such/command: No such file or directory\n"


# ---- the processes left behind


def test_orphans_that_end_are_reaped_meanwhile_and_only_those() -> None:
    program = """
import os, subprocess, time
from trystate.impl.agent import processes
def zombies():
    found = []
    for pid in processes.children(os.getpid()):
        if open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] == "Z":
            found.append(pid)
    return sorted(found)
def until(count):
    ends = time.monotonic() + 20
    while len(zombies()) != count:
        assert time.monotonic() < ends, zombies()
        time.sleep(0.01)
with processes.adopting_orphans():
    subprocess.run(["sh", "-c", "setsid sleep 0.3 & setsid sleep 0.3 & :"], start_new_session=True)
    until(2)
    processes.reap_adopted(os.getpid(), ())
    assert zombies() == []
    worker = subprocess.Popen(["true"], start_new_session=True)
    until(1)
    processes.reap_adopted(os.getpid(), {worker.pid})
    assert zombies() == [worker.pid]
    assert worker.wait() == 0
    helper = subprocess.Popen(["false"])
    until(1)
    processes.reap_adopted(os.getpid(), ())
    assert helper.wait() == 1
subprocess.run(["sh", "-c", "setsid sleep 0.1 & :"], start_new_session=True)
assert processes.children(os.getpid()) == frozenset(), "init has it again"
print("well")
"""
    with started(sys.executable, "-c", program) as process:
        out, said = process.communicate(timeout=60)
        assert out == "well\n", said


# ---- signals


@pytest.fixture
def signals() -> Iterator[Signals]:
    found = Signals("SIGUSR1, SIGUSR2,SIGNONE")
    found.install()
    try:
        yield found
    finally:
        found.restore()


def test_a_signal_interrupts_a_wait(signals: Signals) -> None:
    began = time.monotonic()
    with pytest.raises(SignalException, match="the agent got SIGUSR1") as caught, signals.interrupt():
        os.kill(os.getpid(), signal.SIGUSR1)
        time.sleep(10)
    assert time.monotonic() - began < 5
    assert caught.value.sigval is signal.SIGUSR1


def test_a_signal_elsewhere_is_kept_for_the_next_wait(signals: Signals) -> None:
    os.kill(os.getpid(), signal.SIGUSR1)
    assert signals.got is signal.SIGUSR1
    with pytest.raises(SignalException), signals.interrupt():
        raise AssertionError("it has come already")


def test_a_repeated_signal_counts_unless_it_is_an_echo(signals: Signals) -> None:
    for _ in range(2):
        signal.raise_signal(signal.SIGUSR1)
    assert not signals.again
    time.sleep(2 * ECHO_SECONDS)
    signal.raise_signal(signal.SIGUSR2)
    assert signals.again and signals.got is signal.SIGUSR1


def test_a_second_signal_does_not_interrupt_what_the_first_one_began(signals: Signals) -> None:
    with pytest.raises(SignalException), signals.interrupt():
        os.kill(os.getpid(), signal.SIGUSR1)
    os.kill(os.getpid(), signal.SIGUSR2)
    assert signals.got is signal.SIGUSR1


# ---- the copy of their output


def test_lines_in_pieces_come_out_whole_and_the_last_one_is_not_lost(tmp_path: Path) -> None:
    """At each wait for more output the worker writes a piece, and it ends with the last one."""
    path, out, ends = tmp_path / "stdout.log", io.StringIO(), threading.Event()
    pieces = [b"loss ", b"0.5\nskipped\n10 %\r2", b"0 %\r\n\xc3", b"\xa9\x0c", b"the last"]

    def writes(seconds: float) -> None:
        file.write(pieces.pop(0))
        if not pieces:
            ends.set()

    with path.open("ab", buffering=0) as file, mock.patch.object(ends, "wait", writes):
        follow("[w0]:", str(path), out, ends, 0.1, lambda line: line != "skipped\n")
    assert out.getvalue() == "[w0]:loss 0.5\n[w0]:10 %\n[w0]:20 %\n[w0]:é\x0cthe last\n"


def test_a_line_without_end_is_copied_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "LINE_LENGTH_MAX", 2 * tail.READ_BYTES)
    path, out, ends = tmp_path / "stdout.log", io.StringIO(), threading.Event()
    path.write_bytes(b"x" * (5 * tail.READ_BYTES))
    ends.set()
    follow("", str(path), out, ends, 0.1, lambda line: True)
    assert [len(line) // tail.READ_BYTES for line in out.getvalue().splitlines()] == [2, 2, 1]


def test_a_process_that_writes_for_ever_does_not_keep_the_copy(tmp_path: Path) -> None:
    path, out, ends = tmp_path / "stdout.log", io.StringIO(), threading.Event()
    path.write_bytes(b"y\n")
    ends.set()
    with path.open("ab", buffering=0) as file:
        follow("", str(path), out, ends, 0.1, lambda line: bool(file.write(b"y\n")))
    assert out.getvalue() == "y\n"


# ---- SIGTERM, the wait, SIGKILL: the steps of the model (fault `deaf`) on torch's workers


@pytest.mark.parametrize("kind", ["a command", "a function"])
@pytest.mark.parametrize("ends", ["in time", "never", "at the end of the lease"])
def test_a_worker_that_does_not_end_is_killed_after_the_time_out(kind: str, ends: str, tmp_path: Path) -> None:
    """torch's agent calls `close` alone; ours calls it within `killed_when`."""
    here, limit = str(tmp_path / "worker"), 1 if ends == "never" else 60
    command = sys.executable if kind == "a command" else runs_deaf
    args = {0: ("-c", DEAF, here) if kind == "a command" else (here,)}
    context = start_processes("deaf", command, args, {0: {}}, DefaultLogsSpecs(), start_method="spawn")
    (pid,) = context.pids().values()
    lapsed = threading.Event()

    def close() -> None:
        with killed_when(lapsed.is_set, lambda: [process for process in [look(pid)] if process is not None]):
            context.close(signal.SIGTERM, limit)

    try:
        eventually("it runs", lambda: Path(here).exists())
        began = time.monotonic()
        stopping = threading.Thread(target=close)
        stopping.start()
        eventually("it got SIGTERM", lambda: Path(here + ".got").exists())
        assert alive(pid) and stopping.is_alive(), "the agent waits for it: ASKED"
        if ends == "in time":
            Path(here + ".end").touch()
        elif ends == "at the end of the lease":
            lapsed.set()
        stopping.join(30)
        took = time.monotonic() - began
        assert not stopping.is_alive() and not alive(pid)
        assert took >= limit if ends == "never" else took < limit
    finally:
        Path(here + ".end").touch()
        context.close(signal.SIGKILL)
