"""Real process groups on our stores: gloo, DDP and torchrun, in processes of their own, as a user starts them.

Trained weights and gradients are compared with those of one process that sees every batch whole.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from trystate.impl.store.server import TCPStoreServer

from .stores.group_member import train
from .stores.processes import Ended, python, run_together

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
MEMBER = "trystate.property_tests.stores.group_member"
SECONDS = 90.0
THREADS = {"OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def alone() -> dict[str, list[float]]:
    return train(0, 1)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        number: int = found.getsockname()[1]
        return number


def members(size: int, **job: Any) -> list[Ended]:
    """A process for each rank."""
    jobs = [json.dumps({**job, "rank": rank, "world_size": size}) for rank in range(size)]
    return run_together([python(MEMBER, job) for job in jobs], SECONDS, THREADS)


def trained_alike(ended: list[Ended], size: int, alone: dict[str, list[float]]) -> None:
    """Every member ended well, and has the gradients and weights of one process."""
    assert [str(e) for e in ended if e.code != 0] == []
    said = [json.loads(line) for e in ended for line in e.output.splitlines() if line.startswith("{")]
    assert sorted(s["rank"] for s in said) == list(range(size))
    for one in said:
        for name in ("gradients", "weights"):
            torch.testing.assert_close(torch.tensor(one[name]), torch.tensor(alone[name]))


@pytest.mark.parametrize("size", [2, 4] if NIGHTLY else [2])
@pytest.mark.parametrize("make", ["torch", "trystate"])
def test_a_group_trains_over_our_server(alone: dict[str, list[float]], make: str, size: int) -> None:
    with TCPStoreServer() as server:
        trained_alike(members(size, make=make, port=server.port), size, alone)


def test_a_group_trains_over_our_file(tmp_path: Path, alone: dict[str, list[float]]) -> None:
    trained_alike(members(2, make="file", path=str(tmp_path / "store")), 2, alone)


def test_a_group_meets_at_a_tcp_url(alone: dict[str, list[float]]) -> None:
    trained_alike(members(2, url=f"trystate-tcp://127.0.0.1:{free_port()}"), 2, alone)


def test_a_group_meets_at_a_file_url(tmp_path: Path, alone: dict[str, list[float]]) -> None:
    trained_alike(members(2, url=f"trystate-file://{tmp_path}/store"), 2, alone)


def test_groups_one_after_the_other_share_a_server_below_prefixes(alone: dict[str, list[float]]) -> None:
    with TCPStoreServer() as server:
        for attempt in range(2):
            url = f"trystate-tcp://127.0.0.1:{server.port}?hosted=0&prefix=attempt_{attempt}"
            trained_alike(members(2, url=url), 2, alone)


@pytest.mark.parametrize("url", ["env://", "trystate-env://"] if NIGHTLY else ["env://"])
def test_the_agents_store_may_be_our_server(alone: dict[str, list[float]], url: str) -> None:
    """torch's own env:// and ours: every rank is a client of the server that the agent is said to have."""
    with TCPStoreServer() as server:
        common = {
            **THREADS, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(server.port), "WORLD_SIZE": "2",
            "TORCHELASTIC_USE_AGENT_STORE": "True",
        }  # fmt: skip
        command = python(MEMBER, json.dumps({"url": url}))
        started = [[sys.executable, "-c", RANKED, str(rank), *command[1:]] for rank in range(2)]
        trained_alike(run_together(started, SECONDS, common), 2, alone)


# `run_together` gives all the same environment; this gives each its rank, and becomes the program.
RANKED = "import os, sys; os.environ['RANK'] = sys.argv[1]; os.execv(sys.executable, [sys.executable, *sys.argv[2:]])"


def agents(port: int, *options: str, environment: Mapping[str, str] = THREADS, **job: Any) -> list[Ended]:
    """Two agents of two workers each, with torch's c10d rendezvous keeping its state at this port."""
    agent = python(
        "torch.distributed.run", "--nnodes=2", "--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-id=ours",
        f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-conf=is_host=0,join_timeout=60,last_call_timeout=2",
        "--local-addr=127.0.0.1", "--monitor-interval=0.2", *options, "-m", MEMBER, json.dumps(job),
    )  # fmt: skip
    return run_together([agent, agent], SECONDS, environment)


@pytest.mark.parametrize("url", ["env://", "trystate-env://"] if NIGHTLY else ["trystate-env://"])
def test_torchrun_meets_at_our_server(alone: dict[str, list[float]], url: str) -> None:
    with TCPStoreServer() as server:
        trained_alike(agents(server.port, url=url), 4, alone)


def test_torchrun_restarts_its_workers_over_our_server(alone: dict[str, list[float]]) -> None:
    """Each attempt has a store of its own, which rank 0 brings along.

    Without this variable torch 2.13's agents keep one store for all attempts (dynamic_rendezvous.py: next_rendezvous,
    _bootstrap_store_info), and gloo connects to addresses that the attempt before left there.
    """
    own_stores = {**THREADS, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    with TCPStoreServer() as server:
        ended = agents(server.port, "--max-restarts=1", environment=own_stores, url="trystate-env://", failures=1)
    assert any("as planned" in e.errors for e in ended)
    trained_alike(ended, 4, alone)
