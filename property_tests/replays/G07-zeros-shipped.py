"""dist_autograd: parameters behind a result that is not used get a gradient of zero instead of none

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. B returns two results, each with a parameter of its own.
2. A calls `backward` on the first.
3. B looks for the gradient of the second parameter in the context.

Expected:
There is none, as in a local pass, where `.grad` stays None.

Seen:
the gradient of the parameter behind the second result: [0.0]; in a local pass: None
reproduced: a parameter that the loss does not depend on has a gradient of zero instead of none

Cause:
`torch/csrc/distributed/autograd/functions/recvrpc_backward.cpp`, `RecvRpcBackward::apply` replaces undefined
gradients by zeros before it sends them.

Fix:
Send undefined gradients as such, and let `SendRpcBackward` pass them on. The engine handles them in local graphs
already.

Related:
https://github.com/pytorch/pytorch/issues/26446.
"""

import os
import sys
import tempfile
import time
from typing import Any

import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
import torch.multiprocessing as mp

CONTROL = "--control" in sys.argv  # the loss depends on both results
WORLD, RPC_TIMEOUT_S = 2, 60
USED = torch.tensor([3.0], requires_grad=True)
UNUSED = torch.tensor([5.0], requires_grad=True)


def two_results(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """On B."""
    return x * USED, x * UNUSED


def loss(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    return first + second if CONTROL else first


def gradient_of_unused(context: int) -> list[float] | None:
    """On B."""
    gradients = dist_autograd.get_gradients(context)
    return gradients[UNUSED].tolist() if UNUSED in gradients else None


def scenario() -> list[float] | None:
    """On A."""
    x = torch.tensor([2.0], requires_grad=True)
    with dist_autograd.context() as context:
        first, second = rpc.rpc_sync("B", two_results, (x,))
        dist_autograd.backward(context, [loss(first, second)])
        return rpc.rpc_sync("B", gradient_of_unused, (context,))


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


found = run()
x = torch.tensor([2.0], requires_grad=True)
loss(*two_results(x)).backward()
print(f"the gradient of the parameter behind the second result: {found}; in a local pass: {UNUSED.grad}")
if found == [0.0]:
    print("reproduced: a parameter that the loss does not depend on has a gradient of zero instead of none")
    sys.exit(1)
print("not reproduced: the parameter has a gradient only if the loss depends on it")
