"""dist_autograd: backward() hangs when the result of a call in the context is not used, whatever the RPC timeout

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. A calls B in a context, and does not use the result.
2. A calls `backward` on a loss that does not depend on the result.

Expected:
backward returns, or raises an error that names the call. The note on FAST mode describes the assumption that all sends
take part, but nothing detects a send that does not.

Seen:
backward() with an RPC timeout of 1 s, after 10 s: still waiting
reproduced: backward() waits for a gradient that no node will ever send

Cause:
`torch/csrc/distributed/autograd/engine/dist_engine.cpp`, `DistEngine::computeDependencies` adds one outstanding
task for every send function of the context, and `DistEngine::execute` waits for the task's future without a
timeout.

Fix:
When all messages of the pass have been answered and tasks are still outstanding, raise an error that names the send
functions without a gradient. A timeout for `backward` is the minimum.

Related:
https://github.com/pytorch/pytorch/issues/23110 (SMART mode).
"""

import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
from ending import CONTROL, end
from stores import Call
from workers import run, times_parameter

# With --control, the loss depends on the result.


def scenario() -> bool:
    """On A."""
    x = torch.tensor([2.0], requires_grad=True)
    with dist_autograd.context() as context:
        result = rpc.rpc_sync("B", times_parameter, (x,), timeout=30)  # used for a metric, for example
        loss = result if CONTROL else x * 2
        return Call(dist_autograd.backward, context, [loss], begins=0).hangs()


hangs = run(scenario, 2, timeout=1)
print(f"backward() with an RPC timeout of 1 s, after 10 s: {'still waiting' if hangs else 'over'}")
end(hangs, "backward() waits for a gradient that no node will ever send")
