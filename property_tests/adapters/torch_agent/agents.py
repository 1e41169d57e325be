"""Real agents on a real store: what every scenario of the agent is made of.

Rule: nothing of torch is rewritten. Each node is a process in which torch's `launch_agent` runs a `LocalElasticAgent`
with torch's c10d rendezvous; its workers are processes that do what files tell them. Only the exit barrier, which
`launch_agent` leaves at 300 s, is shorter. Store sharing is off: what is wrong with it is the rendezvous' (R1, R2).
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from unittest import mock

from ..jobs import WORKER, Step, alive, noted
from ..replays import Say, ScheduleError
from ..torch_release import has_heartbeat_options, serve_on, with_heartbeats
from ..torch_store.isolated import Child, Silence

HOST = "127.0.0.1"
WAIT_S = 60.0  # for anything that must happen: it takes one or two seconds on an idle machine
SUCCEEDED = "success"
STILL_S = 0.3  # a thread that has slept for so long waits for something else than a processor
IN_BARRIER = "Local worker group finished"  # logged by torch there


@dataclass(frozen=True, slots=True)
class Options:
    """How the agents of a scenario are started; seconds."""

    nodes: tuple[int, int] = (2, 2)
    max_restarts: int = 0
    barrier_s: float = 30.0
    read_timeout_s: int = 10
    beat_s: int = 1
    beats_missed_max: int = 15  # so that nobody expires unless the scenario is about that
    dies_with_a_round: str = ""  # the agent that is killed when next_rendezvous has returned to it


class Node:
    """One agent: torch's `launch_agent` in a process of its own."""

    def __init__(self, name: str, folder: Path, child: Child) -> None:
        self.name, self._folder, self._child = name, folder, child
        self._ended: str | None = None
        pid = child.hear(WAIT_S)
        if not isinstance(pid, int):
            raise ScheduleError(f"agent {name} did not start")
        self.pid = pid

    def ends(self, seconds: float = WAIT_S) -> str:
        """How `launch_agent` ended: `success`, or the name of what it raised; empty if it has not ended."""
        if self._ended is None:
            said = self._child.hear(seconds)
            if said is Silence.LATE:
                return ""
            self._ended = said if isinstance(said, str) else "died"
        return self._ended

    def ended(self) -> str:
        """How it ended.

        Raises:
            ScheduleError: it goes on.
        """
        how = self.ends()
        if not how:
            raise ScheduleError(f"agent {self.name} has not ended after {WAIT_S:g} s")
        return how

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def do(self, what: str) -> None:
        """Tell the workers: `succeed`, `fail once` or `fail always`."""
        new = self._folder / f"new.{self.name}"
        new.write_text(what)
        new.rename(self._folder / f"do.{self.name}")

    @property
    def workers(self) -> list[int]:
        """The processes of all workers that it ever started, in order."""
        with contextlib.suppress(FileNotFoundError):
            lines = (self._folder / f"began.{self.name}").read_text().split("\n")[:-1]
            return [int(line.split()[0]) for line in lines]
        return []

    def starts(self, count: int = 1) -> None:
        """Wait until its workers have been started so often."""
        wait_for(lambda: len(self.workers) >= count, f"{self.name}'s workers started {count} times")

    @property
    def runs(self) -> bool:
        """Whether a worker of it runs."""
        return any(map(alive, self.workers))

    @property
    def steps(self) -> list[Step]:
        """The steps of its workers, and their groups."""
        return noted(self._folder, self.name)

    def logs(self, text: str) -> None:
        """Wait until torch has logged this about it."""
        log = self._folder / f"log.{self.name}"
        wait_for(lambda: text in log.read_text(errors="replace"), f"{self.name} logs: {text}")

    def waits_in_barrier(self) -> None:
        """Wait until it waits for the others: it has logged so, and its main thread sleeps and does not wake.

        Between the log and the wait a signal is still heard, on a busy machine for seconds.
        """
        self.logs(IN_BARRIER)
        seen: list[str] = []

        def rests() -> bool:
            time.sleep(STILL_S)
            seen.append(self._sleeps())
            return seen[-1:] == seen[-2:-1] != [""]

        wait_for(rests, f"{self.name} waits in the barrier")

    def _sleeps(self) -> str:
        """How often its main thread has begun to sleep; empty while the thread runs (`/proc/PID/task/PID/status`)."""
        lines = Path(f"/proc/{self.pid}/task/{self.pid}/status").read_text().splitlines()
        status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        return status["voluntary_ctxt_switches"] if status["State"].startswith("S") else ""


class Cluster(AbstractContextManager["Cluster"]):
    """torch's store server in a process of its own, and the agents that meet there."""

    def __init__(self, say: Say, options: Options) -> None:
        self.say, self._options = say, options
        self._nodes: list[Node] = []

    def __enter__(self) -> Cluster:
        with ExitStack() as undo:
            self._folder = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="trystate-agents-")))
            (self._folder / "worker.py").write_text(WORKER)
            undo.callback(self._end_workers)
            server = undo.enter_context(Child(_serve))
            heard = server.hear(WAIT_S)
            if not isinstance(heard, tuple):
                raise ScheduleError("torch's store server did not start")
            self._port, self._server_pid = heard
            self._undo = undo.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._undo.close()

    def _end_workers(self) -> None:
        for pid in (pid for node in self._nodes for pid in node.workers):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def node(self, name: str) -> Node:
        """Start an agent."""
        child = self._undo.enter_context(Child(_launch, self._folder, name, self._port, self._options))
        node = Node(name, self._folder, child)
        self._nodes.append(node)
        return node

    def two(self) -> tuple[Node, Node]:
        """Two agents, whose workers run."""
        a, b = self.node("A"), self.node("B")
        a.starts()
        b.starts()
        self.say("the workers of A and B run")
        return a, b

    def freeze_store(self, seconds: float) -> None:
        """The server answers nobody for so long; its sockets stay open."""
        os.kill(self._server_pid, signal.SIGSTOP)
        try:
            time.sleep(seconds)
        finally:
            os.kill(self._server_pid, signal.SIGCONT)


def wait_for(holds: Callable[[], bool], what: str, seconds: float = WAIT_S) -> None:
    """Wait until something is so.

    Raises:
        ScheduleError: it does not come.
    """
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            raise ScheduleError(f"waited {seconds:g} s for: {what}")
        time.sleep(0.02)


def _serve(line: Connection) -> None:
    store = serve_on(HOST, 0)
    line.send((store.port, os.getpid()))
    line.recv()


def _die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _launch(line: Connection, folder: Path, name: str, port: int, options: Options) -> None:
    """In the child: what torchrun does after it has read its options."""
    log = os.open(folder / f"log.{name}", os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.update(TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1", AGENT=name)
    from torch.distributed.elastic.agent.server import api as agents
    from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
    from torch.distributed.elastic.rendezvous import dynamic_rendezvous
    from torch.distributed.launcher import api

    agents.logger.setLevel("INFO")
    dynamic_rendezvous.logger.setLevel("DEBUG")
    patient = partial(LocalElasticAgent, exit_barrier_timeout=options.barrier_s)
    mock.patch.object(api, "LocalElasticAgent", patient).start()
    if not has_heartbeat_options():
        beating = with_heartbeats(options.beat_s, options.beats_missed_max)
        mock.patch.object(dynamic_rendezvous.DynamicRendezvousHandler, "from_backend", beating).start()
    if name == options.dies_with_a_round:
        mock.patch.object(agents.SimpleElasticAgent, "_assign_worker_ranks", _die).start()
    low, high = options.nodes
    timeouts = {"read_timeout": options.read_timeout_s, "last_call_timeout": 1, "close_timeout": 5, "join_timeout": 120}
    beats = {"keep_alive_interval": options.beat_s, "keep_alive_max_attempt": options.beats_missed_max}
    config = api.LaunchConfig(
        min_nodes=low, max_nodes=high, nproc_per_node=1, run_id="scenario", max_restarts=options.max_restarts,
        rdzv_backend="c10d", rdzv_endpoint=f"{HOST}:{port}", rdzv_configs={"is_host": False, **timeouts, **beats},
        monitor_interval=0.1, local_addr=HOST, logs_specs=DefaultLogsSpecs(log_dir=str(folder / f"logs.{name}")),
    )  # fmt: skip
    line.send(os.getpid())
    try:
        api.launch_agent(config, sys.executable, [str(folder / "worker.py"), str(folder)])
    except BaseException as error:  # a signal's as well
        line.send(type(error).__name__)
    else:
        line.send(SUCCEEDED)
