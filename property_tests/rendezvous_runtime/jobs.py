"""Agents in real processes, as a user starts them, and what their workers say.

Rule: whatever a test does, nothing that it started is left: agents are ended by their pid, and workers by the pids
that they wrote down.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from trystate.impl.rendezvous.encoding import decode
from trystate.impl.rendezvous.store_backend import StoreBackend
from trystate.impl.store import TCPStore

PACKAGE = __name__.rpartition(".")[0]
BEATS = "keep_alive_interval=0.3,keep_alive_max_attempt=3"  # a dead node is noticed after about a second
POLL_SECONDS = 0.02
END_SECONDS = 10.0
SECONDS = 60.0  # torch is imported for each agent, on a machine that may be busy


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        number: int = found.getsockname()[1]
        return number


@dataclass
class Agent:
    """One `torchrun`."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def kill(self, number: int = signal.SIGKILL) -> None:
        self.process.send_signal(number)

    def ended(self, seconds: float = SECONDS) -> int:
        """Its exit code; it must end in time."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it still runs after {seconds:g} s\n{self.text()}") from None

    def text(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")


class Job:
    """A job of several agents on this machine: `with Job(folder) as job: job.agent(); ...`."""

    def __init__(self, folder: Path, *, port: int | None = None, name: str = "job", **environment: str) -> None:
        self.folder, self.name = folder / name, name
        self.folder.mkdir()
        self.port = port if port is not None else free_port()
        self._environment = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
        self._agents: list[Agent] = []

    def agent(
        self, nodes: str = "1:3", *, conf: str = "", restarts: int = 3, workers: int = 1, train: bool = False
    ) -> Agent:
        """Start one more; its workers do nothing, or `train`."""
        settings = ",".join(part for part in (BEATS, "last_call_timeout=0.5,join_timeout=60", conf) if part)
        command = [
            sys.executable, "-m", f"{PACKAGE}.torchrun", f"--nnodes={nodes}", f"--nproc-per-node={workers}",
            "--rdzv-backend=trystate", f"--rdzv-id={self.name}", f"--rdzv-endpoint=127.0.0.1:{self.port}",
            f"--rdzv-conf={settings}", f"--max-restarts={restarts}", "-m", f"{PACKAGE}.worker", str(self.folder),
            *(["train"] if train else []),
        ]  # fmt: skip
        path = self.folder / f"agent{len(self._agents)}.txt"
        with open(path, "wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, env=self._environment)
        self._agents.append(Agent(process, path))
        return self._agents[-1]

    def lines(self) -> list[dict[str, Any]]:
        """What the workers said, in the order of time."""
        found = []
        for path in self.folder.glob("*.log"):
            for line in path.read_text(encoding="utf-8").splitlines():
                with contextlib.suppress(json.JSONDecodeError):  # the last one may not be whole yet
                    found.append(json.loads(line))
        return sorted(found, key=lambda one: one["at"])

    def until(self, what: Callable[[], object], seconds: float = SECONDS) -> None:
        """Wait for something that the test demands."""
        ends = time.monotonic() + seconds
        while not what():
            if time.monotonic() > ends:
                texts = "\n".join(f"--- {a.log.name}\n{a.text()[-3000:]}" for a in self._agents)
                raise AssertionError(f"it did not happen within {seconds:g} s; last lines {self.lines()[-4:]}\n{texts}")
            time.sleep(POLL_SECONDS)

    def until_size(self, size: int, after: float = 0.0, seconds: float = SECONDS, attempt: int | None = None) -> None:
        """Wait until `size` workers have taken a step of one group, after this time, and of this attempt if given."""

        def stepped() -> bool:
            recent = [one for one in self.lines() if one["at"] > after and one["size"] == size]
            members = {one["rank"] for one in recent if attempt is None or one["attempt"] == attempt}
            return members == set(range(size))

        self.until(stepped, seconds)

    def pids(self, size: int) -> set[int]:
        """The workers of the last group of this size."""
        latest = {one["rank"]: int(one["pid"]) for one in self.lines() if one["size"] == size}
        return set(latest.values())

    def until_others(self, size: int, before: set[int]) -> None:
        """Wait until a group of this size has none of these workers, of which some may be orphans."""

        def renewed() -> bool:
            others = {one["rank"] for one in self.lines() if one["size"] == size and one["pid"] not in before}
            return others == set(range(size))

        self.until(renewed)

    def until_served(self) -> None:
        """Wait until somebody serves the endpoint: who comes first, and nobody after it."""
        TCPStore("127.0.0.1", self.port, timeout=timedelta(seconds=SECONDS)).close()

    def until_listed(self, count: int) -> None:
        """Wait until the rendezvous knows so many nodes."""
        with TCPStore("127.0.0.1", self.port) as store, contextlib.closing(StoreBackend(store, self.name)) as backend:
            self.until(lambda: sum(1 for _ in decode(backend.read() or b"").listed()) == count)

    def stop(self, rank: int | None = None) -> None:
        """Tell the workers that they are done, or one of them."""
        (self.folder / ("stop" if rank is None else f"stop-{rank}")).touch()

    def fail(self, rank: int) -> None:
        """Have the worker of this rank fail once; returns when it has."""
        path = self.folder / f"fail-{rank}"
        path.touch()
        self.until(lambda: not path.exists())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for agent in self._agents:
            if agent.process.poll() is None:
                agent.kill(signal.SIGTERM)  # it ends its workers
        for agent in self._agents:
            with contextlib.suppress(subprocess.TimeoutExpired):
                agent.process.wait(END_SECONDS)
            agent.kill()
            agent.process.wait(END_SECONDS)
        for pid in self._left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _left(self) -> Iterator[int]:
        """Workers whose agent was killed: those of our pids that still run what we started."""
        for path in self.folder.glob("*.log"):
            with contextlib.suppress(OSError):
                if str(self.folder).encode() in Path(f"/proc/{path.stem}/cmdline").read_bytes():
                    yield int(path.stem)
