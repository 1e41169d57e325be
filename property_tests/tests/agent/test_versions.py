"""Nodes with two versions of this package, or two releases of torch, work together or are refused.

The other version is this version with another number, in a separate process. The releases of torch are real. `ANOTHER`
names the interpreter of an environment with another release and with this package.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from trystate.impl.store import wire
from trystate.property_tests.adapters.jobs import CONF, Agent, Job, be, eventually
from trystate.store import TCPStore

ANOTHER = "TRYSTATE_PYTHON_OF_ANOTHER_TORCH"

Begin = Callable[[str, list[str]], object]


def without_rooms(program: str, argv: list[str]) -> None:
    """In the child: an earlier trystate, whose nodes keep the state of the rendezvous in a value."""
    TCPStore.rooms = property(lambda self: False)  # type: ignore[assignment, method-assign]
    be(program, argv)


def with_later_requests(program: str, argv: list[str]) -> None:
    """In the child: a trystate with another version of the store's requests, for clients and servers."""
    from trystate.impl.store.client import codec
    from trystate.impl.store.server import extended

    vars(extended)["VERSION"] = 9
    codec.HELLO = codec.HELLO.replace(wire.U32.pack(1), wire.U32.pack(9))
    be(program, argv)


def job_of(folder: Path, serves: Begin = be) -> Job:
    return Job(folder, nodes="1:2", conf=f"{CONF},is_host=0,read_timeout=5", serves=serves)


def works(agent: Agent) -> None:
    """Wait until its worker makes progress."""
    before = len(agent.steps)
    eventually(f"the worker of {agent.name} continues", lambda: len(agent.steps) > before + 3)


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (be, without_rooms, "its format is 'trystate-room-1', not 'trystate-rendezvous-4'; run one version of trystate "
         "on all nodes. It was not touched"),
        (without_rooms, be, "run one release on all nodes, and delete that value when its job has ended"),
    ],
    ids=["an earlier node comes", "a later node comes"],
)  # fmt: skip
def test_a_node_of_another_version_is_refused_and_the_job_goes_on(
    first: Begin, second: Begin, said: str, tmp_path: Path
) -> None:
    """The second agent changes nothing, and its error names the remedy."""
    with job_of(tmp_path) as job:
        a = job.agent("a", begin=first)
        works(a)
        refused(job, second, said)
        works(a)


@pytest.mark.parametrize(("server", "node", "versions"), [(be, with_later_requests, (9, 1)),
                                                          (with_later_requests, be, (1, 9))])  # fmt: skip
def test_a_server_of_another_version_refuses_a_node_at_once(
    server: Begin, node: Begin, versions: tuple[int, int], tmp_path: Path
) -> None:
    with job_of(tmp_path, server) as job:
        began = time.monotonic()
        why = "the client speaks version {} of trystate's requests, and this server version {}".format(*versions)
        said = refused(job, node, f"was reached, but cannot be used: server 127.0.0.1:{job.port}: {why}")
        assert time.monotonic() - began < 60
        assert "install one release of trystate on both sides" in said


def refused(job: Job, node: Begin, why: str) -> str:
    """The output of a node that is refused for this reason."""
    agent = job.agent("refused", begin=node)
    assert agent.ends() == 1
    assert why in agent.said
    assert "Traceback" not in agent.said
    return agent.said


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
    """A worker fails in the first round. In both rounds agents agree on ranks, and gloo connects the workers."""
    (tmp_path / "group.py").write_text(GROUP)
    pythons = [sys.executable, os.environ[ANOTHER]]
    releases = [
        subprocess.check_output([python, "-c", "import torch; print(torch.__version__)"], text=True).strip()
        for python in pythons
    ]
    with job_of(tmp_path) as job:
        options = ["--nnodes=2", f"--rdzv-endpoint=127.0.0.1:{job.port}", "--rdzv-id=job", "--max-restarts=1",
                   f"--rdzv-conf={CONF},is_host=0,read_timeout=5", str(tmp_path / "group.py")]  # fmt: skip
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
