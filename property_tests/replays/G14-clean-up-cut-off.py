"""dist_autograd: workers that were called through one that died are not told that the context has ended

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. A calls B in a context, and B calls C.
2. B is killed.
3. A leaves the context.

Expected:
C releases the context.

Seen:
contexts on C, 10 s after A has left the only one, and B was killed: 1
reproduced: the context stays on C, to which only the worker that was killed had led

Cause:
`torch/csrc/distributed/autograd/context/container.cpp`, `DistAutogradContainer::sendReleaseContextRpc` tells the
workers that this one has called; each tells those that it has called. Behind one that is dead nobody is told.

Fix:
Have answers carry the workers that were called, so that the creator knows all of them and can tell each. The flood
of clean-ups would go as well.

Related:
https://github.com/pytorch/pytorch/issues/32497.
"""

import os
import signal
import sys
import tempfile
import time
from typing import Any

import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
import torch.multiprocessing as mp

CONTROL = "--control" in sys.argv  # B is not killed
WORLD, RPC_TIMEOUT_S = 3, 60
PARAMETER = torch.tensor([3.0], requires_grad=True)


def contexts() -> int:
    return int(dist_autograd._get_debug_info()["num_autograd_contexts"])


def pid() -> int:
    return os.getpid()


def pass_on(x: torch.Tensor, *path: str) -> torch.Tensor:
    return rpc.rpc_sync(path[0], pass_on, (x, *path[1:])) if path else x * PARAMETER


def scenario() -> int:
    """On A, which calls C by way of B, and leaves the context when B has been killed."""
    x = torch.tensor([2.0], requires_grad=True)
    with dist_autograd.context():
        victim = rpc.rpc_sync("B", pid)
        rpc.rpc_sync("B", pass_on, (x, "C"))
        if not CONTROL:
            os.kill(victim, signal.SIGKILL)
    until = time.monotonic() + 10
    while (left := rpc.rpc_sync("C", contexts)) and time.monotonic() < until:
        time.sleep(0.1)
    return left


def work(rank: int, store: str, result: Any) -> None:
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{store}", rpc_timeout=RPC_TIMEOUT_S)
    rpc.init_rpc("ABC"[rank], rank=rank, world_size=WORLD, rpc_backend_options=options)
    if rank == 0:
        result.put(scenario())
    time.sleep(600)  # ended from outside


def run() -> Any:
    os.environ["TP_SOCKET_IFNAME"] = "lo"
    context = mp.get_context("fork")
    result = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        workers = [context.Process(target=work, args=(rank, f"{folder}/store", result)) for rank in range(WORLD)]
        for worker in workers:
            worker.start()
        try:
            return result.get(timeout=50)
        finally:
            for worker in workers:
                worker.kill()


left = run()
print(f"contexts on C, 10 s after A has left the only one, and B {'lives' if CONTROL else 'was killed'}: {left}")
if left:
    print("reproduced: the context stays on C, to which only the worker that was killed had led")
    sys.exit(1)
print("not reproduced: no context stays on C")
