"""dist_autograd: after a failed backward pass, the next pass on the same context fails too, although no worker fails

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. A's loss reaches a node of B's graph on two paths, one of them through C.
2. In the first pass C fails before it sends its gradient to B, and B still waits for that gradient.
3. A runs the pass again; nothing fails now.

Expected:
The second pass succeeds.

Seen:
the first pass, in which C fails once, raised Error on Node 0: Error on Node 2: this node fails
the second pass, in which nothing fails, raised Error on Node 0: Error on Node 1: dependency not found for AddBackward0
reproduced: a pass in which nothing fails raised, because an earlier one had failed

Cause:
`torch/csrc/distributed/autograd/engine/dist_engine.cpp`, `DistEngine::executeSendFunctionAsync` uses only the id of
the context to check whether a pass is running (`initializedContextIds_`), and `PropagateGradientsReq` does not carry a
number of the pass. B's task of the first pass takes the gradients of the second.

Fix:
Number the passes of a context, send the number with each gradient, and drop the task of an older pass when a newer
one arrives. A message to all workers that a pass has failed would end the old task as well.

Related:
https://github.com/pytorch/pytorch/issues/27643, https://github.com/pytorch/pytorch/pull/34638 (reverted).
"""

import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
from ending import CONTROL, end
from workers import backward, plus_shared, run, through_c

# With --control, C does not fail.


def scenario() -> tuple[str, str]:
    """On A: B gets gradients on two paths, one of them through C."""
    x = torch.tensor([2.0], requires_grad=True)
    with dist_autograd.context() as context:
        loss = rpc.rpc_sync("B", plus_shared, (x,)) + rpc.rpc_sync("C", through_c, (x,))
        return backward(context, loss), backward(context, loss)


first, second = run(scenario, 3)
print(f"the first pass, in which {'nothing fails' if CONTROL else 'C fails once'}, {first}")
print(f"the second pass, in which nothing fails, {second}")
end(second != "ended well", "a pass in which nothing fails raised, because an earlier one had failed")
