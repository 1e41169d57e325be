"""dist_autograd: the gradients of a backward pass that failed stay in the context, and are added to those of the retry

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. B's part of the pass is done: its parameter has its gradient in the context.
2. C's part fails: `backward` raises.
3. A runs the pass again, which succeeds.

Expected:
The gradient is that of the pass that succeeded. In a local pass, where a failure leaves gradients too,
`zero_grad()` mends it; a context has nothing of the kind.

Seen:
the first pass, in which C fails, raised Error on Node 0: Error on Node 2: this node fails
the last pass ended well; the gradient of B's parameter is 4, and d(2 * p)/dp is 2
reproduced: after a pass that failed and one that succeeded the gradient is twice as large as it should be

Cause:
`torch/csrc/distributed/autograd/context/context.cpp`, `DistAutogradContext::accumulateGrad` adds to
`accumulatedGrads_` while the pass runs, and `DistEngine::cleanupBackwardPass` keeps them, whether the pass has
failed or not.

Fix:
Keep the gradients of a pass apart, and add them to the context when it has succeeded. Or refuse a second pass after
one that has failed, and say so in the documentation.
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

CONTROL = "--control" in sys.argv  # C does not fail
WORLD, RPC_TIMEOUT_S = 3, 60
PARAMETER = torch.tensor([3.0], requires_grad=True)
accumulated = threading.Event()  # on B
failing = threading.Event()  # on C
if not CONTROL:
    failing.set()


def is_done() -> bool:
    """On B: whether its part of the pass is over."""
    return accumulated.is_set() and int(dist_autograd._get_debug_info()["num_current_backward_passes"]) == 0


class FailsOnce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        if failing.is_set():
            while not rpc.rpc_sync("B", is_done):
                pass
            failing.clear()
            raise RuntimeError("this node fails")
        return gradient


def times_parameter(x: torch.Tensor) -> torch.Tensor:
    """On B."""
    y = x * PARAMETER
    y.register_hook(lambda _: accumulated.set())
    return y


def fails_once(x: torch.Tensor) -> torch.Tensor:
    """On C."""
    return FailsOnce.apply(-x)


def gradient(context: int) -> float:
    """On B."""
    return float(dist_autograd.get_gradients(context)[PARAMETER])


def backward(context: int, loss: torch.Tensor) -> str:
    try:
        dist_autograd.backward(context, [loss], retain_graph=True)
    except RuntimeError as error:
        return f"raised {str(error).splitlines()[0]}"
    return "ended well"


def scenario() -> tuple[str, str, float]:
    """On A."""
    x = torch.tensor([2.0], requires_grad=True)
    with dist_autograd.context() as context:
        loss = rpc.rpc_sync("B", times_parameter, (x,)) + rpc.rpc_sync("C", fails_once, (x,))
        first = last = backward(context, loss)
        if first != "ended well":
            last = backward(context, loss)
        return first, last, rpc.rpc_sync("B", gradient, (context,))


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


first, last, found = run()
print(f"the first pass, in which {'nothing' if CONTROL else 'C'} fails, {first}")
print(f"the last pass {last}; the gradient of B's parameter is {found:g}, and d(2 * p)/dp is 2")
if last == "ended well" and found != 2.0:
    print("reproduced: after a pass that failed and one that succeeded the gradient is twice as large as it should be")
    sys.exit(1)
print("not reproduced: the gradient is that of the pass that succeeded")
