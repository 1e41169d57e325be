"""dist_autograd: a gradient that reaches a worker twice is executed twice, and nothing says so

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. A's gradient for B is sent a second time, as by a transport that repeats it (the script does so in a hook).

Expected:
The second message is ignored or refused.

Seen:
the message was sent twice, and backward() raised nothing
the gradient of B's parameter is 4, and d(2 * p)/dp is 2
reproduced: a message that arrived twice was added up twice

Cause:
`torch/csrc/distributed/autograd/engine/dist_engine.cpp`, `DistEngine::executeSendFunctionAsync` executes the send
function for every message that names it; that it has been executed in this pass is kept nowhere.

Fix:
Remember which send functions of a pass have got their gradient, and refuse a second one. A debug check would do.
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

CONTROL = "--control" in sys.argv  # the message is sent once
WORLD, RPC_TIMEOUT_S = 2, 60
PARAMETER = torch.tensor([3.0], requires_grad=True)


def times_parameter(x: torch.Tensor) -> torch.Tensor:
    """On B."""
    return x * PARAMETER


def gradient(context: int) -> float:
    """On B."""
    return float(dist_autograd.get_gradients(context).get(PARAMETER, 0.0))


def scenario() -> float:
    """On A: the message with the gradient is sent twice, as by a transport that repeats it."""
    x = torch.tensor([2.0], requires_grad=True)
    with dist_autograd.context() as context:
        y = rpc.rpc_sync("B", times_parameter, (x,))
        send = y.grad_fn

        def send_once_more(g: torch.Tensor) -> None:
            send(g)
            while rpc.rpc_sync("B", gradient, (context,)) == 0.0:
                pass  # until B has executed the first

        if not CONTROL:
            y.register_hook(send_once_more)
        dist_autograd.backward(context, [y], retain_graph=True)
        until = time.monotonic() + 5
        while (found := rpc.rpc_sync("B", gradient, (context,))) == 2.0 and time.monotonic() < until:
            pass  # backward() may return before the second has been executed
        return found


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
print(f"the message was sent {'once' if CONTROL else 'twice'}, and backward() raised nothing")
print(f"the gradient of B's parameter is {found:g}, and d(2 * p)/dp is 2")
if found != 2.0:
    print("reproduced: a message that arrived twice was added up twice")
    sys.exit(1)
print("not reproduced: the gradient was added once")
