"""Agents in real processes, as a user starts them, and what their workers say.

Rule: whatever a test does, nothing that it started is left: agents are ended by their pid, and workers by the pids
that they wrote down.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from trystate.impl.rendezvous.encoding import decode
from trystate.impl.rendezvous.store_backend import StoreBackend
from trystate.store import TCPStore

from ...adapters.forked import Program
from ...adapters.torch_store.server import free_port

PACKAGE = __name__.rpartition(".")[0]
# A dead node is noticed after about four seconds. A live node that a busy machine stops for that time loses its lease,
# and rightly: its group begins again, with another master.
BEATS = "keep_alive_interval=0.5,keep_alive_max_attempt=8"
POLL_SECONDS = 0.02
END_SECONDS = 10.0
SECONDS = 300.0  # torch is imported by workers that train, on a machine that may be busy


def launch(launcher: str, argv: list[str]) -> None:
    """In the child: a launcher with torchrun's options. Without a distribution of ours, ours is registered by hand."""
    import torch.distributed.run as torchrun
    from torch.distributed.elastic.rendezvous import rendezvous_handler_registry

    from trystate.impl.rendezvous.plugin import creator

    rendezvous_handler_registry.register("trystate", creator())  # twice the same creator is one
    if launcher == "torchrun":
        sys.argv = ["torchrun", *argv]
        torchrun.main()
    elif launcher == "torch.distributed.launch":
        import torch.distributed.launch

        sys.argv = ["launch.py"]
        torch.distributed.launch.main(["--use-env", *argv])  # type: ignore[no-untyped-call]
    elif launcher == "elastic_launch":
        from torch.distributed.launcher.api import elastic_launch

        sys.argv = ["a_program.py"]
        chosen = torchrun.parse_args(argv)  # type: ignore[no-untyped-call]
        config, command, arguments = torchrun.config_from_args(chosen)
        elastic_launch(config, command)(*arguments)
    else:
        _accelerate(torchrun.parse_args(argv))  # type: ignore[no-untyped-call]


def _accelerate(chosen: argparse.Namespace) -> None:
    """`accelerate launch`, which has no options for the id, the endpoint of one machine, and an elastic job."""
    from accelerate.commands.launch import main  # type: ignore[import-not-found,import-untyped,unused-ignore]

    os.environ |= {
        "PET_NNODES": chosen.nnodes, "PET_RDZV_ID": chosen.rdzv_id, "PET_RDZV_ENDPOINT": chosen.rdzv_endpoint,
    }  # fmt: skip
    sys.argv = [
        "accelerate", "--multi_gpu", "--num_machines=1", f"--num_processes={chosen.nproc_per_node}",
        "--main_process_port=0", "--mixed_precision=no", "--dynamo_backend=no", "--num_cpu_threads_per_process=1",
        f"--rdzv_backend={chosen.rdzv_backend}", f"--rdzv_conf={chosen.rdzv_conf}",
        f"--max_restarts={chosen.max_restarts}", *(["-m"] if chosen.module else []), chosen.training_script,
        *chosen.training_script_args,
    ]  # fmt: skip
    main()


class Job:
    """A job of several agents on this machine: `with Job(folder) as job: job.agent(); ...`."""

    def __init__(self, folder: Path, *, port: int | None = None, name: str = "job", **environment: str) -> None:
        self.folder, self.name = folder / name, name
        self.folder.mkdir()
        self.port = port if port is not None else free_port()
        self._variables = environment
        self._agents: list[Program] = []

    def agent(
        self, nodes: str = "1:3", *, conf: str = "", restarts: int = 3, workers: int = 1, train: bool = False,
        launcher: str = "torchrun",
    ) -> Program:  # fmt: skip
        """Start one more; its workers do nothing, or `train`."""
        settings = ",".join(part for part in (BEATS, "last_call_timeout=0.5,join_timeout=60", conf) if part)
        argv = [
            f"--nnodes={nodes}", f"--nproc-per-node={workers}",
            "--rdzv-backend=trystate", f"--rdzv-id={self.name}", f"--rdzv-endpoint=127.0.0.1:{self.port}",
            f"--rdzv-conf={settings}", f"--max-restarts={restarts}", "-m", f"{PACKAGE}.worker", str(self.folder),
            *(["train"] if train else []),
        ]  # fmt: skip
        log = self.folder / f"agent{len(self._agents)}.txt"
        self._agents.append(Program(log, launch, launcher, argv, variables=self._variables))
        return self._agents[-1]

    def lines(self) -> list[dict[str, Any]]:
        """The lines of the workers, in the order of time."""
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
                texts = "\n".join(f"--- agent {a.pid}\n{a.said[-3000:]}" for a in self._agents)
                raise AssertionError(f"it did not happen within {seconds:g} s; last lines {self.lines()[-4:]}\n{texts}")
            time.sleep(POLL_SECONDS)

    def until_size(self, size: int, after: float = 0.0, seconds: float = SECONDS, attempt: int | None = None) -> None:
        """Wait until `size` workers have taken a step of one group, after this time, and of this attempt if given."""

        def stepped() -> bool:
            recent = [one for one in self.lines() if one["at"] > after and attempt in (None, one["attempt"])]
            return any(_whole(group, size) for group in _groups(recent))

        self.until(stepped, seconds)

    def pids(self, size: int) -> set[int]:
        """The workers of the last group of this size."""
        latest = {one["rank"]: int(one["pid"]) for one in self.lines() if one["size"] == size}
        return set(latest.values())

    def until_others(self, size: int, before: set[int]) -> None:
        """Wait until a group of this size has none of these workers, of which some may be orphans."""

        def renewed() -> bool:
            others = [one for one in self.lines() if one["pid"] not in before]
            return any(_whole(group, size) for group in _groups(others))

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
        self._end()
        if error is None:
            check(self.lines())

    def _end(self) -> None:
        for agent in self._agents:
            if agent.ran:
                agent.signal(signal.SIGTERM)  # it ends its workers
        for agent in self._agents:
            agent.process.join(END_SECONDS)
            agent.kill()
        for pid in self._left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _left(self) -> Iterator[int]:
        """Workers whose agent was killed: those of our pids that still run what we started."""
        for path in self.folder.glob("*.log"):
            with contextlib.suppress(OSError):
                if str(self.folder).encode() in Path(f"/proc/{path.stem}/cmdline").read_bytes():
                    yield int(path.stem)


def _groups(lines: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The lines of each master's workers, which are those of one round alone, in the order of time."""
    found: dict[str, list[dict[str, Any]]] = {}
    for one in lines:
        found.setdefault(one["master"], []).append(one)
    return list(found.values())


def _whole(group: list[dict[str, Any]], size: int) -> bool:
    return {one["size"] for one in group} == {size} and {one["rank"] for one in group} == set(range(size))


def check(lines: list[dict[str, Any]]) -> None:
    """No two groups ran at once, the workers of each agreed, and each went on where the one before had stopped.

    Where that was stopped between a step and its checkpoint, the step is done again.
    """
    before: dict[str, Any] | None = None  # the line before
    kept: dict[str, Any] | None = None  # the last line of rank 0 before it wrote a checkpoint
    for group in _groups(lines):
        assert len({one["size"] for one in group}) == 1, f"of different worlds: {group[-4:]}"
        ranks = {(one["rank"], one["pid"]) for one in group}
        assert len(ranks) == len({rank for rank, _ in ranks}), f"twice one rank: {ranks}"
        assert before is None or before["at"] < group[0]["at"], f"two groups at once: {before}, {group[0]}"
        firsts = [one for one in group if one["rank"] == 0]
        if kept is not None and firsts:
            _goes_on(kept, firsts[0])
        before, kept = group[-1], firsts[-1] if firsts else kept


def _goes_on(last: dict[str, Any], first: dict[str, Any]) -> None:
    assert 0 <= first["step"] - last["step"] <= 1, f"it did not go on: {last}, {first}"
    moved = [abs(a - b) for a, b in zip(last["weights"], first["weights"], strict=True)]
    # A step moves a weight by 0.1, the learning rate, times 1 or the mean of the ranks.
    assert max(moved, default=0.0) <= 0.1 * (1 + first["size"]), f"begun anew: {last}, {first}"
