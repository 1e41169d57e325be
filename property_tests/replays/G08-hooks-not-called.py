"""dist_autograd: hooks of register_post_accumulate_grad_hook() are never called

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. A parameter has a hook of `register_post_accumulate_grad_hook`.
2. A local pass calls it.
3. `dist_autograd.backward` does not.

Expected:
The hook is called when the context has the gradient, or registration is said to have no effect there.

Seen:
calls of the hook: in a local pass 1, in a distributed one 0
reproduced: the hook was not called, although the parameter has got its gradient

Cause:
`torch/csrc/distributed/autograd/engine/dist_engine.cpp`, `DistAccumulateGradCaptureHook` runs the pre-hooks and
post-hooks of the AccumulateGrad node around `DistAutogradContext::accumulateGrad`, and not
`tensor_post_acc_grad_hooks`, which came later.

Fix:
Call `tensor_post_acc_grad_hooks` after `accumulateGrad`. The hook's argument then needs a gradient, which is in the
context: pass the gradient's place, or document the difference.

Related:
https://github.com/pytorch/pytorch/issues/33482.
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

CONTROL = "--control" in sys.argv  # the second pass is local too
WORLD, RPC_TIMEOUT_S = 1, 60
calls: list[torch.Tensor] = []


def scenario() -> tuple[int, int]:
    x = torch.tensor([2.0], requires_grad=True)
    x.register_post_accumulate_grad_hook(calls.append)
    torch.autograd.backward([x * 2])
    local = len(calls)
    with dist_autograd.context() as context:
        if CONTROL:
            torch.autograd.backward([x * 2])
        else:
            dist_autograd.backward(context, [x * 2])
            assert x in dist_autograd.get_gradients(context)
    return local, len(calls) - local


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


local, distributed = run()
print(f"calls of the hook: in a local pass {local}, in a {'second' if CONTROL else 'distributed'} one {distributed}")
if local == 1 and distributed == 0:
    print("reproduced: the hook was not called, although the parameter has got its gradient")
    sys.exit(1)
print("not reproduced: the hook was called")
