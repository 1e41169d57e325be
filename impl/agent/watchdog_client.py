"""The agent's end of its watchdog: starts it, sends it each renewed lease, reads its reports, and replaces it.

Rule: nothing here waits for the watchdog. Lines go into a pipe that does not block. A watchdog that has ended, or
answers too late, is killed and replaced by the thread that notices it first: the heartbeat thread, which renews, or the
agent's loop, which checks. A search for workers takes the lock; without it a watchdog that is being started would count
as a worker.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Self

from torch.distributed.elastic.utils.logging import get_logger

from trystate.model.errors import TrystateError

from ..rendezvous.state_holder import elapsed
from . import cgroup, watchdog
from .processes import reap_adopted

ANSWER_SECONDS = 2.0  # a watchdog that has not answered for this time hangs, even on a busy machine
# Python may take longer to start (a cold disk, a network file system). Each replacement has twice the time of the one
# before, or no watchdog would ever live to its first answer.
ANSWER_SECONDS_MAX = 60.0
END_SECONDS = 1.0  # limit of the wait for its end, after its pipe was closed
LINES_BYTES_MAX = 1 << 16  # read at once: the capacity of a pipe

logger = get_logger(__name__)


class WatchdogLost(TrystateError, RuntimeError):
    """No watchdog could be started: workers of this node would keep running if its agent were stopped."""

    symptom = "an-agent-that-does-not-end"


class Watchdog:
    """The watchdog of this process's workers. Any thread may call `renew`; the agent's thread calls the rest."""

    def __init__(self, spared: set[int], clock: Callable[[], float] = elapsed) -> None:
        """`spared`: children of this process that are not workers; the watchdog adds itself."""
        self._spared, self._clock = spared, clock
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._wanted = False  # whether a watchdog must exist
        self._ends: float | None = None  # the end of the lease
        self._group, self._rests = 0, True  # the number of the group of workers; whether no worker runs
        self._workers: list[str] = []  # a line for each started worker
        self._mark = secrets.token_hex(16)
        self.folder = ""  # the folder of the workers' control group, if it may be made
        self._unanswered, self._asked = 0, 0.0  # the number of lines without an answer, and the time of the first
        self._patience = ANSWER_SECONDS  # limit of the wait for an answer
        self._killed = -1  # the group that it killed last

    def __enter__(self) -> Self:
        if Path(watchdog.PROC, "self", "stat").exists():
            with self._lock:
                self._wanted = True
                self.folder = cgroup.made()
                self._start()
        else:
            logger.warning("no watchdog without /proc: if only this agent is stopped, its workers keep running")
        return self

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._wanted = False
            self._tell("end")
            self._end(END_SECONDS)
            watchdog.remove_group(self.folder)

    @property
    def variables(self) -> dict[str, str]:
        """The variable with this agent's mark, for processes that it starts; an outer agent's mark stays in it."""
        return {watchdog.MARK: ":".join(filter(None, (os.environ.get(watchdog.MARK), self._mark)))}

    @property
    def pid(self) -> int | None:
        """The pid of its process."""
        return self._process.pid if self._process is not None else None

    # ---- lines to the watchdog

    def renew(self, ends: float) -> None:
        """Send the new end of the lease, by `clock`, after an acknowledged heartbeat."""
        with self._lock, contextlib.suppress(WatchdogLost):  # heartbeats continue: `check` raises it later
            self._ends = ends
            self._tell(f"until {ends!r}")
            self._see_to_it()

    def guard(self) -> None:
        """Report, before workers are started, that workers may exist from now on. Raises WatchdogLost."""
        with self._lock:
            self._group, self._rests, self._workers = self._group + 1, False, []
            self._tell(f"guard {self._group}")
            self._see_to_it()

    def runs(self, workers: Iterable[int]) -> None:
        """Report the started workers; each leads a session."""
        with self._lock, contextlib.suppress(WatchdogLost):  # `check` raises it
            found = [process for process in map(watchdog.look, workers) if process is not None]
            self._workers = [f"runs {process.pid} {process.start}" for process in found]
            for line in self._workers:
                self._tell(line)

    def rest(self) -> None:
        """Report that the workers have ended or were stopped, and that none exists from now on."""
        with self._lock, contextlib.suppress(WatchdogLost):  # none is needed until there are workers again
            if not self._rests:
                self._rests = True
                self._tell("rest")

    # ---- lines from the watchdog

    @property
    def killed(self) -> bool:
        """Whether it killed workers of this group because the lease ended."""
        with self._lock:
            self._read(self._process)
            return self._killed == self._group

    def check(self) -> None:
        """Replace the watchdog if workers exist and it has ended or hangs. Raises WatchdogLost."""
        with self._lock:
            if not self._rests:
                self._see_to_it()

    # ---- the descendants of this process, without the watchdog

    def left_behind(self) -> list[watchdog.Process]:
        """The workers and the processes that they left behind."""
        with self._lock:
            return watchdog.left_behind(watchdog.table(), os.getpid(), self._spared)

    def reap(self, workers: Iterable[int]) -> None:
        """Reap the ended processes that the workers left behind."""
        with self._lock:
            reap_adopted(os.getpid(), self._spared.union(workers))

    # ---- the watchdog's process; all of this with the lock

    def _see_to_it(self) -> None:
        self._read(self._process)
        late = self._unanswered > 0 and self._clock() - self._asked > self._patience
        if self._process is None or late or self._process.poll() is not None:
            self._replace("does not answer" if late else "has ended")

    def _start(self) -> None:
        argv = [
            sys.executable, "-I", "-S", str(Path(watchdog.__file__)), str(os.getpid()), self._mark, self.folder,
            *map(str, self._spared),
        ]  # fmt: skip
        try:
            self._process = subprocess.Popen(
                argv, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
            )
        except OSError as error:
            raise WatchdogLost(
                f"the watchdog of this node's workers could not be started: {error}. Without it the workers would keep "
                "running if this agent were stopped, so the node leaves; check the limits on processes (ulimit -u, "
                "pids.max) and on memory"
            ) from error
        self._spared.add(self._process.pid)
        self._unanswered = 0
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None  # requested above
            os.set_blocking(pipe.fileno(), False)
        if self._ends is not None:
            self._write(f"until {self._ends!r}")
        if not self._rests:
            self._write(f"guard {self._group}")
            for line in self._workers:
                self._write(line)

    def _replace(self, why: str) -> None:
        if not self._wanted:
            return
        logger.warning("the watchdog (process %s) %s; starting another one", self.pid, why)
        self._end(0.0)
        self._patience = min(2 * self._patience, max(ANSWER_SECONDS, ANSWER_SECONDS_MAX))
        self._start()

    def _end(self, seconds: float) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None and process.stdout is not None
        if seconds == 0:  # it is replaced: it must not take the closed pipe for the end of the agent
            process.kill()
        process.stdin.close()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._read(process)  # it may have reported a kill
        process.stdout.close()
        self._spared.discard(process.pid)

    def _tell(self, line: str) -> None:
        if self._process is not None and not self._write(line):
            self._replace("takes no more lines")

    def _write(self, line: str) -> bool:
        assert self._process is not None and self._process.stdin is not None
        if self._unanswered == 0:
            self._asked = self._clock()
        self._unanswered += 1
        try:
            os.write(self._process.stdin.fileno(), line.encode() + b"\n")
        except (BlockingIOError, BrokenPipeError):
            return False
        return True

    def _read(self, process: subprocess.Popen[bytes] | None) -> None:
        if process is None:
            return
        assert process.stdout is not None
        with contextlib.suppress(BlockingIOError):
            for line in os.read(process.stdout.fileno(), LINES_BYTES_MAX).decode().splitlines():
                word, _, group = line.partition(" ")
                if word == "killed":
                    self._killed = int(group)
                else:
                    self._unanswered, self._asked = self._unanswered - 1, self._clock()
                    self._patience = ANSWER_SECONDS
