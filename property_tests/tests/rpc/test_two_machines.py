"""RPC and distributed autograd between two machines, which meet in every way that `init_rpc` has."""

from __future__ import annotations

import os
import pickle
import socket
from multiprocessing.connection import Connection as Line
from pathlib import Path
from typing import Any

import pytest
import torch

from trystate import autograd, rpc
from trystate.property_tests.adapters.torch_store.isolated import Child
from trystate.property_tests.support.machines import Machine, two_machines
from trystate.property_tests.support.rpc import functions as f
from trystate.property_tests.support.rpc.worlds import PATIENCE_SECONDS, Worker, of_the_tests
from trystate.rpc import Options

PORT = 29500  # free: each machine has its own network


def _stores(way: str, rank: int, folder: str) -> dict[str, Any]:
    """The arguments of init_rpc by which two workers meet; the first one's machine serves."""
    host, given = "10.77.0.1", {"rank": rank, "world_size": 2}
    if way == "env":
        os.environ.update(MASTER_ADDR=host, MASTER_PORT=str(PORT), RANK=str(rank), WORLD_SIZE="2")
        return {}
    return {"init_method": f"tcp://{host}:{PORT}" if way == "tcp" else f"file://{folder}/meeting", **given}


def _worker(line: Line, machine: Machine, way: str, rank: int, folder: str) -> None:
    """Call the other worker, and differentiate through the call."""
    machine.enter()
    options = of_the_tests(Options(timeout=PATIENCE_SECONDS, init_timeout=PATIENCE_SECONDS))
    rpc.init_rpc(f"w{rank}", options=options, **_stores(way, rank, folder))
    other, leaf = f"w{1 - rank}", torch.ones(2, requires_grad=True)
    found: list[Any] = [rpc.rpc_sync(other, f.process)]
    with autograd.context() as context:
        autograd.backward(context, [rpc.rpc_sync(other, f.add, (leaf, leaf)).sum()])
        found.append(autograd.get_gradients(context)[leaf].tolist())
    link = rpc.current_agent()._connections[1 - rank]._socket
    assert link.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    peer = link.getpeername()
    rpc.shutdown(timeout=PATIENCE_SECONDS)
    line.send(pickle.dumps((os.getpid(), *found, peer[0])))
    line.recv()


@pytest.mark.parametrize("way", ["env", "tcp", "file"])
def test_workers_on_two_machines_call_and_differentiate(way: str, tmp_path: Path) -> None:
    with (
        two_machines() as machines,
        Child(_worker, machines[0], way, 0, str(tmp_path)) as zero,
        Child(_worker, machines[1], way, 1, str(tmp_path)) as one,
    ):
        results = [Worker(child).heard() for child in (zero, one)]
    (first, there, gradient, peer), (second, here, other_gradient, other_peer) = results
    assert (there, here) == (second, first)
    assert gradient == other_gradient == [2, 2]
    assert (peer, other_peer) == ("10.77.0.2", "10.77.0.1")
