"""Nodes of one job run the same thing: a node of another job with the same id is refused, and is told what differs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the agent is torch's")

from trystate.property_tests.adapters.forked import Program
from trystate.property_tests.adapters.jobs import CONF, Agent, Server, eventually
from trystate.property_tests.support.rendezvous.jobs import launch

SECRET = "sk-0123456789abcdef"
WAITS = """
import os, pathlib, time
here = pathlib.Path(__file__).parent
(here / f"began.{os.environ['AGENT']}").touch()
while not (here / "stop").exists():
    time.sleep(0.02)
"""
Start = Callable[..., Program]


@contextmanager
def started(folder: Path, program: str) -> Iterator[Start]:
    """Starts nodes of the job `job`, with torchrun or with `trystate run`; they are gone when the block ends."""
    server, nodes = Server(folder), list[Program]()
    for script in ("train.py", "other.py"):
        (folder / script).write_text(WAITS)

    def start(name: str, *argv: str, conf: str = CONF) -> Program:
        options = ["--rdzv-endpoint", f"127.0.0.1:{server.port}", "--rdzv-id=job", f"--rdzv-conf={conf}",
                   "--local-addr=127.0.0.1", *argv]  # fmt: skip
        if program == "torchrun":
            log = folder / f"log.{name}"
            given = ["--rdzv-backend=trystate", *options]
            nodes.append(Program(log, launch, "torchrun", given, variables={"AGENT": name}))
        else:
            nodes.append(Agent(name, folder, options, LOGLEVEL="INFO"))
        return nodes[-1]

    try:
        yield start
    finally:
        (folder / "stop").touch()
        for node in nodes:
            node.process.join(5)
            node.kill()
        server.kill()


DIFFERENCES = (
    (["--nproc-per-node=1", "other.py", "--lr=1"], "program is 'train.py', not 'other.py'"),
    (["--nproc-per-node=2", "train.py", "--lr=1"], "nproc is 1, not 2"),
    (["--nproc-per-node=1", "train.py", "--lr=2", "--seed", "3"], "--lr=*"),
)


@pytest.mark.parametrize("program", ["trystate run", "torchrun"])
def test_a_node_of_another_job_with_the_same_id_is_refused_and_told_what_differs(program: str, tmp_path: Path) -> None:
    """A spare that exits with 0 and an empty log looks like a job that has succeeded."""
    with started(tmp_path, program) as start:
        first = start("first", "--nnodes=1", "--nproc-per-node=1", "train.py", "--lr=1")
        eventually("the first one runs", (tmp_path / "began.first").exists)
        others = [(start(f"other{k}", "--nnodes=1", *argv), said) for k, (argv, said) in enumerate(DIFFERENCES)]
        for other, said in others:
            assert other.ends() == 1, other.said
            assert "the rendezvous has other settings" in other.said
            assert said in other.said
            assert "an --rdzv-id of its own" in other.said and "agree_on=" in other.said
        assert first.ran
        (tmp_path / "stop").touch()
        assert first.ends() == 0


def test_a_spare_says_that_it_is_one_and_why_at_once_and_in_the_end(tmp_path: Path) -> None:
    with started(tmp_path, "trystate run") as start:
        first = start("first", "--nnodes=1", "train.py")
        eventually("the first one runs", (tmp_path / "began.first").exists)
        spare = start("spare", "--nnodes=1", "train.py")
        eventually("it says so", lambda: '"event": "spare"' in spare.said)
        assert "all seats are taken: max_nodes=1" in spare.said
        (tmp_path / "stop").touch()
        assert (first.ends(), spare.ends()) == (0, 0)
        assert "this node was a spare of the job 'job' (max_nodes=1, and 1 other nodes were members)" in spare.said
        assert "all workers have succeeded" in spare.said
        assert not (tmp_path / "began.spare").exists()


def test_nodes_that_may_differ_are_one_job(tmp_path: Path) -> None:
    conf = f"{CONF},agree_on=program"
    with started(tmp_path, "trystate run") as start:
        nodes = [start(f"n{k}", "--nnodes=2", f"--nproc-per-node={k + 1}", "train.py", f"--disk=/mnt/{k}", conf=conf)
                 for k in range(2)]  # fmt: skip
        for k in range(2):
            eventually("both run", (tmp_path / f"began.n{k}").exists)
        (tmp_path / "stop").touch()
        assert [node.ends() for node in nodes] == [0, 0]
