"""The health command of a node: it runs before the node joins a round, and its failure keeps the node out.

Theory of operation. A shell runs the command in its own session, on a leash: it dies with the agent. Its output is read
as it comes, and the end of it is kept. When the command ends, when its time is over, or when the agent gets a signal,
its whole group is killed. This module does not use the rendezvous: `local` acts on a failure.

Rule: the output kept, the output shown and the time each have a limit.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass

from trystate.model.errors import TrystateError

from ..host import parent_death

TIMEOUT_SECONDS = 60.0
RECHECK_SECONDS = 10.0  # time between two checks of a node that waits to pass
KEPT_BYTES = 1 << 16  # the end of the output is kept
SHOWN_LINES, LINE_LENGTH_MAX = 20, 300  # the part of the kept output that is shown
READ_BYTES = 1 << 14
DRAIN_SECONDS = 1.0  # limit of the wait for a process that has left the group and keeps the pipe open


class Unhealthy(TrystateError, RuntimeError):
    """The health command of this node failed: the node leaves, the other nodes continue."""

    symptom = "a-node-that-is-not-fit"


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """A command for a shell, its time limit, and the reaction to its failure.

    Args:
        command: the command; exit code 0 means that the node is healthy.
        timeout_seconds: the limit after which it is killed and counts as failed.
        stands_by: a failing node is checked again every RECHECK_SECONDS and joins when it passes; else it leaves.
    """

    command: str
    timeout_seconds: float = TIMEOUT_SECONDS
    stands_by: bool = False

    def failure(self, variables: Mapping[str, str] | None = None, group: str = "") -> str | None:
        """Run the command; None if it has succeeded, else the reason, with the last lines of its output.

        `variables`: additions to its environment; `group`: the folder of its control group, if it has one.
        """
        try:
            process = subprocess.Popen(
                [*parent_death.leash(group), "/bin/sh", "-c", self.command], env={**os.environ, **(variables or {})},
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        except (OSError, ValueError) as error:  # no process or memory is left, or the command contains a zero byte
            return f"the health command {self.command!r} cannot be run: {error}"
        output = _Tail(process)
        try:
            code: int | None = process.wait(self.timeout_seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            output.end()
        if code == 0:
            return None
        return f"the health command {self.command!r} {_ended(code, self.timeout_seconds)}; {output.shown()}"


def _ended(code: int | None, seconds: float) -> str:
    if code is None:
        return f"was killed after --health-timeout={seconds:g} s"
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"was ended by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


class _Tail:
    """Reads the output of a process in a thread, and keeps its end."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        self._pipe, self._kept = process.stdout, bytearray()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._read, name="trystate health output", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with self._pipe:
            while data := os.read(self._pipe.fileno(), READ_BYTES):
                with self._lock:
                    self._kept += data
                    del self._kept[:-KEPT_BYTES]

    def end(self) -> None:
        self._thread.join(DRAIN_SECONDS)

    def shown(self) -> str:
        """The last lines, without characters that a terminal would interpret."""
        with self._lock:
            text = bytes(self._kept).decode(errors="replace")
        lines = ["".join(c if c.isprintable() else " " for c in line)[:LINE_LENGTH_MAX] for line in text.splitlines()]
        shown = [line for line in lines if line.strip()][-SHOWN_LINES:]
        return "\n    ".join(["its last output:", *shown]) if shown else "it had no output"
