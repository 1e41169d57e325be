"""Real process groups on our stores: gloo, DDP and torchrun, in separate processes, as a user starts them.

Trained weights and gradients are compared with the results of one process that sees every batch whole.
"""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from trystate.impl.store.tcp_server import TCPStoreServer
from trystate.property_tests.adapters.forked import Program
from trystate.property_tests.adapters.jobs import be
from trystate.property_tests.support.nightly import NIGHTLY
from trystate.property_tests.support.stores import group_member

END_SECONDS = 10.0


@pytest.fixture(scope="module")
def alone() -> dict[str, list[float]]:
    return group_member.train(0, 1)


@contextlib.contextmanager
def programs(folder: Path, starts: Sequence[tuple[Any, ...]], *variables: Mapping[str, str]) -> Iterator[list[Program]]:
    """Run functions with their arguments at once; each has its own variables, or all share one mapping."""
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
    """Every member ends well, and its gradients and weights equal the results of one process."""
    assert [one.said for one in running if one.ends() != 0] == []
    said = [json.loads(line) for one in running for line in one.said.splitlines() if line.startswith("{")]
    assert sorted(s["rank"] for s in said) == list(range(size))
    for one in said:
        for name in ("gradients", "weights"):
            torch.testing.assert_close(torch.tensor(one[name]), torch.tensor(alone[name]))


@pytest.mark.parametrize("size", [2, 4] if NIGHTLY else [2])
@pytest.mark.parametrize("make", ["torch", "trystate"])
def test_a_group_trains_over_our_server(tmp_path: Path, alone: dict[str, list[float]], make: str, size: int) -> None:
    with TCPStoreServer() as server:
        job = {"make": make, "port": server.port, "world_size": size}
        starts = [(group_member.main, json.dumps({**job, "rank": rank})) for rank in range(size)]
        with programs(tmp_path, starts) as running:
            trained_alike(running, size, alone)


@pytest.mark.parametrize("url", ["env://", "trystate-env://"] if NIGHTLY else ["env://"])
def test_the_agents_store_may_be_our_server(tmp_path: Path, alone: dict[str, list[float]], url: str) -> None:
    """torch's own env:// and ours: every rank is a client of the server that is configured as the agent's."""
    with TCPStoreServer() as server:
        common = {
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(server.port), "WORLD_SIZE": "2",
            "TORCHELASTIC_USE_AGENT_STORE": "True",
        }  # fmt: skip
        start = group_member.main, json.dumps({"url": url})
        with programs(tmp_path, [start] * 2, *({**common, "RANK": str(rank)} for rank in range(2))) as running:
            trained_alike(running, 2, alone)


@pytest.mark.parametrize("backend", ["c10d", "trystate"])
def test_torchrun_restarts_its_workers_over_our_server(
    backend: str, tmp_path: Path, alone: dict[str, list[float]]
) -> None:
    """Each attempt has its own store, which rank 0 serves.

    Without this variable torch 2.13's agents keep one store for all attempts (dynamic_rendezvous.py: next_rendezvous,
    _bootstrap_store_info), and gloo connects to addresses that the previous attempt has written there.
    """
    own_stores = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    job = json.dumps({"url": "trystate-env://", "failures": 1})
    with TCPStoreServer() as server:
        argv = [
            "--nnodes=2", "--nproc-per-node=2", f"--rdzv-backend={backend}", "--rdzv-id=ours", "--max-restarts=1",
            f"--rdzv-endpoint=127.0.0.1:{server.port}", "--rdzv-conf=is_host=0,join_timeout=60,last_call_timeout=2",
            "--local-addr=127.0.0.1", "--monitor-interval=0.2", "-m", group_member.__name__, job,
        ]  # fmt: skip
        with programs(tmp_path, [(be, "torchrun", argv)] * 2, own_stores) as running:
            trained_alike(running, 4, alone)
            assert any("as planned" in one.said for one in running)
