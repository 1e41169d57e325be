"""The end of workers in torch 1.9, as a program on real processes: MultiprocessContext._close.

Written from elastic-node-change 2.3.3.3; no line is copied. Each process gets SIGTERM and is waited for, one after
the other, and the wait has no time-out.
"""

from __future__ import annotations

import select
import subprocess
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager

from ..replays import ScheduleError

LOOK_S = 0.01
LINE_S = 30.0  # limit for a line of a worker, on a busy machine
WORKER = """
import os, signal
signal.signal(signal.SIGTERM, {handler})
print("runs", flush=True)
while True:
    signal.pause()
"""
# A handler must not print: SIGTERM may arrive within the first print, and a second one would end the process.
IGNORES, ENDS = r'lambda *_: os.write(1, b"got SIGTERM\n")', "signal.SIG_DFL"


class Worker(AbstractContextManager["Worker"]):
    """A process that ignores SIGTERM, or ends with it; the end of the block kills it."""

    def __init__(self, ignores: bool) -> None:
        argv = [sys.executable, "-I", "-S", "-c", WORKER.format(handler=IGNORES if ignores else ENDS)]
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, bufsize=1)

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    @property
    def runs(self) -> bool:
        return self.process.poll() is None

    def line(self) -> str:
        """The next line that it prints.

        Raises:
            ScheduleError: none comes in time.
        """
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], LINE_S)[0]:
            raise ScheduleError(f"a worker has printed nothing for {LINE_S:g} s")
        return self.process.stdout.readline().strip()


class Context:
    """The workers of one agent; `looks` counts how often a wait has found its process running."""

    def __init__(self, workers: Sequence[Worker]) -> None:
        self._workers = workers
        self.looks = 0

    def close(self) -> None:
        for worker in self._workers:
            worker.process.terminate()
            self._join(worker.process)

    def _join(self, process: subprocess.Popen[str]) -> None:
        while True:
            try:
                process.wait(LOOK_S)
            except subprocess.TimeoutExpired:
                self.looks += 1
            else:
                return
