"""The agent's side of the workers' heartbeats: their files, the late workers, and the stacks of late workers.

Theory of operation. Each worker has a file, named by TRYSTATE_HEARTBEAT_FILE, and touches it as often as it likes
(`heartbeat.py`, or `touch` in a shell). The agent looks at the files whenever it looks at its workers. It compares no
clocks: a beat is a change of the file's time since the last look, and the agent measures its age by its own clock. An
agent that stood still counts that time as one look: its workers may have stood still with it.

A worker that has never beaten is late only after `start`, if that is set: most workers do not use heartbeats.

Rule: the stacks of a late worker are written before it is killed, by the best available means: the worker itself
(`faulthandler`, if it called `heartbeat()`), py-spy if that is installed, or the kernel's data about its threads. Each
has a limit of time and of length, and no failure of them keeps a worker from being killed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from .heartbeat import SIGNAL, STACKS
from .watchdog import PROC, look, table

GAP_SECONDS_MAX = 1.0  # a longer time between two looks counts as this, unless the agent looks less often
STACKS_SECONDS = 2.0  # limit for a worker to write its stacks
QUIET_SECONDS = 0.1  # a file that has not grown for this time is complete
PY_SPY_SECONDS = 10.0  # limit for all processes of a worker: py-spy reads the symbols of their libraries
TEXT_BYTES_MAX = 1 << 16  # limit of one worker's stacks in the log
PROCESSES_MAX, THREADS_MAX = 8, 64  # limits of the shown processes of a worker and threads of a process


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits after which a worker counts as hanging; times in seconds."""

    limit: float  # limit of the time since its last beat
    start: float | None = None  # limit of the time until its first beat; None: no limit
    file: str = ""  # the worker with local rank N has the file FILE.N; empty: in the agent's own folder


class Pulses:
    """Finds late workers. Owns no clock and no file; times in seconds of a monotonic clock."""

    def __init__(self, limits: Limits, gap_seconds_max: float = GAP_SECONDS_MAX) -> None:
        """`gap_seconds_max`: a longer time between two looks counts as this."""
        self._limits, self._gap_max = limits, gap_seconds_max
        self._watched, self._looked = 0.0, -1.0
        self._seen: dict[int, tuple[int | None, float]] = {}

    def look(self, beats: Mapping[int, int | None], now: float) -> dict[int, float]:
        """The seconds since the last beat of each late worker.

        `beats`: the last beat of each running worker, by its local rank; None: it has never beaten.
        """
        if self._looked >= 0.0:
            self._watched += min(now - self._looked, self._gap_max)
        self._looked = now
        for rank, beat in beats.items():
            if rank not in self._seen or self._seen[rank][0] != beat:
                self._seen[rank] = beat, self._watched
        silent = {rank: self._watched - self._seen[rank][1] for rank in beats}
        return {rank: seconds for rank, seconds in silent.items() if self._is_late(beats[rank], seconds)}

    def _is_late(self, beat: int | None, seconds: float) -> bool:
        allowed = self._limits.limit if beat is not None else self._limits.start
        return allowed is not None and seconds > allowed


class Heartbeats:
    """The files of the workers of one agent, from `begin` of each round on."""

    def __init__(self, limits: Limits, monitor_interval: float) -> None:
        """Make a folder for the files unless the limits name a file. Raises OSError."""
        self.limits = limits
        self._folder = "" if limits.file else tempfile.mkdtemp(prefix="trystate-heartbeats-")
        self._base = limits.file or os.path.join(self._folder, "worker")
        self._gap_max = max(GAP_SECONDS_MAX, 2 * monitor_interval)
        self._pulses = Pulses(limits, self._gap_max)
        self._born: dict[int, int] = {}  # when each worker of the round began, by its process

    def begin(self, ranks: Collection[int]) -> dict[int, str]:
        """The file of each local rank, for workers that are about to be started; old files are removed."""
        self._pulses, self._born = Pulses(self.limits, self._gap_max), {}
        for rank in ranks:
            for name in (self.path(rank), self.path(rank) + STACKS):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(name)
        return {rank: self.path(rank) for rank in ranks}

    def path(self, rank: int) -> str:
        return f"{self._base}.{rank}"

    def late(self, workers: Mapping[int, int]) -> dict[int, float]:
        """The seconds since the last beat of each late worker; `workers`: the process of each local rank."""
        running = {rank: pid for rank, pid in workers.items() if self._runs(pid)}
        return self._pulses.look({rank: self._beat(rank) for rank in running}, time.monotonic())

    def _runs(self, pid: int) -> bool:
        """Whether the worker runs, and its number is not another process's today."""
        process = look(pid)
        if process is None or process.state in "ZX":
            return False
        return process.start == self._born.setdefault(pid, process.start)

    def _beat(self, rank: int) -> int | None:
        try:
            return os.stat(self.path(rank)).st_mtime_ns
        except OSError:
            return None

    def beater(self, rank: int, worker: int) -> int:
        """The process that beats: the worker, or a process in its session that a wrapper has started."""
        with contextlib.suppress(OSError, ValueError):
            with open(self.path(rank), "rb") as file:
                pid = int(file.read(32))
            mine, its = look(worker), look(pid)
            if mine is not None and its is not None and its.session == mine.session:
                return pid
        return worker

    def end(self, rank: int, worker: int) -> str:
        """Kill a late worker and return its stacks."""
        beater = self.beater(rank, worker)
        try:
            return stacks(beater, Path(self.path(rank) + STACKS))
        finally:
            for pid in {beater, worker}:
                with contextlib.suppress(OSError):  # it has ended, or runs as another user
                    os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        """Remove the folder; may be called twice."""
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)


# ---- the stacks of a process


def stacks(pid: int, file: Path) -> str:
    """The stacks of a worker's threads, by the best available means; `file`: the file into which it writes them."""
    text, missing = _own(pid, file)
    if text:
        return text
    processes = _session(pid)
    shown, why = _py_spy(processes)
    return shown or "\n".join([missing, why, *(line for process in processes for line in _kernel(process))])


def _session(pid: int) -> list[int]:
    """The worker and the processes that it has started, because a wrapper's own threads are not informative."""
    mine = look(pid)
    others = [p.pid for p in table().values() if mine is not None and p.session == mine.session and p.pid != pid]
    return [pid, *sorted(others)][:PROCESSES_MAX]


def _own(pid: int, file: Path) -> tuple[str, str]:
    """The stacks that the process writes itself, or the reason why it does not."""
    if SIGNAL is None or not file.exists() or not _catches(pid, SIGNAL):
        return "", "The worker has not called trystate.agent.heartbeat(), which lets it write its Python stacks."
    before = file.stat().st_size
    os.kill(pid, SIGNAL)
    until, size, quiet = time.monotonic() + STACKS_SECONDS, before, time.monotonic()
    while (now := time.monotonic()) < until and (size == before or now - quiet < QUIET_SECONDS):
        time.sleep(0.02)
        if (grown := file.stat().st_size) != size:
            size, quiet = grown, now
    if size == before:
        return "", f"The worker wrote no stacks within {STACKS_SECONDS:g} s of signal {SIGNAL:d}: is it stopped?"
    with file.open("rb") as written:
        written.seek(before)
        return _bounded(written.read(TEXT_BYTES_MAX + 1)), ""


def _catches(pid: int, number: int) -> bool:
    """Whether a process has a handler for the signal, which would otherwise end it."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path(PROC, str(pid), "status").read_text().splitlines():
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def _py_spy(processes: list[int]) -> tuple[str, str]:
    """The stacks of the Python processes, if py-spy is installed and permitted; else the reason."""
    beside = os.path.join(os.path.dirname(sys.executable), "py-spy")
    program = beside if os.access(beside, os.X_OK) else shutil.which("py-spy")
    if program is None:
        return "", "py-spy, which would show them nevertheless, is not installed here: pip install py-spy"
    shown, why, ends = [], "", time.monotonic() + PY_SPY_SECONDS
    for pid in processes:
        try:
            done = subprocess.run(
                [program, "dump", "--pid", str(pid)], capture_output=True, check=False,
                timeout=max(ends - time.monotonic(), QUIET_SECONDS),
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            why = str(error)
            continue
        if done.returncode == 0:
            shown.append(_bounded(done.stdout))
        why = why or _bounded(done.stderr).strip()
    return "\n".join(shown), f"py-spy could not show them: {why}"


def _kernel(pid: int) -> list[str]:
    """A line for each thread: its name, its state, and the kernel function in which it waits."""
    lines = [f"The kernel's data about the threads of process {pid}:"]
    try:
        threads = sorted(os.listdir(f"{PROC}/{pid}/task"), key=int)
    except OSError:
        return [*lines, "  nothing: it has ended"]
    for thread in threads[:THREADS_MAX]:
        at = Path(PROC, str(pid), "task", thread)
        state = _read(at / "stat").rpartition(")")[2].split()[:1]
        lines.append(
            f"  thread {thread} ({_read(at / 'comm')}): state {''.join(state) or '?'}, waits in "
            f"{_read(at / 'wchan') or '?'}"
        )
        lines += [f"    {line}" for line in _read(at / "stack").splitlines()]
    if len(threads) > THREADS_MAX:
        lines.append(f"  and {len(threads) - THREADS_MAX} more threads")
    return lines


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return _bounded(file.read(TEXT_BYTES_MAX)).strip()
    except OSError:
        return ""  # only root may read its stack in the kernel


def _bounded(text: bytes) -> str:
    cut = "\n... (cut)" if len(text) > TEXT_BYTES_MAX else ""
    return text[:TEXT_BYTES_MAX].decode(errors="replace") + cut
