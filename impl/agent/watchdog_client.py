"""The agent's end of its watchdog: starts it, tells it of every renewed lease, hears of its kills, and replaces it.

Rule: nothing here waits for the watchdog. Lines go into a pipe that does not block; a watchdog that is gone, or answers
too late, is killed and replaced by the thread that notices first: the one of the heartbeats, which renews, or the
agent's loop, which looks. Looks for workers take the lock, or a watchdog that is being started would be taken for one.
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

ANSWER_SECONDS = 2.0  # a watchdog that did not answer for so long stands still, on a busy machine as well
# Python may take longer to start (a cold disk, a network file system): each watchdog that is started in place of one
# has twice the time, or none would ever live to its first answer.
ANSWER_SECONDS_MAX = 60.0
END_SECONDS = 1.0  # for its end, after its pipe was closed
LINES_BYTES_MAX = 1 << 16  # read at once: the capacity of a pipe

logger = get_logger(__name__)


class WatchdogLost(TrystateError, RuntimeError):
    """No watchdog could be started: workers of this node would run on if its agent stood still."""

    symptom = "an-agent-that-does-not-end"


class Watchdog:
    """The watchdog of this process's workers. `renew` may be called by any thread, the rest by the agent's."""

    def __init__(self, spared: set[int], clock: Callable[[], float] = elapsed) -> None:
        """`spared`: children of this process that are no workers; the watchdog is one of them, and adds itself."""
        self._spared, self._clock = spared, clock
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._wanted = False  # one must be there
        self._ends: float | None = None  # of the lease
        self._group, self._rests = 0, True  # of workers; none run
        self._workers: list[str] = []  # a line for each that was started
        self._mark = secrets.token_hex(16)
        self.folder = ""  # of the workers' control group, if there may be one
        self._unanswered, self._asked = 0, 0.0  # lines, and when the first of them was sent
        self._patience = ANSWER_SECONDS  # for an answer
        self._killed = -1  # the group that it killed last

    def __enter__(self) -> Self:
        if Path(watchdog.PROC, "self", "stat").exists():
            with self._lock:
                self._wanted = True
                self.folder = cgroup.made()
                self._start()
        else:
            logger.warning("no watchdog without /proc: if only this agent is stopped, its workers run on")
        return self

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._wanted = False
            self._tell("end")
            self._end(END_SECONDS)
            watchdog.remove_group(self.folder)

    @property
    def variables(self) -> dict[str, str]:
        """The mark of what this agent starts, for its environment; beside that of an agent that started this one."""
        return {watchdog.MARK: ":".join(filter(None, (os.environ.get(watchdog.MARK), self._mark)))}

    @property
    def pid(self) -> int | None:
        """Of its process."""
        return self._process.pid if self._process is not None else None

    # ---- what it is told

    def renew(self, ends: float) -> None:
        """A heartbeat was acknowledged: the lease lasts until this moment of `clock`."""
        with self._lock, contextlib.suppress(WatchdogLost):  # heartbeats go on: `check` raises it where workers end
            self._ends = ends
            self._tell(f"until {ends!r}")
            self._see_to_it()

    def guard(self) -> None:
        """Before workers are started: from now on there may be some. Raises WatchdogLost."""
        with self._lock:
            self._group, self._rests, self._workers = self._group + 1, False, []
            self._tell(f"guard {self._group}")
            self._see_to_it()

    def runs(self, workers: Iterable[int]) -> None:
        """Workers have been started, each of which leads a session."""
        with self._lock, contextlib.suppress(WatchdogLost):  # `check` raises it
            found = [process for process in map(watchdog.look, workers) if process is not None]
            self._workers = [f"runs {process.pid} {process.start}" for process in found]
            for line in self._workers:
                self._tell(line)

    def rest(self) -> None:
        """Workers have ended, or were stopped: from now on there are none."""
        with self._lock, contextlib.suppress(WatchdogLost):  # none is needed until there are workers again
            if not self._rests:
                self._rests = True
                self._tell("rest")

    # ---- what it says

    @property
    def killed(self) -> bool:
        """Whether it killed workers of this group, because the lease ended."""
        with self._lock:
            self._hear()
            return self._killed == self._group

    def check(self) -> None:
        """While there are workers: replace it if it is gone, or stands still. Raises WatchdogLost."""
        with self._lock:
            if not self._rests:
                self._see_to_it()

    # ---- the processes of this process, without it

    def left_behind(self) -> list[watchdog.Process]:
        """The workers, and what they left behind."""
        with self._lock:
            return watchdog.left_behind(watchdog.table(), os.getpid(), self._spared)

    def reap(self, workers: Iterable[int]) -> None:
        """Collect what the workers left behind and has ended."""
        with self._lock:
            reap_adopted(os.getpid(), self._spared.union(workers))

    # ---- its process; all of this with the lock

    def _see_to_it(self) -> None:
        self._hear()
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
                f"the watchdog of this node's workers could not be started: {error}; without it they would run on if "
                "this agent were stopped: it leaves. See the limits on processes (ulimit -u, pids.max) and on memory"
            ) from error
        self._spared.add(self._process.pid)
        self._unanswered = 0
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None  # asked for above
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
        if seconds == 0:  # it is replaced: what it has not read, it must not take for the end of the agent
            process.kill()
        process.stdin.close()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._read(process)  # it may have killed, and have said so
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

    def _hear(self) -> None:
        if self._process is not None:
            self._read(self._process)

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with contextlib.suppress(BlockingIOError):
            for line in os.read(process.stdout.fileno(), LINES_BYTES_MAX).decode().splitlines():
                word, _, group = line.partition(" ")
                if word == "killed":
                    self._killed = int(group)
                else:
                    self._unanswered, self._asked = self._unanswered - 1, self._clock()
                    self._patience = ANSWER_SECONDS
