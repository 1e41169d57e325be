"""dist_autograd: workers that were called through a worker that died keep the context

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. A calls B in a context, and B calls C.
2. B is killed.
3. A leaves the context.

Expected:
C releases the context.

Seen:
contexts on C, 10 s after A has left the only one and B was killed: 1
reproduced: the context stays on C, which only the worker that was killed had called

Cause:
`torch/csrc/distributed/autograd/context/container.cpp`, `DistAutogradContainer::sendReleaseContextRpc` sends the
release to the workers that this worker has called, and each of them sends it to the workers that it has called. A
worker that was called only by a dead worker does not receive it.

Fix:
Let answers carry the workers that were called. The creator then has the list of all workers and can send the release to
each. This would also end the flood of clean-up messages.

Related:
https://github.com/pytorch/pytorch/issues/32497.
"""

import os
import signal

import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
from ending import CONTROL, end
from workers import PARAMETER, contexts, run, until_none

# With --control, B is not killed.


def pass_on(x: torch.Tensor, *path: str) -> torch.Tensor:
    return rpc.rpc_sync(path[0], pass_on, (x, *path[1:])) if path else x * PARAMETER


def scenario() -> int:
    """On A: call C through B, kill B, and leave the context."""
    x = torch.tensor([2.0], requires_grad=True)
    with dist_autograd.context():
        victim = rpc.rpc_sync("B", os.getpid)
        rpc.rpc_sync("B", pass_on, (x, "C"))
        if not CONTROL:
            os.kill(victim, signal.SIGKILL)
    return until_none(lambda: rpc.rpc_sync("C", contexts))


left = run(scenario, 3)
print(f"contexts on C, 10 s after A has left the only one and B {'lives' if CONTROL else 'was killed'}: {left}")
end(left, "the context stays on C, which only the worker that was killed had called")
