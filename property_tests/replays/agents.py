"""A job of torchrun's agents for the replays: each agent, and the store of the rendezvous, is a process."""

from __future__ import annotations

import logging
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from torch.distributed import TCPStore
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.launcher import api

SOON_DEAD = {"keep_alive_interval": 1, "keep_alive_max_attempt": 3}  # a heartbeat lives for three seconds


def alive(pid: str) -> bool:
    status = Path(f"/proc/{pid.strip()}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


def launch_config(
    port: int, nodes: tuple[int, int], rendezvous: dict[str, Any], restarts: int = 0, folder: str | None = None
) -> api.LaunchConfig:
    """The configuration of a torchrun, with the minimum and the maximum of nodes."""
    return api.LaunchConfig(
        *nodes, 1, max_restarts=restarts, run_id="job", rdzv_backend="c10d", rdzv_endpoint=f"127.0.0.1:{port}",
        rdzv_configs=rendezvous, local_addr="127.0.0.1", logs_specs=DefaultLogsSpecs(log_dir=folder),
    )  # fmt: skip


class Job:
    """A job whose workers run a shell script, in which $NAME is the agent's name and $1 is a folder.

    nodes: the minimum and the maximum; barrier: seconds instead of the 300 s of the exit barrier;
    prepare: called in an agent with its name, before the agent begins.
    """

    def __init__(
        self, worker: str, nodes: tuple[int, int], restarts: int = 0, *, barrier: float | None = None,
        prepare: Callable[[str], object] = str, **rendezvous: Any,
    ) -> None:  # fmt: skip
        logging.disable()  # the log of the agents
        self.worker, self.nodes, self.restarts, self.barrier = worker, nodes, restarts, barrier
        self.prepare, self.rendezvous = prepare, {"is_host": False, "last_call_timeout": 2, **rendezvous}
        self.fork = multiprocessing.get_context("fork")
        port, self.ended = self.fork.SimpleQueue(), self.fork.SimpleQueue()
        self.server = self.fork.Process(target=self.serve, args=(port,), daemon=True)
        self.server.start()
        self.port = port.get()
        self._folder = tempfile.TemporaryDirectory()
        self.folder = Path(self._folder.name)

    def serve(self, port: Any) -> None:
        server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        port.put(server.port)
        time.sleep(120)

    def start(self, *names: str) -> list[Any]:
        """Start agents; returns their processes."""
        agents = [self.fork.Process(target=self.run, args=(name,)) for name in names]
        for process in agents:
            process.start()
        return agents

    def run(self, name: str) -> None:
        """Run an agent like torchrun."""
        os.environ.update(NAME=name, TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")
        if self.barrier is not None:
            api.LocalElasticAgent = partial(LocalElasticAgent, exit_barrier_timeout=self.barrier)
        self.prepare(name)
        config = launch_config(self.port, self.nodes, self.rendezvous, self.restarts, str(self.folder))
        try:
            api.launch_agent(config, "sh", ["-c", self.worker, "worker", str(self.folder)])
            self.ended.put((name, "success"))
        except BaseException as error:
            self.ended.put((name, type(error).__name__))

    def ends(self, count: int) -> dict[str, str]:
        """Wait until `count` more agents have ended; returns how each ended, in the order of their ends."""
        return dict(self.ended.get() for _ in range(count))

    def wait_for(self, *names: str) -> None:
        """Wait until the workers have created these files."""
        while not all((self.folder / name).exists() for name in names):
            time.sleep(0.1)

    def touch(self, name: str) -> None:
        (self.folder / name).touch()

    def text(self, name: str) -> str:
        return (self.folder / name).read_text()
