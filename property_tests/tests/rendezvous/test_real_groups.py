"""Real process groups on our stores: gloo, DDP and torchrun, in processes of their own, as a user starts them.

Trained weights and gradients are compared with those of one process that sees every batch whole.
"""

from __future__ import annotations

import contextlib
import functools
import json
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from trystate.impl.store.tcp_server import TCPStoreServer
from trystate.property_tests.adapters.forked import Program
from trystate.property_tests.adapters.jobs import Agent
from trystate.property_tests.adapters.torch_store.server import free_port
from trystate.property_tests.support.nightly import NIGHTLY
from trystate.property_tests.support.rendezvous.jobs import launch
from trystate.property_tests.support.stores import group_member

END_SECONDS = 10.0


@pytest.fixture(scope="module")
def alone() -> dict[str, list[float]]:
    return group_member.train(0, 1)


@contextlib.contextmanager
def programs(
    folder: Path, starts: Sequence[tuple[Callable[..., object], object]], *variables: Mapping[str, str]
) -> Iterator[list[Program]]:
    """Functions with an argument each, all at once; each has its variables, or all have the same."""
    each = variables if len(variables) > 1 else [*(variables or [{}])] * len(starts)
    running = [Program(folder / f"log.{n}", *start, variables=each[n]) for n, start in enumerate(starts)]
    try:
        yield running
    finally:
        for one in running:
            if one.ran:
                one.signal(signal.SIGTERM)  # torchrun ends its workers
                one.process.join(END_SECONDS)
            one.kill()


def trained_alike(running: list[Program], size: int, alone: dict[str, list[float]]) -> None:
    """Every member ends well, and has the gradients and weights of one process."""
    assert [one.said for one in running if one.ends() != 0] == []
    said = [json.loads(line) for one in running for line in one.said.splitlines() if line.startswith("{")]
    assert sorted(s["rank"] for s in said) == list(range(size))
    for one in said:
        for name in ("gradients", "weights"):
            torch.testing.assert_close(torch.tensor(one[name]), torch.tensor(alone[name]))


def members_train_alike(folder: Path, size: int, alone: dict[str, list[float]], **job: Any) -> None:
    """A process for each rank."""
    jobs = [json.dumps({**job, "rank": rank, "world_size": size}) for rank in range(size)]
    with programs(folder, [(group_member.main, job) for job in jobs]) as running:
        trained_alike(running, size, alone)


@pytest.mark.parametrize("size", [2, 4] if NIGHTLY else [2])
@pytest.mark.parametrize("make", ["torch", "trystate"])
def test_a_group_trains_over_our_server(tmp_path: Path, alone: dict[str, list[float]], make: str, size: int) -> None:
    with TCPStoreServer() as server:
        members_train_alike(tmp_path, size, alone, make=make, port=server.port)


def test_a_group_trains_over_our_file(tmp_path: Path, alone: dict[str, list[float]]) -> None:
    members_train_alike(tmp_path, 2, alone, make="file", path=str(tmp_path / "store"))


def test_a_group_meets_at_a_tcp_url(tmp_path: Path, alone: dict[str, list[float]]) -> None:
    members_train_alike(tmp_path, 2, alone, url=f"trystate-tcp://127.0.0.1:{free_port()}")


def test_a_group_meets_at_a_file_url(tmp_path: Path, alone: dict[str, list[float]]) -> None:
    members_train_alike(tmp_path, 2, alone, url=f"trystate-file://{tmp_path}/store")


def test_groups_one_after_the_other_share_a_server(tmp_path: Path, alone: dict[str, list[float]]) -> None:
    with TCPStoreServer() as server:
        for _ in range(2):
            members_train_alike(tmp_path, 2, alone, url=f"trystate-tcp://127.0.0.1:{server.port}?hosted=0")


@pytest.mark.parametrize("url", ["env://", "trystate-env://"] if NIGHTLY else ["env://"])
def test_the_agents_store_may_be_our_server(tmp_path: Path, alone: dict[str, list[float]], url: str) -> None:
    """torch's own env:// and ours: every rank is a client of the server that the agent is said to have."""
    with TCPStoreServer() as server:
        common = {
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(server.port), "WORLD_SIZE": "2",
            "TORCHELASTIC_USE_AGENT_STORE": "True",
        }  # fmt: skip
        start = group_member.main, json.dumps({"url": url})
        with programs(tmp_path, [start] * 2, *({**common, "RANK": str(rank)} for rank in range(2))) as running:
            trained_alike(running, 2, alone)


def agents(
    folder: Path, port: int, *options: str, variables: Mapping[str, str], **job: Any
) -> contextlib.AbstractContextManager[list[Program]]:
    """Two agents of two workers each, with torch's c10d rendezvous keeping its state at this port."""
    argv = [
        "--nnodes=2", "--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-id=ours",
        f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-conf=is_host=0,join_timeout=60,last_call_timeout=2",
        "--local-addr=127.0.0.1", "--monitor-interval=0.2", *options, "-m", group_member.__name__, json.dumps(job),
    ]  # fmt: skip
    return programs(folder, [(functools.partial(launch, "torchrun"), argv)] * 2, variables)


@pytest.mark.skipif(not NIGHTLY, reason="a restart meets as well")
@pytest.mark.parametrize("url", ["env://", "trystate-env://"])
def test_torchrun_meets_at_our_server(tmp_path: Path, alone: dict[str, list[float]], url: str) -> None:
    with TCPStoreServer() as server, agents(tmp_path, server.port, variables={}, url=url) as running:
        trained_alike(running, 4, alone)


def test_torchrun_restarts_its_workers_over_our_server(tmp_path: Path, alone: dict[str, list[float]]) -> None:
    """Each attempt has a store of its own, which rank 0 brings along.

    Without this variable torch 2.13's agents keep one store for all attempts (dynamic_rendezvous.py: next_rendezvous,
    _bootstrap_store_info), and gloo connects to addresses that the attempt before left there.
    """
    own_stores = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    job = {"url": "trystate-env://", "failures": 1}
    with (
        TCPStoreServer() as server,
        agents(tmp_path, server.port, "--max-restarts=1", variables=own_stores, **job) as running,
    ):
        trained_alike(running, 4, alone)
        assert any("as planned" in one.said for one in running)


RANK_0 = """
import os
from trystate.store import TCPStore

with TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), 1, os.environ["RANK"] == "0") as store:
    store.set("a", "1")
    print("rank 0 has", store.get("a"))
"""


def test_a_worker_makes_the_store_of_its_job_itself(tmp_path: Path) -> None:
    """As many training scripts do; under torchrun the agent's server is torch's."""
    (tmp_path / "train.py").write_text(RANK_0)
    options = ["--standalone", str(tmp_path / "train.py")]
    launched = [Agent(program.split()[0], tmp_path, options, program) for program in ("torchrun", "trystate run")]
    for agent in launched:
        assert agent.ends() == 0, agent.said
        assert "rank 0 has b'1'" in agent.said
