"""Programs in processes that are forked from one that has imported torch, since the import takes seconds.

Rule: a program has its own session, writes its output to a log, and is ended by its process id.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Self

from .torch_store.isolated import importable, preload

SECONDS = 180.0  # limit for each action of a program, which takes a few seconds on an idle machine

preload("trystate.commands.run", "trystate.impl.agent.launch", "torch.distributed.run")
preload("torch._dynamo")  # DistributedDataParallel loads it, for two seconds


class Program:
    """A process that calls `main(*arguments)`, a module's function, in the folder of its log."""

    def __init__(
        self, log: Path, main: Callable[..., object], *arguments: object, variables: Mapping[str, str] | None = None
    ) -> None:
        self._log = log
        begin = (log, {"OMP_NUM_THREADS": "1", **(variables or {})}, main, arguments)
        self.process = multiprocessing.get_context("forkserver").Process(target=_begin, args=begin)
        with importable(main):
            self.process.start()

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    @property
    def ran(self) -> bool:
        return self.process.is_alive()

    @property
    def said(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace") if self._log.exists() else ""

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def ends(self, seconds: float = SECONDS) -> int:
        """Its exit code; it must end in time."""
        self.process.join(seconds)
        code = self.process.exitcode
        assert code is not None, f"{self._log.name} has not ended within {seconds:g} s\n{self.said}"
        return code

    def kill(self) -> None:
        """SIGKILL, to this process alone."""
        self.process.kill()
        self.process.join(SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Suspend the process in here: it neither answers nor refuses."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)


def _begin(log: Path, variables: dict[str, str], main: Callable[..., object], arguments: tuple[object, ...]) -> None:
    """In the child: what a shell would do."""
    os.setsid()
    os.chdir(log.parent)
    with log.open("wb", buffering=0) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.environ.update(variables)
    sys.stdin.close()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    main(*arguments)
