"""Programs that a test starts: all at once, with one deadline, none left behind.

Rule: a process is ended by its own pid, and only if this module started it.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO

KILL_SECONDS = 10.0


@dataclass(frozen=True)
class Ended:
    """A program that ended by itself; `code` is None for one that had to be killed."""

    command: Sequence[str]
    code: int | None
    output: str
    errors: str

    def __str__(self) -> str:
        how = "was killed: it was late" if self.code is None else f"ended with {self.code}"
        return f"{' '.join(self.command)} {how}\n{self.output}\n{self.errors}"


def python(module: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", module, *arguments]


def run_together(
    commands: Sequence[Sequence[str]], seconds: float, environment: Mapping[str, str] | None = None
) -> list[Ended]:
    """Run programs at the same time; those that have not ended when the time is over are killed."""
    deadline = time.monotonic() + seconds
    with contextlib.ExitStack() as stack:
        running = [(command, *stack.enter_context(_started(command, environment))) for command in commands]
        return [_ended(command, process, files, deadline) for command, process, files in running]


@contextlib.contextmanager
def _started(
    command: Sequence[str], environment: Mapping[str, str] | None
) -> Iterator[tuple[subprocess.Popen[str], tuple[IO[str], IO[str]]]]:
    # Into files: a pipe that nobody reads yet would block the one that writes.
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command, stdout=output, stderr=errors, text=True, env={**os.environ, **(environment or {})}
        )
        try:
            yield process, (output, errors)
        finally:
            process.kill()
            process.wait(KILL_SECONDS)


def _ended(
    command: Sequence[str], process: subprocess.Popen[str], files: tuple[IO[str], IO[str]], deadline: float
) -> Ended:
    code: int | None
    try:
        code = process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.terminate()  # torchrun ends its workers
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(KILL_SECONDS)
        process.kill()
        process.wait(KILL_SECONDS)
        code = None
    for file in files:
        file.seek(0)
    return Ended(command, code, *(file.read() for file in files))
