"""dist_autograd: a second backward pass on a context whose pass is running ends in an INTERNAL ASSERT

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. One thread calls `backward` on a context, and is in its pass.
2. Another thread calls `backward` on the same context.

Expected:
An error that says that a pass is running on this context.

Seen:
the second pass, during the first: initializedContextIds_.find(autogradContext->contextId()) == initializedContextIds_.end() INTERNAL ASSERT FAILED
reproduced: a mistake of the caller is reported as a bug of PyTorch

Cause:
`torch/csrc/distributed/autograd/engine/dist_engine.cpp`, `DistEngine::execute` tests with `TORCH_INTERNAL_ASSERT`
that the context is not in `initializedContextIds_`, which depends on the caller alone.

Fix:
Use `TORCH_CHECK` with a text that names the context and says that one pass at a time is possible. Nothing else
needs to change.
"""  # noqa: E501 (its output)

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

CONTROL = "--control" in sys.argv  # the first pass ends before the second begins
WORLD, RPC_TIMEOUT_S = 1, 60
entered, go_on = threading.Event(), threading.Event()


class Waits(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        entered.set()
        go_on.wait(20)
        return gradient


def scenario() -> str:
    x = torch.tensor([2.0], requires_grad=True)
    with dist_autograd.context() as context:
        loss = Waits.apply(x)
        first = threading.Thread(target=dist_autograd.backward, args=(context, [loss]), kwargs={"retain_graph": True})
        first.start()
        entered.wait()
        if CONTROL:
            go_on.set()
            first.join()
        try:
            dist_autograd.backward(context, [loss], retain_graph=True)
            said = "ended well"
        except RuntimeError as error:
            said = str(error).splitlines()[0]
        go_on.set()
        first.join()
        return said


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


said = run().partition(" at ")[0]  # where torch was built
print(f"the second pass, {'after' if CONTROL else 'during'} the first: {said}")
if "INTERNAL ASSERT" in said:
    print("reproduced: a mistake of the caller is reported as a bug of PyTorch")
    sys.exit(1)
print("not reproduced: the second pass met no internal assertion")
