"""Nodes of one job with two versions of this package, or with two releases of torch: they work together or are refused.

The other version is this one under another number, in a process of its own; releases of torch are real. `ANOTHER`
names the interpreter of an environment with another release, and with this package.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the agent is torch's")

from trystate.property_tests.adapters.forked import Program
from trystate.property_tests.adapters.jobs import CONF, WORKER, Server, eventually, noted
from trystate.property_tests.support.versions import LATER, run, with_later_requests, with_later_state

ANOTHER = "TRYSTATE_PYTHON_OF_ANOTHER_TORCH"


class Nodes:
    """Agents of one job at one server; each may be of the later version."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self._port = folder, port
        self.all: list[Program] = []
        (folder / "worker.py").write_text(WORKER)

    def options(self, nodes: str) -> list[str]:
        return ["--nnodes", nodes, "--rdzv-endpoint", f"127.0.0.1:{self._port}", "--rdzv-id=job", "--rdzv-conf",
                f"{CONF},is_host=0,read_timeout=5", "--local-addr=127.0.0.1", str(self.folder / "worker.py"),
                str(self.folder)]  # fmt: skip

    def begin(self, name: str, main: object = run, nodes: str = "1:2") -> Program:
        log = self.folder / f"log.{name}"
        self.all.append(Program(log, main, ["run", *self.options(nodes)], variables={"AGENT": name}))  # type: ignore[arg-type]
        return self.all[-1]

    def works(self, name: str) -> None:
        """Wait until the worker of this agent makes progress."""
        before = len(noted(self.folder, name))
        eventually(f"{name}'s worker goes on", lambda: len(noted(self.folder, name)) > before + 3)


@contextlib.contextmanager
def served(folder: Path, main: object = None) -> Iterator[Nodes]:
    """A store's server, of the later version with `main`, and its nodes, which are gone when the block ends."""
    server: Server | Program
    if main is None:
        server = Server(folder)
        port = server.port
    else:
        server = Program(folder / "log.server", main, ["store", "serve", "--port", "0"])  # type: ignore[arg-type]
        eventually("the server listens", lambda: "listening on" in server.said)
        port = int(re.findall(r"listening on \S+:(\d+)", server.said)[0])
    nodes = Nodes(folder, port)
    try:
        yield nodes
    finally:
        for node in nodes.all:
            node.kill()
        server.kill()


BOTH_WAYS = pytest.mark.parametrize(
    ("first", "second", "theirs", "ours"),
    [
        (run, with_later_state, "trystate-rendezvous-3", LATER),
        (with_later_state, run, LATER, "trystate-rendezvous-3"),
    ],
    ids=["a later node comes", "an earlier node comes"],
)


@BOTH_WAYS
def test_a_node_of_another_version_is_refused_and_the_job_goes_on(
    first: object, second: object, theirs: str, ours: str, tmp_path: Path
) -> None:
    """It writes nothing, and its user is told what to do."""
    with served(tmp_path) as nodes:
        nodes.begin("a", first)
        nodes.works("a")
        refused = nodes.begin("b", second)
        assert refused.ends() == 1
        assert f"its format is '{theirs}', not '{ours}'; run one version of trystate on all nodes" in refused.said
        assert "It was not touched" in refused.said
        assert "Traceback" not in refused.said
        nodes.works("a")


@pytest.mark.parametrize(
    ("server", "node", "said"),
    [
        (None, with_later_requests, "the client speaks version 9 of trystate's requests, and this server version 1"),
        (with_later_requests, run, "the client speaks version 1 of trystate's requests, and this server version 9"),
    ],
    ids=["a later client", "a later server"],
)
def test_a_server_of_another_version_refuses_a_node_at_once(
    server: object, node: object, said: str, tmp_path: Path
) -> None:
    with served(tmp_path, server) as nodes:
        began = time.monotonic()
        refused = nodes.begin("a", node)
        assert refused.ends() == 1
        assert time.monotonic() - began < 60
        assert f"was reached, but cannot be used: server 127.0.0.1:{nodes._port}: {said}" in refused.said
        assert "install one release of trystate on both sides" in refused.said
        assert "Traceback" not in refused.said


GROUP = """
import datetime, os, sys, torch, torch.distributed as dist
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
releases = [None] * dist.get_world_size()
dist.all_gather_object(releases, torch.__version__)
if dist.get_rank() and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    sys.exit(3)
dist.barrier()
print(dist.get_rank(), *releases, flush=True)
dist.destroy_process_group()
"""


@pytest.mark.skipif(ANOTHER not in os.environ, reason=f"{ANOTHER} names no interpreter with another torch")
@pytest.mark.parametrize("leads", [True, False], ids=["this torch leads", "the other torch leads"])
def test_nodes_with_two_releases_of_torch_share_a_round_and_a_group(leads: bool, tmp_path: Path) -> None:
    """Two rounds, since a worker of the first fails: agents agree on ranks, workers meet, and gloo connects them."""
    (tmp_path / "group.py").write_text(GROUP)
    pythons = [sys.executable, os.environ[ANOTHER]]
    releases = [
        subprocess.check_output([python, "-c", "import torch; print(torch.__version__)"], text=True).strip()
        for python in pythons
    ]
    with served(tmp_path) as nodes:
        options = [*nodes.options("2:2")[:-3], "--max-restarts=1", str(tmp_path / "group.py")]
        variables = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        ran = [
            subprocess.Popen(
                [python, "-m", "trystate", "run", f"--local-addr=127.0.0.{1 + (k == leads)}", *options],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env=variables,
            )
            for k, python in enumerate(pythons)
        ]
        said = [process.communicate(timeout=300)[0] for process in ran]
    assert [process.returncode for process in ran] == [0, 0], said
    assert len(set(releases)) == 2, releases
    order = releases if leads else releases[::-1]
    for k, text in enumerate(said):
        rank = k if leads else 1 - k
        assert f"{rank} {' '.join(order)}" in text, said
