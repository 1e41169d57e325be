"""dist_autograd: backward() hangs when the result of a call in the context is not used, whatever the RPC timeout

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. A calls B in a context, and does not use the result.
2. A calls `backward` on a loss of its own.

Expected:
backward returns, or raises with the name of the call. The note on FAST mode says that all sends are assumed to take
part; nothing finds out that one does not.

Seen:
backward() with an RPC timeout of 1 s, after 10 s: still waiting
reproduced: backward() waits for a gradient that no node will ever send

Cause:
`torch/csrc/distributed/autograd/engine/dist_engine.cpp`, `DistEngine::computeDependencies` adds one outstanding
task for every send function of the context, and `DistEngine::execute` waits for the task's future without a
timeout.

Fix:
When all messages of the pass have been answered and tasks are still outstanding, fail with the send functions that
got no gradient. A timeout for `backward` would be the least.

Related:
https://github.com/pytorch/pytorch/issues/23110 (SMART mode).
"""

import os
import sys
import tempfile
import threading
import time
from typing import Any

import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
import torch.multiprocessing as mp

CONTROL = "--control" in sys.argv  # the loss depends on the result
WORLD, RPC_TIMEOUT_S = 2, 1
PARAMETER = torch.tensor([3.0], requires_grad=True)


def times_parameter(x: torch.Tensor) -> torch.Tensor:
    """On B."""
    return x * PARAMETER


def scenario() -> bool:
    """On A."""
    x = torch.tensor([2.0], requires_grad=True)
    with dist_autograd.context() as context:
        result = rpc.rpc_sync("B", times_parameter, (x,), timeout=30)  # for instance for a metric
        loss = result if CONTROL else x * 2
        backward = threading.Thread(target=dist_autograd.backward, args=(context, [loss]), daemon=True)
        backward.start()
        backward.join(10)
        return backward.is_alive()


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


hangs = run()
print(f"backward() with an RPC timeout of 1 s, after 10 s: {'still waiting' if hangs else 'over'}")
if hangs:
    print("reproduced: backward() waits for a gradient that no node will ever send")
    sys.exit(1)
print("not reproduced: backward() ended")
