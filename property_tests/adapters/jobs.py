"""A store's server, agents of a job there, and workers that a test controls through files.

Rule: every wait has a limit, and what was started is ended by its process id when the job's `with` block ends.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import runpy
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

from trystate.impl.rendezvous.encoding import decode
from trystate.impl.rendezvous.event_file import begin
from trystate.impl.rendezvous.plugin import creator
from trystate.impl.rendezvous.state import Settings, State
from trystate.impl.rendezvous.store_backend import StoreBackend
from trystate.impl.store.tcp import TCPStore

from .forked import SECONDS, Program
from .torch_store.server import free_port

BEAT = 1.0  # seconds between two heartbeats; a node without a heartbeat for 2.5 s loses its lease
CONF = f"keep_alive_interval={BEAT},keep_alive_max_attempt=3,join_timeout=20,last_call_timeout=0.2"


# A worker records its start, and each of its steps with its group (the port of its round's master). The file
# `do.<agent>` has its command: succeed, ignore SIGTERM, or fail, once or always.
WORKER = """
import os, pathlib, signal, sys, time
here, agent = pathlib.Path(sys.argv[1]), os.environ["AGENT"]
env = os.environ
with open(here / f"began.{agent}", "a") as file:
    names = "RANK", "WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS"
    file.write(" ".join([str(os.getpid()), *(env[name] for name in names)]) + "\\n")
if env["LOCAL_RANK"] == "1":  # the second worker of a node takes its time to end
    signal.signal(signal.SIGTERM, lambda *_: (time.sleep(1), sys.exit(1)))
until = time.monotonic() + 60
while time.monotonic() < until:
    with open(here / f"steps.{agent}", "a") as file:
        file.write(f"{time.monotonic()} {env['MASTER_PORT']}\\n")
    try:
        do = (here / f"do.{agent}").read_text()
    except FileNotFoundError:
        do = ""
    if do == "succeed":
        sys.exit(0)
    if do == "ignore":
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        (here / f"ignores.{os.getpid()}").touch()
    if do == "fail once":
        (here / f"do.{agent}").unlink(missing_ok=True)
    if do.startswith("fail"):
        sys.exit(7)
    time.sleep(0.02)
sys.exit("nobody ended this worker")
"""


def eventually(said: str, condition: Callable[[], bool], seconds: float = SECONDS) -> None:
    """Wait until a condition is true; the error has the text `said`."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"{said}: not within {seconds:g} s"
        time.sleep(0.02)


def lingers() -> None:
    """A worker's function whose process does not end with it."""
    threading.Thread(target=time.sleep, args=(600,)).start()


def square(number: int) -> int:
    if number < 0:
        raise ValueError(number)
    return number * number


def alive(pid: int) -> bool:
    """Whether a process runs: a zombie does not."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    return False


@dataclass(frozen=True, slots=True)
class Began:
    """A start of a worker, as the worker recorded it."""

    pid: int
    rank: int
    world_size: int
    restart: int
    max_restarts: int


@dataclass(frozen=True, slots=True, order=True)
class Step:
    """A step of a worker: its time on the monotonic clock of the machine, its group and its node."""

    at: float
    group: int
    agent: str


def overtaken(steps: Iterable[Step]) -> list[Step]:
    """Steps of a group after the first step of a later group: both groups made progress."""
    found, begun = [], dict[int, None]()
    for step in sorted(steps):
        begun.setdefault(step.group)
        if step.group != next(reversed(begun)):
            found.append(step)
    return found


def be(program: str, argv: list[str]) -> None:
    """In the child: `trystate run`, `torchrun SECONDS`, or another program that launches torch's agent."""
    begin()  # torch has called the entry point before this process had its variables
    if program.startswith("trystate"):
        sys.argv = [*program.split(), *argv]
        runpy.run_module("trystate", run_name="__main__")
    else:
        _launch(program, argv)


def _launch(program: str, argv: list[str]) -> None:
    """Registers our rendezvous, since the package may not be installed as a distribution."""
    import torch.distributed.run as torchrun
    from torch.distributed.elastic.rendezvous import rendezvous_handler_registry

    rendezvous_handler_registry.register("trystate", creator())  # a creator may be registered twice
    if program.startswith("torchrun"):
        from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent

        seconds = float(program.removeprefix("torchrun") or 300)  # torchrun has no option for it
        began: Any = LocalElasticAgent.__init__
        begun = functools.partialmethod(began, exit_barrier_timeout=seconds)
        setattr(LocalElasticAgent, "__init__", begun)  # noqa: B010 (mypy: a method is not assigned to)
        torchrun.main(argv)
    elif program == "torch.distributed.launch":
        import torch.distributed.launch

        torch.distributed.launch.main(["--use-env", *argv])  # type: ignore[no-untyped-call]
    else:
        chosen = torchrun.parse_args(argv)  # type: ignore[no-untyped-call]
        from torch.distributed.launcher.api import elastic_launch

        config, command, arguments = torchrun.config_from_args(chosen)
        elastic_launch(config, command)(*arguments)


class Server(Program):
    """`trystate store serve`, or `proxy`."""

    def __init__(
        self, folder: Path, port: int = 0, *options: str, begin: Callable[[str, list[str]], object] = be,
        command: str = "serve",
    ) -> None:  # fmt: skip
        self._known = len(list(folder.glob("log.server*")))
        argv = [command, "--port", str(port), *options]
        super().__init__(folder / f"log.server{self._known}", begin, "trystate store", argv)
        eventually("the server listens", lambda: "listening on" in self.said)
        found = re.search(r"listening on \S+:(\d+)", self.said)
        assert found is not None
        self.port = int(found[1])


class Agent(Program):
    """`trystate run`, or another program with such options."""

    def __init__(
        self, name: str, folder: Path, argv: list[str], program: str = "trystate run",
        begin: Callable[[str, list[str]], object] = be, **variables: str,
    ) -> None:  # fmt: skip
        self.name, self._folder = name, folder
        super().__init__(folder / f"log.{name}", begin, program, argv, variables={"AGENT": name, **variables})

    def do(self, what: str) -> None:
        """Give the workers a command: `succeed`, `fail once`, `fail always` or `ignore`."""
        path = self._folder / f"do.{self.name}"
        path.with_suffix(f".{self.name}.new").write_text(what)
        path.with_suffix(f".{self.name}.new").rename(path)

    @property
    def began(self) -> list[Began]:
        """All starts of workers of this agent so far."""
        with contextlib.suppress(FileNotFoundError):
            lines = (self._folder / f"began.{self.name}").read_text().splitlines()
            return [Began(*map(int, line.split())) for line in lines if line.count(" ") == 4]
        return []

    @property
    def steps(self) -> list[Step]:
        """Every step that a worker of this agent has made."""
        with contextlib.suppress(FileNotFoundError):
            lines = (self._folder / f"steps.{self.name}").read_text().split("\n")[:-1]
            return [Step(float(at), int(group), self.name) for at, group in (line.split() for line in lines)]
        return []

    def runs(self, count: int = 1, *, world_size: int | None = None) -> None:
        """Wait until its workers have been started `count` times, the last time in a world of that size."""

        def so() -> bool:
            began = self.began
            return len(began) >= count and (world_size is None or began[-1].world_size == world_size)

        eventually(f"{self.name} runs (start {count}, world {world_size})\n{self.said}", so)


class Job:
    """A server, and agents that share a job there."""

    def __init__(
        self, folder: Path, *, nodes: str, max_restarts: int = 0, conf: str = CONF, program: str = "trystate run",
        backend: str = "c10d", serving: Sequence[str] | None = (), serves: Callable[[str, list[str]], object] = be,
    ) -> None:  # fmt: skip
        """`program`: a program of `be`; the exit barrier of "torchrun SECONDS" lasts SECONDS.

        `backend`: the rendezvous of another program; `serving`: options of the server, or None if a node serves.
        `serves`: replaces `be` for the server.
        """
        self.folder, self._program, self._backend = folder, program, backend
        self._options = ["--nnodes", nodes, "--max-restarts", str(max_restarts), "--rdzv-conf", conf]
        self.agents: list[Agent] = []
        if serving is not None:
            self.server = Server(folder, 0, *serving, begin=serves)
        self.port = self.server.port if serving is not None else free_port()
        self._store: TCPStore | None = None
        (folder / "worker.py").write_text(textwrap.dedent(WORKER))

    def agent(
        self, name: str, *options: str, address: str = "127.0.0.1", script: str = "worker.py",
        arguments: Sequence[str] = (), begin: Callable[[str, list[str]], object] = be, **variables: str,
    ) -> Agent:  # fmt: skip
        """Start one more.

        `arguments`: further arguments of the worker. All nodes must have the same ones, and the same `script`.
        """
        argv = [
            *self._options, "--rdzv-endpoint", f"127.0.0.1:{self.port}", "--rdzv-id", "job",
            "--local-addr", address, *options, str(self.folder / script), str(self.folder), *arguments,
        ]  # fmt: skip
        if self._program != "trystate run":
            argv.insert(0, f"--rdzv-backend={self._backend}")
        agent = Agent(name, self.folder, argv, self._program, begin, **variables)
        self.agents.append(agent)
        return agent

    def two(self, *options: str) -> tuple[Agent, Agent]:
        """Two agents, whose workers run."""
        a, b = self.agent("a", *options), self.agent("b", *options)
        a.runs(world_size=2)
        b.runs(world_size=2)
        return a, b

    @property
    def state(self) -> State:
        """The shared state of the rendezvous; empty while the rendezvous has no state."""
        if self._store is None:
            self._store = TCPStore("127.0.0.1", self.port, timeout=timedelta(seconds=SECONDS))
        data = StoreBackend(self._store, "job").read()
        return decode(data) if data is not None else State("", Settings(1, 1))

    @property
    def steps(self) -> list[Step]:
        """Every step of every worker, in their order."""
        return sorted(step for agent in self.agents for step in agent.steps)

    @property
    def workers(self) -> list[int]:
        """The processes of all workers that ever began."""
        return [began.pid for agent in self.agents for began in agent.began]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for agent in self.agents:
            agent.kill()
        if self._store is not None:
            self._store.close()
        if hasattr(self, "server"):
            self.server.kill()
        for pid in self.workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
