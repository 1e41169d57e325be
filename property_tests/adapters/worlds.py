"""Worlds of worker processes that are started once and run task after task.

Rule: a task is a function of a module, called as `task(rank, *arguments)`. Its arguments and its result are pickled, so
tensors are copied and never shared. If a worker is late or dies, the world ends, and starts again for its next task.
"""

from __future__ import annotations

import os
import pickle
import signal
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from .torch_store import isolated
from .torch_store.isolated import Child, Silence

START_SECONDS = 60.0  # limit for the start of processes that import torch, on a busy machine
POLL_SECONDS = 0.02  # polling interval of the workers
PATIENCE_SECONDS = 10.0  # wait for the others when one has failed
Task = Callable[..., object]
# No name is looked up: a name server that does not answer takes seconds each time.
ENVIRONMENT = {
    "TP_SOCKET_IFNAME": "lo",
    "GLOO_SOCKET_IFNAME": "lo",
    "RES_OPTIONS": "timeout:1 attempts:1",
    "TORCH_CPP_LOG_LEVEL": "ERROR",
}


@dataclass(frozen=True)
class Failed:
    """The exception of a worker's task."""

    kind: str
    text: str

    def __str__(self) -> str:
        return self.text


class WorldError(AssertionError):
    """A worker of a world failed, died or was late."""


class World(AbstractContextManager["World"]):
    """`size` processes with ranks 0 to size - 1; none runs before the world's first task.

    `preload` names modules that all of them need. They are imported once, unless this process has had a child before.
    """

    def __init__(self, size: int, preload: Sequence[str] = ()) -> None:
        self.size = size
        isolated.preload(*preload)
        self._children: list[Child] = []
        self._stack = ExitStack()

    @property
    def runs(self) -> bool:
        """Whether the processes run. If they do, they have the state that earlier tasks left."""
        return bool(self._children)

    def tell(self, task: Task, *arguments: object, seconds: float) -> list[Any]:
        """Each worker's answer to the same task, in the order of ranks: a result, `Failed` or `Silence`."""
        if not self._children:
            self._children = [self._stack.enter_context(Child(serve, rank)) for rank in range(self.size)]
        for child in self._children:
            child.tell(pickle.dumps((task, arguments)))
        said = self._hear(time.monotonic() + seconds)
        if any(isinstance(each, Silence) for each in said):
            self.end()
        return said

    def _hear(self, deadline: float) -> list[Any]:
        """Each worker's answer before the deadline. After a failure, the other workers get less time: they may wait
        for the worker that failed."""
        said: list[Any] = [Silence.LATE] * self.size
        waiting = list(range(self.size))
        while waiting and time.monotonic() < deadline:
            for rank in list(waiting):
                word = self._children[rank].hear(POLL_SECONDS / len(waiting))
                if word is not Silence.LATE:
                    said[rank] = word if word is Silence.ENDED else pickle.loads(word)
                    waiting.remove(rank)
                    if isinstance(said[rank], Failed | Silence):
                        deadline = min(deadline, time.monotonic() + PATIENCE_SECONDS)
        return said

    def do(self, task: Task, *arguments: object, seconds: float) -> list[Any]:
        """Like `tell`, but each worker must succeed.

        Raises:
            WorldError: a worker failed, died or was late; the text has the result of each.
        """
        said = self.tell(task, *arguments, seconds=seconds)
        if any(isinstance(each, Silence | Failed) for each in said):
            words = [each if isinstance(each, Silence | Failed) else "done" for each in said]
            raise WorldError("\n".join(f"worker {rank}: {word}" for rank, word in enumerate(words)))
        return said

    def pause(self) -> None:
        """Stop the processes, which then take no processor time. Call `resume` before the next task."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        for child in self._children:
            os.kill(child.pid, number)

    def end(self) -> None:
        """Kill the processes, if there are any."""
        self._stack.close()
        self._children = []

    def __exit__(self, *_: object) -> None:
        self.end()


def serve(line: Connection, rank: int) -> None:
    """A worker process."""
    os.environ.update(ENVIRONMENT)
    while True:
        try:
            task, arguments = pickle.loads(line.recv())
        except EOFError:
            return
        try:
            said = task(rank, *arguments)
        except (Exception, SystemExit) as error:
            said = Failed(type(error).__name__, traceback.format_exc())
        line.send(pickle.dumps(said))
